//! The peer that podlapse is held against: `strace -f` on containerd and all that comes of it.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// The syscalls that podlapse's signs come from.
const TRACED: &str = "trace=read,write,readv,writev,sendmsg,recvmsg,sendto,recvfrom,accept4,accept,connect,close,dup,dup2,\
dup3,bind,listen,clone,clone3,vfork,fork,execve,execveat,exit_group,setns,unshare,pivot_root,mount,umount2,fsopen,\
fsconfig,fsmount,move_mount,open_tree,mount_setattr,mkdir,mkdirat,rmdir,openat,openat2,kill,tgkill";

/// An strace that is attached; detaches when it is dropped.
pub(crate) struct Strace(std::process::Child);

impl Strace {
    /// Attaches to a process and all of its threads and children, and waits until that is done.
    pub(crate) fn attach(pid: u32) -> Result<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", TRACED, "-o", "/dev/null", "-p", &pid.to_string()]);
        let child = strace.stdin(Stdio::null()).spawn().context("cannot run strace")?;
        // It says nothing when it is attached; the kernel does.
        for _ in 0..250 {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
                return Ok(Self(child));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("strace does not attach to {pid}")
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // Its own SIGINT handler detaches from every process.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

//! The peer that podlapse is held against: `strace -f` on a process and all that comes of it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::tools::{Containerd, Tools};

/// An strace that is attached; detaches when it is dropped.
#[derive(Debug)]
pub struct Strace(Child);

impl Strace {
    /// Attaches to a process, all of its threads and the children to come, for these syscalls (`-e trace=`). Each
    /// gets a line in `output` with its time (`-ttt`) and duration (`-T`).
    pub fn attach(pid: u32, syscalls: &str, output: &Path) -> Result<Self> {
        let tools = Tools::find(Containerd::default())?;
        let found = std::env::split_paths(&tools.path()).map(|dir| dir.join("strace")).find(|path| path.is_file());
        let mut strace = Command::new(found.context("no strace: run `cargo xtask setup node`")?);
        strace.env("LD_LIBRARY_PATH", tools.library_path());
        strace.args(["-f", "-ttt", "-T", "-qq", "-e", &format!("trace={syscalls}"), "-p", &pid.to_string(), "-o"]);
        let child = strace.arg(output).stdin(Stdio::null()).spawn().context("cannot run strace")?;
        let attached = Self(child);
        // It says nothing when it is attached; the kernel does, of each thread.
        for _ in 0..250 {
            if is_traced(pid)? {
                return Ok(attached);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("strace does not attach to {pid}")
    }

    /// Detaches from every process; `output` is whole after this.
    pub fn detach(mut self) -> Result<()> {
        self.interrupt()?;
        let status = self.0.wait()?;
        // strace ends itself with the signal that it was sent.
        ensure!(status.code().is_none_or(|code| code == 0), "strace ended with {status}");
        Ok(())
    }

    fn interrupt(&self) -> rustix::io::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.interrupt();
            let _ = self.0.wait();
        }
    }
}

fn is_traced(pid: u32) -> Result<bool> {
    let threads = format!("/proc/{pid}/task");
    for thread in fs::read_dir(&threads).with_context(|| format!("cannot list {threads}"))? {
        // A thread that ends meanwhile needs no tracer.
        let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line == "TracerPid:\t0") {
            return Ok(false);
        }
    }
    Ok(true)
}

//! Starting a command in another process's namespaces.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A kind of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// Mounts.
    Mount,
    /// Network devices, addresses, sockets.
    Network,
    /// Process ids.
    Pid,
}

impl Namespace {
    fn open(self, pid: u32) -> Result<File> {
        let name = match self {
            Self::Mount => "mnt",
            Self::Network => "net",
            Self::Pid => "pid",
        };
        let path = format!("/proc/{pid}/ns/{name}");
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }
}

/// Spawns `command` in those namespaces of the process `pid`.
pub fn spawn(pid: u32, namespaces: &[Namespace], command: &mut Command) -> Result<Child> {
    let pid_namespace = match namespaces.contains(&Namespace::Pid) {
        true => Some(Namespace::Pid.open(pid)?),
        false => None,
    };
    let others: Vec<File> = namespaces
        .iter()
        .filter(|namespace| **namespace != Namespace::Pid)
        .map(|namespace| namespace.open(pid))
        .collect::<Result<_>>()?;
    let dir = match command.get_current_dir() {
        Some(dir) => dir.to_path_buf(),
        None => std::env::current_dir()?,
    };
    let dir = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: between fork and exec the closure makes system calls only, on descriptors and a
    // string that it owns.
    unsafe {
        command.pre_exec(move || {
            for file in &others {
                if libc::setns(file.as_raw_fd(), 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            // setns of a mount namespace moved the working directory to its root.
            if libc::chdir(dir.as_ptr()) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    // A pid namespace takes effect for the children of the thread that entered it, so a thread
    // that ends right after is the one to enter.
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                if let Some(file) = &pid_namespace {
                    use std::os::fd::AsFd;
                    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
                }
                let program = command.get_program().to_string_lossy().into_owned();
                command.spawn().with_context(|| format!("cannot run {program}"))
            })
            .join()
            .map_err(|_| anyhow!("the spawning thread panicked"))?
    })
}

/// The first process whose arguments satisfy `wanted`.
pub fn find_process(wanted: impl Fn(&[String]) -> bool) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let cmdline = fs::read(entry.path().join("cmdline")).ok()?;
        let args: Vec<String> =
            cmdline.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        wanted(&args).then_some(pid)
    })
}

//! The janitor and, in a pid namespace, its init: they outlive the node to clean up after it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{WaitOptions, wait};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::{Message, Options, keeper, say};
use crate::{cgroup, signals};

/// A part of the node that is a process of its own.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Role {
    /// Cleans up after the node
    #[command(hide = true)]
    Janitor(#[command(flatten)] Options),
    #[command(hide = true)]
    /// Pid 1 of the node's pid namespace
    Init {
        /// The node's folder
        dir: PathBuf,
        /// The node's cgroup
        cgroup: String,
        /// How the node differs
        #[command(flatten)]
        options: Options,
    },
    #[command(hide = true)]
    /// Runs containerd in namespaces of its own
    Keeper {
        /// The node's folder
        dir: PathBuf,
        /// The node's cgroup
        cgroup: String,
        /// How the node differs
        #[command(flatten)]
        options: Options,
    },
}

/// Plays the role to its end.
pub fn play(role: &Role) -> Result<()> {
    match role {
        Role::Janitor(options) => janitor(*options),
        Role::Init { dir, cgroup, options } => init(dir, cgroup, *options),
        Role::Keeper { dir, cgroup, options } => keeper::main(dir, cgroup, *options),
    }
}

fn janitor(options: Options) -> Result<()> {
    ignore_signals();
    let dir = tempfile::Builder::new().prefix("podlapse-node-").tempdir()?.keep();
    let cgroup = format!("/podlapse-{}", std::process::id());
    let ended = bring_up(&dir, &cgroup, options);
    let cleaned = clean(&dir, &cgroup);
    let status = ended?;
    cleaned?;
    if !status.success() {
        bail!("the node ended with {status}");
    }
    Ok(())
}

fn bring_up(dir: &Path, cgroup: &str, options: Options) -> Result<ExitStatus> {
    let made = cgroup::create(&format!("{cgroup}/system"))
        .and_then(|()| cgroup::create(&format!("{cgroup}/kubepods/burstable")));
    if let Err(error) = made {
        say(&Message::Failed { error: format!("{error:#} (are you root?)") })?;
        return Ok(ExitStatus::default());
    }
    let role = if options.pid_namespace { "init" } else { "keeper" };
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(role).arg(dir).arg(cgroup).args(options.arguments());
    if options.pid_namespace {
        // SAFETY: unshare of namespaces only; no descriptor table is unshared. Between fork and
        // exec it is a bare system call.
        unsafe {
            unshare_unsafe(UnshareFlags::NEWPID).context("cannot make a pid namespace")?;
        }
    }
    Ok(child.status()?)
}

/// Ends what is left of a node and removes its cgroups and its folder.
pub fn clean(dir: &Path, cgroup: &str) -> Result<()> {
    cgroup::kill(cgroup)?;
    cgroup::remove(cgroup)?;
    super::remove_dir(dir)
}

fn init(dir: &Path, cgroup: &str, options: Options) -> Result<()> {
    ignore_signals();
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    let mut keeper = Command::new("/proc/self/exe");
    keeper.arg0("podlapse-node").arg("keeper").arg(dir).arg(cgroup).args(options.arguments());
    let keeper = keeper.spawn()?;
    loop {
        // Also waits for orphans of the namespace.
        let Some((pid, status)) = wait(WaitOptions::empty())? else {
            continue;
        };
        if u32::try_from(pid.as_raw_nonzero().get()) == Ok(keeper.id()) {
            std::process::exit(status.exit_status().unwrap_or(1));
        }
    }
}

/// The node ends with the pipe, not with a signal to its process group.
fn ignore_signals() {
    signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
}

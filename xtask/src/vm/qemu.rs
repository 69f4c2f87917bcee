//! One guest in QEMU, without KVM: how it is called, and how long one waits for it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::sh;
use crate::workspace::{Workspace, library_path};

/// QEMU with its libraries and firmware; kernel, disks and memory are the caller's.
pub(super) fn command(workspace: &Workspace) -> Command {
    let tree = workspace.tools.join("qemu");
    let mut qemu = Command::new(tree.join("usr/bin/qemu-system-x86_64"));
    let libraries = library_path(&tree);
    let modules: Vec<PathBuf> =
        std::env::split_paths(&libraries).map(|dir| dir.join("qemu")).filter(|dir| dir.is_dir()).collect();
    if let Some(dir) = modules.first() {
        qemu.env("QEMU_MODULE_DIR", dir);
    }
    qemu.env("LD_LIBRARY_PATH", libraries);
    for dir in ["usr/share/seabios", "usr/share/qemu"] {
        qemu.arg("-L").arg(tree.join(dir));
    }
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]);
    qemu.args(["-nographic", "-no-reboot", "-nic", "none"]);
    qemu
}

/// Boots, waits for the guest to power off, and returns what it wrote to its console. A guest that hangs is ended; its
/// console says how far it came.
pub(super) fn run(mut qemu: Command, log: &Path, timeout: Duration) -> Result<String> {
    let console = File::create(log)?;
    qemu.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
    let mut child = qemu.spawn().with_context(|| format!("cannot run {}", sh::line(&qemu)))?;
    let deadline = Instant::now() + timeout;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(String::from_utf8_lossy(&fs::read(log)?).into_owned())
}

//! `cargo xtask vm`: Debian's kernels load and attach every hook.
//!
//! A kernel and an initramfs in QEMU, without KVM; `podlapse doctor --hooks` inside says what
//! happened to each hook.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::setup::{self, Group, KERNELS};
use crate::sh;
use crate::workspace::{Workspace, library_path};

mod initramfs;
mod verdict;

/// A guest needs about 10 s; TCG on a loaded machine a few times that.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Which kernels.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// This kernel alone
    #[arg(long, value_name = "VERSION", value_parser = KERNELS.map(|kernel| kernel.version))]
    kernel: Option<String>,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node, Group::Vm])?;
    eprintln!("vm: building podlapse");
    sh::loud(workspace.cargo().args(["build", "--quiet", "-p", "podlapse"]))?;
    run(&workspace, args.kernel.as_deref())
}

/// One line a kernel; setup and build came before.
pub(crate) fn run(workspace: &Workspace, only: Option<&str>) -> Result<()> {
    let dir = workspace.built("vm");
    fs::create_dir_all(&dir)?;
    let image = dir.join("initramfs.cpio");
    let busybox = workspace.tools.join("node/bin/busybox");
    fs::write(&image, initramfs::build(&busybox, &workspace.built("podlapse"))?)?;

    let mut failed = Vec::new();
    for kernel in KERNELS.iter().filter(|kernel| only.is_none_or(|only| only == kernel.version)) {
        let version = kernel.version;
        let start = Instant::now();
        let log = dir.join(format!("{version}.log"));
        let console = boot(workspace, version, &image, &log)?;
        let seconds = start.elapsed().as_secs_f64();
        match verdict::read(&console) {
            Ok(verdict) => {
                println!("{version}: {verdict}, {seconds:.1} s");
                if !verdict.passed() {
                    failed.push(version);
                }
            }
            Err(error) => {
                println!("{version}: no verdict: {error:#}; console in {}, {seconds:.1} s", log.display());
                failed.push(version);
            }
        }
    }
    if !failed.is_empty() {
        bail!("podlapse does not work on kernel {}", failed.join(", "));
    }
    Ok(())
}

/// Boots, waits for the guest to power off, and returns what it wrote to its console.
fn boot(workspace: &Workspace, version: &str, image: &Path, log: &Path) -> Result<String> {
    let tree = workspace.tools.join("qemu");
    let kernel = kernel_image(&workspace.tools.join(format!("kernel-{version}/boot")))?;
    let console = File::create(log)?;
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
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1G", "-smp", "2"])
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console);
    let child = qemu.spawn().with_context(|| format!("cannot run {}", sh::line(&qemu)))?;
    wait(child)?;
    Ok(String::from_utf8_lossy(&fs::read(log)?).into_owned())
}

/// A guest that hangs is ended; its console says how far it came.
fn wait(mut child: Child) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn kernel_image(boot: &Path) -> Result<PathBuf> {
    fs::read_dir(boot)
        .with_context(|| format!("cannot read {}", boot.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-")))
        .with_context(|| format!("no vmlinuz-* in {}", boot.display()))
}

//! `cargo xtask vm`: Debian's kernels load and attach every hook by either backend, and a whole Debian node is traced.
//!
//! A kernel and an initramfs in QEMU, without KVM; `podlapse doctor --hooks` inside says what happened to each hook, and
//! `podlapse-guest payload` whether the bytes that podlapse reads are those that were sent. The node is `node.rs`'s.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::setup::{self, Group, KERNELS};
use crate::sh;
use crate::workspace::Workspace;

mod initramfs;
pub(crate) mod node;
mod qemu;
mod verdict;

/// A guest needs about half a minute; TCG on a loaded machine a few times that.
const TIMEOUT: Duration = Duration::from_secs(400);

/// Which guests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// This kernel alone
    #[arg(long, value_name = "VERSION", value_parser = KERNELS.map(|kernel| kernel.version))]
    kernel: Option<String>,
    /// The whole node alone
    #[arg(long, conflicts_with = "kernel")]
    node: bool,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node, Group::Vm])?;
    eprintln!("vm: building podlapse");
    sh::loud(workspace.cargo().args(["build", "--quiet", "-p", "podlapse", "-p", "podlapse-tests"]))?;
    if !args.node {
        run(&workspace, args.kernel.as_deref())?;
    }
    if args.kernel.is_none() {
        node::run(&workspace)?;
    }
    Ok(())
}

/// A line a kernel and backend; setup and build came before.
pub(crate) fn run(workspace: &Workspace, only: Option<&str>) -> Result<()> {
    let dir = workspace.built("vm");
    fs::create_dir_all(&dir)?;
    let image = dir.join("initramfs.cpio");
    let busybox = workspace.tools.join("node/bin/busybox");
    let programs = ["podlapse", "podlapse-guest"].map(|name| workspace.built(name));
    fs::write(&image, initramfs::build(&busybox, &programs)?)?;

    let mut failed = Vec::new();
    for kernel in KERNELS.iter().filter(|kernel| only.is_none_or(|only| only == kernel.version)) {
        let version = kernel.version;
        let start = Instant::now();
        let log = dir.join(format!("{version}.log"));
        let mut console = boot(workspace, version, &image, &log)?;
        if !ended(&console) {
            // Seen twice, of 5.10, in a hundred boots: two threads wait for each other's CPU while hooks are attached. A
            // podlapse at fault would hang again.
            let (seconds, kept) = (start.elapsed().as_secs_f64(), dir.join(format!("{version}.hung.log")));
            fs::copy(&log, &kept)?;
            println!("{version}: the guest hung after {seconds:.1} s; once more. The console is in {}", kept.display());
            println!("{}", last_lines(&console));
            console = boot(workspace, version, &image, &log)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        match verdict::read(&console) {
            Ok(verdicts) => {
                verdicts.iter().for_each(|verdict| println!("{version}: {verdict}"));
                println!("{version}: {seconds:.1} s");
                if !verdict::passed(&verdicts) {
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

fn boot(workspace: &Workspace, version: &str, image: &Path, log: &Path) -> Result<String> {
    let kernel = kernel_image(&workspace.tools.join(format!("kernel-{version}/boot")))?;
    let mut qemu = qemu::command(workspace);
    // A CPU that does not come back for a minute ends the guest, and its stack is printed.
    qemu.args(["-m", "1G", "-append", "console=ttyS0 panic=-1 quiet softlockup_panic=1 watchdog_thresh=30", "-kernel"])
        .arg(kernel);
    qemu.arg("-initrd").arg(image);
    qemu::run(qemu, log, TIMEOUT)
}

/// Whether the guest came to the end of its `init`, whatever its verdicts.
fn ended(console: &str) -> bool {
    console.contains("reboot: Power down")
}

fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let shown = lines.iter().skip(lines.len().saturating_sub(80));
    shown.map(|line| line.chars().take(160).collect::<String>()).collect::<Vec<_>>().join("\n")
}

fn kernel_image(boot: &Path) -> Result<PathBuf> {
    fs::read_dir(boot)
        .with_context(|| format!("cannot read {}", boot.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-")))
        .with_context(|| format!("no vmlinuz-* in {}", boot.display()))
}

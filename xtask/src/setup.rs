//! `cargo xtask setup`: every tool that building, testing and the demo need, in one folder.
//!
//! Installs nothing into the system. One link is made outside the project: rust-src in the
//! toolchain's sysroot, and only where rustup could not put it there.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::sh;
use crate::workspace::Workspace;

mod apt;
mod bpf_linker;
mod fuzz;
mod kubelet;
mod node;
mod prometheus;
mod protoc;
mod python;
mod rust_src;
mod vm;
mod vm_node;

pub(crate) use vm::KERNELS;
pub(crate) use vm_node::e2fs;

/// What to put in place.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Groups of tools; all but kubelet when none is named
    #[arg(value_enum)]
    groups: Vec<Group>,
}

/// Tools that are needed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// rust-src, bpf-linker, protoc
    Build,
    /// containerd 1.6, 1.7 and 2.1, runc, crun, CNI plugins, busybox, iproute2, iptables
    Node,
    /// QEMU, Debian's kernels, and a whole node as a disk image
    Vm,
    /// hdrhistogram and gRPC for python3, which read podlapse's logs and call the CRI
    Python,
    /// Prometheus and promtool, which read the agent's metrics
    Prometheus,
    /// kubelet, built from Debian's source package
    Kubelet,
    /// cargo-fuzz
    Fuzz,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let all = [Group::Build, Group::Node, Group::Vm, Group::Python, Group::Prometheus, Group::Fuzz];
    run(&Workspace::find()?, if args.groups.is_empty() { &all } else { &args.groups })
}

/// Puts the groups in place; cheap when they are.
pub(crate) fn run(workspace: &Workspace, groups: &[Group]) -> Result<()> {
    let tools = Tools::open(workspace.clone())?;
    for group in groups {
        match group {
            Group::Build => {
                rust_src::ensure(&tools)?;
                bpf_linker::ensure(&tools)?;
                protoc::ensure(&tools)?;
            }
            Group::Node => node::ensure(&tools)?,
            Group::Vm => vm::ensure(&tools)?,
            Group::Python => python::ensure(&tools)?,
            Group::Prometheus => prometheus::ensure(&tools)?,
            Group::Kubelet => kubelet::ensure(&tools)?,
            Group::Fuzz => fuzz::ensure(&tools)?,
        }
    }
    apt::forget_lists(&tools)
}

/// The tools folder, held for this process alone.
#[derive(Debug)]
pub(crate) struct Tools {
    workspace: Workspace,
    _lock: File,
}

impl Tools {
    fn open(workspace: Workspace) -> Result<Self> {
        let dir = &workspace.tools;
        for sub in ["bin", "stamps"] {
            fs::create_dir_all(dir.join(sub)).with_context(|| {
                format!(
                    "cannot make the tools folder {}: set PODLAPSE_TOOLS to a folder that can be \
                     written",
                    dir.display()
                )
            })?;
        }
        let lock = File::create(dir.join("lock"))?;
        if lock.try_lock().is_err() {
            eprintln!("setup: waiting for another setup in {}", dir.display());
            lock.lock()?;
        }
        Ok(Self { workspace, _lock: lock })
    }

    fn path(&self, sub: &str) -> PathBuf {
        self.workspace.tools.join(sub)
    }

    /// Has cargo build a program of the crate registry into the tools folder, which takes that long.
    fn cargo_install(&self, name: &str, version: &str, takes: &str) -> Result<()> {
        let keys = [self.path("bin").join(name)];
        if !keys[0].exists() {
            eprintln!("setup: {name}: cargo builds it, which takes {takes}");
        }
        self.piece(name, version, &keys, || {
            let mut cargo = self.workspace.cargo();
            cargo.env_remove("CARGO_TARGET_DIR");
            cargo.args(["install", name, "--version", version, "--locked", "--quiet", "--root"]);
            sh::loud(cargo.arg(&self.workspace.tools)).with_context(|| {
                format!(
                    "cargo could not build {name}: it needs the crate registry and a C compiler (package \
                     build-essential)"
                )
            })
        })
    }

    /// Runs `fetch` unless the stamp `name` says `want` already; `keys` must exist after it.
    fn piece(&self, name: &str, want: &str, keys: &[PathBuf], fetch: impl FnOnce() -> Result<()>) -> Result<()> {
        let stamp = self.path("stamps").join(name);
        let there = fs::read_to_string(&stamp).is_ok_and(|found| found == want);
        if there && keys.iter().all(|key| key.exists()) {
            eprintln!("setup: {name}: already there");
            return Ok(());
        }
        eprintln!("setup: {name}: fetching {want}");
        let start = Instant::now();
        fetch().with_context(|| format!("setup cannot put {name} in place, which is {want}"))?;
        if let Some(missing) = keys.iter().find(|key| !key.exists()) {
            anyhow::bail!("setup fetched {name}, but it has no {}", missing.display());
        }
        fs::write(&stamp, want)?;
        eprintln!("setup: {name}: done in {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    }
}

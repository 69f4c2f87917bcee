//! What a private node is made of. Unpacked, never installed: the package `containerd` would
//! start a daemon and can displace Docker's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Tools;
use super::apt::{Apt, versions_in};
use crate::sh;

/// strace is the peer of a test and of a measurement.
const PACKAGES: [&str; 8] =
    ["containerd", "runc", "crun", "containernetworking-plugins", "busybox-static", "iproute2", "iptables", "strace"];

/// Newer containerds with their shims: they run here as they are.
const CONTAINERDS: [(&str, &str); 2] = [("containerd-1.7", "trixie"), ("containerd-2.1", "sid")];

/// runc and crun of sid, which need a newer libc than this machine may have.
const OCI: [&str; 2] = ["runc", "crun"];

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let tree = tools.path("node");
    let keys = [
        "usr/bin/containerd",
        "usr/bin/containerd-shim-runc-v2",
        "usr/bin/ctr",
        "usr/sbin/runc",
        "usr/bin/crun",
        "usr/lib/cni/bridge",
        "bin/busybox",
        "usr/bin/strace",
    ]
    .map(|key| tree.join(key));
    tools.piece("node", &PACKAGES.join(" "), &keys, || Apt::native(tools)?.unpack_closure(&PACKAGES, &tree))?;
    for (name, suite) in CONTAINERDS {
        let tree = tools.path(name);
        let keys = ["usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"].map(|key| tree.join(key));
        let want = format!("containerd of {suite}");
        tools.piece(name, &want, &keys, || Apt::suite(tools, suite)?.unpack(&["containerd"], &tree))?;
        eprintln!("setup: {name}: {}", versions_in(&tree, &["containerd"])?);
    }
    new_oci_runtimes(tools)
}

/// With all their libraries beside them, and made to use those: the loader's and the libraries'
/// places are written into the programs themselves, because runc and crun execute themselves again
/// (`/proc/self/exe`, a sealed copy), which a wrapper or LD_LIBRARY_PATH would not survive.
fn new_oci_runtimes(tools: &Tools) -> Result<()> {
    let tree = fs::canonicalize(&tools.workspace.tools)?.join("oci-sid");
    let programs = [tree.join("usr/sbin/runc"), tree.join("usr/bin/crun")];
    // They name their place: in another one they are fetched again.
    let want = format!("runc and crun of sid in {}", tree.display());
    tools.piece("oci-sid", &want, &programs, || {
        let patchelf = tools.path("patchelf");
        Apt::native(tools)?.unpack_closure(&["patchelf"], &patchelf)?;
        Apt::suite(tools, "sid")?.unpack_whole(&OCI, &tree)?;
        let (libraries, loader) = loader(&tree)?;
        for program in &programs {
            let mut patch = Command::new(patchelf.join("usr/bin/patchelf"));
            patch.arg("--force-rpath").arg("--set-rpath").arg(&libraries).arg("--set-interpreter").arg(&loader);
            sh::output(patch.arg(program))?;
            sh::output(Command::new(program).arg("--version")).context("it does not run after patchelf")?;
        }
        Ok(())
    })?;
    eprintln!("setup: oci-sid: {}", versions_in(&tree, &OCI)?);
    Ok(())
}

/// The folder of a tree's libraries, and the dynamic loader among them.
fn loader(tree: &Path) -> Result<(PathBuf, PathBuf)> {
    let triplets = fs::read_dir(tree.join("usr/lib"))?.flatten().map(|entry| entry.path());
    let files = triplets.filter_map(|dir| Some((fs::read_dir(&dir).ok()?, dir)));
    for (entries, dir) in files {
        let loader = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("ld-linux"));
        if let Some(loader) = loader {
            return Ok((dir, loader.path()));
        }
    }
    bail!("no dynamic loader in {}", tree.join("usr/lib").display())
}

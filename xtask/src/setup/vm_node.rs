//! A whole Debian node as a disk image: systemd, containerd, runc, crun, CNI plugins, kernel and initrd.
//!
//! mmdebstrap makes it and mke2fs writes the disk, both unpacked into the tools folder. Nothing of podlapse is in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Tools, apt, apt::Apt};
use crate::sh;
use crate::workspace::library_path;

const SUITE: &str = "trixie";
const PACKAGES: [&str; 12] = [
    "systemd-sysv",
    "dbus",
    "containerd",
    "runc",
    "crun",
    "containernetworking-plugins",
    "iproute2",
    "iptables",
    "apparmor",
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "busybox-static",
];
const SIZE: &str = "1G";

/// What the initrd has to bring up is known: a tenth of the usual modules.
const INITRD: &str = r#"mkdir -p "$1/etc/initramfs-tools/conf.d"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/podlapse"
printf '%s\n' virtio_pci virtio_blk ext4 > "$1/etc/initramfs-tools/modules""#;

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let tree = tools.path("image-tools");
    tools.piece("image-tools", "mmdebstrap e2fsprogs", &[tree.join("usr/bin/mmdebstrap")], || {
        Apt::native(tools)?.unpack_closure(&["mmdebstrap", "e2fsprogs"], &tree)
    })?;
    let dir = tools.path("vm-node");
    let keys = ["disk.img", "vmlinuz", "initrd.img"].map(|file| dir.join(file));
    let want = format!("{SUITE} of {SIZE} with {}", PACKAGES.join(" "));
    tools.piece("vm-node", &want, &keys, || build(tools, &dir))
}

/// A program of e2fsprogs, with its own libraries.
pub(crate) fn e2fs(tools: &Path, program: &str) -> Result<Command> {
    let tree = tools.join("image-tools");
    let path = ["sbin", "usr/sbin"].map(|dir| tree.join(dir).join(program)).into_iter().find(|path| path.exists());
    let mut command = Command::new(path.with_context(|| format!("no {program} in {}", tree.display()))?);
    command.env("LD_LIBRARY_PATH", library_path(&tree)).env("MKE2FS_CONFIG", tree.join("etc/mke2fs.conf"));
    Ok(command)
}

fn build(tools: &Tools, dir: &Path) -> Result<()> {
    let fresh = dir.with_extension("new");
    apt::remove_tree(&fresh)?;
    let root = fresh.join("root");
    fs::create_dir_all(&fresh)?;
    let apt = Apt::suite(tools, SUITE)?;
    // What it mounts below the new root must not outlive it.
    let mut make = Command::new("unshare");
    make.args(["--mount", "perl"]).arg(tools.path("image-tools/usr/bin/mmdebstrap"));
    make.args(["--quiet", "--mode=root", "--variant=minbase"]).arg(format!("--include={}", PACKAGES.join(",")));
    make.arg(format!("--essential-hook={INITRD}")).arg(SUITE).arg(&root).arg(apt.sources());
    sh::output(&mut make).context("the node's image needs root and perl")?;

    for (prefix, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd.img")] {
        fs::copy(boot_file(&root, prefix)?, fresh.join(name))?;
    }
    let mut disk = e2fs(&tools.workspace.tools, "mke2fs")?;
    disk.args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(fresh.join("disk.img")).arg(SIZE);
    sh::output(&mut disk)?;
    apt::remove_tree(&root)?;
    apt::remove_tree(dir)?;
    fs::rename(&fresh, dir)?;
    Ok(())
}

fn boot_file(root: &Path, prefix: &str) -> Result<PathBuf> {
    let boot = root.join("boot");
    let entries = fs::read_dir(&boot).with_context(|| format!("cannot read {}", boot.display()))?;
    let mut files = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(files.next().with_context(|| format!("no {prefix}* in {}", boot.display()))?.path())
}

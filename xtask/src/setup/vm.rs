//! QEMU, and the kernels and the node to boot in it.

use anyhow::Result;

use super::{Tools, apt::Apt, vm_node};

/// A kernel of a Debian suite.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Its version, as one names it: `6.1`.
    pub(crate) version: &'static str,
    /// The suite that has it.
    pub(crate) suite: &'static str,
}

/// Oldest first.
pub(crate) const KERNELS: [Kernel; 3] = [
    Kernel { version: "5.10", suite: "bullseye" },
    Kernel { version: "6.1", suite: "bookworm" },
    Kernel { version: "6.12", suite: "trixie" },
];

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let tree = tools.path("qemu");
    let keys = [tree.join("usr/bin/qemu-system-x86_64"), tree.join("usr/share/seabios/bios.bin")];
    tools.piece("qemu", "qemu-system-x86", &keys, || {
        Apt::native(tools)?.unpack_closure(&["qemu-system-x86", "seabios"], &tree)
    })?;
    vm_node::ensure(tools)?;
    for kernel in &KERNELS {
        let tree = tools.path(&format!("kernel-{}", kernel.version));
        let name = format!("kernel-{}", kernel.version);
        let want = format!("linux-image-cloud-amd64 of {}", kernel.suite);
        tools.piece(&name, &want, &[tree.join("boot")], || {
            let apt = Apt::suite(tools, kernel.suite)?;
            let image = apt.depends("linux-image-cloud-amd64", "linux-image-")?;
            apt.unpack(&[&image], &tree)?;
            // Only the kernel itself is booted, and modules are most of the package.
            std::fs::remove_dir_all(tree.join("lib")).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error.into()),
            })
        })?;
    }
    Ok(())
}

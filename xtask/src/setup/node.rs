//! What a private node is made of. Unpacked, never installed: the package `containerd` would
//! start a daemon and can displace Docker's.

use anyhow::Result;

use super::{Tools, apt::Apt};

const PACKAGES: [&str; 7] =
    ["containerd", "runc", "crun", "containernetworking-plugins", "busybox-static", "iproute2", "iptables"];

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
    ]
    .map(|key| tree.join(key));
    tools.piece("node", &PACKAGES.join(" "), &keys, || Apt::native(tools)?.unpack_closure(&PACKAGES, &tree))
}

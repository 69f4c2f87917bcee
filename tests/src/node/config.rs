//! What containerd and CNI read.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::image::PAUSE_IMAGE;
use crate::tools::Tools;

/// Writes `containerd.toml` and the CNI network list below the node's folder.
pub(super) fn write(dir: &Path, tools: &Tools) -> Result<()> {
    fs::create_dir(dir.join("cni"))?;
    fs::create_dir(dir.join("logs"))?;
    fs::write(dir.join("cni/10-podlapse.conflist"), CNI)?;
    fs::write(dir.join("containerd.toml"), containerd(dir, tools))?;
    Ok(())
}

/// Version 2, for containerd 1.6 and 1.7. `restrict_oom_score_adj`: a machine without
/// CAP_SYS_RESOURCE cannot lower it, and `runc init` would die of that.
fn containerd(dir: &Path, tools: &Tools) -> String {
    let cni = tools.cni();
    let (dir, cni) = (dir.display(), cni.display());
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[debug]
  level = "debug"

[grpc]
  address = "{dir}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni}"
  conf_dir = "{dir}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
  BinaryName = "crun"
"#
    )
}

const CNI: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "podlapse",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "podlapse0",
      "isGateway": true,
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "ranges": [[{ "subnet": "10.88.0.0/16" }]],
        "routes": [{ "dst": "0.0.0.0/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
"#;

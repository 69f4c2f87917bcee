//! What containerd and CNI read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Options;
use crate::image::PAUSE_IMAGE;
use crate::tools::{Containerd, Tools};

/// Writes `containerd.toml` and the CNI network list below the node's folder.
pub(super) fn write(dir: &Path, tools: &Tools, options: Options) -> Result<()> {
    let version = options.containerd;
    fs::create_dir(dir.join("cni"))?;
    fs::create_dir(dir.join("logs"))?;
    let plugins = if options.script_plugin { script_plugin(dir, tools)? } else { tools.cni() };
    fs::write(dir.join("cni/10-podlapse.conflist"), network(options))?;
    let cri = match version {
        Containerd::V16 | Containerd::V17 => cri_version_2(dir, tools, &plugins),
        Containerd::V21 => cri_version_3(dir, tools, &plugins),
    };
    fs::write(dir.join("containerd.toml"), common(dir, version) + &cri)?;
    Ok(())
}

/// What is the same for every containerd, up to the CRI plugin's table, but for the file's version.
fn common(dir: &Path, version: Containerd) -> String {
    let format = match version {
        Containerd::V16 | Containerd::V17 => 2,
        Containerd::V21 => 3,
    };
    let dir = dir.display();
    format!(
        r#"version = {format}
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
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"#
    )
}

/// For containerd 1.6 and 1.7. `restrict_oom_score_adj`: a machine without CAP_SYS_RESOURCE cannot
/// lower it, and `runc init` would die of that.
fn cri_version_2(dir: &Path, tools: &Tools, plugins: &Path) -> String {
    let (cni, dir) = (plugins.display(), dir.display());
    let head = format!(
        r#"  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni}"
  conf_dir = "{dir}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
"#
    );
    head + &runtimes(tools, "io.containerd.grpc.v1.cri")
}

/// For containerd 2, whose CRI is two plugins.
fn cri_version_3(dir: &Path, tools: &Tools, plugins: &Path) -> String {
    let (cni, dir) = (plugins.display(), dir.display());
    let head = format!(
        r#"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dir = "{cni}"
  conf_dir = "{dir}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
"#
    );
    head + &runtimes(tools, "io.containerd.cri.v1.runtime")
}

fn runtimes(tools: &Tools, plugin: &str) -> String {
    let runtime = |(name, program): (&str, PathBuf)| {
        format!(
            r#"
[plugins."{plugin}".containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
[plugins."{plugin}".containerd.runtimes.{name}.options]
  BinaryName = "{}"
"#,
            program.display()
        )
    };
    tools.runtime_handlers().map(runtime).concat()
}

/// A folder with the plugins and one that is a script: it passes on what the plugins before it did, as tuning scripts do.
fn script_plugin(dir: &Path, tools: &Tools) -> Result<PathBuf> {
    let folder = dir.join("plugins");
    fs::create_dir(&folder)?;
    for plugin in fs::read_dir(tools.cni())? {
        let plugin = plugin?;
        symlink(plugin.path(), folder.join(plugin.file_name()))?;
    }
    let script = folder.join("tune");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Keys come in the order of the alphabet, so the result of the plugins before it is the last but one.
const SCRIPT: &str = r#"#!/bin/sh -e
config=$(cat)
[ "$CNI_COMMAND" = ADD ] || exit 0
printf '%s' "$config" | sed 's/.*"prevResult"://; s/,"type":"tune"}$//'
"#;

/// The list of networks, with the script behind the others where there is one.
fn network(options: Options) -> String {
    let script = if options.script_plugin { ",\n    { \"type\": \"tune\" }" } else { "" };
    CNI.replace("SCRIPT", script)
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
    { "type": "portmap", "capabilities": { "portMappings": true } }SCRIPT
  ]
}
"#;

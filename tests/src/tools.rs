//! The tools folder that `cargo xtask setup` fills.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// A containerd that a node can have, from Debian. The last one moves with sid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Containerd {
    /// 1.6
    #[default]
    #[value(name = "1.6")]
    V16,
    /// 1.7
    #[value(name = "1.7")]
    V17,
    /// 2.1
    #[value(name = "2.1")]
    V21,
}

impl Containerd {
    /// As one names it: `1.7`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V16 => "1.6",
            Self::V17 => "1.7",
            Self::V21 => "2.1",
        }
    }
}

impl std::fmt::Display for Containerd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

fn folder() -> Result<PathBuf> {
    Ok(match env::var_os("PODLAPSE_TOOLS") {
        Some(dir) if !dir.is_empty() => std::path::absolute(dir)?,
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(".tools"),
    })
}

/// What python3 needs in its `PYTHONPATH` to read logs of histograms and to call the CRI.
pub fn python() -> Result<PathBuf> {
    let dir = folder()?.join("python");
    for package in ["hdrh", "grpc"] {
        if !dir.join(package).exists() {
            bail!("no {package} in {}: run `cargo xtask setup python`", dir.display());
        }
    }
    Ok(dir)
}

/// `prometheus` or `promtool`.
pub fn prometheus(program: &str) -> Result<PathBuf> {
    let path = folder()?.join("prometheus/usr/bin").join(program);
    if !path.exists() {
        bail!("no {}: run `cargo xtask setup prometheus`", path.display());
    }
    Ok(path)
}

/// kubelet, which only some nodes have.
pub fn kubelet() -> Result<PathBuf> {
    let program = folder()?.join("kubelet/kubelet");
    if !program.exists() {
        bail!("no {}: run `cargo xtask setup kubelet`", program.display());
    }
    Ok(program)
}

/// Programs of a private node.
#[derive(Debug, Clone)]
pub struct Tools {
    /// What every node has; containerd 1.6, runc 1.1 and crun 1.8 among it.
    tree: PathBuf,
    /// Of containerd.
    containerd: PathBuf,
    /// Of sid's runc and crun.
    oci: PathBuf,
}

impl Tools {
    /// Finds the folder: `PODLAPSE_TOOLS`, else `.tools` of the workspace.
    pub fn find(containerd: Containerd) -> Result<Self> {
        let dir = folder()?;
        let tree = dir.join("node");
        let containerd = match containerd {
            Containerd::V16 => tree.clone(),
            newer @ (Containerd::V17 | Containerd::V21) => dir.join(format!("containerd-{newer}")),
        };
        let tools = Self { tree, containerd, oci: dir.join("oci-sid") };
        let handlers = tools.runtime_handlers();
        let programs = [tools.busybox(), tools.containerd()].into_iter().chain(handlers.map(|(_, program)| program));
        for program in programs {
            if !program.exists() {
                bail!("no {}: run `cargo xtask setup node`", program.display());
            }
        }
        Ok(tools)
    }

    /// containerd.
    pub fn containerd(&self) -> PathBuf {
        self.containerd.join("usr/bin/containerd")
    }

    /// The runtime handlers of a node with their OCI runtimes; the first is the default. Those
    /// with `-new` are sid's: runc 1.2 or later seals itself once in its parent, not in `runc init`.
    pub fn runtime_handlers(&self) -> [(&'static str, PathBuf); 4] {
        let [new_runc, new_crun] = ["usr/sbin/runc", "usr/bin/crun"].map(|program| self.oci.join(program));
        // containerd 1.7 and later write OCI 1.1, which crun 1.8 refuses ("unknown version specified").
        let crun = if self.containerd == self.tree { self.tree.join("usr/bin/crun") } else { new_crun.clone() };
        let runc = self.tree.join("usr/sbin/runc");
        [("runc", runc), ("crun", crun), ("runc-new", new_runc), ("crun-new", new_crun)]
    }

    /// A static busybox.
    pub fn busybox(&self) -> PathBuf {
        self.tree.join("bin/busybox")
    }

    /// The folder of the CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.tree.join("usr/lib/cni")
    }

    /// `PATH` with the node's programs in front: containerd finds its shim there.
    pub fn path(&self) -> OsString {
        let dirs = ["usr/bin", "usr/sbin", "bin", "sbin"];
        let own = [&self.containerd, &self.tree].into_iter().flat_map(|tree| dirs.map(|dir| tree.join(dir)));
        let old = env::var_os("PATH").unwrap_or_default();
        env::join_paths(own.chain(env::split_paths(&old))).unwrap_or(old)
    }

    /// `LD_LIBRARY_PATH` for the libraries that this machine has not.
    pub fn library_path(&self) -> OsString {
        let dirs = ["usr/lib", "lib"].map(|dir| self.tree.join(dir));
        let found = dirs.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten());
        let triplets =
            found.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        env::join_paths(triplets).unwrap_or_default()
    }

    /// `ctr` on a socket, in the namespace of the CRI's containers.
    pub fn ctr(&self, socket: &Path) -> Command {
        let mut ctr = Command::new(self.containerd.join("usr/bin/ctr"));
        ctr.env("LD_LIBRARY_PATH", self.library_path()).arg("-a").arg(socket).args(["-n", "k8s.io"]);
        ctr
    }

    /// Where iptables finds its extensions.
    pub fn xtables(&self) -> Option<PathBuf> {
        env::split_paths(&self.library_path()).map(|dir| dir.join("xtables")).find(|dir| dir.is_dir())
    }
}

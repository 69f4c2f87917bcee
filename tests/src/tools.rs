//! The tools folder that `cargo xtask setup` fills.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Programs of a private node.
#[derive(Debug, Clone)]
pub struct Tools {
    tree: PathBuf,
}

impl Tools {
    /// Finds the folder: `PODLAPSE_TOOLS`, else `.tools` of the workspace.
    pub fn find() -> Result<Self> {
        let dir = match env::var_os("PODLAPSE_TOOLS") {
            Some(dir) if !dir.is_empty() => std::path::absolute(dir)?,
            _ => Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(".tools"),
        };
        let tools = Self { tree: dir.join("node") };
        let containerd = tools.tree.join("usr/bin/containerd");
        if !containerd.exists() {
            bail!("no {}: run `cargo xtask setup`", containerd.display());
        }
        Ok(tools)
    }

    /// A static busybox.
    pub fn busybox(&self) -> PathBuf {
        self.tree.join("bin/busybox")
    }

    /// The folder of the CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.tree.join("usr/lib/cni")
    }

    /// `PATH` with the node's programs in front.
    pub fn path(&self) -> OsString {
        let own = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|dir| self.tree.join(dir));
        let old = env::var_os("PATH").unwrap_or_default();
        env::join_paths(own.into_iter().chain(env::split_paths(&old))).unwrap_or(old)
    }

    /// `LD_LIBRARY_PATH` for the libraries that this machine has not.
    pub fn library_path(&self) -> OsString {
        let dirs = ["usr/lib", "lib"].map(|dir| self.tree.join(dir));
        let found = dirs.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten());
        let triplets =
            found.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        env::join_paths(triplets).unwrap_or_default()
    }

    /// Where iptables finds its extensions.
    pub fn xtables(&self) -> Option<PathBuf> {
        env::split_paths(&self.library_path()).map(|dir| dir.join("xtables")).find(|dir| dir.is_dir())
    }
}

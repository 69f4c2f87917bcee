//! Where things are, and the environment that a build needs.
//!
//! `RUSTC_BOOTSTRAP` is not part of that environment: `tracer/build.rs` sets it for the nested
//! BPF build alone.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The checkout and its tools folder.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// What `setup` fills: `<root>/.tools`, or `PODLAPSE_TOOLS`.
    pub(crate) tools: PathBuf,
}

impl Workspace {
    /// Finds the checkout that this xtask belongs to.
    pub(crate) fn find() -> Result<Self> {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root =
            manifest.parent().with_context(|| format!("{} has no parent folder", manifest.display()))?.to_path_buf();
        let tools = match env::var_os("PODLAPSE_TOOLS") {
            Some(dir) if !dir.is_empty() => std::path::absolute(dir)?,
            _ => root.join(".tools"),
        };
        Ok(Self { root, tools })
    }

    /// A `cargo` that finds bpf-linker and protoc in the tools folder.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.root)
            .env("PATH", self.path())
            .env("PROTOC", self.tools.join("bin/protoc"))
            .env("PODLAPSE_TOOLS", &self.tools);
        // Set by the `cargo run` around xtask for xtask's own package.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&name);
            }
        }
        cargo
    }

    /// `PATH` with the tools folder's `bin` in front.
    pub(crate) fn path(&self) -> OsString {
        let old = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.tools.join("bin")).chain(env::split_paths(&old));
        env::join_paths(all).unwrap_or(old)
    }

    /// A program that the dev profile built.
    pub(crate) fn built(&self, name: &str) -> PathBuf {
        self.target().join("debug").join(name)
    }

    /// A program that the release profile built.
    pub(crate) fn released(&self, name: &str) -> PathBuf {
        self.target().join("release").join(name)
    }

    /// Where cargo builds.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), |dir| self.root.join(dir))
    }
}

/// The folders of a tree that `dpkg -x` made in which its programs find their libraries.
pub(crate) fn library_path(tree: &Path) -> OsString {
    let mut dirs = Vec::new();
    for lib in ["usr/lib", "lib"] {
        let lib = tree.join(lib);
        let triplets = std::fs::read_dir(&lib).into_iter().flatten().flatten();
        dirs.extend(triplets.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu")));
    }
    env::join_paths(dirs).unwrap_or_default()
}

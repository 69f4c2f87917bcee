//! bpf-linker, which links the BPF programs.

use anyhow::{Context, Result};

use super::Tools;
use crate::sh;

/// The last version that links for LLVM 22 with rustc's own LLVM library; it moves with
/// `rust-toolchain.toml`.
const VERSION: &str = "0.10.3";

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let keys = [tools.path("bin/bpf-linker")];
    if !keys[0].exists() {
        eprintln!("setup: bpf-linker: cargo builds it, which takes a minute or two");
    }
    tools.piece("bpf-linker", VERSION, &keys, || {
        let root = &tools.workspace.tools;
        sh::loud(
            tools
                .workspace
                .cargo()
                .env_remove("CARGO_TARGET_DIR")
                .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--quiet"])
                .arg("--root")
                .arg(root),
        )
        .context(
            "cargo could not build bpf-linker: it needs the crate registry and a C compiler \
             (package build-essential)",
        )
    })
}

//! bpf-linker, which links the BPF programs.

use anyhow::Result;

use super::Tools;

/// The last version that links for LLVM 22 with rustc's own LLVM library; it moves with
/// `rust-toolchain.toml`.
const VERSION: &str = "0.10.3";

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    tools.cargo_install("bpf-linker", VERSION, "a minute or two")
}

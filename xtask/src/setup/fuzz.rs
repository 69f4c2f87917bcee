//! cargo-fuzz, which builds the fuzz targets with libFuzzer in them.

use std::process::Command;

use anyhow::{Context, Result};

use super::Tools;
use crate::sh;

const VERSION: &str = "0.13.2";

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    // libfuzzer-sys compiles libFuzzer itself.
    sh::output(Command::new("c++").arg("--version"))
        .context("the fuzz targets need a C++ compiler, c++ on PATH (package build-essential)")?;
    let keys = [tools.path("bin/cargo-fuzz")];
    if !keys[0].exists() {
        eprintln!("setup: cargo-fuzz: cargo builds it, which takes half a minute");
    }
    tools.piece("cargo-fuzz", VERSION, &keys, || {
        let root = &tools.workspace.tools;
        sh::loud(
            tools
                .workspace
                .cargo()
                .env_remove("CARGO_TARGET_DIR")
                .args(["install", "cargo-fuzz", "--version", VERSION, "--locked", "--quiet"])
                .arg("--root")
                .arg(root),
        )
        .context("cargo could not build cargo-fuzz: it needs the crate registry and a C compiler")
    })
}

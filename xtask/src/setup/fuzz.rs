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
    tools.cargo_install("cargo-fuzz", VERSION, "half a minute")
}

//! From PyPI, for tests: hdrhistogram, another implementation that reads podlapse's logs, and gRPC's C core, another client
//! of the CRI. Only in the tools folder.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Tools, apt::remove_tree};
use crate::sh;

const PACKAGES: [&str; 3] = ["hdrhistogram==0.10.8", "grpcio==1.85.3", "typing-extensions==4.16.0"];

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let dir = tools.path("python");
    tools.piece("python", &PACKAGES.join(", "), &["hdrh/log.py", "grpc/__init__.py"].map(|file| dir.join(file)), || {
        remove_tree(&dir)?;
        // What else they name is for their own build.
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&dir).args(PACKAGES);
        pip.env("PIP_ROOT_USER_ACTION", "ignore").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        sh::output(&mut pip).context("python3 3.10 or later with pip is needed (packages python3, python3-pip)")?;
        Ok(())
    })
}

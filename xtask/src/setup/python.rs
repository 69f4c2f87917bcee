//! PyPI's hdrhistogram: another implementation, which reads podlapse's logs in a test. Only in the tools folder.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Tools, apt::remove_tree};
use crate::sh;

const PACKAGE: &str = "hdrhistogram==0.10.8";

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let dir = tools.path("python");
    tools.piece("python", PACKAGE, &[dir.join("hdrh/log.py")], || {
        remove_tree(&dir)?;
        // What it depends on is for its own build.
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&dir).arg(PACKAGE);
        pip.env("PIP_ROOT_USER_ACTION", "ignore").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        sh::output(&mut pip).context("python3 3.10 or later with pip is needed (packages python3, python3-pip)")?;
        Ok(())
    })
}

//! `cargo xtask demo`: the whole of podlapse on one real pod start.
//!
//! Everything but podlapse's own output goes to stderr, so that `-o json` gives one JSON object.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// podlapse's output format
    #[arg(short, long, value_name = "FORMAT", value_parser = ["tree", "json", "perfetto"])]
    output: Option<String>,

    /// More arguments for `podlapse trace`
    #[arg(last = true)]
    trace: Vec<String>,
}

/// The task; podlapse's exit code.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node])?;
    eprintln!("demo: building podlapse (some two minutes the first time)");
    sh::loud(workspace.cargo().args(["build", "--quiet", "-p", "podlapse", "-p", "podlapse-tests"]))?;

    let podlapse = workspace.built("podlapse");
    let node = workspace.built("podlapse-node");
    let mut demo = std::process::Command::new(&node);
    // `run` replaces the words {socket} by the path of the node's CRI socket.
    demo.args(["run", "--"]).arg(&podlapse);
    demo.args(["trace", "--socket", "{socket}", "--containers", "1", "--timeout", "60s"]);
    demo.args(args.output.iter().flat_map(|format| ["-o", format.as_str()]));
    demo.args(&args.trace).arg("--").arg(&node).args(["pod", "--socket", "{socket}", "--quiet"]);
    demo.env("PODLAPSE_TOOLS", &workspace.tools).stdin(Stdio::null());
    let status = demo.status().with_context(|| format!("cannot run {}", sh::line(&demo)))?;
    // podlapse has said what went wrong; its exit code is this command's.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(1).into())
}

//! `cargo xtask bench`: what podlapse costs, as ratios within one run.

use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Pod starts with podlapse and without it, interleaved, and some under strace
    Start {
        /// Arguments of podlapse-bench, as `-- --rounds 10`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let What::Start { arguments } = &args.what;
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node])?;
    eprintln!("bench: building podlapse with optimisations");
    sh::loud(workspace.cargo().args(["build", "--quiet", "--release", "-p", "podlapse", "-p", "podlapse-tests"]))?;
    let mut bench = std::process::Command::new(workspace.released("podlapse-bench"));
    bench.arg("start").args(arguments).env("PODLAPSE_TOOLS", &workspace.tools).stdin(Stdio::null());
    let status = bench.status().with_context(|| format!("cannot run {}", sh::line(&bench)))?;
    if !status.success() {
        bail!("{} ended with {status}", sh::line(&bench));
    }
    Ok(())
}

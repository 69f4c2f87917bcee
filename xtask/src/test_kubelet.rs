//! `cargo xtask test-kubelet`: podlapse attaches to a node whose kubelet has run for a while. Not a part of `test`:
//! kubelet is built first, and removes what has ended once a minute only.

use std::process::Command;

use anyhow::Result;

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// How long, and what to keep.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of podlapse-kubelet, as `-- --before 120`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node, Group::Kubelet])?;
    sh::loud(workspace.cargo().args(["build", "--quiet", "-p", "podlapse", "-p", "podlapse-tests"]))?;
    let mut test = Command::new(workspace.built("podlapse-kubelet"));
    sh::show(test.args(&args.arguments).env("PODLAPSE_TOOLS", &workspace.tools))
}

//! `cargo xtask late-attach`: does podlapse name the calls of a connection that is older than itself, and never wrongly?

use std::process::Command;

use anyhow::Result;

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to cut.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder of captures and options, see `cargo xtask late-attach -- --help`; without a folder, the repository's own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build])?;
    let name = "podlapse-late-attach";
    sh::loud(workspace.cargo().args(["build", "--quiet", "--release", "-p", "podlapse-tests", "--bin", name]))?;
    sh::show(Command::new(workspace.released(name)).args(&args.arguments))
}

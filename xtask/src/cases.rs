//! `cargo xtask cases`: starts and lives that fail for real, and what podlapse says of each.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to make happen.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cases that are made of records alone, with their texts and without
    #[arg(long)]
    synthetic: bool,
    /// Names of cases, `--list`, `--blank`; all cases where there is no name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    if args.synthetic {
        let test = ["test", "--quiet", "-p", "podlapse", "--lib", "lifecycle::tests::verdicts::reasons"];
        sh::loud(workspace.cargo().args(test).args(["--", "--exact"]))?;
        let table = workspace.root.join("tracer/src/lifecycle/tests/verdicts.txt");
        print!("{}", fs::read_to_string(&table).with_context(|| format!("cannot read {}", table.display()))?);
        return Ok(());
    }
    setup::run(&workspace, &[Group::Build, Group::Node])?;
    sh::loud(workspace.cargo().args(["build", "--quiet", "-p", "podlapse", "-p", "podlapse-tests", "--bins"]))?;
    let mut cases = Command::new(workspace.built("podlapse-cases"));
    sh::show(cases.args(&args.arguments).env("PODLAPSE_TOOLS", &workspace.tools))
}

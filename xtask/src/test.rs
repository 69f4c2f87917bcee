//! `cargo xtask test`: everything that must pass, in the order of what fails fastest.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::setup::Group;
use crate::workspace::Workspace;
use crate::{fuzz, setup, sh, vm};

/// No choices: the gate is one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The task.
pub(crate) fn main(_: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    let start = Instant::now();
    let cargo = |args: &[&str]| sh::show(workspace.cargo().args(args));

    let groups = [Group::Build, Group::Node, Group::Vm, Group::Python, Group::Prometheus, Group::Fuzz];
    step("setup", || setup::run(&workspace, &groups))?;
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("lints", || cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    step("docs", || {
        sh::loud(workspace.cargo().env("RUSTDOCFLAGS", "-D warnings").args([
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
        ]))
    })?;
    // The end-to-end tests start podlapse's own binary.
    step("build", || cargo(&["build", "--quiet", "--workspace"]))?;
    // One selection of packages, or cargo builds their dependencies once for each; one test at a
    // time, because the end-to-end tests compare the machine before and after.
    step("tests", || cargo(&["test", "--workspace", "--", "--test-threads=1"]))?;
    step("fuzz targets", || fuzz::smoke(&workspace))?;
    step("kernels", || vm::run(&workspace, None))?;
    step("node", || vm::node::run(&workspace))?;
    eprintln!("test: everything passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("test: {name}");
    let start = Instant::now();
    let result = run();
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            eprintln!("test: {name}: passed in {seconds:.0} s");
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("{name}: failed after {seconds:.0} s")),
    }
}

//! The developer's menu: `cargo xtask` lists the tasks.
//!
//! Builds without protoc, bpf-linker or any other tool that its own `setup` fetches.

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

mod cpio;
mod demo;
mod setup;
mod sh;
mod test;
mod vm;
mod workspace;

/// podlapse's developer menu.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Menu {
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Put the tools in place that are missing, in the project's own tools folder
    Setup(setup::Args),
    /// Start one sample pod on a private node and print its trace
    Demo(demo::Args),
    /// Everything that must pass: format, lints, docs, tests, kernels
    Test(test::Args),
    /// Load and attach every hook on Debian's kernels 5.10, 6.1 and 6.12 in QEMU
    Vm(vm::Args),
}

fn main() -> Result<()> {
    match Menu::parse().task {
        None => Ok(Menu::command().print_help()?),
        Some(Task::Setup(args)) => setup::main(&args),
        Some(Task::Demo(args)) => demo::main(&args),
        Some(Task::Test(args)) => test::main(&args),
        Some(Task::Vm(args)) => vm::main(&args),
    }
}

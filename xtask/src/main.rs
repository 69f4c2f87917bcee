//! The developer's menu: `cargo xtask` lists the tasks.
//!
//! Builds without protoc, bpf-linker or any other tool that its own `setup` fetches.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod bench;
mod cases;
mod cpio;
mod demo;
mod fuzz;
mod late_attach;
mod setup;
mod sh;
mod test;
mod test_kubelet;
mod vm;
mod workspace;

/// podlapse's developer menu.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
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
    /// Everything that must pass: format, lints, docs, tests, kernels, a whole node
    Test(test::Args),
    /// A real kubelet runs for a minute before podlapse attaches; every call's name against containerd's log
    TestKubelet(test_kubelet::Args),
    /// In QEMU: every hook on Debian's kernels 5.10, 6.1 and 6.12; pods on a whole node with systemd and cgroup v2
    Vm(vm::Args),
    /// Measure what podlapse costs, as ratios within one run
    Bench(bench::Args),
    /// Cut recorded and played traffic anywhere, and score the names that podlapse gives to the rest
    LateAttach(late_attach::Args),
    /// Make starts fail on real nodes, and compare the verdicts with the right ones; --list names the cases
    Cases(cases::Args),
    /// Fuzz the decoders, the engine and the recordings' reader
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let done = match Menu::parse().task {
        None => Menu::command().print_help().map_err(Into::into),
        Some(Task::Setup(args)) => setup::main(&args),
        Some(Task::Demo(args)) => return demo::main(&args).unwrap_or_else(|error| failed(&error)),
        Some(Task::Test(args)) => test::main(&args),
        Some(Task::TestKubelet(args)) => test_kubelet::main(&args),
        Some(Task::Vm(args)) => vm::main(&args),
        Some(Task::Bench(args)) => bench::main(&args),
        Some(Task::LateAttach(args)) => late_attach::main(&args),
        Some(Task::Cases(args)) => cases::main(&args),
        Some(Task::Fuzz(args)) => fuzz::main(&args),
    };
    done.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

/// The error is for whoever called, not a backtrace.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}

//! The command line: what each command does, and how it ends.
//!
//! Stdout holds only what was asked for; messages go to stderr. Exit code 0: done, 1: failed or nothing matched,
//! 2: wrong usage.

mod agent;
mod args;
mod command;
mod diff;
mod docs;
mod doctor;
mod follow;
mod health;
mod live;
mod output;
mod panic;
mod plan;
mod pods;
mod replay;
mod run;
mod say;
mod select;
mod source;
mod stages;
mod stop;
mod unseen;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use self::agent::AgentError;
use self::args::{Cli, Command};
use self::command::CommandError;
use self::diff::DiffError;
use self::output::OutputError;
use self::plan::Plan;
use self::say::Say;
use self::stages::StagesError;
use self::values::Span;
use crate::probe::ProbeError;
use crate::recording::{ReadError, WriteError};

/// A command did what it was told.
struct Done;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot give up privileges that are no longer needed: {0}")]
    Privileges(std::io::Error),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
    #[error("no {what} was seen{within}: {why}")]
    NothingSeen { what: String, within: String, why: String },
    #[error("timeout: {over} of {wanted} starts were over within {timeout}; give --timeout more")]
    TimedOut { over: usize, wanted: usize, timeout: Span },
    #[error("timeout: {gone} of {wanted} pods were gone within {timeout}; give --timeout more, or none")]
    TimedOutFollowing { gone: usize, wanted: usize, timeout: Span },
    #[error("the recording {} is incomplete: {}", .0.display(), .1)]
    RecordingIncomplete(PathBuf, WriteError),
    #[error("no pod start in the recording matches; --all prints every start that it holds")]
    NothingMatches,
    #[error("the recording holds no pod start: it ended before one was seen")]
    NothingRecorded,
    #[error(transparent)]
    Diff(#[from] DiffError),
    #[error(transparent)]
    Stages(#[from] StagesError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Client(#[from] crate::agent::ClientError),
    #[error("no pod start was over: {0} began; check that pods are to start on this node, and `podlapse doctor`")]
    NoStartOver(u64),
    #[error("podlapse does not work here: what is marked BAD says what to do")]
    Unhealthy,
    #[error(transparent)]
    NotFound(#[from] crate::pods::NotFound),
    #[error(transparent)]
    Cri(#[from] crate::pods::CriError),
    #[error("not all runtimes answered: the list holds the pods of the others")]
    SomeSilent,
    #[error("no command {0}: `podlapse --help` lists them")]
    NoSuchPage(String),
    #[error("no reason or event {0}: `podlapse explain` lists them")]
    NoSuchReason(String),
}

/// Runs the podlapse command that the process's arguments name.
pub fn main() -> ExitCode {
    panic::install_hook();
    let cli = Cli::parse();
    match run(cli.command) {
        // A reader that had enough, as in `podlapse … | head`, is no failure.
        Ok(Done) | Err(Failure::Output(OutputError::Closed)) => ExitCode::SUCCESS,
        Err(failure) => {
            Say::plain().line(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<Done, Failure> {
    // One thread: capabilities are a thread's own, and what podlapse drops has to be gone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    {
        let _inside = runtime.enter();
        stop::outlive_file_limit().map_err(Failure::Signals)?;
    }
    match command {
        Command::Replay(args) => runtime.block_on(replay::replay(&args)),
        Command::Stages(args) => {
            args.check();
            runtime.block_on(stages::stages(&args))
        }
        Command::Diff(args) => diff::diff(&args),
        Command::Completions { shell } => docs::completions(shell).map(|()| Done),
        Command::Man { command } => docs::man(command.as_deref()).map(|()| Done),
        Command::Explain { reason } => docs::explain(reason.as_deref()).map(|()| Done),
        Command::Pods(args) => runtime.block_on(pods::pods(&args)),
        Command::Agent(args) => runtime.block_on(agent::agent(&args)),
        Command::Health(args) => runtime.block_on(health::health(&args)),
        Command::Doctor(args) => runtime.block_on(doctor::doctor(&args)),
        Command::Trace(args) => runtime.block_on(live::live(&Plan::from(&args))),
        Command::Record(args) => runtime.block_on(live::live(&Plan::from(&args))),
    }
}

//! Completions and man pages, from the same definitions as the help; and the pages of reasons.

use clap::CommandFactory;

use super::Failure;
use super::args::Cli;
use super::output::{OutputError, write};
use crate::diagnose::{REASONS, reason};

pub(super) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "podlapse", &mut text);
    Ok(write(&text)?)
}

/// The page of `name`, or podlapse's own.
pub(super) fn man(name: Option<&str>) -> Result<(), Failure> {
    let mut all = Cli::command();
    all.build();
    let page = match name {
        None => &all,
        Some(name) => all.find_subcommand(name).ok_or_else(|| Failure::NoSuchPage(name.to_owned()))?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone()).render(&mut text).map_err(OutputError::new)?;
    Ok(write(&text)?)
}

/// The page of a reason, or all of them, a line each.
pub(super) fn explain(name: Option<&str>) -> Result<(), Failure> {
    let text = match name {
        None => REASONS.iter().map(|reason| format!("{:25} {}\n", reason.name, reason.means)).collect(),
        Some(name) => reason(name).ok_or_else(|| Failure::NoSuchReason(name.to_owned()))?.page(),
    };
    Ok(write(text.as_bytes())?)
}

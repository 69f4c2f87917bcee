//! Completions and man pages, from the same definitions as the help; and what reasons and events mean.

use clap::CommandFactory;

use super::Failure;
use super::args::Cli;
use super::output::{OutputError, write};
use crate::diagnose::REASONS;
use crate::trace::LifeKind;

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

/// What a reason or an event means; without a name all of them, a line each.
pub(super) fn explain(name: Option<&str>) -> Result<(), Failure> {
    let reasons = || REASONS.iter().filter(|reason| name.is_none_or(|name| name == reason.name));
    let events = || LifeKind::ALL.iter().filter(|(kind, _)| name.is_none_or(|name| name == kind.name()));
    let mut text = String::new();
    for reason in reasons() {
        text += &name.map_or_else(|| format!("{:25} {}\n", reason.name, reason.means), |_| reason.page());
    }
    if name.is_none() {
        text += "\nEvents of a pod's life (--lifecycle):\n";
    }
    for (kind, means) in events() {
        text += &name.map_or_else(|| format!("{:25} {means}\n", kind.name()), |name| format!("# {name}\n\n{means}\n"));
    }
    match name.filter(|_| text.is_empty()) {
        Some(name) => Err(Failure::NoSuchReason(name.to_owned())),
        None => Ok(write(text.as_bytes())?),
    }
}

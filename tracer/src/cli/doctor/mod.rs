//! `podlapse doctor`: what this node allows, and what to do about what it does not.

mod kernel;
mod report;
mod runtime;

use std::path::Path;

use self::report::{Check, Report};
use super::args::{self, Doctor};
use super::output::{OutputError, write};
use super::{Done, Failure};

pub(super) async fn doctor(args: &Doctor) -> Result<Done, Failure> {
    let mut checks = kernel::checks(Path::new("/"));
    if !args.hooks {
        checks.push(runtime::check(args.socket.0.as_deref()).await);
    }
    let (hooks, refused) = hooks();
    checks.extend(refused);
    let report = Report { checks, hooks };
    match args.output {
        args::Report::Text => write(report.text(super::output::colour()).as_bytes())?,
        args::Report::Json => write(&report.json().map_err(OutputError::new)?)?,
    }
    if report.healthy() { Ok(Done) } else { Err(Failure::Unhealthy) }
}

/// Sockets where a runtime is looked for.
fn known_sockets() -> Vec<std::path::PathBuf> {
    Vec::new()
}

fn hooks() -> (Vec<report::Hook>, Vec<Check>) {
    (Vec::new(), Vec::new())
}

//! `podlapse doctor`: what this node allows, and what to do about what it does not.

mod kernel;
mod report;
mod runtime;

use std::path::Path;

use self::report::{Check, Report};
use super::args::{self, Doctor};
use super::output::{OutputError, write};
use super::{Done, Failure};
use crate::probe;

pub(super) async fn doctor(args: &Doctor) -> Result<Done, Failure> {
    let mut checks = vec![privileges()];
    checks.extend(kernel::checks(Path::new("/")));
    if !args.hooks {
        checks.push(runtime::check(args.socket.0.as_deref()).await);
    }
    let hooks = hooks(&mut checks);
    let report = Report { checks, hooks };
    match args.output {
        args::Report::Text => write(report.text(super::output::colour()).as_bytes())?,
        args::Report::Json => write(&report.json().map_err(OutputError::new)?)?,
    }
    if report.healthy() { Ok(Done) } else { Err(Failure::Unhealthy) }
}

/// Attaches every hook and detaches it again.
fn hooks(checks: &mut Vec<Check>) -> Vec<report::Hook> {
    match probe::probe_hooks() {
        Ok(hooks) => hooks.into_iter().map(report::Hook::from).collect(),
        Err(error) => {
            checks.push(Check::bad("hooks", error.to_string(), "do what the message says; then run doctor again"));
            Vec::new()
        }
    }
}

fn privileges() -> Check {
    let missing = probe::missing_capabilities();
    let user = rustix::process::geteuid();
    match () {
        () if missing.is_empty() => {
            Check::ok("privileges", format!("uid {}, all capabilities that are needed", user.as_raw()))
        }
        () => {
            let found = format!("uid {}, without {}", user.as_raw(), missing.join(", "));
            Check::bad("privileges", found, "run podlapse as root (sudo); in a container, make it privileged")
        }
    }
}

//! `podlapse doctor`: what this node allows, and what to do about what it does not.

mod kernel;
mod report;
mod runtime;

use std::path::Path;

use self::report::{Check, Report};
use super::args::{self, Doctor};
use super::output::{OutputError, write};
use super::{Done, Failure};
use crate::probe::{self, Backend, Choice};

pub(super) async fn doctor(args: &Doctor) -> Result<Done, Failure> {
    let mut checks = vec![privileges()];
    checks.extend(kernel::checks(Path::new("/")));
    if !args.hooks {
        checks.push(runtime::check(args.socket.0.as_deref()).await);
        checks.extend(runtime::late_attach(args.socket.0.as_deref()));
    }
    let hooks = hooks(args.backend.into(), &mut checks);
    let report = Report { checks, hooks };
    match args.output {
        args::Report::Text => write(report.text(super::output::colour()).as_bytes())?,
        args::Report::Json => write(&report.json().map_err(OutputError::new)?)?,
    }
    if report.healthy() { Ok(Done) } else { Err(Failure::Unhealthy) }
}

/// Attaches every hook and detaches it again.
fn hooks(choice: Choice, checks: &mut Vec<Check>) -> Vec<report::Hook> {
    match probe::probe_hooks(choice) {
        Ok((hooks, fallback)) => {
            checks.push(backend(&hooks, fallback));
            hooks.into_iter().map(report::Hook::from).collect()
        }
        Err(error) => {
            checks.push(Check::bad("hooks", error.to_string(), "do what the message says; then run doctor again"));
            Vec::new()
        }
    }
}

/// By what the bytes of sockets come; the other hooks have one backend each.
fn backend(hooks: &[probe::Hook], fallback: Option<String>) -> Check {
    let by_trampolines = hooks.iter().any(|hook| hook.backend == Backend::Trampoline);
    match (by_trampolines, fallback) {
        (true, _) => Check::ok("backend", "socket bytes by trampolines"),
        (false, None) => Check::ok("backend", "socket bytes by tracepoints, as chosen"),
        (false, Some(reason)) => Check::warn(
            "backend",
            format!("socket bytes by tracepoints; trampolines are refused: {reason}"),
            "nothing is missed; but each read and write of the whole node passes a program",
        ),
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

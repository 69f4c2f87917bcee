//! The privileges that attaching needs, and giving up those that watching does not.

use std::io;

use capctl::caps::{Cap, CapSet, CapState};
use rustix::process::{Resource, Rlimit};

use super::ProbeError;

/// For loading and attaching: BPF and PERFMON (programs, tracepoints), SYS_ADMIN (tracefs, tracepoint ids), SYS_PTRACE
/// (the runtime's descriptors).
const NEEDED: [Cap; 4] = [Cap::BPF, Cap::PERFMON, Cap::SYS_ADMIN, Cap::SYS_PTRACE];

/// What a user other than root needs besides: tracefs and the runtime's socket are root's files.
const NEEDED_BY_OTHERS: Cap = Cap::DAC_OVERRIDE;

/// Descriptors that a run holds: programs, maps, one for each hook, and some to spare.
const FILES: u64 = 256;

/// What is kept while watching: a runtime that comes back is examined (SYS_PTRACE), its socket may belong to a group
/// alone (DAC_OVERRIDE), and the programs' maps are written (BPF).
const KEPT: [Cap; 3] = [Cap::SYS_PTRACE, Cap::DAC_OVERRIDE, Cap::BPF];

/// The capabilities that attaching needs and this thread does not have.
pub fn missing_capabilities() -> Vec<String> {
    let effective = CapState::get_current().map(|state| state.effective).unwrap_or_default();
    let others = (!rustix::process::geteuid().is_root()).then_some(NEEDED_BY_OTHERS);
    NEEDED.into_iter().chain(others).filter(|cap| !effective.has(*cap)).map(|cap| format!("CAP_{cap:?}")).collect()
}

/// Refuses to go on where attaching cannot work.
pub(crate) fn check() -> Result<(), ProbeError> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Err(ProbeError::NotRoot { user: user.as_raw(), missing: missing.join(", ") });
    }
    Err(ProbeError::Capabilities(missing.join(", ")))
}

/// Before 5.11 BPF maps count against this limit. Without CAP_SYS_RESOURCE it cannot be lifted; the kernel then says
/// whether that matters.
pub(crate) fn lift_memlock() {
    let unlimited = Rlimit { current: None, maximum: None };
    if rustix::process::setrlimit(Resource::Memlock, unlimited).is_err() {
        let limit = rustix::process::getrlimit(Resource::Memlock);
        let _ = rustix::process::setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Where the soft limit of open files is lower than what a run holds, it is raised as far as it may be.
pub(crate) fn lift_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        let current = Some(limit.maximum.map_or(FILES, |maximum| maximum.min(FILES)));
        // Where it stays too low, the kernel says so at the first descriptor that is one too many.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Gives up what watching does not need: no new privileges, not dumpable, three capabilities. Linux keeps these per
/// thread: call it on the main thread of a current-thread tokio runtime, after [`super::Session::attach`] (whose own
/// thread has ended by then) and after anything was started that needs more, such as a COMMAND.
///
/// # Errors
/// The system call that failed.
pub fn drop_privileges() -> io::Result<()> {
    let kept: CapSet = KEPT.into_iter().collect();
    let permitted = CapState::get_current()?.permitted & kept;
    capctl::caps::ambient::clear().or_else(unsupported)?;
    for cap in Cap::iter().filter(|cap| !kept.has(*cap)) {
        // Needs CAP_SETPCAP; without it the bounding set stays, and no_new_privs makes that harmless.
        let _ = capctl::caps::bounding::drop(cap);
    }
    CapState { effective: permitted, permitted, inheritable: CapSet::empty() }.set_current()?;
    capctl::prctl::set_no_new_privs()?;
    capctl::prctl::set_dumpable(false)?;
    Ok(())
}

fn unsupported(error: capctl::Error) -> Result<(), capctl::Error> {
    if error.code() == libc::EINVAL { Ok(()) } else { Err(error) }
}

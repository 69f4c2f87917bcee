//! Processes and their ends in words.

use crate::ids::Tgid;
use crate::trace::LifeProcess;

/// `nginx (pid 4711)`.
pub(super) fn named(process: &LifeProcess) -> String {
    match (process.comm.as_str(), process.pid) {
        ("", Tgid(0)) => "a process that podlapse's pid namespace does not show".to_owned(),
        ("", pid) => format!("pid {pid}"),
        (comm, Tgid(0)) => comm.to_owned(),
        (comm, pid) => format!("{comm} (pid {pid})"),
    }
}

pub(super) fn pid(pid: Option<Tgid>) -> String {
    pid.map_or(String::new(), |pid| format!(" (pid {pid})"))
}

/// `exited with 1`.
pub(super) fn how(code: Option<u8>, signal: Option<u8>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("was ended by {}", signal_name(signal)),
        (Some(code), None) => format!("exited with {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// `SIGTERM`, as numbered on every architecture that containers run on but MIPS.
pub(super) fn signal_name(signal: u8) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::from(signal).checked_sub(1).and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

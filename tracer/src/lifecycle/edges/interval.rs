//! Intervals between signs, and what a sign is.

use super::super::unit::{Run, Sign, What};
use crate::ids::MonotonicNs;
use crate::record::{Sys, Syscall};

/// From one sign to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) start: MonotonicNs,
    /// Absent while open.
    pub(super) end: Option<MonotonicNs>,
    /// The end is a sign that was seen, not a guess.
    pub(super) observed: bool,
    /// The sign at the end failed.
    pub(super) errno: Option<i32>,
}

impl Interval {
    pub(super) fn seen(start: MonotonicNs, end: MonotonicNs) -> Interval {
        Interval::to(start, Some(end))
    }

    pub(super) fn to(start: MonotonicNs, end: Option<MonotonicNs>) -> Interval {
        Interval { start, end, observed: end.is_some(), errno: None }
    }

    pub(super) fn of(run: &Run) -> Interval {
        let (end, observed) = run.end();
        Interval { observed, ..Interval::to(run.begin().unwrap_or_default(), end) }
    }

    /// From the first entry to the last exit.
    pub(super) fn around<'s>(signs: impl Iterator<Item = &'s Sign>) -> Option<Interval> {
        signs.fold(None, |so_far: Option<Interval>, sign| {
            let last =
                Interval { errno: syscall(sign).and_then(Syscall::errno), ..Interval::seen(sign.enter, sign.exit) };
            Some(match so_far {
                None => last,
                Some(all) if all.end < last.end => Interval { start: all.start.min(last.start), ..last },
                Some(all) => Interval { start: all.start.min(last.start), ..all },
            })
        })
    }
}

pub(super) fn syscall(sign: &Sign) -> Option<&Syscall> {
    match &sign.what {
        What::Syscall(syscall) => Some(syscall),
        What::CgroupMkdir(_) | What::CgroupAttach | What::CgroupWrite(_) => None,
    }
}

pub(super) fn is_sys(sign: &Sign, sys: Sys) -> bool {
    syscall(sign).is_some_and(|call| call.sys == sys)
}

/// Options of prctl(2).
pub(super) const PR_SET_KEEPCAPS: u64 = 8;
pub(super) const PR_SET_SECCOMP: u64 = 22;
pub(super) const PR_SET_CHILD_SUBREAPER: u64 = 36;
pub(super) const PR_SET_NO_NEW_PRIVS: u64 = 38;

pub(super) fn is_prctl(sign: &Sign, option: u64) -> bool {
    syscall(sign).is_some_and(|call| call.sys == Sys::Prctl && call.args[0] == option)
}

pub(super) fn is_mount(sign: &Sign) -> bool {
    syscall(sign).is_some_and(|call| {
        matches!(
            call.sys,
            Sys::Mount
                | Sys::MoveMount
                | Sys::OpenTree
                | Sys::MountSetattr
                | Sys::Fsopen
                | Sys::Fsconfig
                | Sys::Fsmount
        )
    })
}

/// The re-execution of the own binary: by its link in `/proc`, or by a descriptor.
pub(super) fn is_self(filename: &str) -> bool {
    ["/proc/self/", "/dev/fd/", "memfd:"].iter().any(|prefix| filename.starts_with(prefix))
}

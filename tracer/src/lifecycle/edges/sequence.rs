//! What init and `create` do in turn once init has its namespaces. They wait for each other at each step, so that signs
//! of one kind in a row are a stage, and the time before some of them has one known use.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `.init` | end of the namespaces and of the cgroup's join | init's first mount: it starts up and reads what it is told |
//! | `.mounts` | first mount call, or device node, of init in a row | last one |
//! | `.limits` | entry of the first write to a file of the cgroup in a row | exit of the last |
//! | `.sync` | init's mounts, or the limits | the limits, or init's next step: one tells the other to go on |
//! | `.lsm` | entry of init's first write of its exec label in a row | exit of the last |
//! | `.pivot` | entry of pivot_root | exit of init's next umount2 |
//! | `.state` | what came before: init is ready | rename of `create`'s `state.json` (runc: `saveState`) |
//! | `.privileges` | init's first prctl of its privileges, or capset, in a row | last one |
//! | `.seccomp` | `.state`, `.lsm` or `.privileges`: the filter is compiled | the call that installs it |
//! | `.seccomp` (crun) | `create`'s question for the modes: it compiles the filter for init | init's next step |
//! | `.lookpath` | init's last capset | exit of `create`, which failed: init looks its entrypoint up |
//! | `.finish` | init's last step | exit of `create`: init waits at the fifo, the pid file is written |

use super::super::unit::{Run, Sign, What, is_membership};
use super::interval::{
    Interval, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, is_mount, is_prctl, is_sys, syscall,
};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Sys, Syscall};

/// SECCOMP_SET_MODE_STRICT, which libseccomp tries before it makes a filter; SECCOMP_SET_MODE_FILTER.
const STRICT: u64 = 0;
const FILTER: u64 = 1;

/// What a sign shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Mounts,
    Limits,
    Label,
    Pivot,
    State,
    Privileges,
    Seccomp,
    /// `create` makes the filter.
    Compile,
}

/// Signs of one kind in a row.
struct Step {
    act: Act,
    interval: Interval,
    /// Its last sign is a capset: before it init changes its directory, after it it looks its entrypoint up.
    capset: bool,
}

/// One stage of it.
pub(super) struct Part {
    pub(super) stage: &'static str,
    pub(super) name: &'static str,
    pub(super) interval: Interval,
}

/// Who takes part.
pub(super) struct Sequence<'a> {
    pub(super) create: &'a Run,
    pub(super) init: Option<Tgid>,
    /// When init's namespaces were made and its cgroup was joined.
    pub(super) after: Option<MonotonicNs>,
    /// When hooks were executed: they run between the limits and what follows.
    pub(super) hooks: &'a [MonotonicNs],
    /// In the order of time.
    pub(super) signs: &'a [&'a Sign],
}

impl Sequence<'_> {
    /// Its stages, in order.
    pub(super) fn parts(&self) -> Vec<Part> {
        let steps = self.steps();
        let mut parts = Vec::new();
        let mut part = |stage, name, interval| parts.push(Part { stage, name, interval });
        if let (Some(after), Some(Step { act: Act::Mounts, interval, .. })) = (self.after, steps.first())
            && after <= interval.start
        {
            part("oci.create.init", "init starts", Interval::seen(after, interval.start));
        }
        let mut before: Option<&Step> = None;
        let mut rooted = false;
        for (index, step) in steps.iter().enumerate() {
            let since = before.and_then(|step| step.interval.end);
            let whole = Interval { start: since.unwrap_or(step.interval.start), ..step.interval };
            let turn = (before.map(|step| step.act), step.act);
            if let (Some(Act::Mounts), Act::Limits) | (Some(Act::Limits), Act::Mounts | Act::Pivot) = turn
                && whole.start <= step.interval.start
                && !self.hooks.iter().any(|at| *at >= whole.start && *at <= step.interval.start)
            {
                part("oci.create.sync", "sync with init", Interval::seen(whole.start, step.interval.start));
            }
            match step.act {
                Act::Mounts if rooted => part("oci.create.mounts", "masked paths", step.interval),
                Act::Mounts => part("oci.create.mounts", "mounts", step.interval),
                Act::Limits => part("oci.create.limits", "cgroup limits", step.interval),
                Act::Label => part("oci.create.lsm", "security label", step.interval),
                Act::Pivot => part("oci.create.pivot", "pivot_root", step.interval),
                Act::State => part("oci.create.state", "save state", whole),
                Act::Privileges => part("oci.create.privileges", "privileges", step.interval),
                Act::Seccomp => {
                    let alone =
                        before.is_some_and(|step| matches!(step.act, Act::State | Act::Label | Act::Privileges));
                    part("oci.create.seccomp", "seccomp filter", if alone { whole } else { step.interval });
                }
                Act::Compile => {
                    let next = steps.get(index + 1).map(|step| step.interval.start);
                    let interval = Interval { end: next.or(step.interval.end), errno: None, ..step.interval };
                    part("oci.create.seccomp", "seccomp filter", interval);
                }
            }
            rooted |= step.act == Act::Pivot;
            before = Some(step);
        }
        if let (Some(last), Some((exit, how))) = (before, &self.create.exit)
            && let Some(from) = last.interval.end.filter(|from| from <= exit)
        {
            let whole = Interval::seen(from, *exit);
            match (last.act, how.status) {
                (Act::Privileges | Act::Seccomp, Some(0)) => part("oci.create.finish", "finish", whole),
                (Act::Privileges, Some(_)) if last.capset => {
                    part("oci.create.lookpath", "looking the entrypoint up", whole);
                }
                _ => {}
            }
        }
        parts
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut pivoting = false;
        for sign in self.signs.iter().filter(|sign| self.after.is_none_or(|after| sign.enter >= after)) {
            let Some(act) = self.act(sign, &mut pivoting) else { continue };
            let errno = match &sign.what {
                What::CgroupWrite(write) if act == Act::Label => write.errno(),
                _ => syscall(sign).and_then(Syscall::errno),
            };
            let capset = is_sys(sign, Sys::Capset);
            match steps.last_mut().filter(|last| last.act == act) {
                Some(last) => {
                    last.capset = capset;
                    last.interval.end = last.interval.end.max(Some(sign.exit));
                    last.interval.errno = errno;
                }
                None => {
                    let interval = Interval { errno, ..Interval::seen(sign.enter, sign.exit) };
                    steps.push(Step { act, interval, capset });
                }
            }
        }
        steps
    }

    /// Between pivot_root and the umount of the old root all that init does is part of the pivot.
    fn act(&self, sign: &Sign, pivoting: &mut bool) -> Option<Act> {
        if let What::CgroupWrite(write) = &sign.what {
            // That of its keys (`keycreate`) is set much earlier, and in no time.
            let label = Some(sign.tgid) == self.init && matches!(write.file.as_str(), "exec" | "current");
            return match write.is_label() {
                true => label.then_some(Act::Label),
                false => (!is_membership(&write.file)).then_some(Act::Limits),
            };
        }
        let call = syscall(sign)?;
        let done = call.ret >= 0;
        if sign.tgid == self.create.tgid {
            let saved = call.sys == Sys::Renameat && done && call.strings[1].ends_with("/state.json");
            let asks = call.sys == Sys::Seccomp && call.args[0] == STRICT;
            return if saved { Some(Act::State) } else { asks.then_some(Act::Compile) };
        }
        if Some(sign.tgid) != self.init {
            return None;
        }
        if call.sys == Sys::PivotRoot || *pivoting {
            *pivoting = call.sys != Sys::Umount2 && done;
            return Some(Act::Pivot);
        }
        let privileges = [PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS].iter().any(|option| is_prctl(sign, *option));
        let filter = call.sys == Sys::Seccomp && call.args[0] == FILTER || is_prctl(sign, PR_SET_SECCOMP);
        if is_mount(sign) || matches!(call.sys, Sys::Mknod | Sys::Mknodat) {
            Some(Act::Mounts)
        } else if privileges || is_sys(sign, Sys::Capset) {
            Some(Act::Privileges)
        } else {
            (filter && done).then_some(Act::Seccomp)
        }
    }
}

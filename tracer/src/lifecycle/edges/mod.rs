//! Where each stage below a call begins and ends: the one place that says so.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `netns` | entry of a runtime thread's unshare(NEWNET) | exit of its bind mount onto the path that is `CNI_NETNS` |
//! | `netns` (CRI-O) | clone of pinns | exit |
//! | `cni` | first plugin's clone | last plugin's exit; ADD and the DEL of a failure apart |
//! | `cni.<plugin>` | clone | exit |
//! | `cni.<plugin>.netns` | its setns into another network namespace | the same thread's setns back |
//! | `cni.<plugin>.host` | its clone, its return from there, or a delegate's exit | the next such sign, or its exit |
//! | `cni_next` | exit of a plugin, none other runs | clone of the next one |
//! | `shim` | starter's clone | starter's exit, which says that the daemon listens |
//! | `shim` (CRI-O) | conmon's clone | exit, which says that the monitor runs |
//! | `shim.daemon` | daemon's clone | its prctl(PR_SET_CHILD_SUBREAPER) |
//! | `shim.connect` | starter's exit | task API Create request |
//! | `task.request` | task API Create request | first of `rootfs` and `oci.create` |
//! | `rootfs` | entry of the first mount onto `…/<id>/rootfs` | exit of the last |
//! | `oci.create` | clone of `create` (without one: task API Create request) | its exit (reply) |
//! | `oci.create.…` | see `create.rs` and `sequence.rs` | |
//! | `oci.fifo_wait` | exit of `create` | clone of `start` |
//! | `oci.start` | clone of `start` (without one: task API Start request) | the entrypoint's execve |
//! | `task.reply` | the entrypoint's execve | task API Start reply |
//!
//! A process begins with its clone; where that was not seen, with its first exec.

pub(super) mod chores;
mod cni;
mod create;
mod interval;
mod sequence;

use std::collections::BTreeSet;

use self::interval::{Interval, PR_SET_CHILD_SUBREAPER, is_prctl, syscall};

use super::argv::basename;
use super::unit::{Kind, Run, Sign, Unit};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Sys, Syscall};
use crate::trace::{Draft, DraftId, DraftSpan, ProcessInfo};

/// Adds the spans of one unit that begin while the call of `parent` is open, and in the `whole` trace. Without a call
/// (podlapse came in the middle) they are at the top.
pub(super) fn add(
    draft: &mut Draft,
    parent: Option<DraftId>,
    stage: &str,
    unit: &Unit,
    whole: (MonotonicNs, MonotonicNs),
) {
    let window = match parent.map(|id| draft.get(id)) {
        Some(call) => (call.start, call.end.unwrap_or(whole.1).min(whole.1)),
        None => whole,
    };
    let mut edges = Edges { draft, parent, stage, unit, window };
    edges.netns();
    edges.cni();
    edges.shim();
    edges.rootfs();
    edges.oci();
}

struct Edges<'a> {
    draft: &'a mut Draft,
    parent: Option<DraftId>,
    /// Stage of the call.
    stage: &'a str,
    unit: &'a Unit,
    window: (MonotonicNs, MonotonicNs),
}

impl<'a> Edges<'a> {
    fn in_window(&self, at: MonotonicNs) -> bool {
        at >= self.window.0 && at <= self.window.1
    }

    fn span(
        &mut self,
        parent: Option<DraftId>,
        stage: &str,
        name: &str,
        interval: Interval,
        process: Option<ProcessInfo>,
    ) -> Option<DraftId> {
        let Interval { start, end, observed, errno } = interval;
        let span = DraftSpan {
            stage: format!("{}.{stage}", self.stage),
            name: name.to_owned(),
            start,
            end,
            observed,
            process,
            attributes: errno.map(|errno| ("errno".to_owned(), errno.to_string())).into_iter().collect(),
            ..DraftSpan::default()
        };
        self.in_window(start).then(|| self.draft.add(parent, span))
    }

    fn runs(&self, fits: impl Fn(&Kind) -> bool) -> Vec<&'a Run> {
        let unit = self.unit;
        unit.runs
            .iter()
            .filter(|run| fits(&run.kind) && run.first_exec().or(run.begin()).is_some_and(|at| self.in_window(at)))
            .collect()
    }

    fn netns(&mut self) {
        if let Some(pinns) = self.runs(|kind| *kind == Kind::Pinns).first() {
            self.span(self.parent, "netns", "pinns", Interval::of(pinns), Some(pinns.info()));
        } else if let Some((start, end)) = self.unit.netns {
            self.span(self.parent, "netns", "network namespace", Interval::seen(start, end), None);
        }
    }

    fn shim(&mut self) {
        let mut connected = None;
        for run in self.runs(|kind| matches!(kind, Kind::ShimStarter | Kind::Conmon)) {
            let name = if run.kind == Kind::Conmon { "conmon" } else { "shim start" };
            self.span(self.parent, "shim", name, Interval::of(run), Some(run.info()));
            connected = run.end().0;
        }
        for run in self.runs(|kind| *kind == Kind::ShimDaemon) {
            let reaper = |sign: &&Sign| sign.tgid == run.tgid && is_prctl(sign, PR_SET_CHILD_SUBREAPER);
            let ready = self.unit.signs.iter().find(reaper).map(|sign| sign.exit);
            if let Some((from, to)) = run.begin().zip(ready) {
                self.span(self.parent, "shim.daemon", "shim daemon", Interval::seen(from, to), Some(run.info()));
            }
        }
        let asked = self.unit.task_create.map(|call| call.start);
        if let Some((from, to)) = connected.zip(asked).filter(|(from, to)| from <= to) {
            self.span(self.parent, "shim.connect", "connecting to the shim", Interval::seen(from, to), None);
        }
    }

    fn rootfs(&mut self) {
        let onto_rootfs = |call: &Syscall| {
            matches!(call.sys, Sys::Mount | Sys::MoveMount)
                && call.strings[1].trim_end_matches('/').ends_with("/rootfs")
        };
        let by_init: BTreeSet<Tgid> = self.runs_of_init(None).map(|run| run.tgid).collect();
        let mounts = self.unit.signs.iter().filter(|sign| {
            let call = syscall(sign).is_some_and(onto_rootfs);
            call && !by_init.contains(&sign.tgid) && self.in_window(sign.enter)
        });
        let mounted = Interval::around(mounts);
        if let Some(interval) = mounted {
            self.span(self.parent, "rootfs", "mount rootfs", interval, None);
        }
        let created = self.runs(|kind| *kind == Kind::OciCreate).first().and_then(|run| run.begin());
        let first = mounted.map(|interval| interval.start).into_iter().chain(created).min();
        if let Some((asked, first)) = self.unit.task_create.map(|call| call.start).zip(first)
            && asked <= first
        {
            self.span(self.parent, "task.request", "Task/Create", Interval::seen(asked, first), None);
        }
    }

    fn oci(&mut self) {
        let create = self.runs(|kind| *kind == Kind::OciCreate).first().copied();
        let start = self.runs(|kind| *kind == Kind::OciStart).first().copied();
        let (told_create, told_start) = (self.unit.task_create, self.unit.task_start);

        let mut created = None;
        if let Some(run) = create {
            let name = format!("{} create", runtime_name(run));
            let span = Interval::of(run);
            if let Some(id) = self.span(self.parent, "oci.create", &name, span, Some(run.info())) {
                self.create(id, run);
            }
            let good = run.exit.as_ref().is_none_or(|(_, exit)| exit.status == Some(0));
            created = span.end.filter(|_| good);
        } else if let Some(call) = told_create {
            self.span(self.parent, "oci.create", "Task/Create", Interval::to(call.start, call.end), None);
            created = call.end;
        }

        let started = start.and_then(Run::begin).or(told_start.map(|call| call.start));
        if let Some(created) = created.filter(|created| started.is_none_or(|started| *created <= started)) {
            self.span(self.parent, "oci.fifo_wait", "waiting for start", Interval::to(created, started), None);
        }
        let Some(started) = started else { return };
        let exec = self.unit.entry.as_ref().map(|entry| entry.at).filter(|at| *at >= started);
        let ended = start.and_then(|run| run.end().0).or(told_start.and_then(|call| call.end));
        let interval = Interval { observed: exec.is_some(), ..Interval::to(started, exec.or(ended)) };
        let name = start.map_or("Task/Start".to_owned(), |run| format!("{} start", runtime_name(run)));
        self.span(self.parent, "oci.start", &name, interval, start.map(Run::info));
        let replied = told_start.and_then(|call| call.end).filter(|_| start.is_some());
        if let Some((exec, replied)) = exec.zip(replied).filter(|(exec, replied)| exec <= replied) {
            self.span(self.parent, "task.reply", "Task/Start", Interval::seen(exec, replied), None);
        }
    }
}

/// The runtime's own name: its first exec is by path, later ones may be by descriptor.
fn runtime_name(run: &Run) -> &str {
    run.execs.first().map_or("runtime", |exec| basename(exec.argv.first().unwrap_or(&exec.filename)))
}

//! Where each stage below a call begins and ends: the one place that says so.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `netns` | entry of a runtime thread's unshare(NEWNET) | exit of its bind mount onto the path that is `CNI_NETNS` |
//! | `cni` | first plugin's exec | last plugin's exit; ADD and the DEL of a failure apart |
//! | `cni.<plugin>` | exec | exit |
//! | `shim` | starter's exec | starter's exit, which says that the daemon listens |
//! | `rootfs` | entry of the first mount onto `…/<id>/rootfs` | exit of the last |
//! | `oci.create` | exec of `create` (without one: task API Create request) | its exit (reply) |
//! | `.self_clone` | first exec of a process that re-executes itself, or the runtime's first fsopen | last such exec |
//! | `.cgroup_join` | first mkdir of the container's cgroup | last attach; with CLONE_INTO_CGROUP the clone |
//! | `.namespaces` | first setns, unshare or clone flag of init's stages | last, or the clone of the final stage after it |
//! | `.mounts` | first mount call of init before its pivot_root (after: again) | last one |
//! | `.limits` | entry of the first write to a file of its cgroup after the join | exit of the last |
//! | `.hooks` | a hook's exec | its exit |
//! | `.pivot` | entry of pivot_root | exit of init's next umount2 |
//! | `oci.fifo_wait` | exit of `create` | exec of `start` |
//! | `oci.start` | exec of `start` (without one: task API Start request) | the entrypoint's execve |

mod create;
mod interval;

use std::collections::{BTreeMap, BTreeSet};

use self::interval::{Interval, syscall};

use super::argv::{Cni, basename};
use super::unit::{Kind, Run, Unit};
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
            call: None,
            attributes: errno.map(|errno| ("errno".to_owned(), errno.to_string())).into_iter().collect(),
        };
        self.in_window(start).then(|| self.draft.add(parent, span))
    }

    fn runs(&self, fits: impl Fn(&Kind) -> bool) -> Vec<&'a Run> {
        let unit = self.unit;
        unit.runs
            .iter()
            .filter(|run| fits(&run.kind) && run.first_exec().is_some_and(|at| self.in_window(at)))
            .collect()
    }

    fn netns(&mut self) {
        if let Some((start, end)) = self.unit.netns {
            self.span(self.parent, "netns", "network namespace", Interval::seen(start, end), None);
        }
    }

    fn cni(&mut self) {
        for (command, name) in [("ADD", "CNI"), ("DEL", "CNI DEL")] {
            let is = |kind: &Kind| matches!(kind, Kind::Cni(cni) if cni.command == command);
            let runs = self.runs(is);
            let Some(start) = runs.iter().filter_map(|run| run.first_exec()).min() else { continue };
            let ends: Option<Vec<_>> = runs.iter().map(|run| run.end().0).collect();
            let observed = runs.iter().all(|run| run.end().1);
            let end = ends.and_then(|ends| ends.into_iter().max());
            let whole = Interval { observed, ..Interval::to(start, end) };
            let Some(group) = self.span(self.parent, "cni", name, whole, None) else { continue };
            let mut by_tgid: BTreeMap<Tgid, DraftId> = BTreeMap::new();
            for run in runs {
                let Kind::Cni(Cni { plugin, .. }) = &run.kind else { continue };
                let parent = by_tgid.get(&run.parent).copied().unwrap_or(group);
                let stage = format!("cni.{plugin}");
                if let Some(id) = self.span(Some(parent), &stage, plugin, Interval::of(run), Some(run.info())) {
                    by_tgid.insert(run.tgid, id);
                    self.helpers(id, run);
                }
            }
        }
    }

    /// Programs that a plugin ran, such as iptables, are many and short: a count on its span.
    fn helpers(&mut self, id: DraftId, plugin: &Run) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let (from, to) = (plugin.first_exec(), plugin.end().0);
        let ran = |run: &&Run| {
            let during = run.first_exec() >= from && to.is_none_or(|to| run.first_exec() <= Some(to));
            run.kind == Kind::Helper && run.parent == plugin.tgid && during
        };
        for exec in self.unit.runs.iter().filter(ran).filter_map(|run| run.execs.last()) {
            *counts.entry(basename(&exec.filename)).or_default() += 1;
        }
        let list: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !list.is_empty() {
            self.draft.attribute(id, "ran", list.join(", "));
        }
    }

    fn shim(&mut self) {
        for run in self.runs(|kind| *kind == Kind::ShimStarter) {
            self.span(self.parent, "shim", "shim start", Interval::of(run), Some(run.info()));
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
        if let Some(interval) = Interval::around(mounts) {
            self.span(self.parent, "rootfs", "mount rootfs", interval, None);
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

        let started = start.and_then(Run::first_exec).or(told_start.map(|call| call.start));
        if let Some(created) = created.filter(|created| started.is_none_or(|started| *created <= started)) {
            self.span(self.parent, "oci.fifo_wait", "waiting for start", Interval::to(created, started), None);
        }
        let Some(started) = started else { return };
        let exec = self.unit.entry.as_ref().map(|entry| entry.at).filter(|at| *at >= started);
        let ended = start.and_then(|run| run.end().0).or(told_start.and_then(|call| call.end));
        let interval = Interval { observed: exec.is_some(), ..Interval::to(started, exec.or(ended)) };
        let name = start.map_or("Task/Start".to_owned(), |run| format!("{} start", runtime_name(run)));
        self.span(self.parent, "oci.start", &name, interval, start.map(Run::info));
    }
}

/// The runtime's own name: its first exec is by path, later ones may be by descriptor.
fn runtime_name(run: &Run) -> &str {
    run.execs.first().map_or("runtime", |exec| basename(exec.argv.first().unwrap_or(&exec.filename)))
}

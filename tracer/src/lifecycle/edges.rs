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

use std::collections::{BTreeMap, BTreeSet};

use super::argv::{Cni, basename};
use super::unit::{Kind, Run, Sign, Unit, What, is_membership};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Sys, Syscall};
use crate::trace::{Draft, DraftId, DraftSpan, ProcessInfo};

/// `CLONE_NEW*` of namespaces that a container may have of its own.
const CLONE_NEW: u64 = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// Adds the spans of one unit that begin while the call of `parent` is open. Without a call (podlapse came in the
/// middle) they are at the top.
pub(super) fn add(draft: &mut Draft, parent: Option<DraftId>, stage: &str, unit: &Unit) {
    let window = match parent.map(|id| draft.get(id)) {
        Some(call) => (call.start, call.end),
        None => (MonotonicNs(0), None),
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
    window: (MonotonicNs, Option<MonotonicNs>),
}

/// From one sign to another.
#[derive(Clone, Copy, Debug)]
struct Interval {
    start: MonotonicNs,
    /// Absent while open.
    end: Option<MonotonicNs>,
    /// The end is a sign that was seen, not a guess.
    observed: bool,
    /// The sign at the end failed.
    errno: Option<i32>,
}

impl Interval {
    fn seen(start: MonotonicNs, end: MonotonicNs) -> Interval {
        Interval::to(start, Some(end))
    }

    fn to(start: MonotonicNs, end: Option<MonotonicNs>) -> Interval {
        Interval { start, end, observed: end.is_some(), errno: None }
    }

    fn of(run: &Run) -> Interval {
        let (end, observed) = run.end();
        Interval { observed, ..Interval::to(run.first_exec().unwrap_or_default(), end) }
    }

    /// From the first entry to the last exit.
    fn around<'s>(signs: impl Iterator<Item = &'s Sign>) -> Option<Interval> {
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

impl<'a> Edges<'a> {
    fn in_window(&self, at: MonotonicNs) -> bool {
        at >= self.window.0 && self.window.1.is_none_or(|end| at <= end)
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

    /// What happens inside `create`.
    fn create(&mut self, parent: DraftId, create: &'a Run) {
        let from = create.first_exec().unwrap_or_default();
        let to = create.end().0.unwrap_or(MonotonicNs(u64::MAX));
        let signs: Vec<&'a Sign> = self.unit.signs.iter().filter(|s| s.enter >= from && s.enter <= to).collect();
        let stages: Vec<&'a Run> = self.runs_of_init(Some((from, to))).collect();
        let parent = Some(parent);

        self.self_clone(parent, create, &stages, &signs);
        let joined = self.cgroup_join(parent, &stages, &signs);
        let pivot = signs.iter().find(|s| is_sys(s, Sys::PivotRoot)).copied();
        let init = pivot.map(|sign| sign.tgid).or(self.unit.init());
        let entered = self.namespaces(parent, init, &stages, &signs);
        self.limits(parent, joined.unwrap_or(from), &signs);
        self.rooting(parent, init, entered.unwrap_or(from), pivot, &signs);
        let hooks = self.runs(|kind| *kind == Kind::Hook);
        for run in hooks.into_iter().filter(|run| run.first_exec().is_some_and(|at| at >= from && at <= to)) {
            let name = run.execs.first().map_or("hook", |exec| basename(&exec.filename));
            self.span(parent, "oci.create.hooks", name, Interval::of(run), Some(run.info()));
        }
    }

    fn runs_of_init(&self, within: Option<(MonotonicNs, MonotonicNs)>) -> impl Iterator<Item = &'a Run> + use<'a> {
        let born = |run: &Run| run.created.map(|created| created.at).or(run.first_exec());
        self.unit.runs.iter().filter(move |run| {
            let stage = matches!(run.kind, Kind::Init | Kind::InitChild);
            stage && within.is_none_or(|(from, to)| born(run).is_some_and(|at| at >= from && at <= to))
        })
    }

    fn self_clone(&mut self, parent: Option<DraftId>, create: &Run, stages: &[&Run], signs: &[&Sign]) {
        let again = |run: &Run| {
            let last = run.execs.iter().rev().find(|exec| is_self(&exec.filename))?;
            let first = run.first_exec().filter(|first| *first < last.at)?;
            Some(Interval::seen(first, last.at))
        };
        let sealed = || {
            let open = signs.iter().find(|sign| sign.tgid == create.tgid && is_sys(sign, Sys::Fsopen))?;
            let init = stages.iter().filter_map(|run| run.first_exec()).min().filter(|at| *at > open.enter)?;
            Some(Interval::seen(open.enter, init))
        };
        for found in [again(create), sealed(), stages.iter().find_map(|run| again(run))].into_iter().flatten() {
            self.span(parent, "oci.create.self_clone", "self clone", found, None);
        }
    }

    fn cgroup_join(&mut self, parent: Option<DraftId>, stages: &[&Run], signs: &[&Sign]) -> Option<MonotonicNs> {
        let made = |sign: &&&Sign| matches!(sign.what, What::CgroupMkdir(_));
        let first = signs.iter().find(made)?.exit;
        let cgroups: BTreeSet<u64> =
            signs.iter().filter_map(|s| if let What::CgroupMkdir(id) = s.what { Some(id.0) } else { None }).collect();
        let attached = signs.iter().filter(|s| matches!(s.what, What::CgroupAttach)).map(|s| s.exit).max();
        let cloned =
            || stages.iter().filter_map(|run| run.created).find(|c| cgroups.contains(&c.cgroup.0)).map(|c| c.at);
        let last = attached.or_else(cloned).filter(|last| *last >= first)?;
        self.span(parent, "oci.create.cgroup_join", "join cgroup", Interval::seen(first, last), None);
        Some(last)
    }

    fn namespaces(
        &mut self,
        parent: Option<DraftId>,
        init: Option<Tgid>,
        stages: &[&Run],
        signs: &[&Sign],
    ) -> Option<MonotonicNs> {
        let family: BTreeSet<Tgid> = stages.iter().map(|run| run.tgid).collect();
        let calls = signs.iter().filter(|sign| {
            let entering = syscall(sign).is_some_and(|call| match call.sys {
                Sys::Setns => true,
                Sys::Unshare => call.args[0] & CLONE_NEW != 0,
                _ => false,
            });
            entering && family.contains(&sign.tgid)
        });
        let mut intervals: Vec<(MonotonicNs, MonotonicNs)> = calls.map(|sign| (sign.enter, sign.exit)).collect();
        let clones = stages.iter().filter_map(|run| run.created).filter(|c| c.clone_flags & CLONE_NEW != 0);
        intervals.extend(clones.map(|created| (created.at, created.at)));
        let (from, mut to) = (intervals.iter().map(|i| i.0).min()?, intervals.iter().map(|i| i.1).max()?);
        // A pid namespace begins with the next clone: the final stage's.
        let last_stage = stages.iter().find(|run| Some(run.tgid) == init).and_then(|run| run.created);
        to = to.max(last_stage.map_or(to, |created| created.at));
        self.span(parent, "oci.create.namespaces", "namespaces", Interval::seen(from, to), None);
        Some(to)
    }

    fn limits(&mut self, parent: Option<DraftId>, after: MonotonicNs, signs: &[&Sign]) {
        let writes = signs.iter().copied().filter(|sign| {
            let limit = matches!(&sign.what, What::CgroupWrite(write) if !is_membership(&write.file));
            limit && sign.enter >= after
        });
        if let Some(interval) = Interval::around(writes) {
            self.span(parent, "oci.create.limits", "cgroup limits", interval, None);
        }
    }

    fn rooting(
        &mut self,
        parent: Option<DraftId>,
        init: Option<Tgid>,
        after: MonotonicNs,
        pivot: Option<&Sign>,
        signs: &[&Sign],
    ) {
        let of_init = |sign: &&&Sign| Some(sign.tgid) == init && sign.enter >= after;
        let mounts = || signs.iter().filter(of_init).filter(|sign| is_mount(sign)).copied();
        let Some(pivot) = pivot else {
            if let Some(interval) = Interval::around(mounts()) {
                self.span(parent, "oci.create.mounts", "mounts", interval, None);
            }
            return;
        };
        let left = signs.iter().filter(of_init).find(|s| s.enter >= pivot.exit && is_sys(s, Sys::Umount2));
        let end = left.map_or(pivot.exit, |sign| sign.exit);
        let (before, behind) = (
            Interval::around(mounts().filter(|sign| sign.enter < pivot.enter)),
            Interval::around(mounts().filter(|sign| sign.enter >= end)),
        );
        if let Some(interval) = before {
            self.span(parent, "oci.create.mounts", "mounts", interval, None);
        }
        let errno = syscall(pivot).and_then(Syscall::errno);
        let pivoted = Interval { errno, ..Interval::seen(pivot.enter, end) };
        self.span(parent, "oci.create.pivot", "pivot_root", pivoted, None);
        if let Some(interval) = behind {
            self.span(parent, "oci.create.mounts", "masked and read-only paths", interval, None);
        }
    }
}

fn syscall(sign: &Sign) -> Option<&Syscall> {
    match &sign.what {
        What::Syscall(syscall) => Some(syscall),
        What::CgroupMkdir(_) | What::CgroupAttach | What::CgroupWrite(_) => None,
    }
}

fn is_sys(sign: &Sign, sys: Sys) -> bool {
    syscall(sign).is_some_and(|call| call.sys == sys)
}

fn is_mount(sign: &Sign) -> bool {
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
fn is_self(filename: &str) -> bool {
    ["/proc/self/", "/dev/fd/", "memfd:"].iter().any(|prefix| filename.starts_with(prefix))
}

/// The runtime's own name: its first exec is by path, later ones may be by descriptor.
fn runtime_name(run: &Run) -> &str {
    run.execs.first().map_or("runtime", |exec| basename(exec.argv.first().unwrap_or(&exec.filename)))
}

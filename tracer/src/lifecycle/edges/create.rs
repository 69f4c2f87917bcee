//! What happens inside `create`, until init has its namespaces; what follows is in `sequence.rs`.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `.load` | clone of `create`; where it re-executes itself, that exec | first of: its fsopen, its mkdir of the cgroup, init's exec (crun's init: clone) |
//! | `.self_clone` | first exec of a process that re-executes itself, or the runtime's first fsopen | last such exec |
//! | `.cgroup_join` | first mkdir of the container's cgroup; by PID 1: the last sign of `create` before | last attach; with CLONE_INTO_CGROUP the clone; with PID 1 the last hand-down of controllers |
//! | `.bootstrap` | end of init's self clone and of the join | first sign of its namespaces |
//! | `.namespaces` | first setns, unshare or clone flag of init's stages | last, or the clone of the final stage after it |
//! | `.hooks` | a hook's clone | its exit |

use std::collections::BTreeSet;

use super::super::argv::basename;
use super::super::unit::{Kind, Run, Sign, What};
use super::Edges;
use super::interval::{Interval, is_self, is_sys, syscall};
use super::sequence::Sequence;
use crate::ids::{MonotonicNs, Tgid};
use crate::record::Sys;
use crate::trace::DraftId;

/// `CLONE_NEW*` of namespaces that a container may have of its own.
const CLONE_NEW: u64 = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

impl<'a> Edges<'a> {
    /// What happens inside `create`.
    pub(super) fn create(&mut self, parent: DraftId, create: &'a Run) {
        let from = create.first_exec().unwrap_or_default();
        let to = create.end().0.unwrap_or(MonotonicNs(u64::MAX));
        let signs: Vec<&'a Sign> = self.unit.signs.iter().filter(|s| s.enter >= from && s.enter <= to).collect();
        let stages: Vec<&'a Run> = self.runs_of_init(Some((from, to))).collect();
        let parent = Some(parent);

        self.load(parent, create, &stages, &signs);
        let cloned = self.self_clone(parent, create, &stages, &signs);
        let joined = self.cgroup_join(parent, create, &stages, &signs);
        let pivot = signs.iter().find(|s| is_sys(s, Sys::PivotRoot)).copied();
        let init = pivot.map(|sign| sign.tgid).or(self.unit.init());
        let entered = self.namespaces(parent, init, &stages, &signs);
        if let Some((told, (first, _))) = cloned.max(joined).zip(entered)
            && told <= first
            && stages.iter().any(|run| run.first_exec().is_some())
        {
            self.span(parent, "oci.create.bootstrap", "bootstrap init", Interval::seen(told, first), None);
        }
        let after = joined.max(entered.map(|(_, last)| last));
        let mut hooks = self.runs(|kind| *kind == Kind::Hook);
        hooks.retain(|run| run.first_exec().is_some_and(|at| at >= from && at <= to));
        let hooked: Vec<MonotonicNs> = hooks.iter().filter_map(|run| run.first_exec()).collect();
        for part in (Sequence { create, init, after, hooks: &hooked, signs: &signs }).parts() {
            self.span(parent, part.stage, part.name, part.interval, None);
        }
        for run in hooks {
            let name = run.execs.first().map_or("hook", |exec| basename(&exec.filename));
            self.span(parent, "oci.create.hooks", name, Interval::of(run), Some(run.info()));
        }
    }

    pub(super) fn runs_of_init(
        &self,
        within: Option<(MonotonicNs, MonotonicNs)>,
    ) -> impl Iterator<Item = &'a Run> + use<'a> {
        let born = |run: &Run| run.created.map(|created| created.at).or(run.first_exec());
        self.unit.runs.iter().filter(move |run| {
            let stage = matches!(run.kind, Kind::Init | Kind::InitChild);
            stage && within.is_none_or(|(from, to)| born(run).is_some_and(|at| at >= from && at <= to))
        })
    }

    /// The runtime reads the bundle's spec and makes ready what it keeps of a container, then init.
    fn load(&mut self, parent: Option<DraftId>, create: &Run, stages: &[&Run], signs: &[&Sign]) {
        let again = create.execs.iter().skip(1).rev().find(|exec| is_self(&exec.filename)).map(|exec| exec.at);
        let own = |sign: &&&Sign| {
            sign.tgid == create.tgid && (is_sys(sign, Sys::Fsopen) || matches!(sign.what, What::CgroupMkdir(_)))
        };
        let prepared = signs.iter().find(own).map(|sign| sign.enter);
        let init = stages.iter().filter_map(|run| run.first_exec()).min();
        let init = init.or(stages.iter().filter_map(|run| run.begin()).min());
        if let Some((from, to)) = again.or(create.begin()).zip(prepared.into_iter().chain(init).min())
            && from <= to
        {
            self.span(parent, "oci.create.load", "load the bundle", Interval::seen(from, to), None);
        }
    }

    /// The end of init's self clone.
    fn self_clone(
        &mut self,
        parent: Option<DraftId>,
        create: &Run,
        stages: &[&Run],
        signs: &[&Sign],
    ) -> Option<MonotonicNs> {
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
        let own = again(create).map(|found| Interval { start: create.begin().unwrap_or(found.start), ..found });
        let init = sealed().or_else(|| stages.iter().find_map(|run| again(run)));
        for found in own.into_iter().chain(init) {
            self.span(parent, "oci.create.self_clone", "self clone", found, None);
        }
        init.and_then(|found| found.end)
    }

    /// With the systemd driver the runtime asks PID 1, which makes the cgroup and moves init: the runtime waits from its
    /// last sign before. Then it hands the controllers down, as it does at first where it makes the cgroup itself.
    fn cgroup_join(
        &mut self,
        parent: Option<DraftId>,
        create: &Run,
        stages: &[&Run],
        signs: &[&Sign],
    ) -> Option<MonotonicNs> {
        let made = |sign: &&&Sign| matches!(sign.what, What::CgroupMkdir(_));
        let made = *signs.iter().find(made)?;
        let manager = (made.tgid != create.tgid).then_some(made.tgid);
        let asked = || {
            let own = signs.iter().filter(|sign| sign.tgid == create.tgid).map(|sign| sign.exit);
            let births = stages.iter().filter(|run| run.parent == create.tgid);
            let births = births.filter_map(|run| run.first_exec().or(run.created.map(|created| created.at)));
            own.chain(births).filter(|at| *at <= made.exit).max()
        };
        let first = manager.and_then(|_| asked()).unwrap_or(made.exit);
        let cgroups: BTreeSet<u64> =
            signs.iter().filter_map(|s| if let What::CgroupMkdir(id) = s.what { Some(id.0) } else { None }).collect();
        let attached = signs.iter().filter(|s| matches!(s.what, What::CgroupAttach)).map(|s| s.exit).max();
        let cloned =
            || stages.iter().filter_map(|run| run.created).find(|c| cgroups.contains(&c.cgroup.0)).map(|c| c.at);
        let last = attached.or_else(cloned).filter(|last| *last >= first)?;
        let handed_down = signs.iter().filter(|sign| {
            let controllers = matches!(&sign.what, What::CgroupWrite(write) if write.file == "cgroup.subtree_control");
            manager.is_some() && controllers && sign.tgid == create.tgid
        });
        let last = handed_down.map(|sign| sign.exit).fold(last, MonotonicNs::max);
        let span = self.span(parent, "oci.create.cgroup_join", "join cgroup", Interval::seen(first, last), None);
        if let Some((id, manager)) = span.zip(manager) {
            self.draft.attribute(id, "cgroup_manager", format!("pid {manager}"));
        }
        Some(last)
    }

    fn namespaces(
        &mut self,
        parent: Option<DraftId>,
        init: Option<Tgid>,
        stages: &[&Run],
        signs: &[&Sign],
    ) -> Option<(MonotonicNs, MonotonicNs)> {
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
        Some((from, to))
    }
}

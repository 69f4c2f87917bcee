//! What happens inside `create`.

use std::collections::BTreeSet;

use super::super::argv::basename;
use super::super::unit::{Kind, Run, Sign, What, is_membership};
use super::Edges;
use super::interval::{Interval, is_mount, is_self, is_sys, syscall};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Sys, Syscall};
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
            self.span(parent, "oci.create.mounts", "masked paths", interval, None);
        }
    }
}

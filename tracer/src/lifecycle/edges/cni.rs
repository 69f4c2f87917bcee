//! CNI plugins: each a process; a delegate is below its caller.

use std::collections::BTreeMap;

use super::super::argv::{Cni, basename};
use super::super::unit::{Kind, Run};
use super::Edges;
use super::interval::{Interval, is_sys, syscall};
use crate::ids::{MonotonicNs, Tgid, Tid};
use crate::record::Sys;
use crate::trace::DraftId;

/// Where a plugin is from an instant on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    Pod,
    /// A delegate runs.
    Away,
}

impl<'a> Edges<'a> {
    pub(super) fn cni(&mut self) {
        for (command, name) in [("ADD", "CNI"), ("DEL", "CNI DEL")] {
            let is = |kind: &Kind| matches!(kind, Kind::Cni(cni) if cni.command == command);
            let runs = self.runs(is);
            let Some(start) = runs.iter().filter_map(|run| run.begin()).min() else { continue };
            let ends: Option<Vec<_>> = runs.iter().map(|run| run.end().0).collect();
            let observed = runs.iter().all(|run| run.end().1);
            let end = ends.and_then(|ends| ends.into_iter().max());
            let whole = Interval { observed, ..Interval::to(start, end) };
            let Some(group) = self.span(self.parent, "cni", name, whole, None) else { continue };
            self.between(group, &runs);
            let mut by_tgid: BTreeMap<Tgid, DraftId> = BTreeMap::new();
            for run in &runs {
                let Kind::Cni(Cni { plugin, .. }) = &run.kind else { continue };
                let parent = by_tgid.get(&run.parent).copied().unwrap_or(group);
                let stage = format!("cni.{plugin}");
                if let Some(id) = self.span(Some(parent), &stage, plugin, Interval::of(run), Some(run.info())) {
                    by_tgid.insert(run.tgid, id);
                    self.helpers(id, run);
                    self.places(id, plugin, run, &runs);
                }
            }
        }
    }

    /// From one plugin's exit to the next one's clone, while none runs: the runtime reads the result and hands it on.
    fn between(&mut self, group: DraftId, runs: &[&Run]) {
        let mut lives: Vec<_> = runs.iter().filter_map(|run| Some((run.begin()?, run.end().0?))).collect();
        lives.sort_unstable();
        let mut idle: Option<MonotonicNs> = None;
        for (begin, end) in lives {
            if let Some(from) = idle.filter(|from| *from < begin) {
                self.span(Some(group), "cni_next", "next plugin", Interval::seen(from, begin), None);
            }
            idle = idle.max(Some(end));
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

    /// A plugin's time in the pod's network namespace and in the node's. Without a visit and without a delegate the
    /// plugin's own span says it all; of a plugin that still runs, or whose exit was not seen, nothing more is said.
    fn places(&mut self, id: DraftId, plugin: &str, run: &'a Run, runs: &[&'a Run]) {
        let (Some(begin), (Some(end), true)) = (run.begin(), run.end()) else { return };
        let mut turns: Vec<(MonotonicNs, Place)> = self.visits(run);
        let visits = turns.clone();
        let inside = |at: MonotonicNs| visits.iter().rfind(|(from, _)| *from <= at).map_or(Place::Host, |turn| turn.1);
        for delegate in runs.iter().filter(|other| other.parent == run.tgid && other.tgid != run.tgid) {
            let (Some(from), (Some(to), true)) = (delegate.begin(), delegate.end()) else { return };
            if from < begin || to > end {
                continue;
            }
            turns.extend([(from, Place::Away), (to, inside(to))]);
        }
        if turns.is_empty() {
            return;
        }
        turns.sort_by_key(|(at, _)| *at);
        let (mut from, mut place) = (begin, Place::Host);
        for (at, next) in turns.into_iter().chain([(end, Place::Away)]) {
            let at = at.min(end).max(from);
            let (stage, name) = match place {
                Place::Host => ("host", "on the node"),
                Place::Pod => ("netns", "in the pod's network"),
                Place::Away => ("", ""),
            };
            if next == place {
                continue;
            }
            if place != Place::Away && at > from {
                let stage = format!("cni.{plugin}.{stage}");
                self.span(Some(id), &stage, name, Interval::seen(from, at), None);
            }
            (from, place) = (at, next);
        }
    }

    /// A plugin enters with a thread that it locks, and the same one returns; what it does on the node meanwhile, by
    /// another thread, is part of the visit.
    fn visits(&self, run: &Run) -> Vec<(MonotonicNs, Place)> {
        let home = run.execs.first().map_or(0, |exec| exec.net);
        let mut turns = Vec::new();
        let mut inside: Option<Tid> = None;
        let mine = self.unit.signs.iter().filter(|sign| sign.tgid == run.tgid && is_sys(sign, Sys::Setns));
        for (sign, net) in mine.filter_map(|sign| Some((sign, syscall(sign)?.namespaces.net))) {
            if home == 0 || net == 0 {
                continue;
            }
            match inside {
                None if net != home => {
                    inside = Some(sign.tid);
                    turns.push((sign.enter, Place::Pod));
                }
                Some(tid) if net == home && tid == sign.tid => {
                    inside = None;
                    turns.push((sign.exit, Place::Host));
                }
                _ => {}
            }
        }
        turns
    }
}

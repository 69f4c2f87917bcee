//! OOM kills. The kernel names its victim by pid; a container's own children are not followed, so whose such a victim
//! was is known only by its shim's word, which comes a little later.

use std::collections::VecDeque;

use super::super::Lifecycle;
use super::super::unit::{Kind, Unit, UnitKey};
use super::{Happened, Tables};
use crate::diagnose::life::{self, Killed};
use crate::ids::{MonotonicNs, Tgid};
use crate::trace::{LifeEvent, LifeKind, LifeProcess};

/// Victims that a unit remembers.
const MAX_VICTIMS: usize = 8;
/// Kills, and shims' words about them, that are remembered.
const MAX_HELD: usize = 64;
/// The kernel kills all of a group within that time.
const GROUP_NS: u64 = 500_000_000;
/// A shim tells within that time, on a busy node, too.
const WAIT_NS: u64 = 2_000_000_000;
/// An init that ends so soon after a child was killed ends with it.
const SOON_NS: u64 = 10_000_000_000;
/// What a shell makes of a child that SIGKILL ended.
const KILLED: u8 = 128 + 9;

/// A process of a container that the kernel chose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    at: MonotonicNs,
    pub(super) pid: Tgid,
    pub(super) rss_kib: u32,
}

/// A kill that is not told yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    victim: Victim,
    unit: Option<UnitKey>,
}

impl Tables {
    /// A shim says that a container ran out of memory.
    pub(in crate::lifecycle) fn told_oom(&mut self, at: MonotonicNs, key: UnitKey) {
        if self.told_oom.len() >= MAX_HELD {
            self.told_oom.pop_front();
        }
        self.told_oom.push_back((at, key));
    }
}

impl Unit {
    /// The kill that ended it: of init itself, or of a child whose end it ended with.
    pub(super) fn oom_killed(&self, at: MonotonicNs) -> Option<&Victim> {
        let (_, exit) = self.exit.as_ref()?;
        let init = || self.life.victims.iter().find(|victim| Some(victim.pid) == self.init());
        let child = || self.life.victims.iter().find(|victim| at.since(victim.at) <= SOON_NS);
        match (exit.signal, exit.status) {
            (Some(_), _) => init(),
            (None, Some(KILLED)) => child(),
            _ => None,
        }
    }

    /// Whether all of its processes go with one, as far as is known.
    pub(super) fn group(&self, at: MonotonicNs) -> Option<bool> {
        let asked = self.writes.effective(at).get("memory.oom.group").map(|value| value == "1");
        let near = |victim: &&Victim| at.since(victim.at).max(victim.at.since(at)) <= GROUP_NS;
        let many = self.life.victims.iter().filter(near).count() > 1;
        if many { Some(true) } else { asked }
    }
}

/// What its memory limit was then.
pub(super) fn limit(unit: &Unit, at: MonotonicNs) -> Option<String> {
    let limits = unit.writes.effective(at);
    limits.get("memory.max").or_else(|| limits.get("memory.limit_in_bytes")).cloned()
}

impl Lifecycle {
    /// The OOM killer chose a process.
    pub(in crate::lifecycle) fn oom(&mut self, at: MonotonicNs, pid: Tgid, rss_kib: u32) {
        let process = self.processes.get(pid);
        let becomes_init = process.is_some_and(|process| process.kind == Kind::Init);
        let key = process.and_then(|process| process.unit).filter(|key| self.units.get(*key).is_some());
        let victim = Victim { at, pid, rss_kib };
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else {
            self.stray_oom = true;
            self.hold(Held { victim, unit: None });
            return;
        };
        unit.oom = true;
        unit.init_oom = unit.init_oom.or(Some(pid).filter(|_| becomes_init));
        let init = unit.init() == Some(pid);
        if unit.life.victims.iter().any(|known| known.pid == pid && at.since(known.at) <= GROUP_NS) {
            return;
        }
        if unit.life.victims.len() >= MAX_VICTIMS {
            unit.life.victims.remove(0);
        }
        unit.life.victims.push(victim);
        let Some(key) = key else { return };
        if !init {
            self.hold(Held { victim, unit: Some(key) });
            return;
        }
        // Those of its group that came before it.
        let (own, others) = std::mem::take(&mut self.life.ooms).into_iter().partition(|held| held.unit == Some(key));
        self.life.ooms = others;
        let own: VecDeque<Held> = own;
        own.into_iter().for_each(|held| self.oom_event(key, held.victim, false));
        self.oom_event(key, victim, true);
    }

    fn hold(&mut self, held: Held) {
        if self.life.ooms.len() >= MAX_HELD {
            self.life.ooms.pop_front();
            self.losses.evicted += 1;
        }
        self.life.ooms.push_back(held);
    }

    /// Tells the kills that nothing more is to come about.
    pub(in crate::lifecycle) fn oom_settled(&mut self) {
        let now = self.now;
        let due = |held: &Held| now.since(held.victim.at) >= WAIT_NS;
        while self.life.ooms.front().is_some_and(due) {
            let Some(held) = self.life.ooms.pop_front() else { break };
            let key = held.unit.or_else(|| self.stray(held.victim));
            let Some(key) = key else { continue };
            if held.unit.is_none()
                && let Some(unit) = self.units.get_mut(key)
                && unit.life.victims.len() < MAX_VICTIMS
            {
                unit.oom = true;
                unit.life.victims.push(held.victim);
            }
            self.oom_event(key, held.victim, false);
        }
        if self.life.ooms.is_empty() {
            let ends = std::mem::take(&mut self.life.ends);
            ends.into_iter().for_each(|key| self.life.ended(key));
        }
    }

    /// Whose a victim was that nobody follows: of the one container of which a shim says so at that time, where the kernel
    /// chose no other one.
    fn stray(&self, victim: Victim) -> Option<UnitKey> {
        let near = |at: MonotonicNs| at >= victim.at && at.since(victim.at) <= WAIT_NS;
        let others = self.life.ooms.iter().any(|held| held.unit.is_none() && near(held.victim.at));
        let mut told = self.life.told_oom.iter().filter(|(at, _)| near(*at)).map(|(_, key)| *key);
        let key = told.next().filter(|key| !others && told.all(|other| other == *key))?;
        let unit = self.units.get(key)?;
        (!unit.life.victims.iter().any(|known| known.at <= victim.at && victim.at.since(known.at) <= WAIT_NS))
            .then_some(key)
    }

    /// An end with a child's code, while it is not known whose child was killed.
    pub(super) fn waits_for_oom(&self, key: UnitKey) -> bool {
        let exit = self.units.get(key).and_then(|unit| unit.exit.as_ref());
        let stray = |held: &Held| held.unit.is_none();
        exit.is_some_and(|(_, exit)| exit.status == Some(KILLED)) && self.life.ooms.iter().any(stray)
    }

    fn oom_event(&mut self, key: UnitKey, victim: Victim, init: bool) {
        let Some(unit) = self.units.get(key) else { return };
        let at = victim.at;
        let (limit, group) = (limit(unit, at), unit.group(at));
        let entry = unit.entered().filter(|_| init);
        let comm = entry.map_or_else(String::new, |entry| entry.comm.clone());
        let killed =
            Killed { pid: victim.pid, comm: &comm, rss_kib: victim.rss_kib, limit: limit.clone(), group, init };
        // Whose first process goes with it has its verdict with its end.
        let lives = !init && unit.runs() && group != Some(true);
        let verdict = lives.then(|| life::oom(&killed));
        let rss = Some(victim.rss_kib).filter(|rss| *rss > 0);
        let event = LifeEvent {
            process: Some(LifeProcess { pid: victim.pid, comm }),
            verdict,
            ..LifeEvent::new(LifeKind::Oom, at)
        };
        // Before the entrypoint it is one of those that become init.
        let init = Some(init).filter(|init| *init || unit.ran());
        let event = event.and("rss_kib", rss).and("limit", limit).and("init", init).and("group", group);
        self.life.happened.push((key, Happened::Event(Box::new(event))));
    }
}

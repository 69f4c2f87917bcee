//! What happens to a pod besides its starts (`trace/life.rs`): told as soon as it is known whose it is.
//!
//! A sign of a unit that is of no pod yet waits there, for the call that names it may come late. Nothing that was told is
//! kept; of a unit a few words are, so that the next thing is told right. Kernel signs decide what happened; calls say
//! who had asked for it.

mod calls;
mod oom;
mod probes;
mod signs;

use std::collections::{BTreeSet, VecDeque};

pub(super) use self::calls::LifeCall;
use self::oom::{Held, Victim};
use self::probes::{Probe, Shape};
use self::signs::Sent;
use super::Lifecycle;
use super::start::Start;
use super::unit::{Unit, UnitKey};
use crate::engine::Update;
use crate::ids::{ContainerId, MonotonicNs, SandboxId, Tgid};
use crate::trace::{LifeContainer, LifeEvent, LifeKind, PodInfo};

/// What a unit of no pod holds.
const MAX_HELD: usize = 32;
/// After a loss, what was not seen says nothing for so long.
const LOSS_NS: u64 = 600_000_000_000;

/// What ends so soon after podlapse came may have been asked to before; kubelet's grace period is half of it.
const GRACE_NS: u64 = 60_000_000_000;

/// A pod's name is waited for so long, where its uid is known already.
const NAME_NS: u64 = 60_000_000_000;
const MAX_NAMELESS: usize = 256;

/// What is kept of a unit's life.
#[derive(Debug, Default)]
pub(super) struct Life {
    held: Vec<Happened>,
    /// The last signal to its init, and the first of the runtime.
    last: Option<Sent>,
    first: Option<Sent>,
    /// The first call that asked for its end.
    asked: Option<MonotonicNs>,
    victims: Vec<Victim>,
    /// Its shim ended while it ran.
    shim_died: Option<MonotonicNs>,
    /// It had a PostStart hook, and that failed.
    hooked: bool,
    poststart_failed: bool,
    /// Exec probes of a container; ports of a sandbox to which its client connected.
    probes: Vec<Probe<Shape>>,
    ports: Vec<Probe<u32>>,
    ready: bool,
    /// A plugin failed that another one, this one, had run.
    delegate_failed: Option<Tgid>,
    cni_failed: bool,
    stopped: bool,
    removed: bool,
}

impl Life {
    /// Something of it is to be told once it is of a pod.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

/// What is to be told.
#[derive(Debug)]
enum Happened {
    /// Init ended: what that means is said when it is known whose it was.
    Ended,
    Event(Box<LifeEvent>),
}

/// What is told of all units.
#[derive(Debug, Default)]
pub(super) struct Tables {
    happened: Vec<(UnitKey, Happened)>,
    /// Units of which more is known now.
    named: BTreeSet<UnitKey>,
    /// OOM kills whose victim is not a container's init, or of no unit.
    ooms: VecDeque<Held>,
    /// Containers of which shims said that they ran out of memory.
    told_oom: VecDeque<(MonotonicNs, UnitKey)>,
    /// Ends that wait for an OOM kill to have a container.
    ends: Vec<UnitKey>,
    /// Units of a pod of which only the uid is known, and until when its name is waited for.
    nameless: VecDeque<(MonotonicNs, UnitKey)>,
}

impl Tables {
    /// More is known of a unit.
    pub(super) fn named(&mut self, key: UnitKey) {
        self.named.insert(key);
    }

    /// The same of many.
    pub(super) fn all_named(&mut self, keys: impl Iterator<Item = UnitKey>) {
        self.named.extend(keys);
    }

    /// A name that has not come by now is waited for no longer.
    pub(super) fn no_name_comes(&mut self, now: MonotonicNs) {
        while let Some((_, key)) = self.nameless.pop_front_if(|(until, _)| *until <= now) {
            self.named(key);
        }
    }

    /// A unit's init ended.
    pub(super) fn ended(&mut self, key: UnitKey) {
        self.happened.push((key, Happened::Ended));
    }

    fn event(&mut self, key: UnitKey, event: LifeEvent) {
        self.happened.push((key, Happened::Event(Box::new(event))));
    }
}

/// Whose a unit is.
struct Place {
    pod: PodInfo,
    sandbox: Option<SandboxId>,
    /// None: it is the sandbox itself.
    container: Option<LifeContainer>,
}

impl Lifecycle {
    /// Tells what happened since the last time.
    pub(super) fn tell(&mut self, updates: &mut Vec<Update>) {
        for key in std::mem::take(&mut self.life.named) {
            let held = self.units.get_mut(key).map(|unit| std::mem::take(&mut unit.life.held));
            held.into_iter().flatten().for_each(|happened| self.say(key, happened, updates));
        }
        for (key, happened) in std::mem::take(&mut self.life.happened) {
            self.say(key, happened, updates);
        }
    }

    /// What the starts that changed hold may be told now.
    pub(super) fn names_may_be_known(&mut self) {
        let starts = self.touched.iter().filter_map(|key| self.starts.get(key));
        let ids = starts
            .flat_map(|start| start.sandbox.iter().chain(start.containers.iter().filter_map(|it| it.id.as_ref())));
        let holds = |key: &UnitKey| self.units.get(*key).is_some_and(|unit| unit.life.holds());
        let keys: Vec<UnitKey> = ids.filter_map(|id| self.units.find(id)).filter(holds).collect();
        self.life.all_named(keys.into_iter());
    }

    fn say(&mut self, key: UnitKey, happened: Happened, updates: &mut Vec<Update>) {
        let at = match &happened {
            Happened::Ended => self.units.get(key).and_then(|unit| unit.exit.as_ref()).map(|(at, _)| *at),
            Happened::Event(event) => Some(event.at),
        };
        let waits = |at: MonotonicNs| self.now.since(at) < NAME_NS;
        let nameless = |place: &Place| place.pod.name.is_none() && at.is_some_and(waits);
        let place = self.place(key);
        if place.as_ref().is_some_and(nameless) {
            if self.life.nameless.len() >= MAX_NAMELESS {
                self.life.nameless.pop_front();
            }
            self.life.nameless.push_back((MonotonicNs(self.now.0.saturating_add(NAME_NS)), key));
        }
        let Some(place) = place.filter(|place| !nameless(place)) else {
            if let Some(unit) = self.units.get_mut(key).filter(|unit| unit.life.held.len() < MAX_HELD) {
                unit.life.held.push(happened);
            }
            return;
        };
        if matches!(happened, Happened::Ended) && self.waits_for_oom(key) {
            self.life.ends.push(key);
            return;
        }
        let event = match happened {
            Happened::Ended => self.end_event(key, &place),
            Happened::Event(event) => Some(*event),
        };
        // A signal to pause is told by what it does.
        let told = |event: &LifeEvent| event.kind != LifeKind::Signal || place.container.is_some();
        let Some(event) = event.filter(told) else { return };
        let gone = (event.kind == LifeKind::SandboxRemoved).then(|| place.sandbox.clone()).flatten();
        let realtime = self.realtime(event.at);
        let Place { pod, sandbox, container } = place;
        updates.push(Update::Life(Box::new(LifeEvent { realtime, pod, sandbox, container, ..event })));
        gone.into_iter().for_each(|id| self.unlist(&ContainerId(id.0)));
    }

    /// Whose a unit is, as far as that is known; none of one that is of no pod, or of none yet.
    fn place(&self, key: UnitKey) -> Option<Place> {
        let unit = self.units.get(key)?;
        let start = unit.start.and_then(|key| self.starts.get(&key));
        let sandbox = |pod: PodInfo| Place { pod, sandbox: Some(SandboxId(unit.id.0.clone())), container: None };
        let place = match (start, &unit.pod, &unit.existing) {
            (Some(start), ..) if start.sandbox.as_ref() == Some(&unit.id) => sandbox(self.pod(start).clone()),
            (Some(start), ..) => self.place_in(start, &unit.id),
            (None, Some(pod), _) => sandbox(pod.clone()),
            (None, None, Some(it)) => {
                let of = || Some(self.pod(self.starts.get(&self.start_of_unit(&it.sandbox)?)?).clone());
                let container = &it.container;
                Place {
                    pod: self.listed_pod(&it.sandbox).or_else(of)?,
                    sandbox: Some(SandboxId(it.sandbox.0.clone())),
                    container: Some(LifeContainer {
                        name: container.name.clone(),
                        id: container.id.clone(),
                        attempt: container.attempt,
                    }),
                }
            }
            (None, None, None) => return None,
        };
        (place.pod.name.is_some() || place.pod.uid.is_some()).then_some(place)
    }

    fn place_in(&self, start: &Start, id: &ContainerId) -> Place {
        let known = start.containers.iter().rev().find(|it| it.id.as_ref() == Some(id));
        let (name, attempt) = known.map_or((None, None), |it| (it.name.clone(), it.attempt));
        Place {
            pod: self.pod(start).clone(),
            sandbox: start.sandbox.as_ref().map(|id| SandboxId(id.0.clone())),
            container: Some(LifeContainer { name, id: Some(id.clone()), attempt }),
        }
    }

    /// The sandbox of a unit, or it itself.
    fn sandbox_of(&self, place: &Place) -> Option<&Unit> {
        let id = place.sandbox.as_ref()?;
        self.units.get(self.units.find(&ContainerId(id.0.clone()))?)
    }

    /// What was not seen of a unit until then may have happened: records were lost of late, or it ran before podlapse
    /// came, a little while ago.
    fn is_unsure(&self, unit: &Unit, at: MonotonicNs) -> bool {
        let before = |attached: MonotonicNs| unit.entered().is_none() && at.since(attached) < GRACE_NS;
        self.lost_at.is_some_and(|lost| self.now.since(lost) < LOSS_NS) || self.attached_at.is_some_and(before)
    }
}

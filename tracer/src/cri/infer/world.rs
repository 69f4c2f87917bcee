//! Sandboxes and containers as the CRI has shown them: which there are, and in which state when.
//!
//! Each observation is good for some instant between its call's start and its response. It must never say that
//! something is gone because it was not asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::methods::{Method, Object};
use crate::cri::{Field, Fields, Value};
use crate::ids::MonotonicNs;

/// Most sandboxes and containers that are remembered.
const MAX_THINGS: usize = 8192;

/// A list of more fields was cut.
const MAX_LISTED: usize = 32_000;

/// A sandbox's or container's id: 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id([u8; 32]);

impl Id {
    /// Reads hex digits.
    pub(super) fn parse(text: &str) -> Option<Id> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = u8::try_from(high? << 4 | low?).ok()?;
        }
        Some(Id(id))
    }

    /// The digits.
    pub(super) fn text(self) -> String {
        self.0.iter().flat_map(|b| [b >> 4, b & 15]).filter_map(|d| char::from_digit(u32::from(d), 16)).collect()
    }
}

/// The state of a sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Created,
    Running,
    Exited,
    Ready,
    NotReady,
    Gone,
    /// Something else.
    Unknown,
}

/// A state at some instant of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: State,
    pub(super) from: MonotonicNs,
    pub(super) to: MonotonicNs,
}

/// One thing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) id: Id,
    pub(super) object: Object,
    pub(super) parent: Option<Id>,
    pub(super) state: State,
}

/// A sandbox or container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thing {
    pub(super) object: Object,
    /// A container's sandbox.
    pub(super) parent: Option<Id>,
    pub(super) last: Seen,
    /// Its creation was seen: nothing from before the attach can be about it.
    created: bool,
    /// A list of all did not have it.
    missing: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct World {
    things: BTreeMap<Id, Thing>,
}

impl World {
    pub(super) fn get(&self, id: Id) -> Option<&Thing> {
        self.things.get(&id)
    }

    /// Takes an observation; gives the one before.
    pub(super) fn observe(&mut self, observed: Observed, from: MonotonicNs, to: MonotonicNs) -> Option<Seen> {
        let last = Seen { state: observed.state, from, to };
        let Some(thing) = self.things.get_mut(&observed.id) else {
            if self.things.len() >= MAX_THINGS
                && let Some(oldest) = self.things.iter().min_by_key(|(_, thing)| thing.last.to).map(|(id, _)| *id)
            {
                self.things.remove(&oldest);
            }
            let Observed { id, object, parent, .. } = observed;
            self.things.insert(id, Thing { object, parent, last, created: false, missing: false });
            return None;
        };
        thing.parent = thing.parent.or(observed.parent);
        if observed.state != State::Gone {
            thing.missing = false;
        }
        // An answer that was asked for earlier may tell of an earlier state.
        if from < thing.last.to {
            return None;
        }
        Some(std::mem::replace(&mut thing.last, last))
    }

    /// Its creation was seen.
    pub(super) fn created(&mut self, id: Id, parent: Option<Id>) {
        if let Some(thing) = self.things.get_mut(&id) {
            (thing.created, thing.parent) = (true, thing.parent.or(parent));
        }
    }

    /// Whether its creation was seen.
    pub(super) fn came_since(&self, id: Id) -> bool {
        self.get(id).is_some_and(|thing| thing.created)
    }

    /// What a list of all `object`s that was asked for at `from` does not have, for the second time.
    pub(super) fn absent(&mut self, object: Object, listed: &[Observed], from: MonotonicNs) -> Vec<Observed> {
        let listed: BTreeSet<Id> = listed.iter().map(|observed| observed.id).collect();
        let mut gone = Vec::new();
        for (id, thing) in &mut self.things {
            if thing.object != object || thing.last.state == State::Gone || thing.last.to > from || listed.contains(id)
            {
                continue;
            }
            if std::mem::replace(&mut thing.missing, true) {
                gone.push(Observed { id: *id, object, parent: thing.parent, state: State::Gone });
            }
        }
        gone
    }
}

/// What a response says of sandboxes and containers. A state that is not there is the first one, as proto3 has it.
pub(super) fn observed(method: Method, response: &Fields) -> Vec<Observed> {
    let mut out: Vec<Observed> = Vec::new();
    let (object, own) = match method {
        Method::ListPodSandbox | Method::StreamPodSandboxes | Method::PodSandboxStatus | Method::RunPodSandbox => {
            (Object::Sandbox, Field::SandboxId)
        }
        Method::ListContainers | Method::StreamContainers | Method::ContainerStatus | Method::CreateContainer => {
            (Object::Container, Field::ContainerId)
        }
        _ => return out,
    };
    // Whether the item at hand is the last of `out`; one without a readable id is not.
    let mut known = false;
    for (field, value) in &response.0 {
        match (value, out.last_mut().filter(|_| known)) {
            (Value::Text(id), _) if *field == own => {
                let id = Id::parse(id);
                known = id.is_some();
                out.extend(id.map(|id| Observed { id, object, parent: None, state: state(object, 0) }));
            }
            (Value::Text(id), Some(last)) if *field == Field::SandboxId => last.parent = Id::parse(id),
            (Value::Number(n), Some(last)) if *field == Field::State => last.state = state(object, *n),
            _ => {}
        }
    }
    out
}

/// Whether a response lists everything that there is.
pub(super) fn lists_all(method: Method, request: &Fields, response: &Fields) -> Option<Object> {
    if !request.0.is_empty() || response.0.len() >= MAX_LISTED {
        return None;
    }
    match method {
        Method::ListPodSandbox => Some(Object::Sandbox),
        Method::ListContainers => Some(Object::Container),
        _ => None,
    }
}

fn state(object: Object, number: u64) -> State {
    match (object, number) {
        (Object::Sandbox, 0) => State::Ready,
        (Object::Sandbox, 1) => State::NotReady,
        (Object::Container, 0) => State::Created,
        (Object::Container, 1) => State::Running,
        (Object::Container, 2) => State::Exited,
        _ => State::Unknown,
    }
}

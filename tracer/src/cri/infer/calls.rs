//! The calls that may still matter: open ones, ended ones without a name, and those that may have changed something.

use std::collections::BTreeMap;

use super::methods::Method;
use super::set::Set;
use super::walk::{Fact, Found};
use super::world::Id;
use crate::cri::allow::{Allow, Leaf, Take};
use crate::cri::{CallKey, CallStart, Ending, Fields, Value};
use crate::ids::MonotonicNs;

/// Most calls that are remembered.
const MAX_CALLS: usize = 8192;

/// A message of an opaque call.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// When it was complete.
    pub(super) at: Option<MonotonicNs>,
    /// All of it was walked.
    pub(super) whole: bool,
    /// See [`super::walk::Walked::top`].
    pub(super) top: u64,
    pub(super) facts: Vec<Fact>,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) start: CallStart,
    /// What it may be, by what is known of itself.
    pub(super) set: Set,
    /// Its name is known, by the wire or by us.
    pub(super) named: bool,
    /// The sandbox or container that its request names.
    pub(super) id: Option<Id>,
    pub(super) request: Option<Message>,
    pub(super) response: Option<Message>,
    /// Fields of a named call's request.
    pub(super) asked: Option<Fields>,
    pub(super) end: Option<(MonotonicNs, Ending)>,
    /// The text of its status came with it. One in the header table may be another call's, where bytes were lost and
    /// nobody knows.
    pub(super) told_why: bool,
}

impl Call {
    pub(super) fn new(start: CallStart, set: Set, named: bool) -> Call {
        Call { start, set, named, id: None, request: None, response: None, asked: None, end: None, told_why: false }
    }

    /// Whether it ended with OK.
    pub(super) fn succeeded(&self) -> bool {
        matches!(self.end, Some((_, Ending::Status { code: 0, .. })))
    }

    /// Whether it was open at some time between the two.
    pub(super) fn overlaps(&self, from: MonotonicNs, to: MonotonicNs) -> bool {
        self.start.at <= to && self.end.as_ref().is_none_or(|(end, _)| *end >= from)
    }

    /// How often the request has field `number`.
    pub(super) fn requested(&self, number: u8) -> impl Iterator<Item = &Fact> {
        let facts = self.request.iter().flat_map(|message| &message.facts);
        facts.filter(move |fact| fact.path == [number, 0, 0, 0])
    }
}

/// The calls, in the order of their starts.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: BTreeMap<u64, Call>,
    numbers: BTreeMap<CallKey, u64>,
    next: u64,
    /// What was open up to here is not fully remembered.
    pub(super) forgotten: MonotonicNs,
}

impl Calls {
    /// Takes a call in; what had its key before is not followed any more.
    pub(super) fn insert(&mut self, call: Call) {
        self.numbers.insert(call.start.key, self.next);
        self.calls.insert(self.next, call);
        self.next += 1;
        if self.calls.len() > MAX_CALLS
            && let Some((number, call)) = self.calls.pop_first()
        {
            self.forgotten = self.forgotten.max(call.end.map_or(call.start.at, |(end, _)| end));
            if self.numbers.get(&call.start.key) == Some(&number) {
                self.numbers.remove(&call.start.key);
            }
        }
    }

    pub(super) fn get(&self, key: CallKey) -> Option<&Call> {
        self.calls.get(self.numbers.get(&key)?)
    }

    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        self.calls.get_mut(self.numbers.get(&key)?)
    }

    pub(super) fn remove(&mut self, key: CallKey) -> Option<Call> {
        self.calls.remove(&self.numbers.remove(&key)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.calls.values_mut()
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Call) -> bool) {
        self.calls.retain(|_, call| keep(call));
        self.numbers.retain(|_, number| self.calls.contains_key(number));
    }
}

/// The allow-listed fields of a message, of what was kept of it.
pub(super) fn fields(allow: &'static Allow, facts: &[Fact]) -> Fields {
    Fields(facts.iter().filter_map(|fact| value(allow, fact)).collect())
}

fn value(allow: &'static Allow, fact: &Fact) -> Option<(crate::cri::Field, Value)> {
    let mut allow = allow;
    for (depth, number) in fact.path.iter().enumerate() {
        let last = fact.path.get(depth + 1).is_none_or(|next| *next == 0);
        match (allow.get(u32::from(*number))?, &fact.found) {
            (Take::Enter(inner), _) if !last => allow = inner,
            (Take::Text(Leaf::Field(field)), Found::Text(text)) if last => {
                return Some((field, Value::Text(text.clone())));
            }
            (Take::Number(Leaf::Field(field)), Found::Number(number)) if last => {
                return Some((field, Value::Number(*number)));
            }
            (Take::Present(Leaf::Field(field)), _) if last => return Some((field, Value::Number(1))),
            (Take::Size(Leaf::Field(field)), _) if last => return Some((field, Value::Number(fact.len as u64))),
            _ => return None,
        }
    }
    None
}

/// Methods that change what a later list or status shows.
pub(super) fn changing() -> Set {
    [
        Method::StartContainer,
        Method::StopContainer,
        Method::RemoveContainer,
        Method::StopPodSandbox,
        Method::RemovePodSandbox,
    ]
    .into_iter()
    .fold(Set::EMPTY, |set, method| set.or(method.set()))
}

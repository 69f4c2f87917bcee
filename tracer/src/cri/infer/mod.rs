//! Which method is a call whose name is a table entry from before the attach?
//!
//! Owned by the wire decoder, so that live, replay and the recording's redactor come to the same answer. It sees the
//! bodies of opaque calls, every event of the others, and the kernel's signs; it binds a table slot when one method is
//! left, and never otherwise. What it decides hangs only on bytes that it also keeps for a recording.
//!
//! ```text
//!  message ──► walk: forms of all methods left ──┐
//!  event ────► world: states before and after ───┼─► the slot's set ── one is left ──► bound: all its calls are named
//!  sign ─────► tasks, kubelet's habits ──────────┘
//! ```

mod calls;
mod causes;
mod conns;
mod habits;
mod learn;
mod messages;
mod methods;
mod plugins;
mod rules;
mod set;
mod shape;
mod slots;
mod tasks;
mod versions;
mod walk;
mod wire;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use calls::{Call, Calls, Message};
use causes::Change;
use conns::{Conns, Package};
use methods::Method;
use set::Set;
use tasks::Task;
use walk::Found;
use world::{Id, World};

use super::call::{CallEvent, CallKey, CallStart, MethodSource, Protocol};
use crate::ids::{ConnId, MonotonicNs, Tgid};
use crate::record::{Event, Record};

/// Service and method.
pub(crate) type Name = (&'static str, &'static str);

/// Calls that were open at the attach are not seen; what changes within this time may be their doing.
const SETTLED_NS: u64 = 3_000_000_000;

/// Which message of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Request,
    Response,
}

/// What a recording keeps of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All bits.
    All,
    /// The bit that says whether a varint goes on.
    Continuation,
}

/// What is known of the slots.
#[derive(Debug, Default)]
pub(crate) struct Infer {
    conns: Conns,
    calls: Calls,
    world: World,
    /// Changes that no call explains yet.
    changes: Vec<Change>,
    /// Nothing that was seen before says what caused a change: calls were open that are not known.
    blind: Option<MonotonicNs>,
    /// As `blind`: calls were lost.
    lost: MonotonicNs,
    /// The version of the CRI that was seen last, on whatever connection.
    package: Option<Package>,
    /// Methods that the runtime does not have.
    absent: Set,
    /// The runtime says that it is containerd.
    containerd: bool,
    kubelets: BTreeSet<Tgid>,
    /// ttrpc calls to shims whose request has not come.
    tasks: BTreeMap<CallKey, Task>,
}

impl Infer {
    /// A gRPC call begins. The name of an opaque one, when its slot is bound.
    pub(crate) fn start(&mut self, start: &CallStart) -> Option<Name> {
        if start.protocol != Protocol::Grpc {
            return None;
        }
        self.blind.get_or_insert(MonotonicNs(start.at.0.saturating_add(SETTLED_NS)));
        let conn = self.conns.entry(start.key.conn).or_default();
        let stream = start.key.stream;
        if conn.last.is_some_and(|(last, _)| last.checked_add(2) != Some(stream)) {
            conn.lost();
            self.lost = self.lost.max(start.at);
        }
        conn.last = Some((stream, start.at));
        conn.client = conn.client.or(start.client);
        conn.kubelet |= start.client.is_some_and(|client| self.kubelets.contains(&client));
        if start.source != MethodSource::Opaque {
            let set = Package::of(&start.service).and_then(|package| {
                conn.speaks_cri = true;
                conn.package = Some(package);
                self.package = Some(package);
                Method::named(&start.method)
            });
            if start.signs.inserted {
                conn.insert(format!("{}/{}", start.service, start.method));
            }
            self.calls.insert(Call::new(start.clone(), set.map_or(Set::FOREIGN, Method::set), true));
            return None;
        }
        let Some(slot) = start.slot else {
            self.calls.insert(Call::new(start.clone(), Set::all(), false));
            return None;
        };
        conn.epoch(slot.epoch);
        let entry = conn.used(slot);
        if start.signs.namespace {
            entry.narrow(Set::FOREIGN, "containerd-namespace");
        }
        let (set, bound) = (entry.set, entry.bound);
        self.calls.insert(Call::new(start.clone(), set, bound.is_some()));
        bound.map(|method| self.name(start.key.conn, method))
    }

    /// The first bytes of a message of an opaque call, as far as one record holds them; `complete`: that is the whole
    /// message. A name: the slot is bound now, and the message is to be read by that method's list. A
    /// [`CallEvent::Named`] without this message has been given to `out` then.
    pub(crate) fn message(
        &mut self,
        message: Start<'_>,
        keep: &mut dyn FnMut(Range<usize>, Keep),
        out: &mut Vec<CallEvent>,
    ) -> Option<Name> {
        let Start { key, part, at, bytes, complete } = message;
        let set = self.may(self.calls.get(key)?);
        let absent = self.absent(key.conn);
        let call = self.calls.get_mut(key)?;
        if call.named {
            let method = set.single()?;
            return Some(self.name(key.conn, method));
        }
        let mut set = set;
        if part == Part::Response {
            // A runtime's handler answers when it succeeded.
            set = set.and(rules::needed(call)).without(absent);
            if call.response.is_some() {
                set = set.and(rules::streaming());
            }
        }
        let mut walked = walk::walk(set, part, bytes, complete);
        if part == Part::Response && complete {
            walked.set = walked.set.and(rules::given(walked.top));
        }
        let read =
            Message { at: complete.then_some(at), whole: complete, top: walked.top, facts: walked.facts.clone() };
        let first = match part {
            Part::Request => &mut call.request,
            Part::Response => &mut call.response,
        };
        let fresh = first.is_none();
        let first = first.get_or_insert(read);
        if fresh && part == Part::Request {
            call.id = first.facts.iter().find_map(|fact| match &fact.found {
                Found::Text(id) if fact.path == [1, 0, 0, 0] => Id::parse(id),
                _ => None,
            });
        }
        if rules::proven(call, walked.set) {
            walked.set = walked.set.without(Set::FOREIGN);
        }
        if let Some(thing) = call.id.and_then(|id| self.world.get(id)).filter(|_| part == Part::Response) {
            walked.set = walked.set.and(rules::kind(thing.object));
        }
        if !walked.set.meets(Set::FOREIGN) {
            walked.take_plain(bytes);
            if fresh {
                let first = if part == Part::Request { &mut call.request } else { &mut call.response };
                first.get_or_insert_default().facts.clone_from(&walked.facts);
            }
        }
        for range in walked.whole.drain(..) {
            keep(range, Keep::All);
        }
        for range in walked.continuation.drain(..) {
            keep(range, Keep::Continuation);
        }
        let evidence = if part == Part::Request { "request shape" } else { "response shape" };
        self.narrow(key, walked.set, evidence);
        self.answered(key, part);
        self.by_habit(key);
        match self.calls.get(key)?.start.slot {
            Some(slot) => self.bind(key.conn, slot, Some((key, part)), out),
            None => self.alone(key, part, evidence, out),
        }
    }

    /// The text of a call's status stands in its own trailers.
    pub(crate) fn told_why(&mut self, key: CallKey) {
        if let Some(call) = self.calls.get_mut(key) {
            call.told_why = true;
        }
    }

    /// Any other record.
    pub(crate) fn sign(&mut self, record: &Record, _out: &mut Vec<CallEvent>) {
        match &record.event {
            Event::Node(facts) => {
                if let Some((_, name)) = facts.iter().find(|(fact, name)| fact == "runtime" && !name.is_empty()) {
                    self.containerd = name == "containerd";
                }
            }
            Event::Process(process) if habits::is_kubelet(&process.exe) => {
                self.kubelets.insert(record.tgid);
            }
            Event::Exec(exec) if habits::is_kubelet(&exec.filename) => {
                self.kubelets.insert(record.tgid);
            }
            Event::Exec(exec) => {
                self.kubelets.remove(&record.tgid);
                self.plugin(record.at, exec);
            }
            Event::Exit(_) => {
                self.kubelets.remove(&record.tgid);
            }
            _ => {}
        }
    }

    /// A connection is over: its slots mean nothing any more.
    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.calls.retain(|call| call.start.key.conn != conn || (call.id.is_some() && call.end.is_some()));
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) key: CallKey,
    pub(crate) part: Part,
    pub(crate) at: MonotonicNs,
    pub(crate) bytes: &'a [u8],
    pub(crate) complete: bool,
}

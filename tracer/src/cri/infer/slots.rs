//! Narrows slots down, binds them, and names their calls.

use super::calls::{Call, changing, fields};
use super::conns::Package;
use super::habits::habits;
use super::methods::Method;
use super::set::Set;
use super::walk::Found;
use super::{Infer, Name, Part, versions};
use crate::cri::{CallEvent, CallKey, Field, Fields, MethodSource, Named, Slot, schema};
use crate::ids::ConnId;

impl Infer {
    /// What a call may be, by itself and by its slot.
    pub(super) fn may(&self, call: &Call) -> Set {
        let entry = call.start.slot.and_then(|slot| self.conns.get(&call.start.key.conn)?.slots.get(&slot));
        entry.map_or(call.set, |entry| call.set.and(entry.set))
    }

    /// What a call may have done, for all that is known.
    pub(super) fn may_have_done(&self, call: &Call) -> Set {
        let entry = call.start.slot.and_then(|slot| self.conns.get(&call.start.key.conn)?.slots.get(&slot));
        if entry.is_some_and(|entry| entry.contradicted) { Set::all() } else { self.may(call) }
    }

    /// A method's full name on a connection.
    pub(super) fn name(&self, conn: ConnId, method: Method) -> Name {
        let package = self.conns.get(&conn).and_then(|conn| conn.package).or(self.package);
        (Package::service(package, method), method.entry().name)
    }

    /// Leaves only `set` to a call, and to its slot.
    pub(super) fn narrow(&mut self, key: CallKey, set: Set, evidence: &'static str) {
        let Some(call) = self.calls.get_mut(key).filter(|call| !call.named) else { return };
        call.set = call.set.and(set);
        let (set, slot) = (call.set, call.start.slot);
        let entry = slot.and_then(|slot| self.conns.get_mut(&key.conn)?.slots.get_mut(&slot));
        if let Some(entry) = entry {
            entry.narrow(set, evidence);
        }
    }

    /// Lets kubelet's habits speak.
    pub(super) fn by_habit(&mut self, key: CallKey) {
        let Some(conn) = self.conns.get(&key.conn).filter(|conn| conn.kubelet) else { return };
        let Some(call) = self.calls.get(key) else { return };
        let object = call.id.and_then(|id| self.world.get(id)).map(|thing| thing.object);
        for habit in habits(call, object, conn.speaks_cri) {
            self.narrow(key, habit.left, habit.evidence);
        }
    }

    /// Binds a slot that has one method left, and then those for which that leaves one. Gives the name of the slot
    /// itself; `current` is the message at hand, which the caller reads.
    pub(super) fn bind(
        &mut self,
        conn: ConnId,
        slot: Slot,
        current: Option<(CallKey, Part)>,
        out: &mut Vec<CallEvent>,
    ) -> Option<Name> {
        let mut todo = vec![slot];
        let mut name = None;
        while let Some(next) = todo.pop() {
            let Some(state) = self.conns.get_mut(&conn) else { break };
            let Some(entry) = state.slots.get_mut(&next).filter(|entry| entry.bound.is_none()) else { continue };
            let Some(method) = entry.set.single() else { continue };
            entry.bound = Some(method);
            let evidence = entry.evidence();
            state.speaks_cri = true;
            todo.extend(state.exclude(next, method));
            self.version(conn, next, method);
            let full = self.name(conn, method);
            if next == slot {
                name = Some(full);
            }
            let calls = self.calls.iter_mut();
            for call in calls.filter(|call| call.start.key.conn == conn && call.start.slot == Some(next) && !call.named)
            {
                call.named = true;
                call.set = method.set();
                let part = current.filter(|(key, _)| *key == call.start.key).map(|(_, part)| part);
                out.push(CallEvent::Named(Box::new(named(call, full, part, &evidence))));
            }
            self.calls.retain(|call| call.end.is_none() || !call.named || call.set.meets(changing()));
        }
        name
    }

    /// Names a call whose own messages leave one method, when which entry is its path is not known.
    pub(super) fn alone(&mut self, key: CallKey, part: Part, evidence: &str, out: &mut Vec<CallEvent>) -> Option<Name> {
        let method = self.calls.get(key)?.set.single()?;
        let full = self.name(key.conn, method);
        let call = self.calls.get_mut(key)?;
        call.named = true;
        out.push(CallEvent::Named(Box::new(named(call, full, Some(part), evidence))));
        Some(full)
    }

    /// Methods that cannot succeed on a connection: neither the runtime nor the API's version there has them.
    pub(super) fn absent(&self, conn: ConnId) -> Set {
        let Some(own) = self.conns.get(&conn) else { return self.absent };
        // A client's connections, one for each service, speak one version.
        let same = || self.conns.values().filter(|other| own.client.is_some() && other.client == own.client);
        let package = own.package.or_else(|| same().find_map(|other| other.package));
        package.map_or(self.absent, |package| self.absent.or(versions::not_in(package)))
    }

    /// A call was answered: its slot's method is one that the runtime has.
    pub(super) fn answered(&mut self, key: CallKey, part: Part) {
        let slot = self.calls.get(key).and_then(|call| call.start.slot);
        let entry = slot.and_then(|slot| self.conns.get_mut(&key.conn)?.slots.get_mut(&slot));
        if let Some(entry) = entry {
            entry.answered |= part == Part::Response;
        }
    }

    /// The runtime, or the version of its API, is known: methods that it does not have were not answered.
    pub(super) fn exclude_absent(&mut self, out: &mut Vec<CallEvent>) {
        let conns: Vec<ConnId> = self.conns.keys().copied().collect();
        for conn in conns {
            let absent = self.absent(conn);
            let Some(state) = self.conns.get_mut(&conn) else { continue };
            let mut changed = Vec::new();
            for (slot, entry) in &mut state.slots {
                let open = entry.bound.is_none() && entry.answered;
                if open && entry.narrow(Set::all().without(absent), "the runtime's version") {
                    changed.push(*slot);
                }
            }
            for slot in changed {
                self.bind(conn, slot, None, out);
            }
        }
    }

    /// A Version reply.
    pub(super) fn runtime_version(&mut self, reply: &Fields, out: &mut Vec<CallEvent>) {
        let text = |field| reply.text(field).unwrap_or_default();
        self.containerd = text(Field::RuntimeName) == "containerd";
        self.absent = versions::absent(text(Field::RuntimeName), text(Field::RuntimeVersion));
        self.exclude_absent(out);
    }

    /// What a bound Version call's reply says of the API's version.
    fn version(&mut self, conn: ConnId, slot: Slot, method: Method) {
        if method != Method::Version {
            return;
        }
        let calls = self.calls.iter().filter(|call| call.start.key.conn == conn && call.start.slot == Some(slot));
        let package = calls.filter_map(|call| call.response.as_ref()).find_map(|reply| {
            reply.facts.iter().find_map(|fact| match &fact.found {
                Found::Text(text) if fact.path == [4, 0, 0, 0] => Package::of_version(text),
                _ => None,
            })
        });
        if let Some(package) = package {
            self.package = Some(package);
            if let Some(conn) = self.conns.get_mut(&conn) {
                conn.package = Some(package);
            }
        }
    }
}

/// A call with its name, without the part that the caller reads.
fn named(call: &Call, name: Name, current: Option<Part>, evidence: &str) -> Named {
    let mut start = call.start.clone();
    (start.service, start.method, start.source) = (name.0.into(), name.1.into(), MethodSource::Inferred);
    let message = |message: &Option<super::calls::Message>, part, allow| {
        let message = message.as_ref().filter(|_| current != Some(part))?;
        Some((message.at?, fields(allow, &message.facts)))
    };
    Named {
        request: message(&call.request, Part::Request, schema::request(name.0, name.1)),
        response: message(&call.response, Part::Response, schema::response(name.0, name.1)),
        start,
        end: call.end.clone(),
        evidence: evidence.to_owned(),
    }
}

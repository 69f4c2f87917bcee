//! What the calls' events tell: states of sandboxes and containers, ends, and what shims are asked for meanwhile.

use super::Infer;
use super::calls::{changing, fields as kept};
use super::causes::{Cause, Change, cause, doers};
use super::methods::{Method, Object};
use super::rules;
use super::set::Set;
use super::world::{self, Id, Observed, State};
use crate::cri::{CallEvent, CallKey, CallStart, Ending, Field, Fields, Protocol, Unnamed, schema};
use crate::ids::{ConnId, MonotonicNs};

/// Most changes that wait for a cause.
const MAX_CHANGES: usize = 256;

/// gRPC's NOT_FOUND.
const NOT_FOUND: u32 = 5;

impl Infer {
    /// An event of any call.
    pub(crate) fn event(&mut self, event: &CallEvent, out: &mut Vec<CallEvent>) {
        match event {
            CallEvent::Start(start) if start.protocol == Protocol::Grpc => self.begun(start, out),
            CallEvent::Start(start) => self.task(start),
            CallEvent::Request { key, at, fields } => self.requested(*key, *at, fields),
            CallEvent::Response { key, at, fields } => self.replied(*key, *at, fields, out),
            CallEvent::End { key, at, ending } => self.ended(*key, *at, ending, out),
            CallEvent::Undecoded { at, .. } => self.lost = self.lost.max(*at),
            CallEvent::Named(_) | CallEvent::Unnamed(_) | CallEvent::Unasked { .. } => {}
        }
    }

    fn begun(&mut self, start: &CallStart, out: &mut Vec<CallEvent>) {
        if let Some(slot) = start.slot {
            self.by_habit(start.key);
            self.bind(start.key.conn, slot, None, out);
        }
        self.settle(start.key.conn, start.at, out);
    }

    fn requested(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        if self.tasks.contains_key(&key) {
            self.asked_shim(key, at, fields);
            return;
        }
        let Some(call) = self.calls.get_mut(key) else { return };
        if call.named {
            let id = fields.text(Field::ContainerId).or(fields.text(Field::SandboxId));
            call.id = call.id.or(id.and_then(Id::parse));
            call.asked.get_or_insert_with(|| fields.clone());
        } else if let Some(request) = &mut call.request {
            request.at.get_or_insert(at);
        }
    }

    fn replied(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields, out: &mut Vec<CallEvent>) {
        let Some(call) = self.calls.get_mut(key) else { return };
        if !call.named {
            if let Some(response) = &mut call.response {
                response.at.get_or_insert(at);
            }
            return;
        }
        let Some(method) = call.set.single() else { return };
        let from = call.start.at;
        let request = call.asked.clone().or_else(|| {
            let request = call.request.as_ref().filter(|request| request.whole)?;
            let allow = schema::request("RuntimeService", method.entry().name);
            Some(kept(allow, &request.facts))
        });
        if method == Method::Version {
            self.runtime_version(fields, out);
        }
        let observed = world::observed(method, fields);
        for each in &observed {
            self.saw(*each, from, at, out);
            if matches!(method, Method::RunPodSandbox | Method::CreateContainer) {
                let parent = request.as_ref().and_then(|request| request.text(Field::SandboxId)).and_then(Id::parse);
                self.world.created(each.id, parent);
            }
        }
        if let Some(object) = request.and_then(|request| world::lists_all(method, &request, fields)) {
            for gone in self.world.absent(object, &observed, from) {
                self.saw(gone, from, at, out);
            }
        }
    }

    fn ended(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending, out: &mut Vec<CallEvent>) {
        self.tasks.remove(&key);
        let Some(call) = self.calls.get_mut(key) else { return };
        call.end = Some((at, ending.clone()));
        if call.named {
            self.ended_named(key, at, ending, out);
        } else {
            self.ended_opaque(key, out);
        }
    }

    fn ended_named(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending, out: &mut Vec<CallEvent>) {
        let Some(call) = self.calls.get(key) else { return };
        let (from, id, method) = (call.start.at, call.id, call.set.single());
        if !call.set.meets(changing()) {
            self.calls.remove(key);
        }
        let object = match method {
            Some(Method::ContainerStatus) => Object::Container,
            Some(Method::PodSandboxStatus) => Object::Sandbox,
            _ => return,
        };
        if let (Ending::Status { code: NOT_FOUND, .. }, Some(id)) = (ending, id) {
            // Whatever is not found was never there, for all that this says; only what was known is gone.
            if self.world.get(id).is_some() {
                self.saw(Observed { id, object, parent: None, state: State::Gone }, from, at, out);
            }
        }
    }

    fn ended_opaque(&mut self, key: CallKey, out: &mut Vec<CallEvent>) {
        let Some(call) = self.calls.get(key) else { return };
        let set = self.may(call);
        let thing = call.id.and_then(|id| self.world.get(id));
        let mut left = set;
        let mut evidence = "its success";
        if call.succeeded() {
            left = left.and(rules::needed(call)).without(self.absent(key.conn));
            if let Some(thing) = thing {
                left = left.and(rules::kind(thing.object)).and(rules::possible_after(thing, call.start.at));
                evidence = "its success, the state before";
            }
            if rules::stops(call, left, thing) {
                left = left.without(Set::FOREIGN);
                evidence = "a known container's id";
            }
        } else if let Some((_, ending)) = &call.end
            && call.told_why
            && call.response.is_none()
            && let Some(method) = rules::named_by_error(ending)
        {
            left = left.and(method.set());
            evidence = "the error names it";
        }
        if left != set {
            self.narrow(key, left, evidence);
        }
        self.by_habit(key);
        if let Some(slot) = self.calls.get(key).and_then(|call| call.start.slot) {
            self.bind(key.conn, slot, None, out);
        }
        if let Some(unnamed) = self.unnamed(key) {
            out.push(CallEvent::Unnamed(Box::new(unnamed)));
        }
    }

    /// What there is to say of a call that ended without a name.
    fn unnamed(&mut self, key: CallKey) -> Option<Unnamed> {
        let call = self.calls.get(key).filter(|call| !call.named)?;
        let set = self.may(call);
        let unnamed = Unnamed {
            start: call.start.clone(),
            end: call.end.as_ref()?.0,
            ids: call.id.map(Id::text).into_iter().collect(),
            candidates: match set.meets(Set::FOREIGN) {
                true => Vec::new(),
                false => set.methods().map(|method| method.entry().name).collect(),
            },
        };
        // Without a slot, or as no call of the CRI, it will never have a name.
        let hopeless = call.start.slot.is_none() || set.without(Set::FOREIGN).is_empty();
        if hopeless && !set.meets(changing()) {
            self.calls.remove(key);
        }
        Some(unnamed)
    }

    /// A sandbox or container was seen in a state.
    fn saw(&mut self, observed: Observed, from: MonotonicNs, to: MonotonicNs, out: &mut Vec<CallEvent>) {
        let Observed { id, object, state, .. } = observed;
        let before = self.world.observe(observed, from, to);
        let waiting: Vec<(CallKey, bool)> = self
            .calls
            .iter()
            .filter(|call| !call.named && call.id == Some(id))
            .map(|call| {
                let over = call.succeeded() && call.end.as_ref().is_some_and(|(end, _)| *end <= from);
                (call.start.key, over)
            })
            .collect();
        for (key, over) in waiting {
            if over {
                self.narrow(key, rules::kind(object), "the kind of its id");
                self.narrow(key, rules::possible_before(object, state), "the state after");
            }
            if let Some(slot) = self.calls.get(key).and_then(|call| call.start.slot) {
                self.bind(key.conn, slot, None, out);
            }
        }
        let Some(before) = before else { return };
        let Some((by, evidence)) = doers(object, before.state, state, self.containerd) else { return };
        let parent = self.world.get(id).and_then(|thing| thing.parent);
        self.change(Change { id, object, parent, by, from: before.from, to, evidence, task: None });
    }

    /// Something changed, and its cause may be found.
    pub(super) fn change(&mut self, change: Change) {
        if self.changes.len() >= MAX_CHANGES {
            self.changes.remove(0);
        }
        self.changes.push(change);
    }

    /// Whether every call is known that may have caused it: none was lost, and none that was open at the attach can
    /// have been about it, or about its sandbox where that may be the cause.
    fn in_sight(&self, change: &Change) -> bool {
        let known = self.lost.max(self.calls.forgotten);
        let settled = change.from >= self.blind.unwrap_or_default();
        let alone = change.object == Object::Sandbox || !change.by.meets(Method::RemovePodSandbox.set());
        let came = |id| self.world.came_since(id);
        change.from >= known && (settled || (came(change.id) && (alone || change.parent.is_some_and(came))))
    }

    /// A connection went on without a jump: changes that its calls alone can have caused were caused by them.
    fn settle(&mut self, conn: ConnId, at: MonotonicNs, out: &mut Vec<CallEvent>) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.retain(|change| self.in_sight(change));
        let mut left = Vec::new();
        for change in changes {
            match cause(&change, self.calls.iter(), |call| self.may_have_done(call)) {
                Cause::Known => {}
                Cause::One(on, slot) if on == conn && change.to < at => match self.asked(&change, on, slot) {
                    Some(true) => self.caused(&change, on, slot, out),
                    Some(false) => {}
                    None => left.push(change),
                },
                Cause::One(..) | Cause::Several => left.push(change),
            }
        }
        self.changes = left;
    }

    fn caused(&mut self, change: &Change, conn: ConnId, slot: crate::cri::Slot, out: &mut Vec<CallEvent>) {
        let keys: Vec<CallKey> = self
            .calls
            .iter()
            .filter(|call| call.start.key.conn == conn && call.start.slot == Some(slot) && !call.named)
            .filter(|call| call.overlaps(change.from, change.to) && self.may(call).meets(change.by))
            .filter(|call| call.id == Some(change.id) || change.parent.is_some_and(|parent| call.id == Some(parent)))
            .map(|call| call.start.key)
            .collect();
        for key in keys {
            let own = self.calls.get(key).is_some_and(|call| call.id == Some(change.id));
            let by = if own { change.by.and(rules::on(change.object)) } else { change.by };
            self.narrow(key, by, change.evidence);
        }
        self.bind(conn, slot, None, out);
    }
}

//! Calls whose name is known only later, or never, and calls that nothing waits for.
//!
//! A name comes in the middle of its call, or long after its end. Its parts are taken at the times when they came: a
//! start that was over by then is considered again, and its trace comes again.

use super::super::start::{Call, Method};
use super::super::{Lifecycle, MAX_SMALL, StartKey};
use super::{About, asks, id, new_call, text};
use crate::cri::{CallStart, Ending, Field, Fields, Named, Unnamed};
use crate::engine::Update;
use crate::ids::{ContainerId, MonotonicNs, PodUid};
use crate::trace::{PodInfo, StartKind};

/// Exec probes, and other calls, that a start remembers of each.
const MAX_ASIDES: usize = 32;

impl Lifecycle {
    pub(super) fn named(&mut self, named: &Named, updates: &mut Vec<Update>) {
        let Named { start, request, response, end, evidence } = named;
        self.advance(start.at, updates);
        if let Some(slot) = start.slot {
            super::super::bound(&mut self.evidence, &mut self.losses.evicted);
            self.evidence.entry((start.key.conn, slot)).or_insert_with(|| evidence.clone());
        }
        self.forget_unnamed(start);
        self.call_start(start);
        let begun = (start.method == "RunPodSandbox").then(|| self.begun(named)).flatten();
        if let Some(pending) = self.calls.get_mut(&start.key) {
            pending.begun = begun;
        }
        if let Some((at, fields)) = request {
            self.request(start.key, *at, fields);
        }
        if let Some((at, fields)) = response {
            self.response(start.key, *at, fields);
        }
        if let Some((at, ending)) = end {
            self.call_end(start.key, *at, ending);
        }
    }

    /// The start of that RunPodSandbox, where a plugin or a later call began it.
    fn begun(&self, named: &Named) -> Option<StartKey> {
        let uid = named.request.as_ref().and_then(|(_, fields)| text(fields, Field::PodUid)).map(PodUid);
        let sandbox = named.response.as_ref().and_then(|(_, fields)| id(fields, Field::SandboxId));
        let (from, to) = (named.start.at, named.end.as_ref().map_or(self.now, |(at, _)| *at));
        let mut begun = self.starts.iter().filter(|(_, start)| {
            let unseen = start.partial && start.kind == StartKind::Pod && !start.has(Method::RunPodSandbox);
            let during = start.begin <= to && uid.is_some() && start.pod.uid == uid;
            let same = match (&start.sandbox, &sandbox) {
                (Some(known), Some(replied)) => known == replied,
                _ => during,
            };
            unseen && start.begin >= from && same
        });
        begun.next().map(|(key, _)| *key)
    }

    /// The RunPodSandbox of a start that a plugin or a later call began.
    pub(super) fn begin_earlier(&mut self, key: StartKey, at: MonotonicNs, pod: PodInfo) -> StartKey {
        let Some(start) = self.starts.get_mut(&key) else { return self.begin(at, pod) };
        start.pod = PodInfo { ip: start.pod.ip.take(), ..pod };
        (start.begin, start.partial) = (at, false);
        start.notes.remove(super::super::IN_THE_MIDDLE);
        self.prepare(key);
        self.pod_known(key, at);
        key
    }

    /// Something new is known of a start's pod: what began in its sandbox after that may have been told without it.
    pub(in crate::lifecycle) fn pod_known(&mut self, key: StartKey, at: MonotonicNs) {
        let sandbox = self.starts.get(&key).and_then(|start| start.sandbox.clone());
        let keys = sandbox.map(|sandbox| self.starts_in(&sandbox)).unwrap_or_default();
        keys.into_iter().chain([key]).for_each(|key| self.reconsider(key, at));
    }

    /// A call that is shown, but that nothing waits for; none where there is no room.
    pub(super) fn aside(
        &mut self,
        key: StartKey,
        method: Method,
        call: CallStart,
        container: Option<usize>,
    ) -> Option<About> {
        let call = Call { client: self.client(&call), ..new_call(method, call, container, None) };
        self.add_aside(key, call)
    }

    fn add_aside(&mut self, key: StartKey, call: Call) -> Option<About> {
        self.reconsider(key, call.start.at);
        let start = self.starts.get_mut(&key)?;
        if start.asides.iter().filter(|aside| aside.method == call.method).count() >= MAX_ASIDES {
            match call.method {
                Method::Probe => start.more_probes += 1,
                _ => start.more_calls += 1,
            }
            return None;
        }
        start.asides.push(call);
        Some(About::Start(key))
    }

    /// A call that no stage is about, and that does more than ask: StopContainer, UpdateContainerResources, …
    pub(super) fn other_call(&mut self, call: CallStart, fields: &Fields) -> Option<About> {
        let id = id(fields, Field::ContainerId).or_else(|| id(fields, Field::SandboxId))?;
        let key = self.start_of_call(&id, call.at)?;
        let container = self.starts.get(&key)?.containers.iter().rposition(|c| c.id.as_ref() == Some(&id));
        self.touched.insert(key);
        self.aside(key, Method::Other, call, container)
    }

    /// The start of that id, if it was not over when a call about it began.
    fn start_of_call(&self, id: &ContainerId, at: MonotonicNs) -> Option<StartKey> {
        let key = self.start_of_unit(id)?;
        self.starts.get(&key).filter(|start| start.begin <= at && start.takes(at)).map(|_| key)
    }

    /// A call that ended without a name. It is shown where it may have changed something; it fails and ends nothing.
    pub(super) fn unnamed(&mut self, unnamed: &Unnamed) {
        let Unnamed { start: call, end, ids, candidates } = unnamed;
        if candidates.iter().all(|method| asks(method)) {
            return;
        }
        let key = ids.iter().find_map(|id| self.start_of_call(&ContainerId(id.clone()), call.at));
        let Some((key, start)) = key.and_then(|key| Some((key, self.starts.get(&key)?))) else { return };
        let of = |id: &Option<ContainerId>| id.as_ref().is_some_and(|id| ids.iter().any(|it| it == id.as_str()));
        let container = start.containers.iter().rposition(|c| of(&c.id));
        let call = Call {
            client: self.client(call),
            candidates: candidates.clone(),
            end: Some((*end, Ending::NoStatus)),
            ..new_call(Method::Other, call.clone(), container, None)
        };
        self.add_aside(key, call);
    }

    /// What was shown without a name has one.
    fn forget_unnamed(&mut self, named: &CallStart) {
        let unnamed = |call: &Call| call.key == named.key && !call.candidates.is_empty();
        let shown = self.starts.iter().find(|(_, start)| start.asides.iter().any(unnamed)).map(|(key, _)| *key);
        let Some(key) = shown else { return };
        self.reconsider(key, named.at);
        if let Some(start) = self.starts.get_mut(&key) {
            start.asides.retain(|call| !unnamed(call));
        }
    }

    /// A start that was over knows something new of a time when it was not.
    pub(in crate::lifecycle) fn reconsider(&mut self, key: StartKey, at: MonotonicNs) {
        let over = |start: &&mut crate::lifecycle::start::Start| start.state.is_over() && start.takes(at);
        if let Some(start) = self.starts.get_mut(&key).filter(over) {
            super::super::step(start, super::super::state::Step::Reopened);
            (start.end, start.closed, start.failure) = (None, None, None);
            self.touched.insert(key);
        }
    }

    /// A sandbox was removed. What is told of its starts later is still taken for a while.
    pub(super) fn removed(&mut self, key: StartKey) {
        const KEPT: usize = 64;
        if self.removed.contains(&key) {
            return;
        }
        self.removed.push_back(key);
        if self.removed.len() <= KEPT {
            return;
        }
        let Some(key) = self.removed.pop_front() else { return };
        if let Some(start) = self.starts.get(&key) {
            let ids = start.sandbox.iter().chain(start.containers.iter().filter_map(|c| c.id.as_ref()));
            self.gone.extend(ids.cloned());
            let many = self.gone.len().saturating_sub(MAX_SMALL);
            self.gone.drain(..many);
        }
        self.forget(key);
    }

    /// A start that began with a container's StartContainer is part of `key`, which created the container.
    pub(in crate::lifecycle) fn absorb(&mut self, key: StartKey, container: &ContainerId) {
        let other = self.start_of_unit(container).filter(|other| *other != key);
        let alone = |other: &StartKey| {
            let only = |start: &crate::lifecycle::start::Start| {
                start.partial && start.sandbox.is_none() && start.containers.len() == 1
            };
            self.starts.get(other).is_some_and(only)
        };
        let Some(other) = other.filter(alone) else { return };
        let Some(part) = self.starts.remove(&other) else { return };
        let index = |start: &crate::lifecycle::start::Start| {
            start.containers.iter().rposition(|c| c.id.as_ref() == Some(container))
        };
        self.touched.remove(&other);
        // Who was told of the part is told of the whole.
        match self.starts.get_mut(&key) {
            Some(start) if !start.announced => (start.trace_id, start.announced) = (part.trace_id, part.announced),
            _ if part.announced => self.withdrawn.push((part.trace_id, key)),
            _ => {}
        }
        for call in part.calls {
            self.reconsider(key, call.start.at);
            if let Some(pending) = self.calls.get_mut(&call.key) {
                pending.about = About::Start(key);
            }
            if let Some(start) = self.starts.get_mut(&key) {
                start.calls.push(Call { container: index(start), ..call });
            }
        }
        for call in part.asides {
            if let Some(pending) = self.calls.get_mut(&call.key) {
                pending.about = About::Start(key);
            }
            if let Some(start) = self.starts.get_mut(&key) {
                start.asides.push(Call { container: index(start), ..call });
            }
        }
    }
}

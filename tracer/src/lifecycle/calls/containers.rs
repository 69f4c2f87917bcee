//! CreateContainer and StartContainer: which start a container is of.
//!
//! The first container of each name in a sandbox is part of its pod's start. A later attempt, in a sandbox that runs,
//! is a start of its own; the containers that live beside it go with it as peers.

use super::super::listed::{filled, first_of_start};
use super::super::start::{Call, Container, Method, Start};
use super::super::state::Step;
use super::super::unit::Unit;
use super::super::{Lifecycle, StartKey};
use super::{About, attempt, id, saturate, text};
use crate::cri::{CallStart, Ending, Field, Fields};
use crate::ids::{ContainerId, MonotonicNs, PodUid};
use crate::trace::{PodInfo, StartKind};

impl Lifecycle {
    pub(super) fn create_container(&mut self, call: CallStart, fields: &Fields) -> Option<About> {
        let attempt = fields.number(Field::ContainerAttempt).map_or(0, saturate);
        let (name, image) = (text(fields, Field::ContainerName), text(fields, Field::Image));
        self.images.made(call.at, image.as_deref());
        let sandbox = id(fields, Field::SandboxId).filter(|id| !self.gone.contains(id))?;
        let known = self.start_of_unit(&sandbox);
        // Attempts are counted over all sandboxes of a pod: in a sandbox whose start was seen the first one of each
        // name is no restart, whatever its number.
        let is_first = |start: &Start| start.is_first(name.as_deref(), call.at);
        let first = known.and_then(|key| self.starts.get(&key)).is_some_and(is_first);
        let key = match known {
            Some(key) if attempt == 0 || first => key,
            None if self.listed_without(&sandbox, name.as_deref()) => self.begin_in(call.at, &sandbox, fields),
            _ if attempt > 0 => self.begin_container(&call, known, &sandbox, fields),
            _ => self.begin_in(call.at, &sandbox, fields),
        };
        if known == Some(key) {
            self.part_restart(key, call.at, name.as_deref());
        }
        let start = self.starts.get_mut(&key)?;
        if start.pod.name.is_none() {
            start.pod = filled(&start.pod, &PodInfo { attempt: None, ..pod(fields) });
        }
        // It may have begun with what came later, and had its name first.
        if start.partial {
            start.begin = start.begin.min(call.at);
        }
        start.asked_on(call.key.conn);
        start.sandbox_is_made(call.at);
        // The name of an earlier one's call may come later.
        let mut replaced = false;
        for other in start.containers.iter_mut().filter(|c| c.name.is_some() && c.name == name) {
            let older = other.created <= call.at;
            other.replaced |= older;
            replaced |= !older;
        }
        retried(start);
        // What another container's failure ended stays as it is.
        if start.state.is_over() && start.failure.is_none() {
            super::super::step(start, Step::Reopened);
        }
        let (attempt, created) = (Some(attempt), call.at);
        let image_of = image.clone();
        start.containers.push(Container { name, attempt, image: image_of, created, replaced, ..Container::default() });
        let index = start.containers.len() - 1;
        self.adopt_pulls(key, image.as_deref());
        Some(self.join(key, Method::CreateContainer, call, Some(index), image))
    }

    /// The rest of a start that was under way: the first call in a sandbox that was made before, or whose making was
    /// seen in part.
    fn begin_in(&mut self, at: MonotonicNs, sandbox: &ContainerId, fields: &Fields) -> StartKey {
        let (listed, peers) = (self.listed_pod(sandbox), self.peers(at, sandbox, None));
        let unit = self.units.find(sandbox).and_then(|key| self.units.get(key));
        let first = unit.and_then(first_of_start).filter(|first| *first <= at);
        let pod = PodInfo { attempt: None, ..pod(fields) };
        let pod = listed.map_or_else(|| pod.clone(), |listed| filled(&pod, &listed));
        let key = self.begin_partial(first.unwrap_or(at), pod);
        if let Some(start) = self.starts.get_mut(&key) {
            start.peers = peers;
        }
        self.link_sandbox(key, sandbox, true);
        key
    }

    /// A later attempt of a container.
    fn begin_container(
        &mut self,
        call: &CallStart,
        known: Option<StartKey>,
        sandbox: &ContainerId,
        fields: &Fields,
    ) -> StartKey {
        let peers = self.peers(call.at, sandbox, fields.text(Field::ContainerName));
        let listed = self.listed_pod(sandbox);
        let pod = match (known.and_then(|key| self.starts.get(&key)), &listed) {
            (Some(start), _) => start.pod.clone(),
            (None, Some(listed)) => filled(&PodInfo { attempt: None, ..pod(fields) }, listed),
            (None, None) => pod(fields),
        };
        let key = self.begin(call.at, pod);
        if let Some(start) = self.starts.get_mut(&key) {
            (start.kind, start.sandbox, start.peers) = (StartKind::Container, Some(sandbox.clone()), peers);
            if known.is_none() && listed.is_none() {
                start.notes.insert("sandbox_start_not_seen".to_owned());
            }
        }
        key
    }

    /// The creation of a container has its name after that of a later attempt of it, which was taken for the first one
    /// in the sandbox: that one is a start of its own.
    fn part_restart(&mut self, key: StartKey, at: MonotonicNs, name: Option<&str>) {
        let Some(start) = self.starts.get_mut(&key) else { return };
        let later = |c: &Container| c.name.as_deref() == name && c.created > at && c.attempt > Some(0);
        let (Some(index), Some(sandbox)) = (start.containers.iter().position(later), start.sandbox.clone()) else {
            return;
        };
        let container = start.containers.remove(index);
        let of_it = |call: &mut Call| call.container == Some(index);
        let calls: Vec<Call> = start.calls.extract_if(.., of_it).collect();
        let asides: Vec<Call> = start.asides.extract_if(.., of_it).collect();
        for call in start.calls.iter_mut().chain(&mut start.asides) {
            call.container = call.container.map(|other| other - usize::from(other > index));
        }
        let (pod, stopped, losses) = (start.pod.clone(), start.stopped, start.losses);
        self.reconsider(key, at);
        let peers = self.peers(container.created, &sandbox, name);
        let own = self.begin(container.created, pod);
        for call in calls.iter().chain(&asides) {
            if let Some(pending) = self.calls.get_mut(&call.key) {
                pending.about = About::Start(own);
            }
        }
        let id = container.id.clone();
        if let Some(start) = self.starts.get_mut(&own) {
            let moved = |call: Call| Call { container: Some(0), ..call };
            (start.kind, start.sandbox, start.peers) = (StartKind::Container, Some(sandbox), peers);
            (start.stopped, start.losses, start.containers) = (stopped, losses, vec![container]);
            start.calls = calls.into_iter().map(moved).collect();
            start.asides = asides.into_iter().map(moved).collect();
        }
        id.into_iter().for_each(|id| self.link_unit(own, &id));
    }

    /// The containers of a sandbox that lived then, but for those of that name; the newest of each name.
    fn peers(&self, at: MonotonicNs, sandbox: &ContainerId, name: Option<&str>) -> Vec<Container> {
        let starts = self.starts.values().filter(|start| start.sandbox.as_ref() == Some(sandbox));
        let mut peers = self.listed_peers(sandbox);
        peers.retain(|peer| peer.name.as_deref() != name);
        for start in starts {
            for container in start.containers.iter().filter(|c| !c.replaced && c.name.as_deref() != name) {
                peers.retain(|peer| peer.name.is_none() || peer.name != container.name);
                let outlives = |unit: &Unit| unit.exit.as_ref().is_none_or(|(exit, _)| *exit > at);
                let lives = container.created <= at && start.unit(container, &self.units).is_some_and(outlives);
                peers.extend(lives.then(|| container.clone()));
            }
        }
        peers
    }

    pub(super) fn start_container(&mut self, call: CallStart, fields: &Fields) -> Option<About> {
        let id = id(fields, Field::ContainerId).filter(|id| !self.gone.contains(id))?;
        let key = match self.start_of_unit(&id) {
            Some(key) => key,
            None => {
                // podlapse came between CreateContainer and StartContainer.
                let existing = self.existing_container(&id).cloned();
                let pod = existing.as_ref().and_then(|existing| self.listed_pod(&existing.sandbox));
                let key = self.begin_partial(call.at, pod.unwrap_or_default());
                let container = existing.as_ref().map(|existing| existing.container.clone()).unwrap_or_default();
                let container = Container { id: Some(id.clone()), created: call.at, ..container };
                self.starts.get_mut(&key)?.containers.push(container);
                if let Some(existing) = existing.filter(|existing| self.start_of_unit(&existing.sandbox).is_none()) {
                    self.link_sandbox(key, &existing.sandbox, true);
                }
                self.link_unit(key, &id);
                key
            }
        };
        let index = self.starts.get(&key)?.containers.iter().rposition(|c| c.id.as_ref() == Some(&id));
        Some(self.join(key, Method::StartContainer, call, index, None))
    }
}

impl Start {
    /// kubelet has the sandbox's id from the reply: that call is over, whether its end was seen or not.
    pub(super) fn sandbox_is_made(&mut self, at: MonotonicNs) {
        let creating = |call: &&mut Call| call.method == Method::RunPodSandbox && call.end.is_none();
        if let Some(open) = self.calls.iter_mut().find(creating) {
            (open.replied, open.end) = (true, Some((at, Ending::NoStatus)));
            self.notes.insert("reply_not_seen: RunPodSandbox".to_owned());
        }
    }
}

/// The pod of a CreateContainer, from its sandbox_config.
fn pod(fields: &Fields) -> PodInfo {
    PodInfo {
        namespace: text(fields, Field::PodNamespace),
        name: text(fields, Field::PodName),
        uid: text(fields, Field::PodUid).map(PodUid),
        attempt: attempt(fields),
        ..PodInfo::default()
    }
}

/// A failure of a pull, or of a container that another one has replaced, is no longer one.
fn retried(start: &mut Start) {
    let Some(failure) = &start.failure else { return };
    let replaced = failure.container.and_then(|index| start.containers.get(index)).is_some_and(|c| c.replaced);
    let pull = failure.call.and_then(|index| start.calls.get(index)).is_some_and(|c| c.method == Method::PullImage);
    if replaced || pull {
        start.notes.insert(format!("retried: {}: {}", failure.reason, failure.message));
        start.failure = None;
    }
}

//! A reply that hands out what an earlier request had made.
//!
//! CRI-O keeps what it made for a request whose client gave up, and gives it to the next request of the same name
//! (its `internal/resourcestore`): that one ends within milliseconds. What was made took since the first request.

use super::super::listed::first_of_start;
use super::super::start::{Call, Method, Turnout};
use super::super::{Lifecycle, StartKey};
use crate::ids::{ContainerId, MonotonicNs};
use crate::trace::StartKind;

impl Lifecycle {
    /// The sandbox of a start is known now; was it made for an earlier RunPodSandbox of that pod and attempt?
    pub(super) fn held_sandbox(&mut self, key: StartKey, id: &ContainerId) {
        let Some(made) = self.made(id) else { return };
        let Some(start) = self.starts.get(&key) else { return };
        let Some(call) = start.calls.iter().find(|call| call.method == Method::RunPodSandbox) else { return };
        let same = |(of, other): &(&StartKey, &super::super::start::Start)| {
            let pod =
                other.pod.uid.is_some() && other.pod.uid == start.pod.uid && other.pod.attempt == start.pod.attempt;
            **of != key && other.kind == StartKind::Pod && pod
        };
        let others = self.starts.iter().filter(same).flat_map(|(_, other)| &other.calls);
        let Some(first) = first(others, Method::RunPodSandbox, made, call.start.at) else { return };
        let Some(start) = self.starts.get_mut(&key) else { return };
        start.begin = first;
        start.notes.insert("held: RunPodSandbox: the sandbox was made for an earlier request".to_owned());
        let call = start.calls.iter_mut().find(|call| call.method == Method::RunPodSandbox);
        call.into_iter().for_each(|call| call.held = Some(first));
    }

    /// The same of a container, for an earlier CreateContainer of that name and attempt.
    pub(super) fn held_container(&mut self, key: StartKey, container: Option<usize>, id: &ContainerId) {
        let Some(made) = self.made(id) else { return };
        let Some(start) = self.starts.get(&key) else { return };
        let named = |call: &Call| {
            let container = call.container.and_then(|index| start.containers.get(index))?;
            Some((container.name.as_deref()?, container.attempt))
        };
        let own = |call: &&Call| call.method == Method::CreateContainer && call.container == container;
        let Some(call) = start.calls.iter().find(own) else { return };
        let same = start.calls.iter().filter(|other| named(other).is_some() && named(other) == named(call));
        let Some(first) = first(same, Method::CreateContainer, made, call.start.at) else { return };
        let (own, name) = (call.key, named(call).map_or_else(String::new, |(name, _)| name.to_owned()));
        let Some(start) = self.starts.get_mut(&key) else { return };
        start.notes.insert(format!("held: CreateContainer: {name} was made for an earlier request"));
        start.call_mut(own).into_iter().for_each(|call| call.held = Some(first));
        // What was known of it while the earlier request was open.
        start.containers.iter_mut().filter(|c| c.replaced && c.id.as_ref() == Some(id)).for_each(|c| c.id = None);
    }

    fn made(&self, id: &ContainerId) -> Option<MonotonicNs> {
        self.units.find(id).and_then(|key| self.units.get(key)).and_then(first_of_start)
    }
}

/// The first of these calls that may have made something at `made`, before the call at `before`, and did not say so.
fn first<'a>(
    calls: impl Iterator<Item = &'a Call>,
    method: Method,
    made: MonotonicNs,
    before: MonotonicNs,
) -> Option<MonotonicNs> {
    let unanswered = |call: &&Call| {
        let bad = matches!(call.turnout(), None | Some(Turnout::Bad { .. }));
        call.method == method && bad && call.start.at <= made && made < before
    };
    calls.filter(unanswered).map(|call| call.start.at).min()
}

//! RunPodSandbox and StartContainer whose requests came before podlapse: what ran for the sandbox or the container at the
//! attach shows that they were open then, and a reply on a stream whose request was not seen that they are over. The same
//! of a RunPodSandbox that is one of several whose messages cannot be read (`unread.rs`).

use super::super::start::{Call, Method, Start};
use super::super::{Lifecycle, StartKey};
use super::new_call;
use crate::cri::{CallKey, CallStart, Ending, HeaderSigns, MethodSource, Protocol};
use crate::ids::{ConnId, ContainerId, MonotonicNs, PodUid};

impl Lifecycle {
    /// A sandbox was being made when podlapse came.
    pub(in crate::lifecycle) fn sandbox_asked_before(&mut self, sandbox: &ContainerId) {
        let key = self.start_of_unit(sandbox);
        let Some(start) = key.and_then(|key| self.starts.get_mut(&key)) else { return };
        if start.partial && !start.has(Method::RunPodSandbox) {
            start.before(Method::RunPodSandbox, "RunPodSandbox", start.begin, None);
            start.not_seen("RunPodSandbox");
        }
    }

    /// The last container of a start was being started when podlapse came.
    pub(in crate::lifecycle) fn container_asked_before(&mut self, at: MonotonicNs, key: StartKey) {
        let Some(start) = self.starts.get_mut(&key) else { return };
        let container = start.containers.len().checked_sub(1);
        if start.partial && start.asked_before().is_none() {
            start.before(Method::StartContainer, "StartContainer", at, container);
            start.not_seen("StartContainer");
        }
    }

    /// A call whose request came before podlapse is over. Once the sandbox or container runs it may be the one that made
    /// it so; the last one before the pod's next call counts, for what was open is not to be called a gap. A failure
    /// names the sandbox or container.
    pub(super) fn unasked(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending) {
        for (of, start) in &mut self.starts {
            let Some(call) = start.calls.iter().find(|call| call.before) else { continue };
            let container = call.container.and_then(|index| start.containers.get(index)).map(|it| it.id.as_ref());
            let Some(id) = container.unwrap_or(start.sandbox.as_ref()) else { continue };
            let next = call.end.as_ref().is_some_and(|(end, _)| {
                let since = |other: &Call| !other.before && other.start.at >= *end;
                let goes_on = !start.containers.is_empty() || start.calls.iter().any(since);
                call.method == Method::StartContainer || goes_on
            });
            let unit = self.units.find(id).and_then(|unit| self.units.get(unit));
            let runs = unit.is_some_and(|unit| unit.ran_at(at));
            let fits = match ending {
                Ending::Status { code: 0, .. } | Ending::NoStatus => runs,
                Ending::Status { message, .. } => message.contains(id.as_str()),
                _ => false,
            };
            if next || !fits || start.state.is_over() {
                continue;
            }
            if let Some(call) = start.asked_before() {
                call.start.key = key;
                (call.key, call.replied, call.end) = (key, true, Some((at, ending.clone())));
                self.touched.insert(*of);
            }
        }
    }

    /// kubelet asks anew for a sandbox of that pod: what it asked before is over, though its end was not seen.
    pub(super) fn given_up(&mut self, at: MonotonicNs, uid: &PodUid) {
        for (key, start) in self.starts.iter_mut().filter(|(_, start)| start.pod.uid.as_ref() == Some(uid)) {
            let open = |call: &&mut Call| call.method == Method::RunPodSandbox && call.end.is_none();
            if let Some(call) = start.asked_before().filter(open) {
                call.end = Some((at, Ending::NoStatus));
                self.touched.insert(*key);
            }
        }
    }
}

impl Start {
    /// A call whose own request is not known, and that is known to have begun at `at` or earlier.
    pub(super) fn before(&mut self, method: Method, name: &str, at: MonotonicNs, container: Option<usize>) {
        let call = CallStart {
            key: CallKey { conn: ConnId(0), stream: 0 },
            at,
            protocol: Protocol::Grpc,
            // Of which version of the CRI is not known.
            service: "RuntimeService".to_owned(),
            method: name.to_owned(),
            source: MethodSource::Inferred,
            user_agent: None,
            client: None,
            timeout_ns: None,
            slot: None,
            signs: HeaderSigns::default(),
        };
        self.calls.push(Call { before: true, ..new_call(method, call, container, None) });
    }

    fn not_seen(&mut self, name: &str) {
        let note = "came before the attach, at which the runtime's helpers worked for it";
        self.notes.insert(format!("request_not_seen: {name} {note}"));
    }

    /// The call that came before podlapse.
    fn asked_before(&mut self) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.before)
    }

    /// The pod's next call came on that connection: a reply on another one was not the sandbox's.
    pub(super) fn asked_on(&mut self, conn: ConnId) {
        let first = self.containers.is_empty();
        if let Some(call) = self.asked_before().filter(|call| first && call.key.conn != conn) {
            (call.replied, call.end) = (false, None);
        }
    }
}

//! RunPodSandbox whose request came before podlapse: a plugin that ran for the sandbox at the attach shows that it was
//! open then, and a reply on a stream whose request was not seen that it is over.

use super::super::Lifecycle;
use super::super::start::{Call, Method, Start};
use super::new_call;
use crate::cri::{CallKey, CallStart, Ending, HeaderSigns, MethodSource, Protocol};
use crate::ids::{ConnId, ContainerId, MonotonicNs, PodUid};

/// The note of a start whose request was not seen.
const BEFORE: &str =
    "request_not_seen: RunPodSandbox came before the attach, at which a CNI plugin ran for its sandbox";

impl Lifecycle {
    /// A sandbox was being made when podlapse came.
    pub(in crate::lifecycle) fn sandbox_asked_before(&mut self, sandbox: &ContainerId) {
        let key = self.start_of_unit(sandbox);
        let Some(start) = key.and_then(|key| self.starts.get_mut(&key)) else { return };
        if !start.partial || start.has(Method::RunPodSandbox) {
            return;
        }
        let call = CallStart {
            key: CallKey { conn: ConnId(0), stream: 0 },
            at: start.begin,
            protocol: Protocol::Grpc,
            // Of which version of the CRI is not known.
            service: "RuntimeService".to_owned(),
            method: "RunPodSandbox".to_owned(),
            source: MethodSource::Inferred,
            user_agent: None,
            client: None,
            timeout_ns: None,
            slot: None,
            signs: HeaderSigns::default(),
        };
        start.calls.push(Call { before: true, ..new_call(Method::RunPodSandbox, call, None, None) });
        start.notes.insert(BEFORE.to_owned());
    }

    /// A call whose request came before podlapse is over. Once the sandbox runs it may be the one that made it; the last one
    /// before the pod's next call counts, for what was open is not to be called a gap. A failure names the sandbox.
    pub(super) fn unasked(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending) {
        for (of, start) in self.starts.iter_mut().filter(|(_, start)| start.containers.is_empty()) {
            let Some(sandbox) = start.sandbox.clone() else { continue };
            let unit = self.units.find(&sandbox).and_then(|unit| self.units.get(unit));
            let runs = unit.and_then(|unit| unit.entered()).is_some_and(|entry| entry.at <= at);
            let Some(call) = start.asked_before() else { continue };
            let fits = match ending {
                Ending::Status { code: 0, .. } | Ending::NoStatus => runs,
                Ending::Status { message, .. } => message.contains(sandbox.as_str()),
                _ => false,
            };
            if fits {
                call.start.key = key;
                (call.key, call.replied, call.end) = (key, true, Some((at, ending.clone())));
                self.touched.insert(*of);
            }
        }
    }

    /// kubelet asks anew for a sandbox of that pod: what it asked before is over, though its end was not seen.
    pub(super) fn given_up(&mut self, at: MonotonicNs, uid: &PodUid) {
        for (key, start) in self.starts.iter_mut().filter(|(_, start)| start.pod.uid.as_ref() == Some(uid)) {
            if let Some(call) = start.asked_before().filter(|call| call.end.is_none()) {
                call.end = Some((at, Ending::NoStatus));
                self.touched.insert(*key);
            }
        }
    }
}

impl Start {
    /// The RunPodSandbox that came before podlapse.
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

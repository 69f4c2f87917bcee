//! Calls whose messages cannot be read, for their client compresses them: the method is known by its path. Whose they
//! are says what the kernel shows while one of them is the only call that may be its cause; else they are nobody's.

use super::super::start::{Call, Container, Method, Start};
use super::super::{IN_THE_MIDDLE, Lifecycle, MAX_SMALL, StartKey};
use super::{About, new_call};
use crate::cri::{CallKey, CallStart, Ending, Field, Fields, Protocol};
use crate::ids::{ContainerId, MonotonicNs, PodUid};
use crate::trace::PodInfo;

/// Calls that make a container, or start it.
const OF_A_CONTAINER: [&str; 2] = ["CreateContainer", "StartContainer"];

const NOT_READ: &str =
    "messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart";

/// Whether nothing of a request can be read.
pub(super) fn is_compressed(fields: &Fields) -> bool {
    fields.number(Field::Compressed).is_some()
}

impl Lifecycle {
    /// A sandbox is being made for a pod of which no start is known: a partial one begins, with its RunPodSandbox where
    /// that can only be one that is open now.
    pub(in crate::lifecycle) fn begin_by_signs(&mut self, at: MonotonicNs, pod: PodInfo, id: &ContainerId) -> StartKey {
        let call = self.only_one(&["RunPodSandbox"]).and_then(|key| Some((key, self.calls.get(&key)?.start.at)));
        let waits = self.waits(&["RunPodSandbox"]);
        let key = self.begin_partial(call.map_or(at, |(_, began)| began), pod);
        self.link_sandbox(key, id, false);
        let Some(start) = self.starts.get_mut(&key).filter(|_| waits) else { return key };
        start.notes.insert(NOT_READ.to_owned());
        match call {
            Some((call, _)) => {
                start.notes.remove(IN_THE_MIDDLE);
                self.is_of(call, key, Method::RunPodSandbox, None);
            }
            // One of several: it is open by now, and ends with one of their replies.
            None => start.before(Method::RunPodSandbox, "RunPodSandbox", at, None),
        }
        key
    }

    /// A cgroup shows a sandbox or container of a pod, while calls are open of which that cannot be read.
    pub(in crate::lifecycle) fn link_unread(
        &mut self,
        at: MonotonicNs,
        uid: &PodUid,
        id: &ContainerId,
    ) -> Option<StartKey> {
        let Some(key) = self.start_of_pod(uid) else {
            // A pod on the node's network has no plugins. Only a sandbox has a shim of its own.
            self.units.get(self.units.find(id)?)?.shim.filter(|_| self.waits(&["RunPodSandbox"]))?;
            return Some(self.begin_by_signs(at, PodInfo { uid: Some(uid.clone()), ..PodInfo::default() }, id));
        };
        let waits = self.waits(&OF_A_CONTAINER);
        let call = self.only_one(&OF_A_CONTAINER);
        // Its own may be the one that makes it, and will say so.
        let creates = |call: &Call| call.method == Method::CreateContainer && call.end.is_none();
        let fits = |start: &&mut Start| start.sandbox.is_some() && !start.calls.iter().any(creates);
        let start = self.starts.get_mut(&key).filter(|start| waits && fits(start))?;
        start.partial = true;
        start.notes.insert(NOT_READ.to_owned());
        // Its client had the sandbox's id from the reply.
        start.sandbox_is_made(at);
        start.containers.push(Container { id: Some(id.clone()), created: at, ..Container::default() });
        let index = start.containers.len() - 1;
        self.link_unit(key, id);
        let Some(call) = call else { return Some(key) };
        let began = self.calls.get(&call)?.start.clone();
        let created = self.created_before(key, began.at);
        let start = self.starts.get_mut(&key)?;
        let first = created.as_ref().map_or(began.at, |create| create.start.at);
        start.containers.get_mut(index)?.created = first;
        start.calls.extend(created.map(|create| Call { container: Some(index), ..create }));
        let method = if began.method == "CreateContainer" { Method::CreateContainer } else { Method::StartContainer };
        self.is_of(call, key, method, Some(index));
        Some(key)
    }

    /// A call that nobody could be told to be of is over. What it made may be started next.
    pub(super) fn unread_ended(&mut self, call: CallStart, at: MonotonicNs, ending: &Ending) {
        if call.method == "RunPodSandbox" {
            self.unasked(call.key, at, ending);
        }
        if call.method != "CreateContainer" || !matches!(ending, Ending::Status { code: 0, .. } | Ending::NoStatus) {
            return;
        }
        if self.unread.len() >= MAX_SMALL {
            self.unread.pop_front();
            self.losses.evicted += 1;
        }
        let end = Some((at, ending.clone()));
        let call = Call { client: self.client(&call), ..new_call(Method::CreateContainer, call, None, None) };
        self.unread.push_back(Call { replied: true, end, ..call });
    }

    /// The CreateContainer of a container that is started at `at`: it came after the sandbox's making, so it was seen;
    /// where only one is there that made none of the other containers, it is that.
    fn created_before(&mut self, key: StartKey, at: MonotonicNs) -> Option<Call> {
        let sandbox = self.starts.get(&key)?.calls.iter().find(|call| call.method == Method::RunPodSandbox)?;
        let (made, _) = sandbox.end.as_ref()?;
        let between = |call: &Call| call.start.at >= *made && call.end.as_ref().is_some_and(|(end, _)| *end <= at);
        let mut fits = self.unread.iter().enumerate().filter(|(_, call)| between(call)).map(|(index, _)| index);
        let (Some(index), None) = (fits.next(), fits.next()) else { return None };
        self.unread.remove(index)
    }

    fn is_of(&mut self, call: CallKey, key: StartKey, method: Method, container: Option<usize>) {
        let Some(start) = self.calls.get(&call).map(|pending| pending.start.clone()) else { return };
        let about = self.join(key, method, start, container, None);
        if let Some(pending) = self.calls.get_mut(&call) {
            pending.about = about;
        }
    }

    /// Whether such a call is open that could not be read.
    fn waits(&self, methods: &[&str]) -> bool {
        self.calls.values().any(|call| matches!(call.about, About::Unread) && is_any(&call.start, methods))
    }

    /// The one open call of these methods that may be the cause of what is seen now, where it cannot be read. No other
    /// one may be: neither one of those methods whose request is still to come, nor one without a name.
    fn only_one(&self, methods: &[&str]) -> Option<CallKey> {
        let may = |call: &&super::Pending| {
            matches!(call.about, About::Unread | About::Unknown) && is_any(&call.start, methods)
        };
        let mut open = self.calls.values().filter(may);
        let (Some(call), None) = (open.next(), open.next()) else { return None };
        (matches!(call.about, About::Unread) && !self.chores.is_any_nameless()).then_some(call.start.key)
    }
}

fn is_any(call: &CallStart, methods: &[&str]) -> bool {
    call.protocol == Protocol::Grpc && methods.contains(&call.method.as_str())
}

//! What a call's messages, its success and the state of what it names say of its method, each rule by itself.

use super::calls::Call;
use super::methods::{Method, Object, Path};
use super::set::Set;
use super::walk::bit;
use super::world::{State, Thing};
use crate::cri::Ending;
use crate::ids::MonotonicNs;

/// The methods that have this much of the request that their success needs.
pub(super) fn needed(call: &Call) -> Set {
    match &call.request {
        Some(request) if request.whole => having(request.top, |method| method.entry().needs),
        _ => Set::all(),
    }
}

/// The methods whose success gives no more than this much of a response.
pub(super) fn given(top: u64) -> Set {
    having(top, |method| method.entry().gives)
}

fn having(top: u64, fields: impl Fn(Method) -> &'static [u8]) -> Set {
    Set::of(|method| fields(method).iter().all(|number| top & bit(u32::from(*number)) != 0)).or(Set::FOREIGN)
}

/// Methods that answer with any number of messages.
pub(super) fn streaming() -> Set {
    Set::of(|method| method.entry().streams).or(Set::FOREIGN)
}

/// Whether the messages have what only a method of the CRI in `set` has.
pub(super) fn proven(call: &Call, set: Set) -> bool {
    let has = |message: &Option<super::calls::Message>, path: &Path| {
        message.as_ref().is_some_and(|message| message.facts.iter().any(|fact| fact.path == *path))
    };
    set.methods().any(|method| {
        method.entry().proofs.iter().any(|proof| {
            proof.request.iter().all(|path| has(&call.request, path))
                && proof.response.iter().all(|path| has(&call.response, path))
        })
    })
}

/// Methods that can have succeeded on an id that the CRI has shown to be a sandbox's or a container's. Stopping and
/// removing what is not there is OK, so these four can with either.
pub(super) fn kind(object: Object) -> Set {
    let idempotent = Method::StopContainer.set().or(Method::RemoveContainer.set());
    let idempotent = idempotent.or(Method::StopPodSandbox.set()).or(Method::RemovePodSandbox.set());
    on(object).or(idempotent)
}

/// Methods that act on a sandbox's, or a container's, id.
pub(super) fn on(object: Object) -> Set {
    Set::of(|method| method.entry().object.is_none_or(|own| own == object)).or(Set::FOREIGN)
}

/// StopContainer alone has a container's id and a number, and nothing to answer.
pub(super) fn stops(call: &Call, set: Set, thing: Option<&Thing>) -> bool {
    call.succeeded()
        && set.without(Set::FOREIGN) == Method::StopContainer.set()
        && thing.is_some_and(|thing| thing.object == Object::Container && thing.last.state != State::Gone)
        && call.requested(2).next().is_some()
        && call.response.as_ref().is_some_and(|response| response.whole && response.top == 0)
}

/// Methods that can have succeeded on something that was in this state before: no runtime starts, enters or checkpoints
/// what has ended (containerd `container_start.go`, `container_log_reopen.go`, `container_exec.go`).
pub(super) fn possible_after(thing: &Thing, start: MonotonicNs) -> Set {
    let mut not = Set::EMPTY;
    if thing.last.to <= start {
        let state = thing.last.state;
        if matches!(state, State::Running | State::Exited | State::Gone) {
            not = not.or(Method::StartContainer.set());
        }
        if matches!(state, State::Exited | State::Gone) {
            not = not.or(Method::ReopenContainerLog.set()).or(Method::ExecSync.set());
            not = not.or(Method::CheckpointContainer.set());
        }
    }
    Set::all().without(not)
}

/// Methods that can have succeeded before something was seen in this state.
pub(super) fn possible_before(object: Object, state: State) -> Set {
    let removed = match object {
        Object::Container => Method::RemoveContainer.set(),
        Object::Sandbox => Method::RemovePodSandbox.set(),
    };
    Set::all().without(match state {
        State::Gone => Set::EMPTY,
        State::Created => removed.or(Method::StartContainer.set()),
        State::Ready => removed.or(Method::StopPodSandbox.set()),
        // A container may be stopped before it is started: its running says nothing.
        State::Running | State::Exited | State::NotReady | State::Unknown => removed,
    })
}

/// The method that an error names: grpc-go's generated servers say `method M not implemented`, grpc-go itself
/// `unknown method M for service S`.
pub(super) fn named_by_error(ending: &Ending) -> Option<Method> {
    /// UNIMPLEMENTED.
    const CODE: u32 = 12;
    let Ending::Status { code: CODE, message } = ending else { return None };
    let name = message.strip_prefix("method ").and_then(|rest| rest.strip_suffix(" not implemented")).or_else(|| {
        message.strip_prefix("unknown method ")?.split_once(" for service runtime.v1").map(|(name, _)| name)
    });
    Method::named(name?)
}

//! Which call changed a sandbox or container?
//!
//! A change lies between two observations. It is a call's doing when no other call that was open between them could
//! have done it, named or not, of any client. That is concluded only once the call's connection went on without a
//! jump: a call that was lost may have been the cause. Order never counts.

use super::calls::Call;
use super::methods::{Method, Object};
use super::rules;
use super::set::Set;
use super::tasks::Task;
use super::world::{Id, State};
use crate::cri::Slot;
use crate::ids::{ConnId, MonotonicNs};

/// A change that has no cause yet.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) id: Id,
    pub(super) object: Object,
    /// A container's sandbox, where known.
    pub(super) parent: Option<Id>,
    /// Methods that do it.
    pub(super) by: Set,
    /// Begin of the observation before.
    pub(super) from: MonotonicNs,
    /// End of the observation after.
    pub(super) to: MonotonicNs,
    pub(super) evidence: &'static str,
    /// It is what a shim was asked for, which a call of the containerd API may ask as well.
    pub(super) task: Option<Task>,
}

/// Who may have caused a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nobody, or a call with a name: it says nothing.
    Known,
    /// Calls of one table entry, and nobody else.
    One(ConnId, Slot),
    /// Several may have.
    Several,
}

/// What the change from one state to another tells: the methods that do it, and how to say so. That a sandbox is no
/// longer ready tells nothing: its pause may have died by itself. On containerd alone a container's init is made by
/// StartContainer; elsewhere it waits since its creation, and may die before it is started.
pub(super) fn doers(object: Object, before: State, after: State, containerd: bool) -> Option<(Set, &'static str)> {
    match (object, before, after) {
        (_, State::Gone, _) => None,
        (Object::Container, State::Created, State::Running) => {
            Some((Method::StartContainer.set(), "container created before, running after"))
        }
        (Object::Container, State::Created, State::Exited) if containerd => {
            Some((Method::StartContainer.set(), "container created before, exited after"))
        }
        (Object::Container, _, State::Gone) => Some((
            Method::RemoveContainer.set().or(Method::RemovePodSandbox.set()),
            "container there before, gone after",
        )),
        (Object::Sandbox, _, State::Gone) => Some((Method::RemovePodSandbox.set(), "sandbox there before, gone after")),
        _ => None,
    }
}

/// Whether a call's id may be what a method of `set` acts on in `change`.
fn concerns(call: &Call, set: Set, change: &Change) -> bool {
    match call.id {
        None => true,
        Some(id) if id == change.id => true,
        // A sandbox's end is its containers' end.
        Some(id) => {
            let sandbox = Method::RemovePodSandbox.set().or(Method::StopPodSandbox.set());
            change.object == Object::Container && set.meets(sandbox) && change.parent.is_none_or(|parent| parent == id)
        }
    }
}

/// Looks for who caused `change`; `set` says what a call may be.
pub(super) fn cause<'a>(change: &Change, calls: impl Iterator<Item = &'a Call>, set: impl Fn(&Call) -> Set) -> Cause {
    let mut cause: Option<(ConnId, Slot)> = None;
    let by = if change.task.is_some() { change.by.or(Set::FOREIGN) } else { change.by };
    for call in calls {
        if !call.overlaps(change.from, change.to) {
            continue;
        }
        let mut may = set(call).and(by);
        if call.id == Some(change.id) {
            may = may.and(rules::on(change.object));
        }
        if may.is_empty() || !concerns(call, may, change) {
            continue;
        }
        let own = (call.start.key.conn, call.start.slot);
        match (own, cause) {
            _ if call.named => return Cause::Known,
            ((_, None), _) => return Cause::Several,
            ((conn, Some(slot)), None) => cause = Some((conn, slot)),
            ((conn, Some(slot)), Some(known)) if known == (conn, slot) => {}
            _ => return Cause::Several,
        }
        // A call whose id is not known may have meant anything.
        if call.id.is_none() {
            return Cause::Several;
        }
    }
    cause.map_or(Cause::Known, |(conn, slot)| Cause::One(conn, slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRI-O's containers have an init from their creation on, which may die before a StartContainer.
    #[test]
    fn an_exit_before_the_start_is_a_start_on_containerd_alone() {
        let by = |containerd| doers(Object::Container, State::Created, State::Exited, containerd).map(|(by, _)| by);
        assert_eq!(by(true), Some(Method::StartContainer.set()));
        assert_eq!(by(false), None);
    }

    /// A pause may die by itself.
    #[test]
    fn a_sandbox_that_is_not_ready_was_not_stopped_by_a_call() {
        assert_eq!(doers(Object::Sandbox, State::Ready, State::NotReady, true), None);
    }
}

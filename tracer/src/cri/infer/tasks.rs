//! What shims are asked to do while a call is open: the runtime starts a container's task for StartContainer, and an
//! exec's for ExecSync.
//!
//! ttrpc has no header compression, so these names are exact. The containerd API asks shims for the same: a call whose
//! answer could be one of its own is left alone.

use super::Infer;
use super::calls::{Call, Message};
use super::causes::Change;
use super::methods::{Method, Object};
use super::walk::bit;
use super::world::Id;
use crate::cri::{CallKey, CallStart, Field, Fields, Slot};
use crate::ids::{ConnId, MonotonicNs};

/// Most ttrpc calls whose request has not come.
const MAX_TASKS: usize = 1024;

/// What a shim is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// `Start`: a container's init, or an exec.
    Start,
    /// `Exec`: a process beside it is prepared.
    Exec,
}

impl Infer {
    /// A ttrpc call begins.
    pub(super) fn task(&mut self, start: &CallStart) {
        let task = match start.method.as_str() {
            "Start" => Task::Start,
            "Exec" => Task::Exec,
            _ => return,
        };
        if start.service.starts_with("containerd.task.") && self.tasks.len() < MAX_TASKS {
            self.tasks.insert(start.key, task);
        }
    }

    /// Its request says of which container.
    pub(super) fn asked_shim(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        let Some(task) = self.tasks.remove(&key) else { return };
        let Some(id) = fields.text(Field::TaskId).and_then(Id::parse) else { return };
        let exec = fields.text(Field::ExecId).is_some_and(|exec| !exec.is_empty());
        let (by, evidence) = match task {
            Task::Start if !exec => (Method::StartContainer.set(), "its shim was asked to start the container"),
            Task::Exec => (Method::ExecSync.set(), "its shim was asked to execute in the container"),
            Task::Start => return,
        };
        let parent = self.world.get(id).and_then(|thing| thing.parent);
        let task = Some(task);
        self.change(Change { id, object: Object::Container, parent, by, from: at, to: at, evidence, task });
    }

    /// Whether the calls of that entry about a change are such that the containerd API has no part in it; none while one
    /// of them is open.
    pub(super) fn asked(&mut self, change: &Change, conn: ConnId, slot: Slot) -> Option<bool> {
        let Some(task) = change.task else { return Some(true) };
        let mut own = self.calls.iter().filter(|call| {
            let same = call.start.key.conn == conn && call.start.slot == Some(slot) && call.id == Some(change.id);
            same && call.overlaps(change.from, change.to)
        });
        let asked = own.try_fold(true, |all, call| {
            call.end.as_ref()?;
            Some(all && call.succeeded() && cri_alone(task, call))
        })?;
        if !asked || task == Task::Start {
            return Some(asked);
        }
        // A process in a container may also be a stream's, which no call is open for: one may be chance, two are not.
        let entry = self.conns.get_mut(&conn)?.slots.get_mut(&slot)?;
        entry.executed += 1;
        Some(entry.executed > 1)
    }
}

/// The containerd API's Create and Start of a task answer with a pid; its Exec is asked with a spec and an id
/// (`api/services/tasks/v1/tasks.proto`).
fn cri_alone(task: Task, call: &Call) -> bool {
    let is = |message: &Option<Message>, top: u64| {
        message.as_ref().is_some_and(|message| message.whole && message.top & !top == 0)
    };
    match task {
        Task::Start => is(&call.response, 0),
        Task::Exec => is(&call.request, bit(1) | bit(2) | bit(3)),
    }
}

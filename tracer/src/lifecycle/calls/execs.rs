//! ExecSync: PostStart hooks and exec probes.
//!
//! kubelet sends hooks without a timeout and probes with one of a second or more (pkg/kubelet/lifecycle `handlers.go`,
//! pkg/kubelet/prober `prober.go`). The next container waits for a hook; nothing waits for a probe.

use super::super::Lifecycle;
use super::super::start::{Call, Method, Start};
use super::{About, id};
use crate::cri::{CallStart, Field, Fields};

impl Lifecycle {
    pub(super) fn exec_sync(&mut self, call: CallStart, fields: &Fields) -> Option<About> {
        let id = id(fields, Field::ContainerId)?;
        let key = self.start_of_unit(&id)?;
        let start = self.starts.get_mut(&key).filter(|start| start.takes(call.at))?;
        let index = start.containers.iter().rposition(|c| c.id.as_ref() == Some(&id))?;
        // A PreStop hook has no timeout either, and comes when the container has long run.
        let first = !start.calls.iter().any(|c| c.method == Method::PostStart && c.container == Some(index));
        let stopped = start.stopped.is_some_and(|stopped| stopped <= call.at);
        if fields.number(Field::Timeout).unwrap_or(0) == 0 && first && !stopped && start.may_be_hook(index, &call) {
            return Some(self.join(key, Method::PostStart, call, Some(index), None));
        }
        self.aside(key, Method::Probe, call, Some(index))
    }
}

impl Start {
    /// It comes from the client that started the container, which makes no other one before the hook's answer.
    pub(in crate::lifecycle) fn may_be_hook(&self, container: usize, call: &CallStart) -> bool {
        let of_it = |it: &&Call| it.method == Method::StartContainer && it.container == Some(container);
        let Some(started) = self.calls.iter().rev().find(of_it).map(|it| &it.start) else { return true };
        let next = |it: &Call| it.method == Method::CreateContainer && (started.at..call.at).contains(&it.start.at);
        let other = started.client.zip(call.client).is_some_and(|(one, other)| one != other);
        !other && !self.calls.iter().any(next)
    }
}

/// What proto3 leaves out is 0.
pub(in crate::lifecycle) fn exit_code(fields: &Fields) -> u64 {
    fields.number(Field::ExecExitCode).unwrap_or(0)
}

//! ExecSync: PostStart hooks and exec probes.
//!
//! kubelet sends hooks without a timeout and probes with one of a second or more (pkg/kubelet/lifecycle `handlers.go`,
//! pkg/kubelet/prober `prober.go`). The next container waits for a hook; nothing waits for a probe.

use super::super::start::Method;
use super::super::{Lifecycle, StartKey};
use super::{About, id, new_call};
use crate::cri::{CallStart, Ending, Field, Fields};
use crate::ids::MonotonicNs;

/// Probes that a start remembers.
const MAX_PROBES: usize = 32;

impl Lifecycle {
    pub(super) fn exec_sync(&mut self, call: CallStart, fields: &Fields) -> Option<About> {
        let id = id(fields, Field::ContainerId)?;
        let key = self.start_of_unit(&id)?;
        let start = self.starts.get_mut(&key).filter(|start| !start.state.is_over())?;
        let index = start.containers.iter().rposition(|c| c.id.as_ref() == Some(&id))?;
        // A PreStop hook has no timeout either, and comes when the container has long run.
        let first = !start.calls.iter().any(|c| c.method == Method::PostStart && c.container == Some(index));
        if fields.number(Field::Timeout).unwrap_or(0) == 0 && first && start.stopped.is_none() {
            return Some(self.join(key, Method::PostStart, call, Some(index), None));
        }
        if start.probes.len() >= MAX_PROBES {
            start.more_probes += 1;
            return None;
        }
        start.probes.push(new_call(Method::Probe, call, Some(index), None));
        Some(About::Probe(key, start.probes.len() - 1))
    }

    pub(super) fn probe_replied(&mut self, key: StartKey, index: usize, fields: &Fields) {
        if let Some(probe) = self.starts.get_mut(&key).and_then(|start| start.probes.get_mut(index)) {
            probe.replied = true;
            probe.exit_code = Some(exit_code(fields));
        }
    }

    pub(super) fn probe_ended(&mut self, key: StartKey, index: usize, at: MonotonicNs, ending: &Ending) {
        if let Some(probe) = self.starts.get_mut(&key).and_then(|start| start.probes.get_mut(index)) {
            probe.end = Some((at, ending.clone()));
        }
    }
}

/// What proto3 leaves out is 0.
pub(super) fn exit_code(fields: &Fields) -> u64 {
    fields.number(Field::ExecExitCode).unwrap_or(0)
}

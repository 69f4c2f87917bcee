//! What kubelet does not do, though the CRI lets it. Only for a client that is known to be kubelet; each says so.
//!
//! Source: kubernetes `pkg/kubelet/kuberuntime`, `staging/src/k8s.io/cri-client`.

use super::calls::Call;
use super::methods::{Method, Object};
use super::rules;
use super::set::Set;

/// kubelet's checkpoints lie below its root directory and carry a pod's name and a time
/// (`/var/lib/kubelet/checkpoints/checkpoint-…-2026-01-02T03:04:05Z.tar`): a shorter word is none.
const SHORTEST_CHECKPOINT: usize = 48;

/// A habit that left fewer methods.
pub(super) struct Habit {
    pub(super) left: Set,
    pub(super) evidence: &'static str,
}

/// The habits that say something of a call whose request was read.
pub(super) fn habits(call: &Call, object: Option<Object>, speaks_cri: bool) -> Vec<Habit> {
    let mut out = Vec::new();
    let mut without = |set: Set, evidence| out.push(Habit { left: Set::all().without(set), evidence });
    if speaks_cri {
        without(Set::FOREIGN, "habit: kubelet speaks nothing but the CRI here");
    }
    if let Some(object) = object {
        without(Set::all().without(rules::on(object)), "habit: kubelet's ids are of the right kind");
    }
    if call.request.as_ref().is_some_and(|request| request.whole) {
        if call.requested(2).next().is_none() {
            without(Method::StopContainer.set(), "habit: kubelet always gives a container time to stop");
        }
        if call.requested(2).any(|fact| fact.len < SHORTEST_CHECKPOINT) {
            let checkpoints = Method::CheckpointContainer.set().or(Method::CheckpointPod.set());
            without(checkpoints, "habit: kubelet's checkpoints have longer paths");
        }
    }
    out
}

/// Whether a program is kubelet, or one that kubelet is built into.
pub(super) fn is_kubelet(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(
        name,
        "kubelet" | "hyperkube" | "k3s" | "k3s-server" | "k3s-agent" | "rke2" | "k0s" | "kubelite" | "microk8s"
    )
}

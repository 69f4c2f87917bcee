//! What CNI plugins do while a call is open: a sandbox's network is taken down by the CRI's StopPodSandbox, and by a
//! RemovePodSandbox that stops it first. The containerd API knows no network.

use super::Infer;
use super::causes::Change;
use super::methods::{Method, Object};
use super::world::Id;
use crate::ids::MonotonicNs;
use crate::record::Exec;

impl Infer {
    /// A program is run that may be a plugin.
    pub(super) fn plugin(&mut self, at: MonotonicNs, exec: &Exec) {
        if exec.variable("CNI_COMMAND") != Some("DEL") {
            return;
        }
        let Some(id) = exec.variable("CNI_CONTAINERID").and_then(Id::parse) else { return };
        let by = Method::StopPodSandbox.set().or(Method::RemovePodSandbox.set());
        let evidence = "its sandbox's network was taken down";
        self.change(Change { id, object: Object::Sandbox, parent: None, by, from: at, to: at, evidence, task: None });
    }
}

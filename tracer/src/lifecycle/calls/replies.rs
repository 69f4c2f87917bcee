//! Replies and ends of calls.

use super::super::start::{Failure, Method, Turnout};
use super::super::{Lifecycle, StartKey};
use super::execs::exit_code;
use super::{About, id, text};
use crate::cri::{CallKey, Ending, Field, Fields};
use crate::ids::MonotonicNs;

/// `ContainerState` of the CRI.
const CONTAINER_EXITED: u64 = 2;

impl Lifecycle {
    pub(super) fn response(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        let Some(pending) = self.calls.get(&key) else { return };
        match pending.about {
            About::Start(start, index) => self.replied(start, index, fields),
            About::Probe(start, index) => self.probe_replied(start, index, fields),
            About::Pull => {
                if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.call.key == key) {
                    pull.call.image_ref = text(fields, Field::ImageRef);
                    pull.call.replied = true;
                }
            }
            About::Status(start) => {
                let Some(ip) = text(fields, Field::PodIp).filter(|ip| !ip.is_empty()) else { return };
                if let Some(start) = self.starts.get_mut(&start) {
                    start.pod.ip = Some(ip.clone());
                    self.address_known(&ip);
                }
            }
            About::Version => {
                let node = &mut self.node;
                node.runtime = node.runtime.take().or_else(|| text(fields, Field::RuntimeName));
                node.runtime_version = node.runtime_version.take().or_else(|| text(fields, Field::RuntimeVersion));
            }
            About::ContainerStatus(key) => {
                let done = fields.number(Field::State) == Some(CONTAINER_EXITED);
                // What proto3 leaves out is 0.
                let well = fields.number(Field::ExitCode).unwrap_or(0) == 0;
                if let Some(unit) = self.units.get_mut(key).filter(|_| done && well) {
                    unit.told_done = unit.told_done.or(Some(at));
                }
            }
            About::Task(key, index) => self.task_replied(key, index, at, fields),
            About::Unknown | About::Removal(_) => {}
        }
    }

    fn replied(&mut self, key: StartKey, index: usize, fields: &Fields) {
        let Some(call) = self.starts.get_mut(&key).and_then(|start| start.calls.get_mut(index)) else { return };
        call.replied = true;
        let (method, container) = (call.method, call.container);
        match method {
            Method::RunPodSandbox => {
                if let Some(id) = id(fields, Field::SandboxId) {
                    self.link_sandbox(key, &id, true);
                }
            }
            Method::CreateContainer => {
                let Some(id) = id(fields, Field::ContainerId) else { return };
                let containers = self.starts.get_mut(&key).map(|start| &mut start.containers);
                if let Some(container) = containers.zip(container).and_then(|(all, index)| all.get_mut(index)) {
                    container.id = Some(id.clone());
                }
                self.link_unit(key, &id);
            }
            Method::PullImage => call.image_ref = text(fields, Field::ImageRef),
            Method::PostStart => call.exit_code = Some(exit_code(fields)),
            Method::StartContainer | Method::Probe => {}
        }
    }

    pub(super) fn call_end(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending) {
        let Some(pending) = self.calls.remove(&key) else { return };
        match pending.about {
            About::Start(start, index) => self.ended(start, index, at, ending),
            About::Probe(start, index) => self.probe_ended(start, index, at, ending),
            About::Pull => {
                if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.call.key == key) {
                    pull.call.end = Some((at, ending.clone()));
                }
            }
            About::Task(key, index) => self.task_ended(key, index, at),
            About::Removal(sandbox) if matches!(ending, Ending::Status { code: 0, .. } | Ending::NoStatus) => {
                self.starts_in(&sandbox).into_iter().for_each(|key| self.forget(key));
            }
            About::Unknown | About::Status(_) | About::ContainerStatus(_) | About::Version | About::Removal(_) => {}
        }
    }

    fn ended(&mut self, key: StartKey, index: usize, at: MonotonicNs, ending: &Ending) {
        let Some(call) = self.starts.get_mut(&key).and_then(|start| start.calls.get_mut(index)) else { return };
        call.end = Some((at, ending.clone()));
        self.touched.insert(key);
        let container = call.container;
        match call.turnout() {
            Some(Turnout::Bad { reason, message }) => {
                self.fail(key, Failure { at, call: Some(index), container, reason, message });
            }
            Some(Turnout::Good) | None => {}
        }
    }
}

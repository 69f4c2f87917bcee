//! Replies and ends of calls.

use super::super::start::Method;
use super::super::unit::Unit;
use super::super::{Lifecycle, StartKey};
use super::execs::exit_code;
use super::{About, id, text};
use crate::cri::{CallKey, Ending, Field, Fields};
use crate::ids::MonotonicNs;

/// `ContainerState` of the CRI.
const CONTAINER_EXITED: u64 = 2;

impl Lifecycle {
    pub(super) fn response(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        let Some(pending) = self.calls.get_mut(&key) else { return };
        pending.life.iter_mut().for_each(|life| life.replied(fields));
        match pending.about {
            About::Start(start) => self.replied(start, key, fields),
            About::Pull => {
                if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.call.key == key) {
                    pull.call.image_ref = text(fields, Field::ImageRef);
                    pull.call.replied = true;
                }
            }
            About::Status(start) => {
                let Some(ip) = text(fields, Field::PodIp).filter(|ip| !ip.is_empty()) else { return };
                let Some(known) = self.starts.get_mut(&start) else { return };
                if known.pod.ip.replace(ip.clone()).as_ref() != Some(&ip) {
                    self.pod_known(start, at);
                }
                self.address_known(&ip);
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
                let earlier = |unit: &&mut Unit| unit.told_done.is_none_or(|told| at < told);
                if let Some(unit) = self.units.get_mut(key).filter(|_| done && well).filter(earlier) {
                    unit.told_done = Some(at);
                    let start = unit.start;
                    start.into_iter().for_each(|start| self.reconsider(start, at));
                }
            }
            About::Task(key, index) => self.task_replied(key, index, at, fields),
            About::Unknown | About::Unread | About::Removal(_) | About::Nothing => {}
        }
    }

    fn replied(&mut self, key: StartKey, call: CallKey, fields: &Fields) {
        let Some(call) = self.starts.get_mut(&key).and_then(|start| start.call_mut(call)) else { return };
        call.replied = true;
        let (method, container) = (call.method, call.container);
        match method {
            Method::RunPodSandbox => {
                if let Some(id) = id(fields, Field::SandboxId) {
                    self.held_sandbox(key, &id);
                    self.link_sandbox(key, &id, true);
                }
            }
            Method::CreateContainer => {
                let Some(id) = id(fields, Field::ContainerId) else { return };
                let containers = self.starts.get_mut(&key).map(|start| &mut start.containers);
                if let Some(container) = containers.zip(container).and_then(|(all, index)| all.get_mut(index)) {
                    container.id = Some(id.clone());
                }
                self.held_container(key, container, &id);
                if let Some(start) = self.starts.get_mut(&key) {
                    start.one_container(&id);
                }
                self.link_unit(key, &id);
            }
            Method::PullImage => call.image_ref = text(fields, Field::ImageRef),
            Method::PostStart | Method::Probe => call.exit_code = Some(exit_code(fields)),
            Method::StartContainer | Method::Other => {}
        }
    }

    pub(super) fn call_end(&mut self, key: CallKey, at: MonotonicNs, ending: &Ending) {
        let Some(pending) = self.calls.remove(&key) else { return };
        if let Some(life) = pending.life {
            self.life_answered(*life, at, ending);
        }
        match pending.about {
            About::Start(start) => self.ended(start, key, at, ending),
            About::Pull => {
                if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.call.key == key) {
                    pull.call.end = Some((at, ending.clone()));
                }
            }
            About::Task(key, index) => self.task_ended(key, index, at),
            About::Unread => self.unread_ended(pending.start, at, ending),
            About::Removal(sandbox) if matches!(ending, Ending::Status { code: 0, .. } | Ending::NoStatus) => {
                self.starts_in(&sandbox).into_iter().for_each(|key| self.removed(key));
            }
            About::Unknown
            | About::Status(_)
            | About::ContainerStatus(_)
            | About::Version
            | About::Removal(_)
            | About::Nothing => {}
        }
    }

    fn ended(&mut self, key: StartKey, call: CallKey, at: MonotonicNs, ending: &Ending) {
        if let Some(call) = self.starts.get_mut(&key).and_then(|start| start.call_mut(call)) {
            call.end = Some((at, ending.clone()));
            self.touched.insert(key);
        }
    }
}

//! Calls about a pod that is there: stop, removal, and what a client does to a container that runs.

use super::super::Lifecycle;
use super::super::calls::{exit_code, id, new_call};
use super::super::start::{Call, Method, Turnout};
use super::super::unit::UnitKey;
use super::probes::Shape;
use crate::cri::{CallStart, Ending, Field, Fields, Protocol};
use crate::diagnose::life;
use crate::ids::MonotonicNs;
use crate::trace::{CallInfo, LifeEvent, LifeKind, Verdict};

/// gRPC's NOT_FOUND: what was to end is no more.
const NOT_FOUND: u32 = 5;

/// A call under way.
#[derive(Debug)]
pub(in crate::lifecycle) struct LifeCall {
    call: Call,
    /// What its answer is.
    kind: LifeKind,
    unit: UnitKey,
    /// Nothing was left to do.
    again: bool,
    shape: Shape,
}

impl LifeCall {
    /// Its reply came.
    pub(in crate::lifecycle) fn replied(&mut self, fields: &Fields) {
        self.call.replied = true;
        self.call.exit_code = Some(exit_code(fields));
    }
}

impl Lifecycle {
    /// A request that a pod's life is about; what it asks for is told now, its answer when that comes.
    pub(in crate::lifecycle) fn life_asked(&mut self, start: &CallStart, fields: &Fields) -> Option<Box<LifeCall>> {
        let kind = kind(start)?;
        let of_sandbox = matches!(
            (kind, start.method.as_str()),
            (LifeKind::SandboxStopped | LifeKind::SandboxRemoved | LifeKind::PortForward, _)
                | (_, "UpdatePodSandboxResources")
        );
        let about = id(fields, if of_sandbox { Field::SandboxId } else { Field::ContainerId })?;
        let unit = self.units.find(&about)?;
        let mut call = new_call(Method::Other, start.clone(), None, None);
        call.client = self.client(start);
        let life = &mut self.units.get_mut(unit)?.life;
        let ends =
            matches!(kind, LifeKind::Stopped | LifeKind::Removed | LifeKind::SandboxStopped | LifeKind::SandboxRemoved);
        if ends {
            life.asked = Some(life.asked.map_or(start.at, |asked| asked.min(start.at)));
        }
        let again = kind == LifeKind::SandboxStopped && life.stopped;
        let because = life.poststart_failed.then_some("poststart_failed");
        let asked = match kind {
            LifeKind::Stopped => {
                // What proto3 leaves out is 0; so is, to a runtime, a negative one.
                let grace = fields.number(Field::Timeout).and_then(|grace| i64::try_from(grace).ok()).unwrap_or(0);
                Some(LifeEvent::new(LifeKind::Stop, start.at).and("grace_s", Some(grace)).and("because", because))
            }
            LifeKind::SandboxStopped if !again => Some(LifeEvent::new(LifeKind::SandboxStop, start.at)),
            _ => None,
        };
        if let Some(event) = asked {
            self.life.event(unit, LifeEvent { call: Some(info(&call, None)), ..event });
        }
        Some(Box::new(LifeCall { call, kind, unit, again, shape: Shape::of(fields) }))
    }

    /// Its end.
    pub(in crate::lifecycle) fn life_answered(&mut self, asked: LifeCall, at: MonotonicNs, ending: &Ending) {
        let LifeCall { mut call, kind, unit: key, again, shape } = asked;
        call.end = Some((at, ending.clone()));
        let turnout = call.turnout().unwrap_or(Turnout::Good);
        let good = turnout == Turnout::Good;
        let event = LifeEvent {
            lasted_ns: Some(at.since(call.start.at)),
            call: Some(info(&call, Some(ending))),
            ..LifeEvent::new(kind, at)
        };
        let Some(unit) = self.units.get(key) else { return };
        let event = match kind {
            LifeKind::Stopped => {
                // Of one that had ended before this call, another one may have killed it.
                let ended = unit.exit.as_ref().filter(|(ended, _)| *ended >= call.start.at);
                let killed = ended.map(|_| unit.grace_exceeded().is_some());
                let verdict = call_failed("container.stop", &call, &turnout);
                LifeEvent { verdict, ..event.and("killed", killed) }
            }
            LifeKind::SandboxStopped => {
                if again && good {
                    return;
                }
                let cni = unit.life.cni_failed;
                let verdict = call_failed("sandbox.stop", &call, &turnout);
                if let Some(unit) = self.units.get_mut(key) {
                    unit.life.stopped |= good;
                }
                // The plugin that failed had its own verdict.
                let verdict = verdict.map(|verdict| if cni { life::cni_stop(verdict.message) } else { verdict });
                LifeEvent { verdict, ..event }
            }
            LifeKind::Removed | LifeKind::SandboxRemoved => {
                if !good || unit.life.removed {
                    return;
                }
                if let Some(unit) = self.units.get_mut(key) {
                    unit.life.removed = true;
                }
                let last = (kind == LifeKind::SandboxRemoved).then(|| self.is_last(key)).flatten();
                event.and("last", last)
            }
            LifeKind::Probe => {
                let start = unit.start;
                let event = self.exec_ended(key, &call, shape, event);
                event.into_iter().for_each(|event| self.life.event(key, event));
                self.check_ready(start);
                return;
            }
            LifeKind::Exec | LifeKind::Attach | LifeKind::PortForward | LifeKind::Update => event,
            _ => return,
        };
        self.life.event(key, event);
    }

    /// No other sandbox of its pod is known that was not removed.
    fn is_last(&self, key: UnitKey) -> Option<bool> {
        let uid = self.place(key)?.pod.uid?;
        let removed =
            |id| self.units.find(id).and_then(|key| self.units.get(key)).is_some_and(|unit| unit.life.removed);
        let unmade =
            |call: &Call| call.method == Method::RunPodSandbox && matches!(call.turnout(), Some(Turnout::Bad { .. }));
        let started = self.starts.values().any(|start| {
            self.pod(start).uid.as_ref() == Some(&uid)
                && !start.calls.iter().any(unmade)
                && !start.sandbox.as_ref().is_some_and(removed)
        });
        let listed = self
            .units
            .iter()
            .any(|(_, unit)| unit.pod.as_ref().is_some_and(|pod| pod.uid.as_ref() == Some(&uid)) && !unit.life.removed);
        Some(!started && !listed)
    }
}

/// What is wrong where a stop was not answered well.
fn call_failed(stage: &str, call: &Call, turnout: &Turnout) -> Option<Verdict> {
    let Turnout::Bad { reason, message } = turnout else { return None };
    let gone = matches!(call.end, Some((_, Ending::Status { code: NOT_FOUND, .. })));
    (!gone).then(|| life::call(stage, reason, message))
}

/// What a call's answer is.
fn kind(start: &CallStart) -> Option<LifeKind> {
    if start.protocol != Protocol::Grpc {
        return None;
    }
    Some(match start.method.as_str() {
        "StopContainer" => LifeKind::Stopped,
        "RemoveContainer" => LifeKind::Removed,
        "StopPodSandbox" => LifeKind::SandboxStopped,
        "RemovePodSandbox" => LifeKind::SandboxRemoved,
        // Or a hook: that is seen when it ends.
        "ExecSync" => LifeKind::Probe,
        "Exec" => LifeKind::Exec,
        "Attach" => LifeKind::Attach,
        "PortForward" => LifeKind::PortForward,
        "UpdateContainerResources" | "UpdatePodSandboxResources" => LifeKind::Update,
        _ => return None,
    })
}

fn info(call: &Call, ending: Option<&Ending>) -> CallInfo {
    let (code, message) = match ending {
        Some(Ending::Status { code, message }) => (Some(*code), Some(message.clone()).filter(|text| !text.is_empty())),
        _ => (None, None),
    };
    CallInfo {
        service: call.start.service.clone(),
        method: call.start.method.clone(),
        method_source: call.start.source,
        candidates: Vec::new(),
        code,
        message,
        client: call.client.clone(),
    }
}

//! PostStart hooks, probes, and from when on a pod is ready as far as it can be seen.
//!
//! kubelet says nothing of its probes: an exec probe is an ExecSync with a timeout, and two of a container are told apart
//! by that and by the lengths of their commands' words. A TCP or HTTP probe is a connect of kubelet's.

use super::super::start::{Call, Method, Turnout};
use super::super::unit::UnitKey;
use super::super::{Lifecycle, StartKey};
use crate::cri::{Ending, Field, Fields, Value};
use crate::diagnose::life;
use crate::ids::{ContainerId, MonotonicNs};
use crate::record::Connect;
use crate::trace::{LifeEvent, LifeKind, Outcome, StartKind};

/// Exec probes of a container, and ports of a pod, that are remembered.
const MAX_PROBES: usize = 8;
const MAX_PORTS: usize = 32;
/// Words of a command that tell probes apart.
const MAX_WORDS: usize = 32;
/// A probe that changes more often is told no more: it may be two of one shape.
const MAX_CHANGES: u32 = 32;

/// What tells one exec probe of a container from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    timeout: u64,
    words: Vec<u64>,
}

impl Shape {
    pub(super) fn of(fields: &Fields) -> Shape {
        let words = fields.0.iter().filter_map(|(field, value)| match value {
            Value::Number(len) if *field == Field::ExecWord => Some(*len),
            _ => None,
        });
        Shape { timeout: fields.number(Field::Timeout).unwrap_or(0), words: words.take(MAX_WORDS).collect() }
    }
}

/// The results of one probe.
#[derive(Clone, Debug)]
pub(super) struct Probe<Of> {
    of: Of,
    good: bool,
    /// How many failed in a row before now.
    failed: u64,
    changes: u32,
    /// Its first success.
    succeeded: Option<MonotonicNs>,
}

impl<Of> Probe<Of> {
    fn new(of: Of) -> Probe<Of> {
        Probe { of, good: false, failed: 0, changes: 0, succeeded: None }
    }

    /// Takes a result: how many failed in a row before it, where it is another one than before.
    fn result(&mut self, at: MonotonicNs, good: bool) -> Option<u64> {
        let changed = self.changes == 0 || self.good != good;
        let failed = self.failed;
        self.good = good;
        self.failed = if good { 0 } else { failed + 1 };
        self.changes += u32::from(changed);
        if good {
            self.succeeded.get_or_insert(at);
        }
        (changed && self.changes <= MAX_CHANGES).then_some(failed)
    }
}

/// Takes a result of `of`; none where there is no room, or it is the same as before.
fn result<Of: PartialEq>(
    probes: &mut Vec<Probe<Of>>,
    most: usize,
    of: Of,
    (at, good): (MonotonicNs, bool),
) -> Option<u64> {
    let known = probes.iter().position(|probe| probe.of == of);
    if known.is_none() && probes.len() >= most {
        return None;
    }
    let index = known.unwrap_or(probes.len());
    if known.is_none() {
        probes.push(Probe::new(of));
    }
    probes[index].result(at, good)
}

impl Lifecycle {
    /// An ExecSync ended: a hook or a probe.
    pub(super) fn exec_ended(
        &mut self,
        key: UnitKey,
        call: &Call,
        shape: Shape,
        event: LifeEvent,
    ) -> Option<LifeEvent> {
        let (at, ending) = call.end.as_ref()?;
        let turnout = call.turnout()?;
        // Where the client or the runtime went away, nobody knows how it ended.
        let known = match ending {
            Ending::Status { .. } | Ending::NoStatus => true,
            _ => matches!(turnout, Turnout::Bad { reason: "client_deadline", .. }),
        };
        let good = turnout == Turnout::Good && call.exit_code.unwrap_or(0) == 0;
        let unit = self.units.get(key)?;
        let after = unit.entered().map(|entry| at.since(entry.at));
        let start = unit.start.and_then(|key| self.starts.get(&key));
        // kubelet sends it as soon as StartContainer was answered; its own start may not be known yet.
        let soon = |at: MonotonicNs| call.start.at >= at && call.start.at.since(at) <= self.config.settle_ns;
        let fresh = shape.timeout == 0 && !unit.life.hooked && !unit.was_over(call.start.at);
        let allowed = start.is_none_or(|start| {
            let index = start.containers.iter().rposition(|it| it.id.as_ref() == Some(&unit.id));
            index.is_none_or(|index| start.may_be_hook(index, &call.start))
        });
        let hook = start.is_some_and(|start| {
            start.calls.iter().any(|known| known.key == call.key && known.method == Method::PostStart)
        }) || fresh && allowed && unit.entered().is_some_and(|entry| soon(entry.at));
        let code = call.exit_code.filter(|_| turnout == Turnout::Good).and_then(|code| u8::try_from(code).ok());
        let event = LifeEvent { exit_code: code, ..event }.and("after_ns", after);
        // One that had been asked to end may fail.
        let over = unit.was_over(*at);
        let unit = self.units.get_mut(key)?;
        if hook {
            unit.life.hooked = true;
            unit.life.poststart_failed |= !good && !over;
            let verdict = (!good && !over).then(|| match turnout {
                Turnout::Good => life::poststart(&format!("its command exited with {}", call.exit_code.unwrap_or(0))),
                Turnout::Bad { message, .. } => life::poststart(&message),
            });
            return Some(LifeEvent { kind: LifeKind::PostStart, verdict, ..event });
        }
        if known && shape.timeout == 0 {
            return Some(LifeEvent { kind: LifeKind::Exec, ..event });
        }
        if !known || over {
            return None;
        }
        let failed = result(&mut unit.life.probes, MAX_PROBES, shape, (*at, good));
        let failed = failed.map(|failed| Some(failed).filter(|failed| *failed > 0))?;
        Some(event.and("via", Some("exec")).and("failed", failed))
    }

    /// A client's connect to the one pod of that address came to its end.
    pub(in crate::lifecycle) fn port_probed(&mut self, at: MonotonicNs, key: StartKey, connect: Connect) {
        let Some(start) = self.starts.get(&key).filter(|start| start.kind == StartKind::Pod) else { return };
        let unit = |id: &ContainerId| self.units.find(id).filter(|key| self.units.get(*key).is_some());
        let Some(sandbox) = start.sandbox.as_ref().and_then(unit) else { return };
        let containers: Vec<UnitKey> =
            start.containers.iter().filter_map(|it| it.id.as_ref()).filter_map(unit).collect();
        let of = |key: &UnitKey| self.units.get(*key);
        let ran = |key: &UnitKey| of(key).and_then(|it| it.entered()).is_some_and(|entry| entry.at <= connect.start);
        let own = of(&sandbox).is_some_and(|unit| unit.netns_path.is_some());
        if !own || !containers.iter().any(ran) {
            return;
        }
        // The one container that is known to listen there.
        let listens = |key: &&UnitKey| of(key).and_then(|it| it.listening).is_some_and(|it| it.port == connect.port);
        let mut listeners = containers.iter().filter(listens);
        let about = listeners.next().filter(|_| listeners.next().is_none()).copied();
        let after = about.and_then(|key| self.units.get(key)?.entered()).map(|entry| at.since(entry.at));
        let Some(unit) = self.units.get_mut(sandbox).filter(|unit| !unit.was_over(at)) else { return };
        let told = unit.life.ports.iter().any(|port| port.of == connect.port && port.succeeded.is_some());
        let failed = result(&mut unit.life.ports, MAX_PORTS, connect.port, (at, connect.accepted));
        if let Some(failed) = failed.filter(|_| connect.accepted && !told) {
            let event = LifeEvent { lasted_ns: Some(at.since(connect.start)), ..LifeEvent::new(LifeKind::Probe, at) };
            let event = event.and("after_ns", after).and("via", Some("connect")).and("port", Some(connect.port));
            let event = event.and("failed", Some(failed).filter(|failed| *failed > 0));
            self.life.event(about.unwrap_or(sandbox), event);
        }
        self.check_ready(Some(key));
    }

    /// A start is over, or a probe of it succeeded: is its pod ready now?
    pub(in crate::lifecycle) fn check_ready(&mut self, key: Option<StartKey>) {
        let Some(start) = key.and_then(|key| self.starts.get(&key)) else { return };
        let whole = start.kind == StartKind::Pod && start.state.outcome() == Outcome::Complete;
        let Some(sandbox) = start.sandbox.as_ref().and_then(|id| self.units.find(id)).filter(|_| whole) else { return };
        let Some(unit) = self.units.get(sandbox) else { return };
        let ports = unit.life.ports.iter().map(|port| port.succeeded);
        let containers = start.containers.iter().filter_map(|it| start.unit(it, &self.units));
        let execs = containers.flat_map(|unit| unit.life.probes.iter().map(|probe| probe.succeeded));
        let Some(all) = ports.chain(execs).collect::<Option<Vec<_>>>() else { return };
        let Some(last) = all.into_iter().max() else { return };
        let at = last.max(start.last_sign(&self.units));
        if unit.life.ready || unit.was_over(at) {
            return;
        }
        let event = LifeEvent::new(LifeKind::Ready, at).and("after_ns", Some(at.since(start.origin())));
        if let Some(unit) = self.units.get_mut(sandbox) {
            unit.life.ready = true;
            self.life.event(sandbox, event);
        }
    }
}

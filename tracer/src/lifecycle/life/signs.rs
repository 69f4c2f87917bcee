//! What the kernel shows of a pod that is there: ends, signals, plugins that take it off the network.

use super::super::Lifecycle;
use super::super::process::Process;
use super::super::start::Start;
use super::super::unit::{Kind, Unit, UnitKey};
use super::oom::limit;
use super::{Life, Place};
use crate::diagnose::life::{self, By, End, Killed};
use crate::ids::{ContainerId, MonotonicNs, Tgid};
use crate::record::{Exit, Record, Role};
use crate::trace::{LifeEvent, LifeKind, LifeProcess, Verdict};

/// `si_code`: the kernel's own (include/uapi/asm-generic/siginfo.h). A fault has a number above 0.
const SI_KERNEL: i32 = 0x80;
/// From here to -4 a timer, a message queue or an asynchronous read of the process itself.
const SI_TIMER: i32 = -2;
const SI_ASYNCIO: i32 = -4;
/// `TRACE_SIGNAL_IGNORED` (include/trace/events/signal.h).
const IGNORED: u32 = 1;
/// SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH end nothing by default.
const HARMLESS: [u8; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
const SIGKILL: u8 = 9;

/// A signal that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: MonotonicNs,
    pub(super) signal: u8,
    pub(super) by: By,
    pub(super) sender: LifeProcess,
    pub(super) ignored: bool,
}

impl Unit {
    /// The runtime had to kill it: it had sent another signal before.
    pub(super) fn grace_exceeded(&self) -> Option<(&Sent, &Sent)> {
        let Life { first, last, .. } = &self.life;
        let (first, last) = (first.as_ref()?, last.as_ref()?);
        let killed = last.signal == SIGKILL && last.by == By::Runtime && first.signal != SIGKILL;
        let (_, exit) = self.exit.as_ref()?;
        (killed && exit.signal == Some(SIGKILL)).then_some((first, last))
    }

    /// Its end was asked for while it ran.
    fn was_asked(&self, by: MonotonicNs) -> bool {
        let by = self.exit.as_ref().map_or(by, |(end, _)| (*end).min(by));
        self.life.asked.is_some_and(|asked| asked <= by)
    }

    /// Its entrypoint ran, or it was told to: before that, its end is a start's.
    fn was_started(&self) -> bool {
        let started = self.runs.iter().any(|run| run.kind == Kind::OciStart) || self.told_started();
        self.ran() || started
    }

    /// Its entrypoint runs or ran, seen by podlapse or listed.
    pub(super) fn ran(&self) -> bool {
        self.entered().is_some() || self.pod.is_some() || self.existing.as_ref().is_some_and(|it| it.ran())
    }

    /// It had ended then, or was asked to.
    pub(super) fn was_over(&self, at: MonotonicNs) -> bool {
        let ended = self.exit.as_ref().map(|(at, _)| *at);
        [ended, self.life.asked].into_iter().flatten().any(|over| over <= at)
    }

    /// Its entrypoint runs.
    pub(super) fn runs(&self) -> bool {
        self.ran() && self.exit.is_none()
    }
}

impl Lifecycle {
    /// A signal was sent.
    pub(in crate::lifecycle) fn signal(
        &mut self,
        record: &Record,
        target: Tgid,
        (signal, code, result): (u32, i32, u32),
        comm: &str,
    ) {
        let Ok(signal) = u8::try_from(signal) else { return };
        let Some(key) = self.processes.get(target).and_then(|process| process.unit) else { return };
        let by = self.by(record.tgid, target, code);
        let Some(unit) = self.units.get_mut(key).filter(|unit| unit.init() == Some(target)) else { return };
        // What SIGKILL has reached is ending.
        let dying = unit.life.last.as_ref().is_some_and(|last| last.signal == SIGKILL && !last.ignored);
        if HARMLESS.contains(&signal) || unit.exit.is_some() || dying {
            return;
        }
        let sender = LifeProcess { pid: record.tgid, comm: comm.to_owned() };
        let sent = Sent { at: record.at, signal, by, sender, ignored: result == IGNORED };
        let told = unit.ran() && matches!(by, By::Runtime | By::Other);
        if by == By::Runtime {
            unit.life.first.get_or_insert_with(|| sent.clone());
        }
        let stop = (by == By::Runtime && unit.life.shim_died.is_none()).then_some("stop");
        let event = LifeEvent { signal: Some(signal), process: Some(sent.sender.clone()), ..signal_event(&sent, stop) };
        // One that repeats itself is told once.
        let same = |last: &Sent| last.signal == signal && last.sender == sent.sender;
        let again = unit.life.last.as_ref().is_some_and(same);
        // One that the kernel dropped ended nothing.
        if !sent.ignored || unit.life.last.as_ref().is_none_or(|last| last.ignored) {
            unit.life.last = Some(sent);
        }
        if told && !again {
            self.life.event(key, event);
        }
    }

    /// Who sends a signal.
    fn by(&self, sender: Tgid, target: Tgid, code: i32) -> By {
        if code > 0 || code == SI_KERNEL {
            return By::Kernel;
        }
        if sender == target || (SI_ASYNCIO..=SI_TIMER).contains(&code) {
            return By::Itself;
        }
        let Some(process) = self.processes.get(sender) else { return By::Other };
        let helper = match process.kind {
            Kind::ShimStarter | Kind::ShimDaemon | Kind::Conmon | Kind::OciCreate | Kind::OciStart => true,
            // runc kill and runc delete; but not what runs in the container by runc exec.
            Kind::Aside => !process.inside,
            _ => false,
        };
        if helper || process.role == Role::Runtime { By::Runtime } else { By::Other }
    }

    /// A unit's init ended: what that is to be told as.
    pub(super) fn end_event(&self, key: UnitKey, place: &Place) -> Option<LifeEvent> {
        let unit = self.units.get(key)?;
        let (at, exit) = unit.exit.clone()?;
        if !unit.was_started() {
            return None;
        }
        let entered = unit.entered().map(|entry| entry.at);
        let last = unit.life.last.as_ref().filter(|last| exit.signal.is_none_or(|signal| signal == last.signal));
        let sandbox = self.sandbox_of(place);
        // What was asked for after the signal that ended it is not why.
        let decided = last.filter(|_| exit.signal.is_some()).map_or(at, |sent| sent.at);
        let asked_by_call = [Some(unit), sandbox].into_iter().flatten().any(|it| it.was_asked(decided))
            || place.container.is_none() && self.all_asked(&unit.id, decided);
        let shim_died = unit.life.shim_died.is_some();
        let by_runtime = unit.life.first.as_ref().is_some_and(|first| first.at <= decided);
        let asked = asked_by_call || by_runtime && !shim_died;
        let unsure = self.is_unsure(unit, at);
        let sender = last.filter(|_| exit.signal.is_some());
        let facts = End {
            pid: unit.init(),
            comm: &exit.comm,
            code: exit.status,
            signal: exit.signal,
            sent: last.map(|last| (last.signal, last.by, &last.sender)),
            asked,
            shim_died: shim_died && !asked_by_call,
            unsure,
            killed: unit.oom_killed(at).map(|victim| Killed {
                pid: victim.pid,
                comm: &exit.comm,
                rss_kib: victim.rss_kib,
                limit: limit(unit, at),
                group: unit.group(at),
                init: unit.init() == Some(victim.pid),
            }),
            grace_ns: unit.grace_exceeded().map(|(first, last)| (first.signal, last.at.since(first.at), first.ignored)),
        };
        let event = LifeEvent {
            lasted_ns: entered.map(|entered| at.since(entered)),
            process: sender.filter(|sent| sent.by != By::Kernel).map(|sent| sent.sender.clone()),
            signal: exit.signal,
            exit_code: exit.status,
            ..LifeEvent::new(LifeKind::Exit, at)
        };
        let event = event.and("sender", sender.map(|sent| sent.by.name(&sent.sender)));
        if place.container.is_none() {
            // It goes with its shim, whose end has a verdict.
            let verdict = life::sandbox_end(&facts).filter(|_| !shim_died);
            // A pause that handles SIGTERM ends with 0: of that nothing more is known.
            let open = unsure && exit.signal.is_none();
            return (!asked && !open && unit.ran()).then_some(LifeEvent {
                kind: LifeKind::SandboxExit,
                verdict,
                ..event
            });
        }
        let verdict = if unit.ran() { life::end(&facts) } else { self.never_ran(unit, &exit, asked) };
        Some(LifeEvent { verdict, ..event.and("asked", Some(asked).filter(|asked| *asked || !unsure)) })
    }

    /// The containers of a sandbox were asked to stop, all that live: kubelet ends what is left of the pod itself then.
    fn all_asked(&self, sandbox: &ContainerId, at: MonotonicNs) -> bool {
        let containers = || self.units.iter().map(|(_, unit)| unit).filter(|unit| self.is_in(unit, sandbox));
        let mut live = containers().filter(|unit| unit.exit.is_none());
        containers().any(|unit| unit.was_asked(at)) && live.all(|unit| unit.was_asked(at))
    }

    /// It is a container of that sandbox.
    fn is_in(&self, unit: &Unit, sandbox: &ContainerId) -> bool {
        let start = unit.start.and_then(|key| self.starts.get(&key));
        let of = unit.existing.as_ref().map(|it| &it.sandbox).or(start.and_then(|start| start.sandbox.as_ref()));
        of == Some(sandbox) && unit.id != *sandbox
    }

    /// The end of an init that never ran the entrypoint: the start's own verdict, where that has one.
    fn never_ran(&self, unit: &Unit, exit: &Exit, asked: bool) -> Option<Verdict> {
        let start = unit.start.and_then(|key| self.starts.get(&key));
        if let Some((stage, reason)) = start.and_then(|start: &Start| start.told.as_ref()) {
            return Some(life::never_ran(reason, stage, exit.status, exit.signal));
        }
        let reason = match (&unit.entry, unit.was_oom_killed()) {
            _ if asked || self.lost_at.is_some() => return None,
            (_, true) => "init_oom",
            (Some(_), false) if exit.signal.is_none() => "exec_failed",
            _ => "exited_before_exec",
        };
        Some(life::never_ran(reason, "container.exec", exit.status, exit.signal))
    }

    /// A helper of the runtime ended.
    pub(in crate::lifecycle) fn helper_ended(&mut self, at: MonotonicNs, tgid: Tgid, process: &Process, exit: &Exit) {
        let Some(key) = process.unit else { return };
        match &process.kind {
            Kind::Cni(cni) if cni.command == "DEL" => self.plugin_ended(at, key, (tgid, process), exit),
            Kind::ShimDaemon => self.shim_ended(at, key, tgid, exit),
            _ => {}
        }
    }

    /// A plugin took the pod off the network, or did not. Where the sandbox was never made, it only cleans up.
    fn plugin_ended(&mut self, at: MonotonicNs, key: UnitKey, (tgid, process): (Tgid, &Process), exit: &Exit) {
        let Kind::Cni(cni) = &process.kind else { return };
        let made = self.units.get(key).is_some_and(|unit| self.is_made(unit));
        let Some(unit) = self.units.get_mut(key) else { return };
        let bad = exit.signal.is_some() || exit.status.is_some_and(|status| status != 0);
        // kubelet asks again and again, and the runtime runs them again.
        if unit.life.stopped && !bad {
            return;
        }
        let follows = unit.life.delegate_failed == Some(tgid);
        unit.life.cni_failed |= bad && made;
        if bad {
            unit.life.delegate_failed = Some(process.parent);
        }
        let begun = process.created.map(|created| created.at);
        let culprit = LifeProcess { pid: tgid, comm: cni.plugin.clone() };
        let verdict = (bad && made && !follows).then(|| life::cni_del(&culprit, exit.status, exit.signal));
        let event = LifeEvent {
            lasted_ns: begun.map(|begun| at.since(begun)),
            process: Some(culprit),
            signal: exit.signal,
            exit_code: exit.status,
            verdict,
            ..LifeEvent::new(LifeKind::Cni, at)
        };
        self.life.event(key, event);
    }

    /// Its RunPodSandbox was answered well, or it was there before podlapse.
    fn is_made(&self, unit: &Unit) -> bool {
        let start = unit.start.and_then(|key| self.starts.get(&key));
        unit.pod.is_some() || start.is_some_and(Start::made_its_sandbox)
    }

    /// A shim ended: who is left without one?
    fn shim_ended(&mut self, at: MonotonicNs, key: UnitKey, tgid: Tgid, exit: &Exit) {
        if self.units.get(key).is_none_or(|unit| unit.shim != Some(tgid)) {
            return;
        }
        let Some(id) = self.units.get(key).map(|unit| unit.id.clone()) else { return };
        // The runtime's create is its child: so a container is known that has no name yet.
        let made = |unit: &Unit| unit.runs.iter().any(|run| run.kind == Kind::OciCreate && run.parent == tgid);
        let of = |unit: &Unit| unit.id == id || made(unit) || self.is_in(unit, &id);
        let live = |unit: &Unit| unit.runs() && unit.init().is_some_and(|init| self.processes.get(init).is_some());
        let left = self.units.iter().filter(|(_, unit)| live(unit) && of(unit));
        // It ends well when all that it had has ended: the end of one was lost, or is still to come.
        let well = exit.status == Some(0);
        let left = left.filter(|(_, unit)| !well || !self.is_unsure(unit, at) && !unit.was_asked(at));
        let left = left.map(|(key, _)| key).collect::<Vec<_>>();
        if left.is_empty() {
            return;
        }
        for key in &left {
            if let Some(unit) = self.units.get_mut(*key) {
                unit.life.shim_died = Some(at);
            }
        }
        let comm = if exit.comm.is_empty() { "shim" } else { &exit.comm };
        let shim = LifeProcess { pid: tgid, comm: comm.to_owned() };
        let verdict = Some(life::shim_died(&shim, exit.status, exit.signal, left.len()));
        let event = LifeEvent {
            process: Some(shim),
            signal: exit.signal,
            exit_code: exit.status,
            verdict,
            ..LifeEvent::new(LifeKind::ShimExit, at)
        };
        self.life.event(key, event.and("running", Some(left.len())));
    }
}

fn signal_event(sent: &Sent, of: Option<&str>) -> LifeEvent {
    LifeEvent::new(LifeKind::Signal, sent.at).and("for", of).and("ignored", sent.ignored.then_some(true))
}

//! One start, of a pod or of a container in a sandbox that runs: its calls, its containers, and what decides that it is over.

use std::collections::BTreeSet;

use super::Losses;
use super::connects::Probed;
use super::queue::Queued;
use super::state::{State, Step};
use super::stuck::Patience;
use super::unit::{Kind, Run, Unit, Units};
use super::volumes::Volume;
use crate::cri::{CallKey, CallStart, Ending};
use crate::engine::Config;
use crate::ids::{ContainerId, MonotonicNs};
use crate::trace::{Outcome, PodInfo, StartKind};

/// How much shorter than its timeout a call that timed out may look from the server's side, where it is not a short one.
const TIMEOUT_SLACK_NS: u64 = 50_000_000;

/// Which call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    RunPodSandbox,
    PullImage,
    CreateContainer,
    StartContainer,
    /// ExecSync of a PostStart hook.
    PostStart,
    /// ExecSync of a probe.
    Probe,
    /// Another call that may change something, or one whose method is not known.
    Other,
}

impl Method {
    /// Its stage.
    pub(super) fn stage(self) -> &'static str {
        match self {
            Method::RunPodSandbox => "sandbox",
            Method::PullImage => "image.pull",
            Method::CreateContainer => "container.create",
            Method::StartContainer => "container.start",
            Method::PostStart => "poststart",
            Method::Probe => "probe.exec",
            Method::Other => "cri.call",
        }
    }
}

/// One call of a start.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) key: CallKey,
    pub(super) method: Method,
    pub(super) start: CallStart,
    /// What it may be, where its method is not known.
    pub(super) candidates: Vec<&'static str>,
    /// Who sent it.
    pub(super) client: Option<String>,
    /// Index of its container.
    pub(super) container: Option<usize>,
    pub(super) image: Option<String>,
    /// When the first request for what it was given came: CRI-O holds what was made for a request that was given up,
    /// and hands it to the next one of the same name.
    pub(super) held: Option<MonotonicNs>,
    /// What a pull's reply calls the image.
    pub(super) image_ref: Option<String>,
    /// What the command of an ExecSync came to.
    pub(super) exit_code: Option<u64>,
    pub(super) replied: bool,
    /// Its request came before podlapse: it began at that time or earlier.
    pub(super) before: bool,
    pub(super) end: Option<(MonotonicNs, Ending)>,
}

/// How a call turned out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turnout {
    Good,
    Bad { reason: &'static str, message: String },
}

impl Call {
    /// Whether it was open at that time.
    pub(super) fn is_open_at(&self, at: MonotonicNs) -> bool {
        self.start.at <= at && self.end.as_ref().is_none_or(|(end, _)| *end > at)
    }

    /// When its client was about to give up, by the request's timeout.
    pub(super) fn deadline(&self) -> Option<MonotonicNs> {
        let timeout = self.start.timeout_ns?;
        let waited = timeout.saturating_sub(TIMEOUT_SLACK_NS.min(timeout / 20));
        Some(MonotonicNs(self.start.at.0.saturating_add(waited)))
    }

    /// How it turned out, once it is over.
    pub(super) fn turnout(&self) -> Option<Turnout> {
        let (at, ending) = self.end.as_ref()?;
        let bad = |reason, message: &str| Turnout::Bad { reason, message: message.to_owned() };
        // The client's clock ran before the request was read here.
        let late = self.deadline().is_some_and(|deadline| *at >= deadline);
        // A runtime keeps its client's deadline, too: what it says then is that it was interrupted.
        let over = self.start.timeout_ns.is_some_and(|timeout| at.since(self.start.at) >= timeout);
        const GAVE_UP: &str = "the client gave up at its deadline";
        Some(match ending {
            Ending::Status { code: 0, .. } => Turnout::Good,
            Ending::Status { code, message } if over || late && matches!(code, 1 | 4) => {
                bad("client_deadline", if message.is_empty() { GAVE_UP } else { message })
            }
            Ending::Status { message, .. } => bad("call_failed", message),
            // Headers before trailers mean OK (grpc-go sends an error as trailers only).
            Ending::NoStatus if self.replied => Turnout::Good,
            Ending::NoStatus => bad("no_status", "the call ended without a readable status"),
            // A server by grpc-go resets the call itself then.
            Ending::ResetByClient(_) | Ending::ResetByServer(_) if late => bad("client_deadline", GAVE_UP),
            Ending::ResetByClient(code) => bad("client_cancel", &format!("reset by the client (HTTP/2 error {code})")),
            Ending::ResetByServer(code) => bad("server_reset", &format!("reset by the server (HTTP/2 error {code})")),
            Ending::ConnectionClosed => bad("connection_closed", "the connection ended before the reply"),
            Ending::RuntimeRestarted => bad("runtime_restarted", "the runtime's process ended before the reply"),
        })
    }
}

/// One container of a start.
#[derive(Clone, Debug, Default)]
pub(super) struct Container {
    pub(super) id: Option<ContainerId>,
    pub(super) name: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) image: Option<String>,
    pub(super) created: MonotonicNs,
    /// A later one of the same name took its place.
    pub(super) replaced: bool,
}

/// What made a start fail.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) at: MonotonicNs,
    /// Index of the call.
    pub(super) call: Option<usize>,
    /// Index of the container.
    pub(super) container: Option<usize>,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failure {
    /// Its client waited no longer for the call.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.reason, "client_deadline" | "client_cancel")
    }
}

/// One start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) trace_id: String,
    pub(super) kind: StartKind,
    pub(super) pod: PodInfo,
    pub(super) begin: MonotonicNs,
    /// Its pod cgroup was made then, or its first volume mounted.
    pub(super) prepared: Option<MonotonicNs>,
    /// What kubelet mounted for it before.
    pub(super) volumes: Vec<Volume>,
    pub(super) sandbox: Option<ContainerId>,
    pub(super) calls: Vec<Call>,
    /// Pulls of other pods that its own waited for.
    pub(super) queued: Vec<Queued>,
    /// Exec probes and other calls: of a start that is not over, but nothing that it waits for.
    pub(super) asides: Vec<Call>,
    /// Exec probes, and other calls, that found no room.
    pub(super) more_probes: u64,
    pub(super) more_calls: u64,
    /// TCP probes, likewise.
    pub(super) probed: Vec<Probed>,
    pub(super) containers: Vec<Container>,
    /// Containers that lived in the sandbox when a container's start began.
    pub(super) peers: Vec<Container>,
    pub(super) state: State,
    pub(super) failure: Option<Failure>,
    /// podlapse came in the middle.
    pub(super) partial: bool,
    pub(super) notes: BTreeSet<String>,
    /// What was not seen of it, as far as was known when it was over.
    pub(super) unseen: Vec<String>,
    pub(super) losses: Losses,
    /// Where the trace ends, once it is over.
    pub(super) end: Option<MonotonicNs>,
    /// When it was over: what came later is not of it. A start that settled was so some time after its end.
    pub(super) closed: Option<MonotonicNs>,
    pub(super) announced: bool,
    /// Stage and reason of the verdict that was published.
    pub(super) told: Option<(String, String)>,
    /// Its sandbox was told to stop.
    pub(super) stopped: Option<MonotonicNs>,
    pub(super) patience: Patience,
    /// It began while podlapse attached: an exec that was not seen says nothing.
    pub(super) early: bool,
}

impl Start {
    pub(super) fn new(trace_id: String, begin: MonotonicNs, pod: PodInfo) -> Start {
        Start {
            trace_id,
            kind: StartKind::Pod,
            pod,
            begin,
            prepared: None,
            volumes: Vec::new(),
            sandbox: None,
            calls: Vec::new(),
            queued: Vec::new(),
            asides: Vec::new(),
            more_probes: 0,
            more_calls: 0,
            probed: Vec::new(),
            containers: Vec::new(),
            peers: Vec::new(),
            state: State::Active,
            failure: None,
            partial: false,
            notes: BTreeSet::new(),
            unseen: Vec::new(),
            losses: Losses::default(),
            end: None,
            closed: None,
            announced: false,
            told: None,
            stopped: None,
            patience: Patience::from(begin),
            early: false,
        }
    }

    /// First instant of the trace.
    pub(super) fn origin(&self) -> MonotonicNs {
        self.prepared.unwrap_or(self.begin).min(self.begin)
    }

    /// Whether a call that began then may be of it.
    pub(super) fn takes(&self, at: MonotonicNs) -> bool {
        !self.state.is_over() || self.closed.is_some_and(|closed| at < closed)
    }

    /// Whether a call of that method is known.
    pub(super) fn has(&self, method: Method) -> bool {
        self.calls.iter().any(|call| call.method == method)
    }

    /// The call, or call beside it, of that key; of several the last.
    pub(super) fn call_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        self.calls.iter_mut().chain(&mut self.asides).rev().find(|call| call.key == key)
    }

    /// Of two containers of one id the first is what was known before its creation had a name.
    pub(super) fn one_container(&mut self, id: &ContainerId) {
        let mut same = self.containers.iter().enumerate().filter(|(_, c)| c.id.as_ref() == Some(id)).map(|(i, _)| i);
        let (Some(old), Some(new)) = (same.next(), same.next()) else { return };
        self.containers.remove(old);
        let moved = |index: usize| match index {
            _ if index == old => new - 1,
            _ if index > old => index - 1,
            _ => index,
        };
        for call in self.calls.iter_mut().chain(&mut self.asides) {
            call.container = call.container.map(moved);
        }
    }

    /// Whether its RunPodSandbox was answered well.
    pub(super) fn made_its_sandbox(&self) -> bool {
        let good = |call: &Call| call.method == Method::RunPodSandbox && call.turnout() == Some(Turnout::Good);
        self.calls.iter().any(good) || self.partial && !self.has(Method::RunPodSandbox) && !self.containers.is_empty()
    }

    /// Whether its RunPodSandbox is open.
    pub(super) fn creating_sandbox(&self) -> bool {
        self.calls.iter().any(|call| call.method == Method::RunPodSandbox && call.end.is_none())
    }

    /// Nothing says that it is a start: all that is known is a call about an id that nobody knows, which was refused or
    /// is not answered yet.
    pub(super) fn is_unfounded(&self, units: &Units) -> bool {
        let refused = |call: &Call| match &call.end {
            None => !call.replied,
            Some((_, ending)) => matches!(ending, Ending::Status { code: 1.., .. }),
        };
        let named = self.pod.name.is_some() || self.pod.uid.is_some();
        !named
            && !self.announced
            && !self.calls.is_empty()
            && !self.has(Method::RunPodSandbox)
            && self.calls.iter().all(refused)
            && self.units(units).all(Unit::is_blank)
    }

    /// The same, and no call of it is open. It is kept: who made the container may have its name later.
    pub(super) fn is_refused(&self, units: &Units) -> bool {
        self.is_unfounded(units) && self.calls.iter().all(|call| call.end.is_some())
    }

    /// Whether its sandbox was made since podlapse came, and no container of that name before that time.
    pub(super) fn is_first(&self, name: Option<&str>, at: MonotonicNs) -> bool {
        (!self.partial || self.has(Method::RunPodSandbox))
            && self.containers.iter().all(|container| container.name.as_deref() != name || container.created > at)
    }

    /// The units that are known to be its own.
    pub(super) fn units<'a>(&'a self, units: &'a Units) -> impl Iterator<Item = &'a Unit> {
        let ids = self.sandbox.iter().chain(self.containers.iter().filter_map(|c| c.id.as_ref()));
        ids.filter_map(|id| units.find(id)).filter_map(|key| units.get(key))
    }

    pub(super) fn unit<'a>(&self, container: &Container, units: &'a Units) -> Option<&'a Unit> {
        container.id.as_ref().and_then(|id| units.find(id)).and_then(|key| units.get(key))
    }

    /// The step that what is known now makes; none when it is over. Where signs are not `complete`, an exec that was
    /// not seen says nothing.
    pub(super) fn step(&mut self, units: &Units, config: &Config, complete: bool) -> Option<Step> {
        if self.state.is_over() {
            return None;
        }
        let open = self.calls.iter().any(|call| self.is_open(call, units, complete));
        self.failure = self.failed_call().or_else(|| self.withdrawn(units));
        if let Some(at) = self.stopped.filter(|at| self.was_busy(*at, units)) {
            // What is known by now may have come after the stop.
            self.failure = self.failure.take().filter(|failure| failure.at <= at);
            self.failure.get_or_insert_with(|| stopped(at));
        }
        if !open {
            self.find_dead(units, complete);
        }
        if let Some(failure) = &self.failure {
            self.end = Some(failure.at);
            return Some(Step::Ended(Outcome::Failed));
        }
        let live = || self.containers.iter().filter(|c| !c.replaced);
        let entered = live().filter_map(|c| self.unit(c, units)?.entered()).count();
        // One that runs without a StartContainer was started by a call that was lost, or has no name yet.
        let unnamed = live().filter(|c| self.runs_unstarted(c, units)).count();
        let waiting = live().any(|c| !self.started(c, units, complete) && !self.runs_unstarted(c, units));
        let wanted = config.containers.map(|wanted| match self.kind {
            StartKind::Pod => wanted as usize,
            StartKind::Container => 1,
        });
        if !open && unnamed == 0 && wanted.is_some_and(|wanted| entered >= wanted) {
            self.end = Some(self.last_sign(units));
            return Some(Step::Ended(if self.partial { Outcome::Partial } else { Outcome::Complete }));
        }
        let entering = complete && !self.partial && !self.early && self.is_seen_entering(units);
        let busy = open || waiting || self.containers.is_empty();
        match self.stopped {
            Some(at) if busy => {
                self.end = Some(at);
                self.failure = Some(stopped(at));
                return Some(Step::Ended(Outcome::Failed));
            }
            // StartContainer says OK before init has run the entrypoint: a stop that follows at once may come first.
            Some(_) if self.is_entering(units) => {}
            Some(_) => {
                self.end = Some(self.last_sign(units));
                return Some(Step::Ended(self.settled_outcome(units)));
            }
            None if busy || entering => return Some(Step::Busy),
            None => {}
        }
        Some(Step::Quiet(self.last_sign(units)))
    }

    /// A call was open then that is over now, or a container was still to be started that was started later.
    fn was_busy(&self, at: MonotonicNs, units: &Units) -> bool {
        let later = |container: &Container| {
            let ran = self.unit(container, units).and_then(Unit::entered).is_some_and(|entry| entry.at <= at);
            container.created <= at && !ran && self.starters(container).all(|call| call.start.at > at)
        };
        self.calls.iter().any(|call| call.is_open_at(at) && call.end.is_some())
            || self.containers.iter().any(|c| !c.replaced && self.starters(c).next().is_some() && later(c))
    }

    /// What it is when it has settled.
    pub(super) fn settled_outcome(&mut self, units: &Units) -> Outcome {
        let execs =
            self.containers.iter().filter(|c| !c.replaced && self.unit(c, units).and_then(Unit::entered).is_none());
        let execs = execs.map(|c| format!("entrypoint_not_seen: {}", c.name.as_deref().unwrap_or("?")));
        let replies = self.calls.iter().filter(|call| call.end.is_none());
        let replies = replies.map(|call| format!("reply_not_seen: {}", call.start.method));
        let starts = self.containers.iter().filter(|c| !c.replaced && self.runs_unstarted(c, units));
        let starts = starts.map(|c| format!("call_not_seen: StartContainer of {}", c.name.as_deref().unwrap_or("?")));
        self.unseen = execs.chain(replies).chain(starts).collect();
        let whole = self.unseen.is_empty() && !self.partial && !self.containers.is_empty();
        if whole { Outcome::Complete } else { Outcome::Partial }
    }

    /// The end of a start that nothing failed: the last container's exec or the last call's end, whichever is later.
    /// The time that it then takes to settle is not part of it.
    pub(super) fn last_sign(&self, units: &Units) -> MonotonicNs {
        let calls = self.calls.iter().filter_map(|call| call.end.as_ref()).map(|(at, _)| *at);
        let execs = self.containers.iter().filter_map(|c| self.unit(c, units)?.entered()).map(|entry| entry.at);
        calls.chain(execs).max().unwrap_or(self.begin)
    }

    /// A call that is waited for. Where records were lost, one whose container runs is not: its reply may be among them.
    /// Nor can the reply be told for sure of one that came before podlapse.
    fn is_open(&self, call: &Call, units: &Units, complete: bool) -> bool {
        let container = call.container.filter(|_| call.method == Method::StartContainer);
        let runs = || {
            let unit = container.and_then(|index| self.unit(self.containers.get(index)?, units));
            unit.is_some_and(|unit| {
                let before = call.before && (unit.ran_before || unit.died().is_some());
                unit.entered().is_some() || before
            })
        };
        call.end.is_none() && (complete && !call.before || !runs())
    }

    /// A container whose StartContainer came before podlapse was told to stop while it hung.
    fn withdrawn(&self, units: &Units) -> Option<Failure> {
        let (index, call) = self.calls.iter().enumerate().find(|(_, call)| call.before && call.end.is_none())?;
        let stop = |aside: &&Call| aside.start.method == "StopContainer" && aside.container == call.container;
        let at = self.asides.iter().find(stop).filter(|_| call.container.is_some())?.start.at;
        let message = "the container was told to stop before init ran the entrypoint".to_owned();
        self.is_open(call, units, true).then_some(Failure {
            at,
            call: Some(index),
            container: call.container,
            reason: "container_stopped",
            message,
        })
    }

    /// A container's init lives and has not yet run the entrypoint.
    fn is_entering(&self, units: &Units) -> bool {
        let mut live = self.containers.iter().filter(|c| !c.replaced).filter_map(|c| self.unit(c, units));
        live.any(|unit| unit.entering().is_some())
    }

    /// The same, of one that the runtime was seen to make and to tell to go on: it runs a hook, or is frozen.
    fn is_seen_entering(&self, units: &Units) -> bool {
        let held = |unit: &Unit| {
            let lives = |run: &Run| Some(run.tgid) == unit.init() && run.kind == Kind::Init && run.end().0.is_none();
            let told = unit.runs.iter().any(|run| run.kind == Kind::OciStart && run.end().0.is_some());
            told && unit.entry.is_none() && unit.exit.is_none() && unit.runs.iter().any(lives)
        };
        self.containers.iter().filter(|c| !c.replaced).filter_map(|c| self.unit(c, units)).any(held)
    }

    /// Its StartContainers.
    fn starters<'a>(&'a self, container: &'a Container) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(|call| {
            let same = call.container.and_then(|index| self.containers.get(index)).and_then(|c| c.id.as_ref());
            call.method == Method::StartContainer && same.is_some() && same == container.id.as_ref()
        })
    }

    /// A StartContainer of it is over.
    fn started(&self, container: &Container, units: &Units, complete: bool) -> bool {
        self.starters(container).any(|call| !self.is_open(call, units, complete))
    }

    /// It reached its entrypoint, or its shim says so, and no StartContainer of it is known.
    fn runs_unstarted(&self, container: &Container, units: &Units) -> bool {
        self.unit(container, units).is_some_and(|unit| unit.entered().is_some() || unit.told_started())
            && self.starters(container).next().is_none()
    }

    /// The first call that failed and was not made good by another try; those that were are noted.
    fn failed_call(&mut self) -> Option<Failure> {
        let mut first: Option<Failure> = None;
        let mut notes = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            let (Some(Turnout::Bad { reason, message }), Some((at, _))) = (call.turnout(), &call.end) else { continue };
            if self.was_retried(call, *at) {
                notes.push(format!("retried: {reason}: {message}"));
            } else if first.as_ref().is_none_or(|first| *at < first.at) {
                first = Some(Failure { at: *at, call: Some(index), container: call.container, reason, message });
            }
        }
        self.notes.extend(notes);
        first
    }

    /// A failure of a pull, or of a container that another one has replaced, is no longer one.
    fn was_retried(&self, call: &Call, ended: MonotonicNs) -> bool {
        let replaced = call.container.and_then(|index| self.containers.get(index)).is_some_and(|c| c.replaced);
        let pulled = || self.calls.iter().any(|c| c.method == Method::CreateContainer && c.start.at >= ended);
        replaced || call.method == Method::PullImage && pulled()
    }

    /// A container whose start was reported as good, and whose init then ended without having run the entrypoint.
    fn find_dead(&mut self, units: &Units, complete: bool) {
        if self.failure.is_some() {
            return;
        }
        let dead = self.containers.iter().enumerate().find_map(|(index, container)| {
            let unit = self.unit(container, units).filter(|_| !container.replaced)?;
            let told = complete || unit.entry.is_some();
            Some((index, unit.died().filter(|_| told)?, unit))
        });
        if let Some((index, at, unit)) = dead {
            let stopped = self.stopped.is_some_and(|stopped| stopped <= at);
            let (reason, message) = match (&unit.entry, &unit.exit) {
                _ if stopped => {
                    ("sandbox_stopped", "the sandbox was stopped before init ran the entrypoint".to_owned())
                }
                // A signal that comes in the middle of an execve makes it fail: the signal is the cause.
                (Some(_), Some((_, exit))) if exit.signal.is_some() => ("exited_before_exec", died_of(exit)),
                (Some(entry), _) => {
                    let errno = entry.errno.unwrap_or_default();
                    ("exec_failed", format!("exec of {} failed with errno {errno}", entry.path))
                }
                (None, Some((_, exit))) => ("exited_before_exec", died_of(exit)),
                (None, None) => ("exited_before_exec", String::new()),
            };
            let call = self.calls.iter().rposition(|call| call.container == Some(index));
            let ended = call.and_then(|c| self.calls[c].end.as_ref()).map_or(at, |(end, _)| (*end).max(at));
            self.failure = Some(Failure { at: ended, call, container: Some(index), reason, message });
        }
    }
}

fn stopped(at: MonotonicNs) -> Failure {
    let message = "the sandbox was stopped before every container had started".to_owned();
    Failure { at, call: None, container: None, reason: "sandbox_stopped", message }
}

fn died_of(exit: &crate::record::Exit) -> String {
    match (exit.status, exit.signal) {
        (_, Some(signal)) => format!("init was ended by signal {signal} before it ran the entrypoint"),
        (Some(status), None) => format!("init exited with {status} before it ran the entrypoint"),
        (None, None) => "init ended before it ran the entrypoint".to_owned(),
    }
}

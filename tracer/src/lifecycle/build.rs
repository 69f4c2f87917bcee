//! A start and its units to a [`Trace`].

use std::collections::BTreeMap;

use super::calls::TaskSeen;
use super::connects::Probed;
use super::edges;
use super::limits::Written;
use super::queue::Queued;
use super::start::{Call, Container, Failure, Method, Start};
use super::unit::Unit;
use super::volumes::Volume;
use super::{Lifecycle, Losses};
use crate::cri::{Ending, MethodSource};
use crate::diagnose;
use crate::ids::{MonotonicNs, PodUid, SandboxId};
use crate::trace::{
    self, CallInfo, ContainerKind, Draft, DraftId, DraftSpan, ExecPoint, ExitPoint, LimitWrite, ListenPoint, Quality,
    Sandbox, StartKind, TaskCall, Trace, Verdict, Waiting,
};

impl Lifecycle {
    /// The trace of a start as known now.
    pub(super) fn trace(&self, start: &Start) -> Trace {
        let (origin, over) = (start.origin(), start.state.is_over());
        let end = if over { start.end.unwrap_or(self.now) } else { self.now };
        let mut draft = Draft::default();
        let calls = self.spans(&mut draft, start, end);
        let mut verdict = start.failure.as_ref().map(|failure| verdict(&draft, &calls, start, failure));
        draft.fill_gaps(origin, end, !over, "kubelet.gap", "between calls");
        let given_up = start.failure.as_ref().and_then(|failure| given_up(failure, &calls));
        let waiting = (!over || given_up.is_some()).then(|| self.waiting(&draft, start, given_up, (origin, end)));
        let waiting = waiting.flatten();
        if let Some(waiting) = waiting.as_ref().filter(|_| !over && self.is_stuck(start)) {
            let in_vain = self.no_container_made(start).filter(|_| !waiting.called);
            verdict = Some(in_vain.map_or_else(|| stuck(waiting), |in_vain| no_create_container(waiting, in_vain)));
        }
        let divided = draft.divide(origin, end, "kubelet.gap");

        let mut node = self.node.clone();
        node.runtime_version = node.runtime_version.filter(|version| !version.is_empty());
        node.verdicts = self.health.told.within(origin, end);
        node.verdicts.iter_mut().for_each(|verdict| verdict.realtime = self.realtime(verdict.at));
        let qos = self.pod(start).qos.clone().or_else(|| self.qos(start));
        let mut trace = Trace {
            trace_id: start.trace_id.clone(),
            kind: start.kind,
            node,
            pod: trace::PodInfo { qos, ..self.pod(start).clone() },
            outcome: start.state.outcome(),
            start: origin,
            start_realtime: self.realtime(origin),
            total_ns: end.since(origin),
            stages: divided.stages,
            named_ns: divided.named_ns,
            spans: divided.spans,
            sandbox: self.sandbox(start, (origin, end)),
            containers: self.containers(start, (origin, end)),
            verdict,
            attempts: self.attempts(start),
            waiting,
            quality: self.quality(start),
        };
        diagnose::refine(&mut trace, |id| self.owner(start, id).or_else(|| self.first_given_up(start)));
        trace
    }

    /// The trace of another start that has that sandbox or container.
    fn owner(&self, start: &Start, id: &str) -> Option<String> {
        let has = |other: &&Start| {
            let containers = other.containers.iter().filter_map(|container| container.id.as_ref());
            other.trace_id != start.trace_id && other.sandbox.iter().chain(containers).any(|it| it.as_str() == id)
        };
        self.starts.values().find(has).map(|other| other.trace_id.clone())
    }

    /// Spans of calls, units and execs; the result is the span of each call.
    fn spans(&self, draft: &mut Draft, start: &Start, end: MonotonicNs) -> Vec<DraftId> {
        if let Some(prepared) = start.prepared {
            let (stage, name) = ("kubelet.prepare".to_owned(), "pod cgroup".to_owned());
            let span = DraftSpan { stage, name, start: prepared, end: Some(start.begin), ..DraftSpan::default() };
            let parent = draft.add(None, span);
            start.volumes.iter().for_each(|volume| volume_span(draft, parent, volume));
        }
        let calls: Vec<DraftId> = start.calls.iter().map(|call| draft.add(None, self.call_span(start, call))).collect();
        for call in start.asides.iter().filter(|call| call.start.at < end) {
            draft.add(None, DraftSpan { aside: true, ..self.call_span(start, call) });
        }
        for probed in &start.probed {
            probed_span(draft, probed, end);
        }
        start.queued.iter().for_each(|pull| queue_span(draft, pull));
        let of = |wanted: Method, container: Option<usize>| {
            let fits = move |call: &&(usize, &Call)| call.1.method == wanted && call.1.container == container;
            start.calls.iter().enumerate().filter(move |call| fits(&call)).map(|(index, _)| calls[index])
        };
        let whole = (start.begin, end);
        let sandbox = start.sandbox.as_ref().filter(|_| start.kind == StartKind::Pod);
        if let Some(unit) = sandbox.and_then(|id| self.unit(id)) {
            edges::add(draft, of(Method::RunPodSandbox, None).next(), "sandbox", unit, whole);
        }
        for (index, container) in start.containers.iter().enumerate() {
            let Some(unit) = start.unit(container, &self.units) else { continue };
            // CRI-O runs the runtime's create inside CreateContainer, containerd inside StartContainer.
            let made: Vec<DraftId> = of(Method::CreateContainer, Some(index)).collect();
            let started: Vec<DraftId> = of(Method::StartContainer, Some(index)).collect();
            // Without a StartContainer, what is left of it is at the top.
            if started.is_empty() {
                let since = made.last().and_then(|call| draft.get(*call).end).unwrap_or(start.begin);
                edges::add(draft, None, "container.start", unit, (since, end));
            }
            made.into_iter().for_each(|call| edges::add(draft, Some(call), "container.create", unit, whole));
            started.iter().for_each(|call| edges::add(draft, Some(*call), "container.start", unit, whole));
            exec_span(draft, started.last().copied(), container, unit, end);
            listen_span(draft, started.last().copied(), container, unit, end);
        }
        for (call, id) in start.calls.iter().zip(&calls) {
            edges::chores::add(draft, *id, call.method.stage(), self.chores.of(call.key));
        }
        calls
    }

    /// A container's start is of its sandbox's pod, of which more may be known by now.
    pub(super) fn pod<'a>(&'a self, start: &'a Start) -> &'a trace::PodInfo {
        let whole = |other: &&Start| other.kind == StartKind::Pod && other.sandbox == start.sandbox;
        let of = (start.kind == StartKind::Container).then(|| self.starts.values().find(whole)).flatten();
        of.map_or(&start.pod, |of| &of.pod)
    }

    fn unit(&self, id: &crate::ids::ContainerId) -> Option<&Unit> {
        self.units.find(id).and_then(|key| self.units.get(key))
    }

    fn call_span(&self, start: &Start, call: &Call) -> DraftSpan {
        // One that went on after the trace's end was open then.
        let aside = matches!(call.method, Method::Probe | Method::Other);
        let over = start.end.filter(|_| start.state.is_over());
        let end = call.end.as_ref().filter(|(at, _)| aside || over.is_none_or(|end| *at <= end));
        let mut attributes = BTreeMap::new();
        let container = call.container.and_then(|index| start.containers.get(index));
        // How one without a name ended is not known.
        let ended = end.filter(|_| call.candidates.is_empty()).and_then(|(_, ending)| ended(ending));
        let about = [
            ("container", container.and_then(|c| c.name.clone())),
            ("image", call.image.clone()),
            ("last_request_ns", call.held.map(|first| call.start.at.since(first).to_string())),
            ("exit_code", call.exit_code.map(|code| code.to_string())),
            ("ended", ended.map(str::to_owned)),
        ];
        attributes.extend(about.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let unnamed = !call.candidates.is_empty();
        let (code, message) = match end.map(|(_, ending)| ending) {
            Some(Ending::Status { code, message }) => {
                (Some(*code), Some(message.clone()).filter(|text| !text.is_empty()))
            }
            _ => (None, None),
        };
        DraftSpan {
            stage: call.method.stage().to_owned(),
            name: if unnamed { call.candidates.join(" or ") } else { call.start.method.clone() },
            start: call.held.unwrap_or(call.start.at),
            end: end.map(|(at, _)| *at),
            observed: end.is_some(),
            process: None,
            aside: false,
            call: Some(CallInfo {
                service: call.start.service.clone(),
                method: call.start.method.clone(),
                method_source: call.start.source,
                candidates: call.candidates.clone(),
                code,
                message,
                client: call.client.clone(),
            }),
            attributes,
        }
    }

    fn qos(&self, start: &Start) -> Option<String> {
        let path = start.units(&self.units).find_map(|unit| unit.cgroup.as_deref())?;
        super::cgroup::qos(path).map(str::to_owned)
    }

    fn sandbox(&self, start: &Start, whole: (MonotonicNs, MonotonicNs)) -> Sandbox {
        let Some(id) = &start.sandbox else { return Sandbox::default() };
        let sandbox = Sandbox { id: Some(SandboxId(id.0.clone())), ..Sandbox::default() };
        let Some(unit) = self.unit(id) else { return sandbox };
        Sandbox {
            pid: unit.init(),
            shim_pid: unit.shim,
            netns: unit.netns_path.clone(),
            namespaces: unit.entered().and_then(|entry| entry.namespaces),
            cgroup: unit.cgroup.clone(),
            limits: limits(unit),
            writes: writes(unit, whole),
            task_calls: task_calls(unit, whole),
            oom_score_adj: unit.entered().and_then(|entry| entry.oom_score_adj),
            ..sandbox
        }
    }

    fn containers(&self, start: &Start, whole: (MonotonicNs, MonotonicNs)) -> Vec<trace::Container> {
        let shim = start.sandbox.as_ref().and_then(|id| self.unit(id)).and_then(|unit| unit.shim);
        // In the order of their creation; what came after its end is not of the trace.
        let mut own: Vec<&Container> = start.containers.iter().collect();
        own.sort_by_key(|container| container.created);
        own.retain(|container| !start.state.is_over() || container.created <= whole.1);
        let next: Vec<_> = own.iter().skip(1).map(|c| Some(c.created)).chain([None]).collect();
        let known = |(container, next): (&Container, Option<MonotonicNs>)| {
            let mut known = trace::Container {
                name: container.name.clone(),
                id: container.id.clone(),
                attempt: container.attempt,
                image: container.image.clone(),
                image_digest: image_digest(start, container),
                ..trace::Container::default()
            };
            if let Some(unit) = start.unit(container, &self.units) {
                fill(&mut known, unit, whole, start.closed.unwrap_or(MonotonicNs(u64::MAX)));
                known.shim_pid = unit.shim.or(shim);
                // Only an init container's good end is waited for before the next container is created: its client asked
                // and was told. An app container that happens to end early is not.
                let done = unit.exit.as_ref().filter(|(_, exit)| exit.status == Some(0)).and(unit.told_done);
                if done.zip(next).is_some_and(|(done, next)| done <= next) {
                    known.kind = ContainerKind::Init;
                }
            }
            known
        };
        let peers = start.peers.iter().map(|peer| (peer, None)).map(known).map(|it| trace::Container {
            peer: true,
            exec: None,
            listen: None,
            exit: None,
            ..it
        });
        peers.chain(own.into_iter().zip(next).map(known)).collect()
    }

    fn quality(&self, start: &Start) -> Quality {
        let (before, now): (Losses, Losses) = (start.losses, self.losses_now());
        let overflow: u64 = start.units(&self.units).map(|unit| unit.overflow).sum();
        let mut notes: Vec<String> = start.notes.iter().cloned().collect();
        if now.unreadable > before.unreadable {
            notes.push(format!("unreadable_pages: {}", now.unreadable - before.unreadable));
        }
        if now.nameless > before.nameless {
            let why = "a client was connected before podlapse, and is not Go's gRPC";
            notes.push(format!("calls_without_a_name: {}: {why}", now.nameless - before.nameless));
        }
        notes.extend(start.unseen.iter().cloned());
        for (name, more) in [("more_exec_probes", start.more_probes), ("more_calls", start.more_calls)] {
            notes.extend((more > 0).then(|| format!("{name}: {more}")));
        }
        let inferred = || {
            let all = start.calls.iter().chain(&start.asides);
            all.map(|call| &call.start).filter(|call| call.source == MethodSource::Inferred)
        };
        // One a method: the calls of a slot have the same evidence.
        let mut evidence = BTreeMap::new();
        for call in inferred() {
            if let Some(text) = call.slot.and_then(|slot| self.evidence.get(&(call.key.conn, slot))) {
                evidence.entry(&call.method).or_insert(text);
            }
        }
        notes.extend(evidence.into_iter().map(|(method, text)| format!("inferred: {method}: {text}")));
        Quality {
            lost_records: now.records - before.records,
            undecoded_bytes: now.undecoded - before.undecoded,
            inferred_methods: u32::try_from(inferred().count()).unwrap_or(u32::MAX),
            evicted: now.evicted - before.evicted + overflow,
            notes,
        }
    }
}

/// What a pull of its image answered, else the image itself where it is named by its digest.
fn image_digest(start: &Start, container: &Container) -> Option<String> {
    let image = container.image.as_ref()?;
    let same = |call: &&Call| call.image.as_ref() == Some(image) || call.image_ref.as_ref() == Some(image);
    let pulled = start.calls.iter().filter(|call| call.method == Method::PullImage).filter(same);
    let pulled = pulled.filter_map(|call| call.image_ref.clone()).next_back();
    pulled.or_else(|| Some(image.clone())).filter(|image| image.contains("sha256:"))
}

fn volume_span(draft: &mut Draft, parent: DraftId, volume: &Volume) {
    let errno = volume.errno.map(|errno| ("errno".to_owned(), errno.to_string()));
    let span = DraftSpan {
        stage: "kubelet.prepare.volume".to_owned(),
        name: volume.name.clone(),
        start: volume.enter,
        end: Some(volume.exit),
        observed: true,
        attributes: [("plugin".to_owned(), volume.plugin.clone())].into_iter().chain(errno).collect(),
        ..DraftSpan::default()
    };
    draft.add(Some(parent), span);
}

fn queue_span(draft: &mut Draft, pull: &Queued) {
    let span = DraftSpan {
        stage: "kubelet.queue".to_owned(),
        name: "waiting for another pull".to_owned(),
        start: pull.begin,
        end: Some(pull.end),
        observed: true,
        attributes: pull.image.iter().map(|image| ("image".to_owned(), image.clone())).collect(),
        ..DraftSpan::default()
    };
    draft.add(None, span);
}

/// The point of the exec, in its StartContainer. Where the reply came first, what is between is outside of any call.
fn exec_span(draft: &mut Draft, call: Option<DraftId>, container: &Container, unit: &Unit, end: MonotonicNs) {
    let Some(entry) = unit.entry.as_ref().filter(|entry| entry.at <= end) else { return };
    let replied = call.and_then(|id| draft.get(id).end).filter(|reply| *reply < entry.at);
    let process = trace::ProcessInfo {
        pid: entry.tgid,
        exe: entry.path.clone(),
        errno: entry.errno,
        ..trace::ProcessInfo::default()
    };
    let attributes = container.name.iter().map(|name| ("container".to_owned(), name.clone())).collect();
    let span = DraftSpan {
        stage: "container.exec".to_owned(),
        name: entry.path.clone(),
        start: replied.unwrap_or(entry.at),
        end: Some(entry.at),
        observed: true,
        process: Some(process),
        attributes,
        ..DraftSpan::default()
    };
    draft.add(call.filter(|_| replied.is_none()), span);
}

/// The point of the first listen, in its StartContainer or after it.
fn listen_span(draft: &mut Draft, call: Option<DraftId>, container: &Container, unit: &Unit, end: MonotonicNs) {
    let Some(listen) = unit.listening.filter(|listen| listen.at <= end) else { return };
    let call = call.filter(|id| draft.get(*id).end.is_none_or(|reply| listen.at <= reply));
    let attributes = [("container", container.name.clone()), ("port", Some(listen.port.to_string()))];
    let span = DraftSpan {
        stage: "container.listen".to_owned(),
        name: format!("port {}", listen.port),
        start: listen.at,
        end: Some(listen.at),
        observed: true,
        process: Some(trace::ProcessInfo { pid: listen.tgid, ..trace::ProcessInfo::default() }),
        attributes: attributes.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect(),
        ..DraftSpan::default()
    };
    draft.add(call, span);
}

/// From the first connect to the first that was accepted, where that came within the trace.
fn probed_span(draft: &mut Draft, probed: &Probed, end: MonotonicNs) {
    let Some(accepted) = probed.accepted.filter(|at| *at <= end) else { return };
    let attributes = [("port", probed.port.to_string()), ("refused", probed.refused.to_string())];
    let span = DraftSpan {
        stage: "probe.connect".to_owned(),
        name: format!("port {}", probed.port),
        start: probed.first,
        end: Some(accepted),
        observed: true,
        aside: true,
        process: Some(trace::ProcessInfo { pid: probed.tgid, ..trace::ProcessInfo::default() }),
        attributes: attributes.map(|(key, value)| (key.to_owned(), value)).into(),
        ..DraftSpan::default()
    };
    draft.add(None, span);
}

/// What is known of a container; of a start that is over only what came before it `closed`.
fn fill(known: &mut trace::Container, unit: &Unit, whole: (MonotonicNs, MonotonicNs), closed: MonotonicNs) {
    let origin = whole.0;
    let entry = unit.entry.as_ref().filter(|entry| entry.at <= closed);
    known.pid = unit.init();
    known.init_oom = unit.init_oom;
    known.oom_score_adj = entry.and_then(|entry| entry.oom_score_adj);
    known.namespaces = entry.and_then(|entry| entry.namespaces);
    known.cgroup = unit.cgroup.clone();
    known.limits = limits(unit);
    known.writes = writes(unit, whole);
    known.task_calls = task_calls(unit, whole);
    known.exec =
        entry.map(|entry| ExecPoint { path: entry.path.clone(), at_ns: entry.at.since(origin), errno: entry.errno });
    known.listen =
        unit.listening.filter(|it| it.at <= closed).map(|it| ListenPoint { port: it.port, at_ns: it.at.since(origin) });
    known.exit = unit.exit.as_ref().filter(|(at, _)| *at <= closed).map(|(at, exit)| ExitPoint {
        code: exit.status,
        signal: exit.signal,
        oom: unit.was_oom_killed(),
        at_ns: at.since(origin),
    });
}

/// What its cgroup files held at the entrypoint's exec; before it, what they hold now.
fn limits(unit: &Unit) -> BTreeMap<String, String> {
    unit.writes.effective(unit.entered().map_or(MonotonicNs(u64::MAX), |entry| entry.at))
}

fn writes(unit: &Unit, (origin, end): (MonotonicNs, MonotonicNs)) -> Vec<LimitWrite> {
    let write = |it: &Written| LimitWrite {
        file: it.file.clone(),
        value: it.value.clone(),
        errno: it.errno,
        pid: it.pid,
        comm: it.comm.clone(),
        at_ns: it.at.since(origin),
    };
    unit.writes.within(origin, end).map(write).collect()
}

fn task_calls(unit: &Unit, (origin, end): (MonotonicNs, MonotonicNs)) -> Vec<TaskCall> {
    let tasks = unit.tasks.iter().filter(|task| task.call.start >= origin && task.call.start <= end);
    let call = |task: &TaskSeen| TaskCall {
        method: task.method,
        start_ns: task.call.start.since(origin),
        end_ns: task.call.end.map(|at| at.since(origin)),
        pid: task.pid,
        exit_status: task.exit_status,
    };
    tasks.map(call).collect()
}

/// The stage of a failure: the innermost process that failed inside the call, or what was still open in it, else the
/// call's own.
fn verdict(draft: &Draft, calls: &[DraftId], start: &Start, failure: &Failure) -> Verdict {
    let call = failure.call.and_then(|index| calls.get(index)).copied();
    let stage = match (failure.reason, call) {
        ("exec_failed" | "exited_before_exec", _) => "container.exec".to_owned(),
        ("call_failed", Some(call)) => draft.failed_below(call).unwrap_or(draft.get(call)).stage.clone(),
        // A runtime that keeps its client's deadline has ended by now what was waited for.
        ("client_deadline", Some(id)) => {
            let call = failure.call.and_then(|index| start.calls.get(index));
            let open = call.and_then(Call::deadline).and_then(|at| draft.open_at(id, at));
            open.unwrap_or(draft.get(id)).stage.clone()
        }
        // Nobody said what went wrong: what was still going on is what was waited for.
        (_, Some(call)) => draft.open_below(call).unwrap_or(draft.get(call)).stage.clone(),
        (_, None) => match start.calls.iter().rev().find(|call| call.is_open_at(failure.at)) {
            Some(open) => open.method.stage().to_owned(),
            None => "kubelet.gap".to_owned(),
        },
    };
    Verdict { stage, reason: failure.reason.to_owned(), message: failure.message.clone(), ..Verdict::default() }
}

/// The call that its client gave up while it was open.
fn given_up(failure: &Failure, calls: &[DraftId]) -> Option<DraftId> {
    let call = failure.call.and_then(|index| calls.get(index)).copied();
    call.filter(|_| failure.is_given_up())
}

/// The start takes long, and is not over.
fn stuck(waiting: &Waiting) -> Verdict {
    let message = format!("{} is open for {}", waiting.name, trace::seconds(waiting.for_ns));
    Verdict { stage: waiting.stage.clone(), reason: "stuck".to_owned(), message, ..Verdict::default() }
}

/// The client finds the container's image, and makes no container of it.
fn no_create_container(waiting: &Waiting, (waits, evidence): (u64, Vec<String>)) -> Verdict {
    let message = format!("no CreateContainer came for {}", trace::seconds(waits));
    Verdict { reason: "no_create_container".to_owned(), message, evidence, ..stuck(waiting) }
}

fn ended(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Status { .. } => None,
        Ending::NoStatus => Some("no_status"),
        Ending::ResetByClient(_) => Some("reset_by_client"),
        Ending::ResetByServer(_) => Some("reset_by_server"),
        Ending::ConnectionClosed => Some("connection_closed"),
        Ending::RuntimeRestarted => Some("runtime_restarted"),
    }
}

/// FNV-1a, 128 bits: the same records give the same id on every machine and with every compiler.
pub(super) fn trace_id(boot: Option<&str>, uid: Option<&PodUid>, begin: MonotonicNs) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let parts = [
        boot.unwrap_or_default().as_bytes(),
        &[0],
        uid.map_or("", |uid| uid.as_str()).as_bytes(),
        &begin.0.to_le_bytes(),
    ];
    let hash = parts.concat().iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

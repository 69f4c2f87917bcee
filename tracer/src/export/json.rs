//! `podlapse.trace/v1`: the documented JSON object of a trace, see `docs/trace-v1.schema.json`.
//!
//! Absent means unknown, never zero. Durations are integers in ns; a point in monotonic time is a decimal string.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::names::grpc_code;
use super::time::rfc3339;
use crate::cri::MethodSource;
use crate::ids::{MonotonicNs, Tgid};
use crate::record::Namespaces;
use crate::trace;

/// Writes `trace` as one line.
///
/// # Errors
/// What `out` gives.
pub fn write_json(out: &mut dyn Write, trace: &trace::Trace) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Trace::from(trace))?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Whether a field is left out.
pub(super) trait Absent {
    fn absent(&self) -> bool {
        false
    }
}

impl<T> Absent for Option<T> {
    fn absent(&self) -> bool {
        self.is_none()
    }
}

impl Absent for &BTreeMap<String, String> {
    fn absent(&self) -> bool {
        self.is_empty()
    }
}

impl Absent for bool {}
impl Absent for u32 {}
impl Absent for u64 {}
impl Absent for &str {}
impl Absent for String {}
impl<T> Absent for Vec<T> {}
impl<T> Absent for &[T] {}

/// Serializable structs whose absent fields are left out.
macro_rules! objects {
    ($($name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty,)* })*) => {$(
        #[derive(Serialize)]
        pub(in crate::export) struct $name $(<$life>)? {
            $(#[serde(skip_serializing_if = "Absent::absent")] $field: $type,)*
        }

        impl $(<$life>)? Absent for $name $(<$life>)? {}
    )*};
}
pub(super) use objects;

type Map<'a> = &'a BTreeMap<String, String>;

objects! {
    Trace<'a> {
        schema: &'static str,
        trace_id: &'a str,
        kind: &'static str,
        node: Node<'a>,
        pod: Pod<'a>,
        outcome: &'static str,
        start: Start,
        total_ns: u64,
        stages: Vec<Stage<'a>>,
        named_ns: u64,
        spans: Vec<Span<'a>>,
        sandbox: Sandbox<'a>,
        containers: Vec<Container<'a>>,
        verdict: Option<Verdict<'a>>,
        attempts: Option<Vec<Attempt<'a>>>,
        waiting: Option<Waiting<'a>>,
        quality: Quality<'a>,
    }
    Node<'a> {
        name: Option<&'a str>,
        boot_id: Option<&'a str>,
        kernel: Option<&'a str>,
        runtime: Option<&'a str>,
        runtime_version: Option<&'a str>,
        socket: Option<&'a str>,
        probes: Map<'a>,
        verdicts: Option<Vec<NodeVerdict<'a>>>,
    }
    NodeVerdict<'a> {
        reason: &'a str,
        message: &'a str,
        evidence: &'a [String],
        confidence: &'static str,
        next_check: Option<&'a str>,
        open: bool,
        since: Start,
        at: Start,
    }
    Pod<'a> {
        namespace: Option<&'a str>,
        name: Option<&'a str>,
        uid: Option<&'a str>,
        attempt: Option<u32>,
        runtime_handler: Option<&'a str>,
        qos: Option<&'a str>,
        ip: Option<&'a str>,
    }
    Start { time: Option<String>, monotonic_ns: String, }
    Stage<'a> { stage: &'a str, wall_ns: u64, self_ns: u64, count: u32, }
    Span<'a> {
        id: u32,
        parent: Option<u32>,
        stage: &'a str,
        name: &'a str,
        start_ns: u64,
        end_ns: Option<u64>,
        critical: bool,
        self_ns: u64,
        process: Option<Process<'a>>,
        call: Option<Call<'a>>,
        attributes: Map<'a>,
    }
    Process<'a> {
        pid: Option<u32>,
        ppid: Option<u32>,
        comm: Option<&'a str>,
        exe: Option<&'a str>,
        args: Option<&'a [String]>,
        exit_code: Option<u8>,
        signal: Option<u8>,
        errno: Option<i32>,
    }
    Call<'a> {
        service: Option<&'a str>,
        method: Option<&'a str>,
        method_source: Option<&'static str>,
        candidates: Option<&'a [&'static str]>,
        code: Option<Cow<'static, str>>,
        message: Option<&'a str>,
        client: Option<&'a str>,
    }
    Sandbox<'a> {
        id: Option<&'a str>,
        pid: Option<u32>,
        shim_pid: Option<u32>,
        netns: Option<&'a str>,
        oom_score_adj: Option<i32>,
        namespaces: Option<Inodes>,
        cgroup: Option<Cgroup<'a>>,
        task_calls: Option<Vec<TaskCall>>,
    }
    Inodes {
        net: Option<u32>,
        ipc: Option<u32>,
        uts: Option<u32>,
        pid: Option<u32>,
        mnt: Option<u32>,
        user: Option<u32>,
    }
    Cgroup<'a> { path: Option<&'a str>, limits: Map<'a>, writes: Option<Vec<LimitWrite<'a>>>, }
    LimitWrite<'a> {
        file: &'a str,
        value: &'a str,
        errno: Option<i32>,
        pid: Option<u32>,
        comm: Option<&'a str>,
        at_ns: u64,
    }
    TaskCall {
        method: &'static str,
        start_ns: u64,
        end_ns: Option<u64>,
        pid: Option<u32>,
        exit_status: Option<u64>,
    }
    Container<'a> {
        name: Option<&'a str>,
        id: Option<&'a str>,
        attempt: Option<u32>,
        kind: &'static str,
        peer: Option<bool>,
        image: Option<&'a str>,
        image_digest: Option<&'a str>,
        pid: Option<u32>,
        shim_pid: Option<u32>,
        oom_score_adj: Option<i32>,
        namespaces: Option<Inodes>,
        cgroup: Option<Cgroup<'a>>,
        task_calls: Option<Vec<TaskCall>>,
        exec: Option<Exec<'a>>,
        listen: Option<Listen>,
        exit: Option<Exit>,
    }
    Exec<'a> { path: &'a str, at_ns: u64, errno: Option<i32>, }
    Listen { port: u32, at_ns: u64, }
    Exit { code: Option<u8>, signal: Option<u8>, oom: bool, at_ns: u64, }
    Verdict<'a> {
        stage: &'a str,
        reason: &'a str,
        message: &'a str,
        culprit: Option<&'a str>,
        evidence: &'a [String],
        confidence: &'static str,
        next_check: Option<&'a str>,
        kubelet: Option<&'a str>,
        is_consequence_of: Option<&'a str>,
    }
    Attempt<'a> {
        trace_id: &'a str,
        kind: &'static str,
        attempt: Option<u32>,
        outcome: &'static str,
        stage: Option<&'a str>,
        reason: Option<&'a str>,
        before_ns: u64,
        total_ns: u64,
        exit: Option<AttemptExit>,
        waited_ns: Option<u64>,
        kubelet: Option<&'static str>,
    }
    AttemptExit { code: Option<u8>, signal: Option<u8>, oom: bool, before_ns: u64, }
    Waiting<'a> {
        stage: &'a str,
        name: &'a str,
        for_ns: u64,
        processes: Vec<WaitingProcess<'a>>,
        last_sign: Option<LastSign<'a>>,
    }
    LastSign<'a> { what: &'a str, at_ns: u64, }
    WaitingProcess<'a> {
        pid: Option<u32>,
        comm: Option<&'a str>,
        age_ns: Option<u64>,
        seen_ns: Option<u64>,
        state: Option<String>,
        syscall: Option<&'a str>,
        syscall_number: Option<u32>,
        wchan: Option<&'a str>,
        stack: Option<&'a [String]>,
    }
    Quality<'a> { lost_records: u64, undecoded_bytes: u64, inferred_methods: u32, evicted: u64, notes: &'a [String], }
}

impl<'a> From<&'a trace::Trace> for Trace<'a> {
    fn from(t: &'a trace::Trace) -> Self {
        Trace {
            schema: "podlapse.trace/v1",
            trace_id: &t.trace_id,
            kind: t.kind.name(),
            node: node(&t.node),
            pod: pod(&t.pod),
            outcome: t.outcome.name(),
            start: Start { time: t.start_realtime.map(rfc3339), monotonic_ns: t.start.0.to_string() },
            total_ns: t.total_ns,
            stages: t.stages.iter().map(stage).collect(),
            named_ns: t.named_ns,
            spans: t.spans.iter().map(in_trace).collect(),
            sandbox: sandbox(&t.sandbox),
            containers: t.containers.iter().map(container).collect(),
            verdict: t.verdict.as_ref().map(verdict),
            attempts: Some(t.attempts.iter().map(|it| attempt(it, t.kind)).collect::<Vec<_>>())
                .filter(|all| !all.is_empty()),
            waiting: t.waiting.as_ref().map(waiting),
            quality: quality(&t.quality),
        }
    }
}

fn node(n: &trace::NodeInfo) -> Node<'_> {
    Node {
        name: n.name.as_deref(),
        boot_id: n.boot_id.as_deref(),
        kernel: n.kernel.as_deref(),
        runtime: n.runtime.as_deref(),
        runtime_version: n.runtime_version.as_deref(),
        socket: n.socket.as_deref(),
        probes: &n.probes,
        verdicts: Some(n.verdicts.iter().map(node_verdict).collect::<Vec<_>>()).filter(|all| !all.is_empty()),
    }
}

fn node_verdict(v: &trace::NodeVerdict) -> NodeVerdict<'_> {
    let point = |at: MonotonicNs, time: Option<u64>| Start { time: time.map(rfc3339), monotonic_ns: at.0.to_string() };
    NodeVerdict {
        reason: &v.reason,
        message: &v.message,
        evidence: &v.evidence,
        confidence: v.confidence.name(),
        next_check: v.next_check.as_deref(),
        open: v.open,
        since: point(v.since, v.realtime.map(|real| real.saturating_sub(v.at.since(v.since)))),
        at: point(v.at, v.realtime),
    }
}

pub(super) fn pod(p: &trace::PodInfo) -> Pod<'_> {
    Pod {
        namespace: p.namespace.as_deref(),
        name: p.name.as_deref(),
        uid: p.uid.as_ref().map(|uid| uid.as_str()),
        attempt: p.attempt,
        runtime_handler: p.runtime_handler.as_deref(),
        qos: p.qos.as_deref(),
        ip: p.ip.as_deref(),
    }
}

fn stage(s: &trace::StageTotal) -> Stage<'_> {
    Stage { stage: &s.stage, wall_ns: s.wall_ns, self_ns: s.self_ns, count: s.count }
}

/// A span, also where it stands alone.
pub(super) fn span(s: &trace::Span) -> impl Serialize + '_ {
    in_trace(s)
}

fn in_trace(s: &trace::Span) -> Span<'_> {
    Span {
        id: s.id.0,
        parent: s.parent.map(|id| id.0),
        stage: &s.stage,
        name: &s.name,
        start_ns: s.start_ns,
        end_ns: s.end_ns,
        critical: s.critical(),
        self_ns: s.self_ns,
        process: s.process.as_ref().map(process),
        call: s.call.as_ref().map(call),
        attributes: &s.attributes,
    }
}

fn process(p: &trace::ProcessInfo) -> Process<'_> {
    Process {
        pid: pid(Some(p.pid)),
        ppid: pid(Some(p.ppid)),
        comm: known(&p.comm),
        exe: known(&p.exe),
        args: Some(p.args.as_slice()).filter(|args| !args.is_empty()),
        exit_code: p.exit_code,
        signal: p.signal,
        errno: p.errno,
    }
}

pub(super) fn call(c: &trace::CallInfo) -> Call<'_> {
    let method_source = match c.method_source {
        MethodSource::Literal => Some("literal"),
        MethodSource::Table => Some("table"),
        MethodSource::Inferred => Some("inferred"),
        MethodSource::Opaque => None,
    };
    Call {
        service: known(&c.service),
        method: known(&c.method),
        method_source,
        candidates: Some(c.candidates.as_slice()).filter(|names| !names.is_empty()),
        code: c.code.map(grpc_code),
        message: c.message.as_deref().and_then(known),
        client: c.client.as_deref(),
    }
}

fn sandbox(s: &trace::Sandbox) -> Sandbox<'_> {
    Sandbox {
        id: s.id.as_ref().map(|id| id.as_str()),
        pid: pid(s.pid),
        shim_pid: pid(s.shim_pid),
        netns: s.netns.as_deref(),
        namespaces: s.namespaces.as_ref().map(inodes),
        oom_score_adj: s.oom_score_adj,
        cgroup: cgroup(s.cgroup.as_deref(), &s.limits, &s.writes),
        task_calls: task_calls(&s.task_calls),
    }
}

fn container(c: &trace::Container) -> Container<'_> {
    let kind = match c.kind {
        trace::ContainerKind::App => "app",
        trace::ContainerKind::Init => "init",
        trace::ContainerKind::Sidecar => "sidecar",
        trace::ContainerKind::Unknown => "unknown",
    };
    Container {
        name: c.name.as_deref(),
        id: c.id.as_ref().map(|id| id.as_str()),
        attempt: c.attempt,
        kind,
        peer: c.peer.then_some(true),
        image: c.image.as_deref(),
        image_digest: c.image_digest.as_deref(),
        pid: pid(c.pid),
        shim_pid: pid(c.shim_pid),
        oom_score_adj: c.oom_score_adj,
        namespaces: c.namespaces.as_ref().map(inodes),
        cgroup: cgroup(c.cgroup.as_deref(), &c.limits, &c.writes),
        task_calls: task_calls(&c.task_calls),
        exec: c.exec.as_ref().map(|e| Exec { path: &e.path, at_ns: e.at_ns, errno: e.errno }),
        listen: c.listen.map(|l| Listen { port: l.port, at_ns: l.at_ns }),
        exit: c.exit.as_ref().map(|e| Exit { code: e.code, signal: e.signal, oom: e.oom, at_ns: e.at_ns }),
    }
}

pub(super) fn verdict(v: &trace::Verdict) -> Verdict<'_> {
    Verdict {
        stage: &v.stage,
        reason: &v.reason,
        message: &v.message,
        culprit: v.culprit.as_deref(),
        evidence: &v.evidence,
        confidence: v.confidence.name(),
        next_check: v.next_check.as_deref(),
        kubelet: v.kubelet.as_deref(),
        is_consequence_of: v.is_consequence_of.as_deref(),
    }
}

fn attempt(a: &trace::Attempt, of: trace::StartKind) -> Attempt<'_> {
    let exit =
        |e: trace::AttemptExit| AttemptExit { code: e.code, signal: e.signal, oom: e.oom, before_ns: e.before_ns };
    Attempt {
        trace_id: &a.trace_id,
        kind: a.kind.name(),
        attempt: a.attempt,
        outcome: a.outcome.name(),
        stage: a.stage.as_deref(),
        reason: a.reason.as_deref(),
        before_ns: a.before_ns,
        total_ns: a.total_ns,
        exit: a.exit.map(exit),
        waited_ns: a.waited_ns,
        kubelet: a.kubelet(of),
    }
}

fn waiting(w: &trace::Waiting) -> Waiting<'_> {
    let last_sign = w.last_sign.as_ref().map(|sign| LastSign { what: &sign.what, at_ns: sign.at_ns });
    let processes = w.processes().iter().map(waiting_process).collect();
    Waiting { stage: &w.stage, name: &w.name, for_ns: w.for_ns, processes, last_sign }
}

fn waiting_process(p: &trace::WaitingProcess) -> WaitingProcess<'_> {
    let look = p.look.as_ref();
    WaitingProcess {
        pid: pid(Some(p.pid)),
        comm: known(&p.comm),
        age_ns: p.age_ns,
        seen_ns: look.map(|look| look.at_ns),
        state: look.and_then(|look| look.state).map(String::from),
        syscall: look.and_then(|look| known(&look.syscall_name)),
        syscall_number: look.and_then(|look| look.syscall),
        wchan: look.and_then(|look| known(&look.wchan)),
        stack: look.map(|look| look.stack.as_slice()).filter(|stack| !stack.is_empty()),
    }
}

fn quality(q: &trace::Quality) -> Quality<'_> {
    Quality {
        lost_records: q.lost_records,
        undecoded_bytes: q.undecoded_bytes,
        inferred_methods: q.inferred_methods,
        evicted: q.evicted,
        notes: &q.notes,
    }
}

fn cgroup<'a>(path: Option<&'a str>, limits: Map<'a>, writes: &'a [trace::LimitWrite]) -> Option<Cgroup<'a>> {
    let write = |it: &'a trace::LimitWrite| LimitWrite {
        file: &it.file,
        value: &it.value,
        errno: it.errno,
        pid: pid(Some(it.pid)),
        comm: it.comm.as_deref().and_then(known),
        at_ns: it.at_ns,
    };
    let some = path.is_some() || !limits.is_empty() || !writes.is_empty();
    let writes = (!writes.is_empty()).then(|| writes.iter().map(write).collect());
    some.then_some(Cgroup { path, limits, writes })
}

fn task_calls(calls: &[trace::TaskCall]) -> Option<Vec<TaskCall>> {
    let call = |it: &trace::TaskCall| TaskCall {
        method: it.method,
        start_ns: it.start_ns,
        end_ns: it.end_ns,
        pid: pid(it.pid),
        exit_status: it.exit_status,
    };
    (!calls.is_empty()).then(|| calls.iter().map(call).collect())
}

/// A namespace whose inode is 0 is unknown.
fn inodes(n: &Namespaces) -> Inodes {
    let known = |inode: u32| Some(inode).filter(|inode| *inode != 0);
    let (net, ipc, uts) = (known(n.net), known(n.ipc), known(n.uts));
    Inodes { net, ipc, uts, pid: known(n.pid), mnt: known(n.mnt), user: known(n.user) }
}

/// A pid of 0 is not visible to podlapse.
pub(super) fn pid(pid: Option<Tgid>) -> Option<u32> {
    pid.map(|pid| pid.0).filter(|pid| *pid != 0)
}

/// Where the engine has no text it leaves an empty one.
pub(super) fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

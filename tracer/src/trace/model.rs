//! The trace of one start, of a pod or of a container in a pod that runs, as `podlapse.trace/v1` documents it. Times of spans are relative to the trace's start.

use std::collections::BTreeMap;

use tracer_ebpf::Namespaces;

use super::node::NodeVerdict;
use super::waiting::Waiting;
use crate::cri::MethodSource;
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};

/// One start.
#[derive(Clone, Debug)]
pub struct Trace {
    /// 32 hex digits; the same records give the same id.
    pub trace_id: String,
    /// What started.
    pub kind: StartKind,
    /// The node and the hooks.
    pub node: NodeInfo,
    /// The pod.
    pub pod: PodInfo,
    /// How it ended.
    pub outcome: Outcome,
    /// Its first sign.
    pub start: MonotonicNs,
    /// Realtime of `start`, ns since the epoch, when a clock pair was recorded.
    pub start_realtime: Option<u64>,
    /// From `start` to the end of the trace.
    pub total_ns: u64,
    /// By stage name, in order of first appearance; the sum of `self_ns` is `total_ns`.
    pub stages: Vec<StageTotal>,
    /// Self time of leaf stages both of whose edges are observed signs.
    pub named_ns: u64,
    /// Parents before children, then by start.
    pub spans: Vec<Span>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Containers in order of creation; before them the peers.
    pub containers: Vec<Container>,
    /// What failed; of a start that is not over, where it is stuck.
    pub verdict: Option<Verdict>,
    /// Earlier starts of this pod, in order: the first and the latest.
    pub attempts: Vec<Attempt>,
    /// What a start that is not over waits for, or what one that its client gave up waited for then.
    pub waiting: Option<Waiting>,
    /// What the trace missed.
    pub quality: Quality,
}

/// An earlier start of the same pod, or of the same container in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its trace.
    pub trace_id: String,
    /// What started.
    pub kind: StartKind,
    /// Attempt of the sandbox, or of the container.
    pub attempt: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// Stage of its verdict.
    pub stage: Option<String>,
    /// Reason of its verdict.
    pub reason: Option<String>,
    /// From its begin to this trace's.
    pub before_ns: u64,
    /// How long it took.
    pub total_ns: u64,
    /// How its container ended, of a container's start.
    pub exit: Option<AttemptExit>,
    /// From its failure, or its container's end, to the next attempt.
    pub waited_ns: Option<u64>,
}

impl Attempt {
    /// The word that kubelet shows while it waits to try again, in a trace of that kind. It starts a container anew at
    /// once, then after 10 s, 20 s, … to 300 s; less than that is its own work between two attempts, and a container that
    /// could not be made is not backed off.
    pub fn kubelet(&self, of: StartKind) -> Option<&'static str> {
        const BACKOFF_NS: u64 = 5_000_000_000;
        let made = self.stage.as_ref().is_none_or(|stage| !stage.starts_with("container.create"));
        let waited = self.waited_ns.is_some_and(|waited| waited >= BACKOFF_NS);
        (of == StartKind::Container && made && waited).then_some("CrashLoopBackOff")
    }
}

/// How the container of an earlier attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptExit {
    /// Exit code.
    pub code: Option<u8>,
    /// Signal.
    pub signal: Option<u8>,
    /// The OOM killer chose one of its processes.
    pub oom: bool,
    /// From it to this trace's begin.
    pub before_ns: u64,
}

/// The node, from [`crate::record::Event::Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Host name.
    pub name: Option<String>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// `uname -r`.
    pub kernel: Option<String>,
    /// `containerd`, …
    pub runtime: Option<String>,
    /// Its version.
    pub runtime_version: Option<String>,
    /// Path of the CRI socket.
    pub socket: Option<String>,
    /// Hook group to backend: `socket` → `tracepoint`.
    pub probes: BTreeMap<String, String>,
    /// What was wrong with the node at any time of the trace.
    pub verdicts: Vec<NodeVerdict>,
}

/// The pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInfo {
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.uid`.
    pub uid: Option<PodUid>,
    /// Attempt of the sandbox.
    pub attempt: Option<u32>,
    /// Runtime handler; the default one is an empty name on the wire and absent here.
    pub runtime_handler: Option<String>,
    /// `guaranteed`, `burstable`, `besteffort`, from the cgroup parent.
    pub qos: Option<String>,
    /// Address.
    pub ip: Option<String>,
}

impl PodInfo {
    /// `NAMESPACE/NAME`; `?` stands for what is not known.
    pub fn full_name(&self) -> String {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
        format!("{}/{}", known(&self.namespace), known(&self.name))
    }
}

/// What started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StartKind {
    /// A sandbox and its containers.
    #[default]
    Pod,
    /// A later attempt of a container, in a sandbox that runs.
    Container,
}

impl StartKind {
    /// The name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            StartKind::Pod => "pod",
            StartKind::Container => "container",
        }
    }
}

/// How a start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every container reached its exec.
    Complete,
    /// A call, an exec or an exit failed.
    Failed,
    /// It goes on.
    InProgress,
    /// podlapse came in the middle or lost what it needed.
    Partial,
}

impl Outcome {
    /// The name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Failed => "failed",
            Outcome::InProgress => "in_progress",
            Outcome::Partial => "partial",
        }
    }
}

/// Time of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageTotal {
    /// Stage name of the registry.
    pub stage: String,
    /// Time during which at least one of its spans was open.
    pub wall_ns: u64,
    /// Time that it owned.
    pub self_ns: u64,
    /// Spans.
    pub count: u32,
}

/// A span's identity within its trace: 1, 2, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u32);

/// One step of a start.
#[derive(Clone, Debug)]
pub struct Span {
    /// Identity.
    pub id: SpanId,
    /// Parent.
    pub parent: Option<SpanId>,
    /// Stage name of the registry.
    pub stage: String,
    /// What a person reads: `RunPodSandbox`, `bridge`, `runc create`, …
    pub name: String,
    /// Relative to the trace's start.
    pub start_ns: u64,
    /// Relative to the trace's start; absent while open.
    pub end_ns: Option<u64>,
    /// From when to when the critical path goes through it, relative to the trace's start: then it, or a part of it,
    /// owned the time. Absent when always a sibling did that took longer.
    pub path_ns: Option<(u64, u64)>,
    /// Time that it owned.
    pub self_ns: u64,
    /// The process that the span is.
    pub process: Option<ProcessInfo>,
    /// The call that the span is.
    pub call: Option<CallInfo>,
    /// More, by name.
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    /// On the critical path.
    pub fn critical(&self) -> bool {
        self.path_ns.is_some()
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Thread group.
    pub pid: Tgid,
    /// Real parent at the exec.
    pub ppid: Tgid,
    /// `comm`.
    pub comm: String,
    /// Executable as given to exec.
    pub exe: String,
    /// Arguments; for container processes the first word.
    pub args: Vec<String>,
    /// Exit status.
    pub exit_code: Option<u8>,
    /// Signal that ended it.
    pub signal: Option<u8>,
    /// errno of the failure that the span is.
    pub errno: Option<i32>,
}

impl ProcessInfo {
    /// It exited with an error, or a signal ended it.
    pub fn ended_badly(&self) -> bool {
        self.signal.is_some() || self.exit_code.is_some_and(|code| code != 0)
    }

    /// It ended badly, or what the span is of it failed.
    pub fn failed(&self) -> bool {
        self.errno.is_some() || self.ended_badly()
    }
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// `runtime.v1.RuntimeService`, …
    pub service: String,
    /// `RunPodSandbox`, …
    pub method: String,
    /// Source of the name.
    pub method_source: MethodSource,
    /// What it may have been, where the method is not known.
    pub candidates: Vec<&'static str>,
    /// gRPC code; absent while open or when no status came.
    pub code: Option<u32>,
    /// Message of a failure.
    pub message: Option<String>,
    /// `user-agent` or process of the client.
    pub client: Option<String>,
}

/// The sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Id.
    pub id: Option<SandboxId>,
    /// Pause process.
    pub pid: Option<Tgid>,
    /// Shim.
    pub shim_pid: Option<Tgid>,
    /// Path of the network namespace, `CNI_NETNS`.
    pub netns: Option<String>,
    /// Namespaces of the pause process at its exec.
    pub namespaces: Option<Namespaces>,
    /// Cgroup path.
    pub cgroup: Option<String>,
    /// Values of its cgroup files at its exec.
    pub limits: BTreeMap<String, String>,
    /// The writes to them, in order.
    pub writes: Vec<LimitWrite>,
    /// What the runtime asked its shim about it.
    pub task_calls: Vec<TaskCall>,
    /// At the exec.
    pub oom_score_adj: Option<i32>,
}

/// What kind of container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerKind {
    /// An app container.
    App,
    /// An init container.
    Init,
    /// A restartable init container.
    Sidecar,
    /// The CRI alone does not tell.
    #[default]
    Unknown,
}

/// One container.
#[derive(Clone, Debug, Default)]
pub struct Container {
    /// `metadata.name`.
    pub name: Option<String>,
    /// Id.
    pub id: Option<ContainerId>,
    /// Attempt.
    pub attempt: Option<u32>,
    /// Kind.
    pub kind: ContainerKind,
    /// Ran in the sandbox before this start and is not part of it: what it did then is left out.
    pub peer: bool,
    /// Image as requested.
    pub image: Option<String>,
    /// Digest.
    pub image_digest: Option<String>,
    /// Init process.
    pub pid: Option<Tgid>,
    /// Shim.
    pub shim_pid: Option<Tgid>,
    /// At the exec.
    pub oom_score_adj: Option<i32>,
    /// At the exec.
    pub namespaces: Option<Namespaces>,
    /// Cgroup path.
    pub cgroup: Option<String>,
    /// Values of its cgroup files at its exec, by file name.
    pub limits: BTreeMap<String, String>,
    /// The writes to them, in order.
    pub writes: Vec<LimitWrite>,
    /// What the runtime asked its shim about it.
    pub task_calls: Vec<TaskCall>,
    /// The entrypoint's execve.
    pub exec: Option<ExecPoint>,
    /// Its first listen in the pod's network namespace.
    pub listen: Option<ListenPoint>,
    /// Its exit.
    pub exit: Option<ExitPoint>,
    /// The process that the kernel killed for memory, of those that were to become its init.
    pub init_oom: Option<Tgid>,
}

/// A value written to a file of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitWrite {
    /// `memory.max`, `cpu.cfs_quota_us`, …
    pub file: String,
    /// Value.
    pub value: String,
    /// errno of a write that failed.
    pub errno: Option<i32>,
    /// Writer.
    pub pid: Tgid,
    /// `comm` of the writer.
    pub comm: Option<String>,
    /// Relative to the trace's start.
    pub at_ns: u64,
}

/// A call of the task API (ttrpc), from the runtime to the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCall {
    /// `Create`, `Start`, `Wait`, `Kill` or `Delete`.
    pub method: &'static str,
    /// Relative to the trace's start.
    pub start_ns: u64,
    /// Relative to the trace's start; absent while open.
    pub end_ns: Option<u64>,
    /// The init's pid, as the reply says.
    pub pid: Option<Tgid>,
    /// Its exit status, as the reply says: 128 and the signal where one ended it.
    pub exit_status: Option<u64>,
}

/// The point where the entrypoint's execve succeeded or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPoint {
    /// Path given to exec.
    pub path: String,
    /// Relative to the trace's start.
    pub at_ns: u64,
    /// errno of a failure.
    pub errno: Option<i32>,
}

/// The first listen of a container's processes; it may come after the trace's end, while the start settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenPoint {
    /// TCP port.
    pub port: u32,
    /// Relative to the trace's start.
    pub at_ns: u64,
}

/// The exit of a container's init.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPoint {
    /// Exit status.
    pub code: Option<u8>,
    /// Signal.
    pub signal: Option<u8>,
    /// Killed for memory.
    pub oom: bool,
    /// Relative to the trace's start.
    pub at_ns: u64,
}

/// What failed or is stuck, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Stage.
    pub stage: String,
    /// Reason, of [`crate::diagnose::REASONS`].
    pub reason: String,
    /// Message.
    pub message: String,
    /// The process to blame, or the program that was never run.
    pub culprit: Option<String>,
    /// What the reason rests on, a sentence each.
    pub evidence: Vec<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What to check next.
    pub next_check: Option<String>,
    /// The word that kubelet has for it.
    pub kubelet: Option<String>,
    /// Id of the trace that this failure only follows from.
    pub is_consequence_of: Option<String>,
}

/// How sure a verdict's reason is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confidence {
    /// Signs of the kernel, or the end of a call, say it.
    Seen,
    /// Only a text says it, or signs that something else can leave too.
    #[default]
    Inferred,
}

impl Confidence {
    /// The name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Seen => "seen",
            Confidence::Inferred => "inferred",
        }
    }
}

/// What the trace missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Records lost while the trace was open.
    pub lost_records: u64,
    /// Bytes of the CRI connection that were not decoded while the trace was open.
    pub undecoded_bytes: u64,
    /// Calls whose method is inferred.
    pub inferred_methods: u32,
    /// Table entries evicted while the trace was open.
    pub evicted: u64,
    /// More, in words.
    pub notes: Vec<String>,
}

//! Traces for the exports' tests.

use std::collections::BTreeMap;

use crate::cri::MethodSource;
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};
use crate::record::Namespaces;
use crate::trace::*;

const MS: u64 = 1_000_000;

pub(crate) fn span(id: u32, parent: u32, stage: &str, name: &str, start_ms: u64, end_ms: Option<u64>) -> Span {
    Span {
        id: SpanId(id),
        parent: Some(SpanId(parent)).filter(|id| id.0 != 0),
        stage: stage.into(),
        name: name.into(),
        start_ns: start_ms * MS,
        end_ns: end_ms.map(|end| end * MS),
        path_ns: None,
        self_ns: 0,
        process: None,
        call: None,
        attributes: BTreeMap::new(),
    }
}

pub(super) fn call(mut span: Span, code: Option<u32>, message: Option<&str>) -> Span {
    span.call = Some(CallInfo {
        service: "runtime.v1.RuntimeService".into(),
        method: span.name.clone(),
        method_source: MethodSource::Literal,
        candidates: Vec::new(),
        code,
        message: message.map(Into::into),
        client: Some("grpc-go/1.72.1".into()),
    });
    span.path_ns = Some((span.start_ns, span.end_ns.unwrap_or(u64::MAX)));
    span
}

pub(crate) fn process(mut span: Span, pid: u32, exit_code: Option<u8>) -> Span {
    let exe = format!("/opt/cni/bin/{}", span.name);
    let args = vec![span.name.clone()];
    let (pid, ppid, comm) = (Tgid(pid), Tgid(812), span.name.clone());
    span.process = Some(ProcessInfo { pid, ppid, comm, exe, args, exit_code, signal: None, errno: None });
    span
}

pub(super) fn critical(mut span: Span) -> Span {
    span.path_ns = Some((span.start_ns, span.end_ns.unwrap_or(u64::MAX)));
    span
}

fn node() -> NodeInfo {
    NodeInfo {
        verdicts: Vec::new(),
        name: Some("worker-1".into()),
        boot_id: Some("5a2b8d4e-0d0c-4b7e-8f3e-0b5f1c9f8a11".into()),
        kernel: Some("6.1.0-40-amd64".into()),
        runtime: Some("containerd".into()),
        runtime_version: Some("1.7.27".into()),
        socket: Some("/run/containerd/containerd.sock".into()),
        probes: BTreeMap::from([("exec".into(), "tracepoint".into()), ("socket".into(), "tracepoint".into())]),
    }
}

/// A start that ended well.
pub(crate) fn complete() -> Trace {
    let spans = vec![
        call(span(1, 0, "sandbox", "RunPodSandbox", 0, Some(412)), Some(0), None),
        critical(span(2, 1, "sandbox.netns", "netns", 3, Some(9))),
        critical(span(3, 1, "sandbox.cni", "cni", 9, Some(187))),
        process(critical(span(4, 3, "sandbox.cni.bridge", "bridge", 9, Some(170))), 901, Some(0)),
        process(span(5, 4, "sandbox.cni.host-local", "host-local", 31, Some(44)), 907, Some(0)),
        process(span(6, 3, "sandbox.cni.portmap", "portmap", 170, Some(187)), 911, Some(0)),
        call(span(7, 0, "container.create", "CreateContainer", 415, Some(470)), Some(0), None),
        call(span(8, 0, "container.start", "StartContainer", 472, Some(640)), Some(0), None),
        critical(span(9, 8, "container.exec", "exec /bin/sleep", 635, Some(635))),
    ];
    let namespaces = Some(Namespaces { mnt: 11, net: 4_026_532_201, ipc: 13, uts: 14, pid: 15, user: 0 });
    Trace {
        trace_id: "0123456789abcdef0123456789abcdef".into(),
        kind: StartKind::Pod,
        node: node(),
        pod: PodInfo {
            namespace: Some("default".into()),
            name: Some("web-0".into()),
            uid: Some(PodUid("7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55".into())),
            attempt: Some(0),
            qos: Some("burstable".into()),
            ..PodInfo::default()
        },
        outcome: Outcome::Complete,
        start: MonotonicNs(81_234_567_890_123),
        start_realtime: Some(1_767_225_600_000_000_001),
        total_ns: 640 * MS,
        stages: vec![
            StageTotal { stage: "sandbox".into(), wall_ns: 412 * MS, self_ns: 228 * MS, count: 1 },
            StageTotal { stage: "container.start".into(), wall_ns: 168 * MS, self_ns: 412 * MS, count: 1 },
        ],
        named_ns: 412 * MS,
        spans,
        sandbox: Sandbox {
            id: Some(SandboxId("ab".repeat(32))),
            pid: Some(Tgid(940)),
            shim_pid: Some(Tgid(920)),
            netns: Some("/var/run/netns/cni-1".into()),
            namespaces,
            cgroup: Some("/kubepods/burstable/pod7f2c/ab".into()),
            ..Sandbox::default()
        },
        containers: vec![Container {
            name: Some("web".into()),
            id: Some(ContainerId("cd".repeat(32))),
            attempt: Some(0),
            image: Some("docker.io/library/busybox:1.36".into()),
            pid: Some(Tgid(990)),
            shim_pid: Some(Tgid(920)),
            oom_score_adj: Some(999),
            namespaces,
            cgroup: Some("/kubepods/burstable/pod7f2c/cd".into()),
            limits: BTreeMap::from([("cpu.max".into(), "50000 100000".into())]),
            writes: vec![LimitWrite {
                file: "cpu.max".into(),
                value: "50000 100000".into(),
                errno: None,
                pid: Tgid(985),
                comm: Some("runc".into()),
                at_ns: 600 * MS,
            }],
            task_calls: vec![TaskCall {
                method: "Create",
                start_ns: 560 * MS,
                end_ns: Some(610 * MS),
                pid: Some(Tgid(990)),
                exit_status: None,
            }],
            listen: Some(ListenPoint { port: 8080, at_ns: 900 * MS }),
            exec: Some(ExecPoint { path: "/bin/sleep".into(), at_ns: 635 * MS, errno: None }),
            ..Container::default()
        }],
        verdict: None,
        attempts: Vec::new(),
        waiting: None,
        quality: Quality::default(),
    }
}

/// A start that a CNI plugin ended.
pub(crate) fn failed() -> Trace {
    let message = "failed to setup network for sandbox \"abab\": plugin type=\"bridge\" name=\"podnet\" failed (add): \
                   failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.254";
    let mut trace = complete();
    trace.outcome = Outcome::Failed;
    trace.pod.attempt = Some(2);
    trace.spans = vec![
        call(span(1, 0, "sandbox", "RunPodSandbox", 0, Some(640)), Some(2), Some(message)),
        critical(span(2, 1, "sandbox.cni", "cni", 20, Some(600))),
        process(critical(span(3, 2, "sandbox.cni.bridge", "bridge", 20, Some(600))), 901, Some(1)),
    ];
    trace.containers.clear();
    trace.verdict = Some(Verdict {
        stage: "sandbox.cni.bridge".into(),
        reason: "cni_failed".into(),
        message: "bridge ended with exit status 1".into(),
        culprit: Some("bridge (pid 901)".into()),
        evidence: vec!["bridge (pid 901) exited with 1".into(), "RunPodSandbox ended with gRPC code 2".into()],
        confidence: Confidence::Seen,
        next_check: Some("Look at the addresses.".into()),
        kubelet: Some("FailedCreatePodSandBox".into()),
        is_consequence_of: Some("e".repeat(32)),
    });
    trace.node.verdicts = vec![NodeVerdict {
        since: MonotonicNs(trace.start.0 - 12_000 * MS),
        at: MonotonicNs(trace.start.0 + 100 * MS),
        realtime: trace.start_realtime.map(|start| start + 100 * MS),
        reason: "cri_list_slow".into(),
        message: "ListContainers is answered within 4.2 ms, after 12.1 s; the slowest took 12.0 s".into(),
        evidence: vec!["0.2 polls a second in the last 60.0 s, 1 of them open".into()],
        confidence: Confidence::Seen,
        next_check: Some("Look at the other calls that are open.".into()),
        open: false,
    }];
    trace
}

/// A start that goes on, of which little is known, with losses, and names that attack the terminal.
pub(crate) fn hostile() -> Trace {
    let mut exec = span(6, 5, "container.exec", "exec \x1b]0;owned\x07/bin/näme-网络", 300, Some(300));
    exec.process =
        Some(ProcessInfo { pid: Tgid(77), exe: "/no\u{202e}pe".into(), errno: Some(2), ..Default::default() });
    let mut killed =
        process(span(4, 3, "sandbox.cni.x", "a-plugin-with-a-very-long-name-that-never-ends", 20, Some(21)), 9, None);
    if let Some(process) = &mut killed.process {
        process.signal = Some(9);
    }
    let mut unknown = call(span(2, 1, "sandbox", "", 0, Some(1)), Some(99), None);
    if let Some(call) = &mut unknown.call {
        (call.service, call.method_source) = (String::new(), MethodSource::Opaque);
    }
    Trace {
        trace_id: "f".repeat(32),
        kind: StartKind::Pod,
        node: NodeInfo {
            probes: BTreeMap::from([("exec".into(), "tracepoint".into()), ("socket".into(), "trampoline".into())]),
            ..NodeInfo::default()
        },
        pod: PodInfo { name: Some("evil\x1b[31m\npod".into()), ..PodInfo::default() },
        outcome: Outcome::InProgress,
        start: MonotonicNs(1),
        start_realtime: None,
        total_ns: 300 * MS,
        stages: Vec::new(),
        named_ns: 0,
        spans: vec![
            call(span(1, 0, "sandbox", "RunPodSandbox", 0, None), None, None),
            unknown,
            span(3, 1, "sandbox.cni", "cni", 10, None),
            killed,
            span(5, 3, "sandbox.oci.create", "runc create", 299, None),
            exec,
            span(7, 42, "orphan", "span without its parent", 0, Some(9000)),
        ],
        sandbox: Sandbox::default(),
        containers: vec![Container::default()],
        verdict: None,
        attempts: Vec::new(),
        waiting: Some(Waiting {
            stage: "sandbox.oci.create".into(),
            name: "runc create".into(),
            for_ns: 281 * MS,
            called: true,
            chain: vec![
                WaitingProcess { pid: Tgid(78), comm: "runc\x1b[2J".into(), ..WaitingProcess::default() },
                WaitingProcess {
                    pid: Tgid(79),
                    comm: "runc:[2:INIT]".into(),
                    age_ns: Some(12_345 * MS),
                    look: Some(Look {
                        at_ns: 299 * MS,
                        state: Some('D'),
                        syscall: Some(73),
                        syscall_name: "flock".into(),
                        wchan: "flock_lock_inode_wait".into(),
                        stack: vec!["flock_lock_inode_wait+0x10/0x20".into()],
                    }),
                },
                WaitingProcess { pid: Tgid(80), ..WaitingProcess::default() },
            ],
            last_sign: Some(LastSign { what: "setns by pid 79".into(), at_ns: 250 * MS, ago_ns: 50 * MS }),
        }),
        quality: Quality {
            lost_records: 12,
            undecoded_bytes: 4096,
            inferred_methods: 1,
            evicted: 0,
            notes: vec!["a gap\x1b[2J in the CRI connection".into()],
        },
    }
}

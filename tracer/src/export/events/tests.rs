//! Known answers: each kind of event in words, the timeline at several widths, the JSON against its schema.

use expect_test::expect;
use serde_json::Value;

use super::super::samples;
use super::super::{Charset, Tree};
use super::*;
use crate::cri::MethodSource;
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};
use crate::trace::*;

const FIRST: MonotonicNs = MonotonicNs(81_000_000_000_000);

fn event(kind: LifeKind, after_ms: u64) -> LifeEvent {
    let pod = PodInfo {
        namespace: Some("shop".into()),
        name: Some("web".into()),
        uid: Some(PodUid("7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55".into())),
        attempt: Some(0),
        ..PodInfo::default()
    };
    LifeEvent {
        realtime: Some(1_796_026_500_000_000_000 + after_ms * 1_000_000),
        pod,
        sandbox: Some(SandboxId("ab".repeat(32))),
        ..LifeEvent::new(kind, MonotonicNs(FIRST.0 + after_ms * 1_000_000))
    }
}

/// What the samples say of an event, in the order in which they say it.
trait With: Sized {
    fn of(self, container: &str) -> Self;
    fn lasted(self, ms: u64) -> Self;
    fn call(self, method: &str, code: u32, message: Option<&str>) -> Self;
    fn by(self, comm: &str, pid: u32) -> Self;
    fn signal(self, number: u8) -> Self;
    fn exit(self, code: u8) -> Self;
    fn has(self, attributes: &[(&'static str, &str)]) -> Self;
    fn verdict(self, stage: &str, reason: &str, message: &str) -> Self;
}

impl With for LifeEvent {
    fn of(mut self, container: &str) -> Self {
        let id = Some(ContainerId("cd".repeat(32)));
        self.container = Some(LifeContainer { name: Some(container.into()), id, attempt: Some(0) });
        self
    }

    fn lasted(mut self, ms: u64) -> Self {
        self.lasted_ns = Some(ms * 1_000_000);
        self
    }

    fn call(mut self, method: &str, code: u32, message: Option<&str>) -> Self {
        self.call = Some(CallInfo {
            service: "runtime.v1.RuntimeService".into(),
            method: method.into(),
            method_source: MethodSource::Literal,
            candidates: Vec::new(),
            code: Some(code),
            message: message.map(str::to_owned),
            client: Some("kubelet".into()),
        });
        self
    }

    fn by(mut self, comm: &str, pid: u32) -> Self {
        self.process = Some(LifeProcess { pid: Tgid(pid), comm: comm.into() });
        self
    }

    fn signal(mut self, number: u8) -> Self {
        self.signal = Some(number);
        self
    }

    fn exit(mut self, code: u8) -> Self {
        self.exit_code = Some(code);
        self
    }

    fn has(mut self, attributes: &[(&'static str, &str)]) -> Self {
        self.attributes = attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self
    }

    fn verdict(mut self, stage: &str, reason: &str, message: &str) -> Self {
        self.verdict = Some(Verdict {
            stage: stage.into(),
            reason: reason.into(),
            message: message.into(),
            culprit: Some("java (pid 4711)".into()),
            evidence: vec!["the kernel chose java (pid 4711)".into(), "memory.max is 67108864".into()],
            confidence: Confidence::Seen,
            next_check: Some("Raise the container's memory limit.".into()),
            kubelet: Some("OOMKilled".into()),
            is_consequence_of: None,
        });
        self
    }
}

fn samples() -> Vec<LifeEvent> {
    use LifeKind::*;
    let ok = |event: LifeEvent, method: &str| event.call(method, 0, None);
    vec![
        ok(event(PostStart, 700).of("app").lasted(40), "ExecSync").exit(0),
        ok(event(PostStart, 701).of("app").lasted(40), "ExecSync").exit(1),
        ok(event(Probe, 900).of("app").lasted(12), "ExecSync").exit(1).has(&[("via", "exec")]),
        ok(event(Probe, 2900).of("app").lasted(12), "ExecSync").exit(0).has(&[
            ("via", "exec"),
            ("failed", "2"),
            ("after_ns", "2300000000"),
        ]),
        event(Probe, 3000).has(&[("via", "connect"), ("port", "8080"), ("failed", "1")]),
        event(Probe, 3001).of("app").call("ExecSync", 4, Some("command timed out")).has(&[("via", "exec")]),
        event(Ready, 3100).has(&[("after_ns", "3100000000")]),
        ok(event(Exec, 4000).of("app"), "Exec"),
        event(Attach, 4001).of("app").call("Attach", 5, Some("container is not running")),
        ok(event(PortForward, 4002), "PortForward"),
        ok(event(Update, 5000).of("app"), "UpdateContainerResources"),
        event(Oom, 9_000)
            .of("app")
            .by("java", 4711)
            .has(&[("rss_kib", "64512"), ("limit", "67108864"), ("init", "true"), ("group", "true")])
            .verdict("oom", "oom_killed", "the container used more memory than its limit"),
        event(Oom, 9_001).of("app").by("worker", 4712).has(&[("limit", "max"), ("init", "false")]),
        event(Signal, 9_002).of("app").by("bash", 99).signal(2),
        event(Signal, 60_000).of("app").by("runc", 5000).signal(15).has(&[("for", "stop")]),
        event(Exit, 9_100).of("app").signal(9).lasted(8400).has(&[("asked", "false"), ("sender", "bash (pid 99)")]),
        event(Signal, 60_001).of("side").by("runc", 5002).signal(15).has(&[("for", "stop"), ("ignored", "true")]),
        event(Exit, 70_100).of("side").signal(9).has(&[("asked", "true"), ("sender", "runtime")]),
        event(Exit, 60_100).of("app").exit(143).lasted(59_400).has(&[("asked", "true")]),
        event(Exit, 2_000).of("init").exit(0).lasted(500).has(&[("asked", "false")]),
        event(ShimExit, 61_000).of("app").by("containerd-shim", 920).signal(9),
        event(ShimExit, 61_001).by("containerd-shim", 920).exit(2).has(&[("running", "2")]),
        event(SandboxExit, 62_000).by("pause", 940).signal(9),
        ok(event(Stop, 60_000).of("app"), "StopContainer").has(&[("grace_s", "30")]),
        ok(event(Stop, 60_001).of("app"), "StopContainer").has(&[("grace_s", "0")]),
        ok(event(Stop, 60_002).of("app"), "StopContainer").has(&[("grace_s", "30"), ("because", "poststart_failed")]),
        ok(event(Stopped, 90_000).of("app").lasted(30_000), "StopContainer").has(&[("killed", "true")]),
        ok(event(Stopped, 60_100).of("app").lasted(100), "StopContainer").has(&[("killed", "false")]),
        event(Stopped, 60_101).of("app").call("StopContainer", 4, Some("context deadline exceeded")),
        ok(event(SandboxStop, 90_100), "StopPodSandbox"),
        event(Cni, 90_150).by("bridge", 5001).exit(0).lasted(30),
        event(Cni, 90_151).by("bridge", 5001).exit(1).lasted(30),
        ok(event(SandboxStopped, 90_400).lasted(300), "StopPodSandbox"),
        event(SandboxStopped, 90_401).lasted(300).call("StopPodSandbox", 2, Some("plugin failed\x1b[2J")),
        ok(event(Removed, 91_000).of("app").lasted(20), "RemoveContainer"),
        ok(event(SandboxRemoved, 91_100).lasted(20), "RemovePodSandbox").has(&[("last", "false")]),
        ok(event(SandboxRemoved, 150_000).lasted(20), "RemovePodSandbox").has(&[("last", "true")]),
    ]
}

fn lines(events: &[LifeEvent], timeline: &Timeline) -> String {
    let mut out = Vec::new();
    for it in events {
        timeline.event(&mut out, it, FIRST).unwrap();
    }
    String::from_utf8(out).unwrap()
}

fn timeline(width: usize, long: bool) -> Timeline {
    let tree = Tree { width, charset: Charset::Ascii, colour: false, min_ns: 0 };
    Timeline { tree, long, several: false }
}

#[test]
fn every_kind_in_words() {
    let events = samples();
    let kinds: std::collections::BTreeSet<LifeKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds.len(), LifeKind::ALL.len());
    let words = |it: &LifeEvent| format!("{:15} {}\n", it.kind.name(), Charset::Ascii.clean(&sentence(it)));
    let words: String = events.iter().map(words).collect();
    expect![[r#"
        post_start      PostStart hook succeeded in 40.00 ms
        post_start      PostStart hook failed after 40.00 ms: exit code 1
        probe           exec probe failed after 12.00 ms: exit code 1
        probe           exec probe succeeded in 12.00 ms, after 2 that failed; 2.300 s after the entrypoint's exec
        probe           a connection to port 8080 was accepted for the first time, after one that failed
        probe           exec probe failed: DEADLINE_EXCEEDED (4): command timed out
        ready           ready as far as it can be seen, 3.100 s after the pod's first sign: every probe that was seen has succeeded
        exec            kubelet asked for a stream to a command in the container
        attach          kubelet asked for a stream to the container, and it failed: NOT_FOUND (5): container is not running
        port_forward    kubelet asked for a stream to a port of the pod
        update          kubelet asked for other limits
        oom             out of memory: the kernel kills java (pid 4711), the container's first process, which had 63.0 MiB; the limit is 64.0 MiB; all processes of the container go with it
        oom             out of memory: the kernel kills worker (pid 4712), not the container's first process; its cgroup has no limit of its own
        signal          SIGINT (2) sent by bash (pid 99)
        signal          SIGTERM (15) sent by runc (pid 5000), as part of the stop
        exit            ended by SIGKILL (9) after 8.400 s, sent by bash (pid 99); nobody had asked for a stop
        signal          SIGTERM (15) sent by runc (pid 5002), as part of the stop; dropped: the process ignores it, or has no handler for it
        exit            ended by SIGKILL (9), sent by the runtime; a stop had been asked for
        exit            exited with 143 after 59.40 s; a stop had been asked for
        exit            exited with 0 after 500.0 ms
        shim_exit       containerd-shim (pid 920) was ended by SIGKILL (9) while what it had started ran: nobody reaps it any more
        shim_exit       containerd-shim (pid 920) exited with 2 while 2 processes that it had started ran: nobody reaps them any more
        sandbox_exit    the pause process was ended by SIGKILL (9); nobody had asked for the pod's stop
        stop            kubelet asked for a stop, with SIGKILL after 30 s
        stop            kubelet asked for a stop, with SIGKILL at once
        stop            kubelet asked for a stop, with SIGKILL after 30 s, since the PostStart hook had failed
        stopped         stopped after 30.00 s, killed when the grace period was over
        stopped         stopped after 100.0 ms
        stopped         the stop failed: DEADLINE_EXCEEDED (4): context deadline exceeded
        sandbox_stop    kubelet asked for the pod's stop
        cni_del         bridge (pid 5001) took the pod off the network in 30.00 ms
        cni_del         bridge (pid 5001) failed to take the pod off the network after 30.00 ms: exit code 1
        sandbox_stopped stopped in 300.0 ms
        sandbox_stopped the pod's stop failed after 300.0 ms: UNKNOWN (2): plugin failed\u{1b}[2J
        removed         removed in 20.00 ms
        sandbox_removed sandbox removed in 20.00 ms; the pod has another
        sandbox_removed sandbox removed in 20.00 ms: the pod is gone
    "#]].assert_eq(&words);
}

#[test]
fn on_a_terminal_or_not() {
    let all = samples();
    let some: Vec<LifeEvent> = all.into_iter().filter(|it| matches!(it.kind, LifeKind::Oom | LifeKind::Exit)).collect();
    expect![[r#"
        2026-11-30T08:15:09.000Z     +9.000 s app          oom             out of memory: the kernel kills java (pid 4711), the container's first process, which had 63.0 MiB; the limit is 64.0 MiB; all processes of the container go with it
                ! oom_killed in oom: the container used more memory than its limit
                culprit: java (pid 4711)
                why: the kernel chose java (pid 4711); memory.max is 67108864
                next: Raise the container's memory limit.
                see: kubelet shows OOMKilled; podlapse explain oom_killed
        2026-11-30T08:15:09.001Z     +9.001 s app          oom             out of memory: the kernel kills worker (pid 4712), not the container's first process; its cgroup has no limit of its own
        2026-11-30T08:15:09.100Z     +9.100 s app          exit            ended by SIGKILL (9) after 8.400 s, sent by bash (pid 99); nobody had asked for a stop
        2026-11-30T08:16:10.100Z     +70.10 s side         exit            ended by SIGKILL (9), sent by the runtime; a stop had been asked for
        2026-11-30T08:16:00.100Z     +60.10 s app          exit            exited with 143 after 59.40 s; a stop had been asked for
        2026-11-30T08:15:02.000Z     +2.000 s init         exit            exited with 0 after 500.0 ms
    "#]].assert_eq(&lines(&some, &timeline(100, true)));
    expect![[r#"
        08:15:09.000Z     +9.000 s app          oom             out of memory: the
                kernel kills java (pid 4711), the container's first process, which had
                63.0 MiB; the limit is 64.0 MiB; all processes of the container go with
                it
                ! oom_killed in oom: the container used more memory than its limit
                culprit: java (pid 4711)
                why: the kernel chose java (pid 4711); memory.max is 67108864
                next: Raise the container's memory limit.
                see: kubelet shows OOMKilled; podlapse explain oom_killed
        08:15:09.001Z     +9.001 s app          oom             out of memory: the
                kernel kills worker (pid 4712), not the container's first process; its
                cgroup has no limit of its own
        08:15:09.100Z     +9.100 s app          exit            ended by SIGKILL (9)
                after 8.400 s, sent by bash (pid 99); nobody had asked for a stop
        08:16:10.100Z     +70.10 s side         exit            ended by SIGKILL (9),
                sent by the runtime; a stop had been asked for
        08:16:00.100Z     +60.10 s app          exit            exited with 143 after
                59.40 s; a stop had been asked for
        08:15:02.000Z     +2.000 s init         exit            exited with 0 after
                500.0 ms
    "#]]
    .assert_eq(&lines(&some, &timeline(80, false)));
    let coloured = Timeline { tree: Tree { colour: true, ..timeline(120, false).tree }, ..timeline(120, false) };
    expect![[r#"
        ESC[2m2026-11-30T08:15:09.000Z     +9.000 sESC[0m app          oom             ESC[1mESC[31mout of memory: the kernel kills java (pid 4711), theESC[0m
                ESC[1mESC[31mcontainer's first process, which had 63.0 MiB; the limit is 64.0 MiB; all processes of the container go with itESC[0m
                ESC[1mESC[31m! oom_killed in oom: the container used more memory than its limitESC[0m
                ESC[1mESC[31mculprit: java (pid 4711)ESC[0m
                ESC[1mESC[31mwhy: the kernel chose java (pid 4711); memory.max is 67108864ESC[0m
                ESC[1mESC[31mnext: Raise the container's memory limit.ESC[0m
                ESC[1mESC[31msee: kubelet shows OOMKilled; podlapse explain oom_killedESC[0m
    "#]].assert_eq(&lines(&some[..1], &coloured).replace('\x1b', "ESC"));
}

#[test]
fn nothing_reaches_the_terminal_raw() {
    let mut evil = event(LifeKind::Exec, 10).of("a\x1b[2Jb").call("Exec", 2, Some("c\x1b[2Jd\ne"));
    evil.pod.name = Some("web\x07".into());
    let text = lines(&[evil], &Timeline { several: true, ..timeline(100, true) });
    assert!(text.trim_end().chars().all(|c| (' '..='~').contains(&c)), "{text:?}");
}

#[test]
fn what_is_not_known_is_not_said() {
    for (kind, _) in LifeKind::ALL {
        let mut bare = event(*kind, 0);
        (bare.realtime, bare.pod, bare.sandbox) = (None, PodInfo::default(), None);
        let words = sentence(&bare);
        assert!(!words.is_empty() && !words.contains("None") && !words.contains("  "), "{words}");
    }
    let mut early = event(LifeKind::Ready, 0);
    (early.at, early.realtime) = (MonotonicNs(FIRST.0 - 5_000_000), None);
    expect![[r#"
        80999.995s    -5.000 ms -            ready           ready as far as it can be seen: every probe that was seen has succeeded
    "#]].assert_eq(&lines(&[early], &timeline(100, true)));
}

#[test]
fn starts_between_events() {
    let mut restart = samples::complete();
    restart.kind = StartKind::Container;
    let peer = Container { name: Some("side".into()), peer: true, ..Container::default() };
    restart.containers.insert(0, peer);
    let mut again = samples::complete();
    again.pod.attempt = Some(1);
    let mut out = Vec::new();
    for (trace, told) in [(&samples::complete(), false), (&samples::failed(), true), (&restart, false), (&again, false)]
    {
        timeline(100, true).start(&mut out, trace, trace.start, told).unwrap();
    }
    expect![[r#"
        2026-01-01T00:00:00.640Z    +640.0 ms -            start           complete after 640.0 ms, of which 412.0 ms in container.start; sandbox abababababab
        2026-01-01T00:00:00.640Z    +640.0 ms -            start           more is known: failed after 640.0 ms, of which 412.0 ms in container.start; sandbox abababababab made again, attempt 2
                ! cni_failed in sandbox.cni.bridge: bridge ended with exit status 1
                culprit: bridge (pid 901)
                why: bridge (pid 901) exited with 1; RunPodSandbox ended with gRPC code 2
                follows from trace: eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee
                next: Look at the addresses.
                see: kubelet shows FailedCreatePodSandBox; podlapse explain cni_failed
        2026-01-01T00:00:00.640Z    +640.0 ms web          restart         complete after 640.0 ms, of which 412.0 ms in container.start; restarted in the same sandbox abababababab, peers unchanged: side
        2026-01-01T00:00:00.640Z    +640.0 ms -            start           complete after 640.0 ms, of which 412.0 ms in container.start; sandbox abababababab made again, attempt 1
    "#]].assert_eq(&String::from_utf8(out).unwrap());
}

#[test]
fn json_keeps_its_contract() {
    let mut schema: Value = serde_json::from_str(include_str!("../../../../docs/event-v1.schema.json")).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let names: Vec<&str> = LifeKind::ALL.iter().map(|(kind, _)| kind.name()).collect();
    assert_eq!(schema["properties"]["event"]["enum"], serde_json::json!(names));
    super::super::tests::close(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for event in samples() {
        let mut line = Vec::new();
        write_event_json(&mut line, &event).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
        let value: Value = serde_json::from_slice(&line).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, [""; 0], "{value}");
    }
    let mut line = Vec::new();
    write_event_json(&mut line, &samples()[11]).unwrap();
    expect![[r#"
        {"schema":"podlapse.event/v1","event":"oom","time":"2026-11-30T08:15:09.000000000Z","monotonic_ns":"81009000000000","pod":{"namespace":"shop","name":"web","uid":"7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55","attempt":0},"sandbox":"abababababababababababababababababababababababababababababababab","container":{"name":"app","id":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","attempt":0},"process":{"pid":4711,"comm":"java"},"attributes":{"group":"true","init":"true","limit":"67108864","rss_kib":"64512"},"verdict":{"stage":"oom","reason":"oom_killed","message":"the container used more memory than its limit","culprit":"java (pid 4711)","evidence":["the kernel chose java (pid 4711)","memory.max is 67108864"],"confidence":"seen","next_check":"Raise the container's memory limit.","kubelet":"OOMKilled"}}
    "#]].assert_eq(std::str::from_utf8(&line).unwrap());
}

#[test]
fn perfetto_has_them_as_instants() {
    let (mut out, mut perfetto) = (Vec::new(), super::super::Perfetto::default());
    let mut other = event(LifeKind::Exit, 20);
    other.pod.name = Some("db".into());
    for it in [event(LifeKind::Exec, 1), other, event(LifeKind::Exit, 30).of("app")] {
        perfetto.event(&mut out, &it).unwrap();
    }
    perfetto.write(&mut out, &samples::complete()).unwrap();
    perfetto.end(&mut out).unwrap();
    let file: Value = serde_json::from_slice(&out).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let instants = events.iter().filter(|event| event["ph"] == "i");
    let told: Vec<_> = instants.map(|event| format!("{} {}", event["name"], event["pid"])).collect();
    assert_eq!(told, [r#""exec" 1"#, r#""exit" 2"#, r#""exit" 1"#]);
    let names: Vec<&Value> = events.iter().filter(|event| event["name"] == "process_name").collect();
    let names: Vec<_> = names.iter().map(|event| format!("{} {}", event["args"]["name"], event["pid"])).collect();
    assert_eq!(names, [r#""life of pod shop/web" 1"#, r#""life of pod shop/db" 2"#, r#""pod default/web-0" 3"#]);
    let last = events.iter().rfind(|event| event["ph"] == "i").unwrap();
    assert_eq!((&last["ts"], &last["args"]["container"]["name"]), (&Value::from(81_000_030_000.0), &"app".into()));
}

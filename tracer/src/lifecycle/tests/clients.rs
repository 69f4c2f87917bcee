//! Clients other than one kubelet, and calls other than those of a start.

use super::containerd::{Pod, container, create_container, sandbox};
use super::dsl::{Item, RUNTIME, Stream, id};
use super::render;
use crate::cri::{CallEvent, CallStart, Ending, Field, HeaderSigns, MethodSource, Protocol};
use crate::engine::Config;
use crate::ids::Tgid;
use crate::record::Role;
use crate::trace::Outcome;

fn pod() -> Pod {
    Pod::new("web", "1", 1000)
}

fn one() -> Stream {
    let mut s = Stream::new();
    sandbox(&mut s, &pod());
    container(&mut s, &pod(), 80_000, "app", "/bin/app");
    s.tick(20_000_000);
    s
}

fn each_call(s: &mut Stream, mut change: impl FnMut(&mut CallStart)) {
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Start(start)) = item {
            change(start);
        }
    }
}

/// kubelet was there before, crictl came later; a pid that nobody knows stands for itself.
#[test]
fn who_called() {
    let mut s = Stream::new();
    s.found(0, 50, Role::Other, "/usr/bin/kubelet --config /etc/kubelet");
    s.exec(0, 40, 51, "/usr/bin/crictl runp");
    sandbox(&mut s, &pod());
    container(&mut s, &pod(), 80_000, "app", "/bin/app");
    s.tick(20_000_000);
    each_call(&mut s, |start| {
        let pid = match start.method.as_str() {
            "RunPodSandbox" => 50,
            "CreateContainer" => 51,
            _ => 52,
        };
        start.client = Some(Tgid(pid));
    });
    let traces = s.feed(Config::default());
    let clients = traces[0].spans.iter().filter_map(|span| span.call.as_ref()?.client.as_deref());
    // The comm of the exec.
    assert_eq!(clients.collect::<Vec<_>>(), ["test (kubelet, pid 50)", "test (exe, pid 51)", "test (pid 52)"]);
}

#[test]
fn the_older_version_of_the_cri() {
    let mut s = one();
    each_call(&mut s, |start| start.service = start.service.replace("runtime.v1.", "runtime.v1alpha2."));
    let (old, new) = (s.feed(Config::default()), one().feed(Config::default()));
    assert_eq!(render::trace(&old[0]), render::trace(&new[0]));
}

/// A stream of events that never ends, and a method that nobody knows: neither is waited for.
#[test]
fn streams_and_unknown_methods() {
    let mut s = one();
    s.begin_call(10, "GetContainerEvents", &[]);
    s.begin_call(20, "StreamContainers", &[]);
    s.call((100, 200), "RewindContainer", &[], &[]);
    s.begin_call(85_000, "RewindContainer", &[]);
    let (with, without) = (s.feed(Config::default()), one().feed(Config::default()));
    assert_eq!(render::trace(&with[0]), render::trace(&without[0]));
}

/// What a client asks of a container besides is shown, owns no time, and its failure is not the start's.
#[test]
fn another_call() {
    let mut s = one();
    let app = super::dsl::id("1c1");
    s.failing_call((100_000, 110_000), "UpdateContainerResources", &[(Field::ContainerId, &app)], "no such cgroup");
    s.call((120_000, 121_000), "ContainerStats", &[(Field::ContainerId, &app)], &[]);
    let traces = s.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Complete));
    let others: Vec<_> = traces[0].spans.iter().filter(|span| span.stage == "cri.call").collect();
    let other = others.first().expect("a call");
    assert_eq!((others.len(), other.name.as_str(), other.self_ns), (1, "UpdateContainerResources", 0));
    assert_eq!(other.call.as_ref().and_then(|call| call.code), Some(2));
    assert_eq!(other.attributes["container"], "app");
}

/// The runtime's end fails the start at the call that it ended; the shim and its container go on, and the next attempt
/// of another container finds them. The same pod in another sandbox is another start.
#[test]
fn the_runtime_restarts() {
    let mut s = Stream::new();
    let pod = pod();
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "log", "/bin/log");
    let (app, _) = create_container(&mut s, &pod, 140_000, "app");
    let key = s.begin_call(150_000, "StartContainer", &[(Field::ContainerId, &app)]);
    s.exit(160_000, RUNTIME, 0);
    s.end_call(160_000, key, Ending::RuntimeRestarted);
    s.found(900_000, RUNTIME + 1, Role::Runtime, "/usr/bin/containerd");
    super::containerd::attempt(&mut s, &pod, 1_000_000, "app", "/bin/app", 1);
    let mut again = Pod::new("web", "1", 6000);
    again.sandbox = super::dsl::id("1b");
    s.offset = 2_000_000;
    sandbox(&mut s, &again);
    container(&mut s, &again, 80_000, "log", "/bin/log");
    s.offset = 0;
    s.tick(20_000_000);
    let traces = s.feed_last(Config::default());
    let said = |trace: &crate::trace::Trace| {
        let containers = trace
            .containers
            .iter()
            .map(|c| format!("{}{}", c.name.as_deref().unwrap_or("?"), if c.peer { " peer" } else { "" }));
        let reason = trace.verdict.as_ref().map_or("", |v| v.reason.as_str()).to_owned();
        (trace.outcome, reason, containers.collect::<Vec<_>>().join(", "))
    };
    let said: Vec<_> = traces.iter().map(said).collect();
    let expected = [
        (Outcome::Failed, "runtime_restarted", "log, app"),
        (Outcome::Complete, "", "log peer, app"),
        (Outcome::Complete, "", "log"),
    ];
    assert_eq!(said, expected.map(|(outcome, reason, containers)| (outcome, reason.to_owned(), containers.to_owned())));
    assert_eq!(traces[0].verdict.as_ref().map(|v| v.stage.as_str()), Some("container.start"));
}

/// Calls about ids that nobody knows, refused at once: no pod starts.
#[test]
fn a_call_about_nothing() {
    let (sandbox, container) = (id("5b"), id("c0"));
    let create = [(Field::SandboxId, sandbox.as_str()), (Field::ContainerName, "app")];
    let restart = [&create[..], &[(Field::ContainerAttempt, "2")]].concat();
    let start = [(Field::ContainerId, container.as_str())];
    let calls = [("CreateContainer", &create[..]), ("CreateContainer", &restart), ("StartContainer", &start)];
    for (method, request) in calls {
        let mut s = Stream::new();
        s.failing_call((1000, 2000), method, request, "not found");
        s.tick(20_000_000);
        assert_eq!(s.clone().updates(Config::default()).len(), 0, "{method}");
        assert_eq!(s.feed(Config::default()).len(), 0, "{method}");
        // One that names a pod is told, and so is one that is answered, or that is still open.
        let pod = [request, &[(Field::PodName, "web")]].concat();
        let mut named = Stream::new();
        named.failing_call((1000, 2000), "CreateContainer", &pod, "not found");
        assert_eq!(named.feed(Config::default()).len(), usize::from(method == "CreateContainer"), "{method}");
        let (mut answered, mut open) = (Stream::new(), Stream::new());
        answered.call((1000, 2000), method, request, &start);
        open.begin_call(1000, method, request);
        for s in [answered, open] {
            assert_eq!(s.feed(Config::default()).len(), 1, "{method}");
        }
    }
}

/// Only the CRI's own services start a pod.
#[test]
fn another_service_of_the_same_name() {
    for service in ["evil.v1.RuntimeService", "xRuntimeService", "evil.v1.ImageService"] {
        let mut s = one();
        each_call(&mut s, |start| {
            if start.protocol == Protocol::Grpc {
                start.service = service.into();
            }
        });
        let s = s.without(|_, item| matches!(item, Item::Record(record) if record.tgid != Tgid(RUNTIME)));
        assert_eq!(s.feed(Config::default()).len(), 0, "{service}");
    }
}

/// The call that made the container has its name after the one that started it was refused.
#[test]
fn a_refusal_before_the_container_is_known() {
    let stream = || {
        let mut s = Stream::new();
        sandbox(&mut s, &pod());
        let (reply, _) = create_container(&mut s, &pod(), 80_000, "app");
        s.failing_call((100_000, 101_000), "StartContainer", &[(Field::ContainerId, &reply)], "no such runtime");
        s.tick(20_000_000);
        s
    };
    let late = stream().named_late(|start| (start.method == "CreateContainer").then_some(50_000));
    let (late, whole) = (late.feed_last(Config::default()), stream().feed_last(Config::default()));
    assert_eq!((late.len(), late[0].outcome), (1, Outcome::Failed));
    let (late, whole) = (&late[0].verdict, &whole[0].verdict);
    assert_eq!(late, whole);
}

/// A client that was connected before, and writes its header blocks in an order that nobody knows.
#[test]
fn a_client_whose_calls_have_no_name() {
    let stream = |namespace: bool| {
        let mut s = one();
        s.found(0, 50, Role::Other, "/usr/bin/python3 poll.py");
        for at in [10_000, 20_000] {
            s.call((at, at + 1000), "ListContainers", &[], &[]);
        }
        each_call(&mut s, |start| {
            if start.method == "ListContainers" {
                (start.source, start.client) = (MethodSource::Opaque, Some(Tgid(50)));
                (start.service, start.method) = (String::new(), String::new());
                start.signs = HeaderSigns { placeless: true, namespace, ..HeaderSigns::default() };
            }
        });
        s
    };
    let told = |s: Stream| {
        let notes = s.clone().feed(Config::default()).remove(0).quality.notes;
        (s.tables(Config::default()).0.nameless(), notes)
    };
    let because = "connected before podlapse, and is not Go's gRPC";
    let line = format!("2 calls on a connection of process 50 (python3) could not be named: it was {because}");
    let note = format!("calls_without_a_name: 2: a client was {because}");
    assert_eq!(told(stream(false)), (vec![line], vec![note]));
    assert_eq!(told(stream(true)), (vec![], vec![]), "the containerd API");
}

//! Calls whose name comes late: in the end it is as if it had been there at once.

use proptest::prelude::*;

use super::containerd::{Pod, attempt, container, create_container, oci, sandbox};
use super::dsl::{Item, Stream};
use super::render;
use crate::cri::{CallEvent, CallStart, Ending, Field, MethodSource, Unnamed};
use crate::engine::{Config, Update};
use crate::ids::MonotonicNs;
use crate::trace::{Outcome, Trace};

const SECOND: u64 = 1_000_000;

fn pod() -> Pod {
    Pod::new("web", "1", 1000)
}

/// A start of one container, 0 to 132 000.
fn one() -> Stream {
    let mut s = Stream::new();
    sandbox(&mut s, &pod());
    container(&mut s, &pod(), 80_000, "app", "/bin/app");
    s.tick(20 * SECOND);
    s
}

fn only(method: &str, delay: u64) -> impl FnMut(&CallStart) -> Option<u64> {
    move |start| (start.method == method).then_some(delay)
}

/// Only what differs: the whole is long.
fn same(one: &str, other: &str) {
    let differs = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    assert_eq!((differs, one.lines().count()), (None, other.lines().count()));
}

/// What a trace says, but for how the names are known.
fn said(mut trace: Trace) -> String {
    trace.quality.notes.retain(|note| !note.starts_with("inferred: "));
    let more = (&trace.pod, trace.containers.iter().map(|c| (c.kind, &c.listen)).collect::<Vec<_>>());
    format!("{}{more:?}", render::trace(&trace))
}

#[test]
fn a_second_after_its_end() {
    let whole = one().feed(Config::default());
    let traces = one().named_late(only("StartContainer", SECOND)).feed(Config::default());
    assert_eq!(traces.len(), 1, "it is named before the start has settled");
    assert_eq!(traces[0].quality.notes, ["inferred: StartContainer: request shape"]);
    assert_eq!(traces[0].quality.inferred_methods, 1);
    let call = traces[0].spans.iter().filter_map(|span| span.call.as_ref()).find(|c| c.method == "StartContainer");
    assert_eq!(call.map(|call| call.method_source), Some(MethodSource::Inferred));
    same(&said(traces[0].clone()), &said(whole[0].clone()));
}

/// Until then the trace says what it lacks; then it comes again.
#[test]
fn minutes_after_its_end() {
    let whole = one().feed(Config::default());
    let traces = one().named_late(only("StartContainer", 300 * SECOND)).feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Partial, Outcome::Complete]);
    assert_eq!(traces[0].trace_id, traces[1].trace_id);
    assert_eq!(traces[0].quality.notes, ["call_not_seen: StartContainer of app"]);
    let create = traces[0].spans.iter().find(|span| span.stage == "container.start.oci.create");
    assert!(create.is_some_and(|span| span.parent.is_none()), "what is left of it is at the top");
    same(&said(traces[1].clone()), &said(whole[0].clone()));
}

/// `--containers` does not wait for the time to settle, but for the name.
#[test]
fn when_all_containers_run() {
    let config = Config { containers: Some(1), ..Config::default() };
    let whole = one().feed(config.clone());
    let traces = one().named_late(only("StartContainer", SECOND)).feed(config);
    assert_eq!(traces.len(), 1);
    same(&said(traces[0].clone()), &said(whole[0].clone()));
}

/// A stop that is named late is why an init ended.
#[test]
fn a_stop() {
    let stream = || {
        let mut s = Stream::new();
        let pod = pod();
        sandbox(&mut s, &pod);
        let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
        s.call((90_000, 132_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
        oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
        let mut s = s.without(|at, item| at == 117_000 && matches!(item, Item::Record(_)));
        s.call((118_000, 119_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
        s.exit(118_500, pid + 3, 137);
        s.tick(20 * SECOND);
        s
    };
    let whole = stream().feed(Config::default());
    assert_eq!(whole[0].verdict.as_ref().map(|v| v.reason.as_str()), Some("sandbox_stopped"));
    let traces = stream().named_late(only("StopPodSandbox", 5 * SECOND)).feed(Config::default());
    let reasons = traces.iter().map(|t| t.verdict.as_ref().map_or("", |v| v.reason.as_str())).collect::<Vec<_>>();
    assert_eq!(reasons, ["exited_before_exec", "sandbox_stopped"]);
    same(&said(traces[1].clone()), &said(whole[0].clone()));
}

/// Names come in any order: what a container's start was is part of its pod's start in the end.
#[test]
fn the_creation_after_the_start() {
    let late = |start: &CallStart| match start.method.as_str() {
        "CreateContainer" => Some(SECOND),
        "RunPodSandbox" => Some(2 * SECOND),
        _ => None,
    };
    let traces = one().named_late(late).feed_last(Config::default());
    same(&said(traces[0].clone()), &said(one().feed(Config::default())[0].clone()));
    assert_eq!(traces.len(), 1);
}

/// A container's start was told as a part, when its creation had no name; what it was part of takes it back.
#[test]
fn the_creation_after_a_trace() {
    let whole = one().feed(Config::default());
    for delay in [5 * SECOND, 15 * SECOND] {
        let late = || {
            let mut s = one();
            s.tick(delay - SECOND);
            s.named_late(only("CreateContainer", delay))
        };
        let told = late().feed(Config::default());
        assert_eq!(told.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Partial, Outcome::Complete]);
        let withdrawn = late().updates(Config::default()).into_iter().find_map(|update| match update {
            Update::Withdrawn { trace_id, pod } => Some((trace_id, pod)),
            _ => None,
        });
        assert_eq!(withdrawn, Some((told[0].trace_id.clone(), "default/web".to_owned())));
        let last = late().feed_last(Config::default());
        assert_eq!(last.len(), 1);
        same(&said(last[0].clone()), &said(whole[0].clone()));
    }
}

/// What is named only when its sandbox is gone still finds its start.
#[test]
fn after_the_removal() {
    let mut s = one();
    let sandbox = [(Field::SandboxId, pod().sandbox)];
    let request: Vec<_> = sandbox.iter().map(|(field, id)| (*field, id.as_str())).collect();
    s.call((10 * SECOND, 10 * SECOND + 9), "StopPodSandbox", &request, &[]);
    s.call((11 * SECOND, 11 * SECOND + 9), "RemovePodSandbox", &request, &[]);
    let traces = s.named_late(only("StartContainer", 15 * SECOND)).feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Partial, Outcome::Complete]);
}

fn unnamed(s: &mut Stream, times: (u64, u64), id: &str, candidates: &[&'static str]) -> CallStart {
    let key = s.begin_call(times.0, "", &[]);
    let opaque = s.items.iter_mut().rev().find_map(|(_, item)| match item {
        Item::Call(CallEvent::Start(start)) => Some(start),
        _ => None,
    });
    let start = opaque.expect("it was begun");
    (start.service, start.source) = (String::new(), MethodSource::Opaque);
    let start = start.clone();
    s.items.pop();
    s.end_call(times.1, key, Ending::Status { code: 0, message: String::new() });
    let end = MonotonicNs(times.1 * 1000);
    let unnamed = Unnamed { start: start.clone(), end, ids: vec![id.to_owned()], candidates: candidates.to_vec() };
    s.items.push((times.1, Item::Call(CallEvent::Unnamed(Box::new(unnamed)))));
    start
}

/// A call that may be several is shown with all of them; one that only asks, whatever it is, is not.
#[test]
fn never() {
    let mut s = one();
    let sandbox = pod().sandbox;
    unnamed(&mut s, (100_000, 110_000), &sandbox, &["StopPodSandbox", "RemovePodSandbox"]);
    unnamed(&mut s, (110_000, 111_000), &sandbox, &["PodSandboxStatus", "PodSandboxStats"]);
    unnamed(&mut s, (112_000, 113_000), &sandbox, &[]);
    unnamed(&mut s, (9 * SECOND, 9 * SECOND + 9), &sandbox, &["StopPodSandbox", "RemovePodSandbox"]);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Complete]);
    let shown: Vec<_> = traces[0].spans.iter().filter(|span| span.stage == "cri.call").collect();
    assert_eq!(shown.len(), 1);
    let call = shown[0].call.as_ref().expect("a call");
    assert_eq!((shown[0].name.as_str(), call.method.as_str()), ("StopPodSandbox or RemovePodSandbox", ""));
    assert_eq!(call.candidates, ["StopPodSandbox", "RemovePodSandbox"]);
    assert_eq!((shown[0].start_ns, shown[0].end_ns, shown[0].self_ns), (100_000_000, Some(110_000_000), 0));
}

#[test]
fn no_more_than_so_many_unnamed() {
    let mut s = one();
    for at in 0..40 {
        unnamed(&mut s, (100_000 + at, 100_000 + at), &pod().sandbox, &["StopPodSandbox", "RemovePodSandbox"]);
    }
    let traces = s.feed(Config::default());
    assert_eq!(traces[0].spans.iter().filter(|span| span.stage == "cri.call").count(), 32);
    assert_eq!(traces[0].quality.notes, ["more_calls: 8"]);
}

/// Two pods with all that kubelet asks of them.
pub(super) fn busy() -> Stream {
    let mut s = Stream::new();
    for (name, digit, pids, offset) in [("one", "1", 1000, 0), ("two", "2", 5000, 30_000)] {
        let pod = Pod::new(name, digit, pids);
        s.offset = offset;
        sandbox(&mut s, &pod);
        let (image, uid) = ((Field::Image, "docker.io/library/busybox:1"), (Field::PodUid, pod.uid.as_str()));
        let of_sandbox = [(Field::SandboxId, pod.sandbox.as_str())];
        s.call((76_500, 76_600), "PodSandboxStatus", &of_sandbox, &[(Field::PodIp, "10.0.0.1")]);
        s.call((77_000, 79_000), "PullImage", &[image, uid], &[(Field::ImageRef, "sha256:b0")]);
        container(&mut s, &pod, 80_000, "first", "/bin/first");
        let (first, init) = (super::dsl::id(&format!("{digit}c2")), pids + 143);
        s.exit(136_000, init, 0);
        let exited = [(Field::State, "2")];
        s.call((137_000, 137_500), "ContainerStatus", &[(Field::ContainerId, &first)], &exited);
        container(&mut s, &pod, 140_000, "app", "/bin/app");
        let app = super::dsl::id(&format!("{digit}c1"));
        let of_app = [(Field::ContainerId, app.as_str())];
        s.call((193_000, 195_000), "ExecSync", &of_app, &[]);
        s.call((196_000, 197_000), "UpdateContainerResources", &of_app, &[]);
        s.exit(4 * SECOND, pids + 123, 1);
        attempt(&mut s, &pod, 5 * SECOND, "app", "/bin/app", 1);
        s.call((9 * SECOND, 9 * SECOND + 500), "StopPodSandbox", &of_sandbox, &[]);
        s.call((10 * SECOND, 10 * SECOND + 500), "RemovePodSandbox", &of_sandbox, &[]);
        s.offset = 0;
    }
    s.tick(60 * SECOND);
    s
}

fn last(stream: Stream) -> Vec<String> {
    let mut said: Vec<String> = stream.feed_last(Config::default()).into_iter().map(said).collect();
    said.sort_unstable();
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever is named late, and however late; a CreateContainer at its reply, which says whose container it is.
    #[test]
    fn in_the_end_it_is_the_same(
        delays in prop::collection::vec(prop::option::of(prop_oneof![0..2_000u64, 0..200_000u64, 0..20 * SECOND]), 40)
    ) {
        let mut delays = delays.into_iter().cycle();
        let late = busy().named_late(|start| {
            let most = if start.method == "CreateContainer" { 8_000 } else { u64::MAX };
            delays.next().flatten().map(|delay| delay.min(most))
        });
        let (late, whole) = (last(late).join("\n"), last(busy()).join("\n"));
        same(&late, &whole);
    }

    /// The same of creations that are named after all that came of them was told, later attempts among it.
    #[test]
    fn whatever_creation_comes_last(
        delays in prop::collection::vec(prop::option::of(prop_oneof![0..200_000u64, 0..20 * SECOND]), 6)
    ) {
        let mut delays = delays.into_iter();
        let late = busy()
            .named_late(|start| (start.method == "CreateContainer").then(|| delays.next()).flatten().flatten());
        same(&last(late).join("\n"), &last(busy()).join("\n"));
    }
}

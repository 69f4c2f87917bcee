//! The engine over recorded kubelet and crictl traffic: the pod starts that the calls alone tell of.

mod capture;

use std::fmt::Write as _;

use capture::{record, records};
use expect_test::{Expect, expect};
use podlapse::engine::{Config, Engine, Update};
use podlapse::ids::MonotonicNs;
use podlapse::record::Event;
use podlapse::trace::Trace;

fn traces(name: &str) -> Vec<Trace> {
    let mut engine = Engine::new(Config::default());
    let mut updates = Vec::new();
    let mut records = records(name);
    let last = records.last().map_or(MonotonicNs(0), |record| record.at);
    records.push(record(MonotonicNs(last.0 + 10_000_000_000), Event::Tick));
    records.iter().for_each(|record| engine.feed(record, &mut updates));
    let finished = updates.into_iter().filter_map(|update| match update {
        Update::Finished(trace) => Some(*trace),
        Update::Started(_) | Update::Stuck(_) | Update::Withdrawn { .. } | Update::Life(_) => None,
        // kubelet asks a runtime that is older for what it does not have, and nothing is wrong with that.
        Update::Node(verdict) => panic!("{verdict:?}"),
    });
    let mut all: Vec<Trace> = finished.collect();
    all.extend(engine.open());
    all
}

fn check(name: &str, expect: Expect) {
    let mut text = String::new();
    for trace in traces(name) {
        assert_eq!(trace.stages.iter().map(|stage| stage.self_ns).sum::<u64>(), trace.total_ns);
        let pod = format!("{}/{}", trace.pod.namespace.unwrap_or_default(), trace.pod.name.unwrap_or_default());
        let _ =
            writeln!(text, "{} {} {pod} {} ms", trace.outcome.name(), trace.kind.name(), trace.total_ns / 1_000_000);
        for span in trace.spans.iter().filter(|span| span.call.is_some()) {
            let code = span.call.as_ref().and_then(|call| call.code).map_or("?".to_owned(), |code| code.to_string());
            let ms = |ns: u64| format!("{}.{}", ns / 1_000_000, ns / 100_000 % 10);
            let end = span.end_ns.map_or("…".to_owned(), ms);
            let container = span.attributes.get("container").map(|name| format!(" {name}")).unwrap_or_default();
            let _ = writeln!(text, "  {} {}..{end} code {code}{container}", span.name, ms(span.start_ns));
        }
        if let Some(verdict) = trace.verdict {
            let message: String = verdict.message.chars().take(70).collect();
            let _ = writeln!(text, "  {} / {}: {message}", verdict.stage, verdict.reason);
        }
        if !trace.quality.notes.is_empty() {
            let _ = writeln!(text, "  {:?}", trace.quality.notes);
        }
    }
    expect.assert_eq(&text);
}

#[test]
fn crictl() {
    check(
        "crictl-1.36-containerd-1.6",
        expect![[r#"
            partial pod default/manual 252 ms
              RunPodSandbox 0.0..65.3 code 0
              CreateContainer 89.3..95.3 code 0 app
              StartContainer 116.9..155.6 code 0 app
              ExecSync 223.3..252.9 code 0 app
              ["entrypoint_not_seen: app"]
        "#]],
    );
}

#[test]
fn kubelet() {
    check(
        "kubelet-1.32-containerd-1.7",
        expect![[r#"
            partial pod default/web-node1 695 ms
              RunPodSandbox 0.0..107.2 code 0
              CreateContainer 111.6..117.9 code 0 prepare
              StartContainer 118.3..157.8 code 0 prepare
              CreateContainer 581.3..587.3 code 0 server
              StartContainer 587.7..637.4 code 0 server
              CreateContainer 640.0..645.1 code 0 peer
              StartContainer 645.5..695.9 code 0 peer
              ["entrypoint_not_seen: prepare", "entrypoint_not_seen: server", "entrypoint_not_seen: peer"]
            failed pod default/bad-node1 163 ms
              RunPodSandbox 0.0..98.5 code 0
              CreateContainer 102.4..108.6 code 0 app
              StartContainer 109.0..163.8 code 2 app
              container.start / entrypoint_not_found: failed to create containerd task: failed to create shim task: OCI runt
            failed container default/bad-node1 69 ms
              CreateContainer 0.0..4.9 code 0 app
              StartContainer 5.4..69.2 code 2 app
              container.start / entrypoint_not_found: failed to create containerd task: failed to create shim task: OCI runt
            failed container default/bad-node1 60 ms
              CreateContainer 0.0..5.4 code 0 app
              StartContainer 5.9..60.4 code 2 app
              container.start / entrypoint_not_found: failed to create containerd task: failed to create shim task: OCI runt
            failed container default/bad-node1 65 ms
              CreateContainer 0.0..5.8 code 0 app
              StartContainer 6.1..65.2 code 2 app
              container.start / entrypoint_not_found: failed to create containerd task: failed to create shim task: OCI runt
        "#]],
    );
}

#[test]
fn old_kubelet() {
    check(
        "kubelet-1.20-containerd-1.6-v1alpha2",
        expect![[r#"
            partial pod default/web-node1 495 ms
              RunPodSandbox 0.0..96.2 code 0
              CreateContainer 102.0..112.4 code 0 prepare
              StartContainer 112.7..171.0 code 0 prepare
              CreateContainer 370.0..376.5 code 0 server
              StartContainer 376.9..434.4 code 0 server
              CreateContainer 437.4..444.7 code 0 peer
              StartContainer 445.0..495.1 code 0 peer
              ["entrypoint_not_seen: prepare", "entrypoint_not_seen: server", "entrypoint_not_seen: peer"]
        "#]],
    );
}

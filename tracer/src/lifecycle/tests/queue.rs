//! Pulls that wait for another pod's.

use expect_test::{Expect, expect};

use super::containerd::Pod;
use super::dsl::Stream;
use crate::cri::Field;
use crate::engine::Config;
use crate::trace::Trace;

fn sandbox(s: &mut Stream, pod: &Pod, times: (u64, u64)) {
    s.call(times, "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
}

fn pull(s: &mut Stream, pod: &Pod, times: (u64, u64)) {
    let image = format!("{}:1", pod.name);
    s.call(times, "PullImage", &[(Field::Image, image.as_str()), (Field::PodUid, &pod.uid)], &[]);
}

/// Four pods whose sandboxes are ready at 10, 11, 12 and 13 ms.
fn pods(s: &mut Stream) -> [Pod; 4] {
    let names = [("web", "1"), ("db", "2"), ("log", "3"), ("job", "4")];
    let pods = names.map(|(name, digit)| Pod::new(name, digit, 1000));
    for (pod, ready) in pods.iter().zip([10_000, 11_000, 12_000, 13_000]) {
        sandbox(s, pod, (0, ready));
    }
    pods
}

fn of<'a>(traces: &'a [Trace], name: &str) -> &'a Trace {
    traces.iter().find(|trace| trace.pod.name.as_deref() == Some(name)).expect("its trace")
}

/// What is at the top of each pod's trace after its sandbox, in absolute µs.
fn check(s: Stream, expect: Expect) {
    let mut text = String::new();
    for trace in s.feed(Config::default()) {
        assert_eq!(trace.stages.iter().map(|stage| stage.self_ns).sum::<u64>(), trace.total_ns);
        text.push_str(trace.pod.name.as_deref().unwrap_or("?"));
        for span in trace.spans.iter().filter(|span| span.stage != "sandbox") {
            let end = span.end_ns.map_or("…".to_owned(), |end| (end / 1000).to_string());
            let image = span.attributes.get("image").map_or(String::new(), |image| format!(" {image}"));
            text.push_str(&format!(", {}{image} {}..{end}", span.stage, span.start_ns / 1000));
        }
        text.push('\n');
    }
    expect.assert_eq(&text);
}

#[test]
fn one_after_another() {
    let mut s = Stream::new();
    let [web, db, log, job] = pods(&mut s);
    pull(&mut s, &web, (10_500, 20_000));
    pull(&mut s, &db, (20_100, 30_000));
    pull(&mut s, &log, (30_100, 40_000));
    // Long after.
    pull(&mut s, &job, (141_000, 150_000));
    check(
        s,
        expect![[r#"
            web, kubelet.gap 10000..10500, image.pull web:1 10500..20000, kubelet.gap 20000..…
            db, kubelet.queue web:1 11000..20000, kubelet.gap 20000..20100, image.pull db:1 20100..30000, kubelet.gap 30000..…
            log, kubelet.queue web:1 12000..20000, kubelet.gap 20000..20100, kubelet.queue db:1 20100..30000, kubelet.gap 30000..30100, image.pull log:1 30100..40000, kubelet.gap 40000..…
            job, kubelet.gap 13000..141000, image.pull job:1 141000..150000
        "#]],
    );
}

#[test]
fn before_the_sandbox_was_ready() {
    let mut s = Stream::new();
    let [web, db, ..] = pods(&mut s);
    sandbox(&mut s, &Pod::new("late", "5", 1000), (0, 25_000));
    pull(&mut s, &web, (10_500, 20_000));
    pull(&mut s, &db, (20_100, 21_000));
    pull(&mut s, &Pod::new("late", "5", 1000), (25_500, 26_000));
    let traces = s.feed(Config::default());
    let late = of(&traces, "late");
    assert!(late.spans.iter().all(|span| span.stage != "kubelet.queue"));
}

/// Once two were open at once, the connection's pulls do not wait for each other.
#[test]
fn in_parallel() {
    let mut s = Stream::new();
    let [web, db, log, job] = pods(&mut s);
    pull(&mut s, &web, (10_500, 20_000));
    pull(&mut s, &db, (15_000, 30_000));
    pull(&mut s, &log, (30_100, 40_000));
    let mut open = s.clone();
    pull(&mut s, &job, (40_100, 50_000));
    check(
        s,
        expect![[r#"
            web, kubelet.gap 10000..10500, image.pull web:1 10500..20000, kubelet.gap 20000..…
            db, kubelet.gap 11000..15000, image.pull db:1 15000..30000, kubelet.gap 30000..…
            log, kubelet.gap 12000..30100, image.pull log:1 30100..40000, kubelet.gap 40000..…
            job, kubelet.gap 13000..40100, image.pull job:1 40100..50000
        "#]],
    );

    // One whose end is not seen may still be open.
    open = open.without(|at, _| at == 15_000 || at == 30_000);
    open.begin_call(20_500, "PullImage", &[(Field::Image, "db:1"), (Field::PodUid, &db.uid)]);
    let traces = open.feed(Config::default());
    let log = of(&traces, "log");
    assert!(log.spans.iter().all(|span| span.stage != "kubelet.queue"));
}

/// A pod's own pulls and those that name no pod are nothing that it waits behind.
#[test]
fn own_or_unnamed() {
    let mut s = Stream::new();
    let [web, db, ..] = pods(&mut s);
    s.call((5_000, 12_000), "PullImage", &[(Field::Image, "tool:1")], &[]);
    pull(&mut s, &web, (12_500, 20_000));
    pull(&mut s, &web, (20_500, 30_000));
    pull(&mut s, &db, (30_500, 40_000));
    pull(&mut s, &web, (40_500, 50_000));
    check(
        s,
        expect![[r#"
        web, kubelet.gap 10000..12500, image.pull web:1 12500..20000, kubelet.gap 20000..20500, image.pull web:1 20500..30000, kubelet.gap 30000..30500, kubelet.queue db:1 30500..40000, kubelet.gap 40000..40500, image.pull web:1 40500..50000
        db, kubelet.gap 11000..12500, kubelet.queue web:1 12500..20000, kubelet.gap 20000..20500, kubelet.queue web:1 20500..30000, kubelet.gap 30000..30500, image.pull db:1 30500..40000, kubelet.gap 40000..…
        log, kubelet.gap 12000..…
        job, kubelet.gap 13000..…
    "#]],
    );
}

#[test]
fn on_another_connection() {
    let mut s = Stream::new();
    let [web, db, ..] = pods(&mut s);
    pull(&mut s, &web, (10_500, 20_000));
    s.offset = 1;
    pull(&mut s, &db, (20_100, 30_000));
    check(
        s,
        expect![[r#"
        web, kubelet.gap 10000..10500, image.pull web:1 10500..20000, kubelet.gap 20000..…
        db, kubelet.gap 11000..20101, image.pull db:1 20101..30001
        log, kubelet.gap 12000..…
        job, kubelet.gap 13000..…
    "#]],
    );
}

/// After a StartContainer kubelet may wait for that container: an init container's end, a hook.
#[test]
fn after_a_container_was_started() {
    let mut s = Stream::new();
    let [web, db, ..] = pods(&mut s);
    let id = super::dsl::id("1c");
    let name = (Field::ContainerName, "setup");
    s.call(
        (10_200, 10_300),
        "CreateContainer",
        &[(Field::SandboxId, &web.sandbox), name],
        &[(Field::ContainerId, &id)],
    );
    s.call((10_300, 10_400), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    pull(&mut s, &db, (12_500, 20_000));
    pull(&mut s, &web, (20_500, 30_000));
    let traces = s.feed(Config::default());
    let web = of(&traces, "web");
    assert!(web.spans.iter().any(|span| span.stage == "image.pull"));
    assert!(web.spans.iter().all(|span| span.stage != "kubelet.queue"));
}

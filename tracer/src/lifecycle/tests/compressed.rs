//! Clients that compress their messages: what the kernel shows says whose the calls are.

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, sandbox};
use super::dsl::Stream;
use crate::cri::{Ending, Field};
use crate::engine::Config;
use crate::trace::Trace;

fn pod() -> Pod {
    Pod::new("web", "1", 1000)
}

fn feed(s: Stream) -> Vec<Trace> {
    s.compressed(|_| true).feed_last(Config::default())
}

/// Pods, the spans of their calls, their containers, and what is known of the whole.
fn said(traces: &[Trace]) -> String {
    let mut text = String::new();
    for trace in traces {
        let pod = trace.pod.uid.as_ref().map_or("?", |uid| &uid.as_str()[..1]);
        text += &format!("pod {pod} {:?} {}\n", trace.outcome, trace.total_ns / 1000);
        for span in trace.spans.iter().filter(|span| span.parent.is_none()) {
            let end = span.end_ns.map_or("open".to_owned(), |end| (end / 1000).to_string());
            text += &format!("{} {} to {end}\n", span.stage, span.start_ns / 1000);
        }
        let containers = trace.containers.iter().flat_map(|it| &it.id).map(|id| id.as_str());
        let ids = trace.sandbox.id.iter().map(|id| id.0.as_str()).chain(containers);
        text += &format!("{}\n", ids.map(|id| id.trim_end_matches('0')).collect::<Vec<_>>().join(" "));
        trace.quality.notes.iter().for_each(|note| text += &format!("{note}\n"));
    }
    text
}

fn check(traces: &[Trace], expect: Expect) {
    expect.assert_eq(&said(traces));
}

/// One pod after the other: each call has its pod.
#[test]
fn a_start_of_two_containers() {
    let trace = |host_network| {
        let (mut s, pod) = (Stream::new(), Pod { host_network, ..pod() });
        sandbox(&mut s, &pod);
        container(&mut s, &pod, 80_000, "first", "/bin/first");
        container(&mut s, &pod, 140_000, "app", "/bin/app");
        s.tick(20_000_000);
        feed(s)
    };
    let (plugins, host) = (trace(false), trace(true));
    check(
        &plugins,
        expect![[r#"
        pod 1 Partial 192000
        sandbox 0 to 76000
        kubelet.gap 76000 to 80000
        container.create 80000 to 88000
        kubelet.gap 88000 to 90000
        container.start 90000 to 132000
        kubelet.gap 132000 to 140000
        container.create 140000 to 148000
        kubelet.gap 148000 to 150000
        container.start 150000 to 192000
        1a 1c2 1c1
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
    "#]],
    );
    // Without plugins nobody says its name.
    assert_eq!((plugins[0].pod.full_name(), host[0].pod.full_name()), ("default/web".into(), "?/?".into()));
    assert_eq!(said(&plugins), said(&host));
}

/// Two at once: no reply is given to either, and both are seen. The last one that came before their containers ends both.
#[test]
fn two_starts_at_once() {
    let mut s = Stream::new();
    for (pod, offset) in [(pod(), 0), (Pod::new("db", "2", 5000), 2_000)] {
        s.offset = offset;
        sandbox(&mut s, &pod);
        container(&mut s, &pod, 80_000, "app", "/bin/app");
    }
    s.offset = 0;
    s.tick(20_000_000);
    check(
        &feed(s),
        expect![[r#"
        pod 1 Partial 114000
        sandbox 0 to 75000
        kubelet.gap 75000 to 87990
        container.start.shim 87990 to 90000
        container.start.shim.connect 90000 to 92100
        container.start.task.request 92100 to 92200
        container.start.rootfs 92200 to 92400
        kubelet.gap 92400 to 92900
        container.start.oci.create 92900 to 108000
        container.start.oci.fifo_wait 108000 to 110900
        container.start.oci.start 110900 to 114000
        container.start.task.reply 114000 to 114000
        container.exec 114000 to 114000
        1a 1c1
        begins_in_the_middle
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
        call_not_seen: StartContainer of ?
        pod 2 Partial 114000
        sandbox 0 to 73000
        kubelet.gap 73000 to 87990
        container.start.shim 87990 to 90000
        container.start.shim.connect 90000 to 92100
        container.start.task.request 92100 to 92200
        container.start.rootfs 92200 to 92400
        kubelet.gap 92400 to 92900
        container.start.oci.create 92900 to 108000
        container.start.oci.fifo_wait 108000 to 110900
        container.start.oci.start 110900 to 114000
        container.start.task.reply 114000 to 114000
        container.exec 114000 to 114000
        2a 2c1
        begins_in_the_middle
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
        call_not_seen: StartContainer of ?
    "#]],
    );
}

/// A call of another client that has no name may be the cause as well.
#[test]
fn beside_a_call_without_a_name() {
    let mut s = Stream::new();
    let other = s.begin_call(0, "", &[]);
    sandbox(&mut s, &pod());
    s.end_call(79_000, other, Ending::NoStatus);
    container(&mut s, &pod(), 80_000, "app", "/bin/app");
    s.tick(20_000_000);
    check(
        &feed(s),
        expect![[r#"
        pod 1 Partial 129000
        sandbox 0 to 73000
        kubelet.gap 73000 to 77000
        container.create 77000 to 85000
        kubelet.gap 85000 to 87000
        container.start 87000 to 129000
        1a 1c1
        begins_in_the_middle
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
    "#]],
    );
}

/// A readable start beside a compressed one keeps its own.
#[test]
fn beside_a_client_that_does_not() {
    let mut s = Stream::new();
    sandbox(&mut s, &pod());
    container(&mut s, &pod(), 80_000, "app", "/bin/app");
    s.offset = 2_000;
    let other = Pod::new("db", "2", 5000);
    sandbox(&mut s, &other);
    container(&mut s, &other, 80_000, "app", "/bin/app");
    s.offset = 0;
    s.tick(20_000_000);
    let traces = s.compressed(|start| start.key.conn.0 == 1).feed_last(Config::default());
    check(
        &traces,
        expect![[r#"
        pod 2 Complete 132000
        sandbox 0 to 76000
        kubelet.gap 76000 to 80000
        container.create 80000 to 88000
        kubelet.gap 88000 to 90000
        container.start 90000 to 132000
        2a 2c1
        pod 1 Partial 132000
        sandbox 0 to 76000
        kubelet.gap 76000 to 80000
        container.create 80000 to 88000
        kubelet.gap 88000 to 90000
        container.start 90000 to 132000
        1a 1c1
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
    "#]],
    );
}

#[test]
fn a_failure() {
    let (mut s, pod) = (Stream::new(), pod());
    s.cni((3_100, 30_000), super::dsl::RUNTIME, pod.pids + 2, "bridge", &pod.env("ADD"));
    s.failing_call((0, 76_000), "RunPodSandbox", &pod.request(), "failed to set up the network");
    // One that did nothing that could be seen is of nobody.
    s.failing_call((80_000, 81_000), "RunPodSandbox", &pod.request(), "no");
    s.call((90_000, 91_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.tick(20_000_000);
    check(
        &feed(s),
        expect![[r#"
        pod 1 Failed 76000
        sandbox 0 to 76000
        1a
        messages_not_read: the client compresses them; of its calls those are shown that the kernel's signs tell apart
    "#]],
    );
}

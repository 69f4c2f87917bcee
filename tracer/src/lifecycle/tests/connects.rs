//! kubelet's connects to a pod.

use super::containerd::{Pod, container, sandbox};
use super::dsl::Stream;
use super::render;
use crate::cri::Field;
use crate::engine::Config;
use crate::ids::MonotonicNs;
use crate::record::{Connect, Event};
use crate::trace::Trace;

const KUBELET: u32 = 50;
const ADDRESS: &str = "10.88.0.7";

/// A pod whose second container is created after the connects of these tests; its start ends at 252 000.
fn pod(s: &mut Stream, name: &'static str, digit: &str, pids: u32) -> Pod {
    let pod = Pod::new(name, digit, pids);
    sandbox(s, &pod);
    container(s, &pod, 80_000, "app", "/bin/app");
    container(s, &pod, 200_000, "log", "/bin/log");
    pod
}

fn status(s: &mut Stream, at: u64, pod: &Pod, address: &str) {
    let request = [(Field::SandboxId, pod.sandbox.as_str())];
    s.call((at, at + 100), "PodSandboxStatus", &request, &[(Field::PodIp, address)]);
}

fn connect_by(s: &mut Stream, pid: u32, times: (u64, u64), to: (&str, u32), accepted: bool) {
    let (start, address) = (MonotonicNs((times.0 + s.offset) * 1000), to.0.parse().unwrap());
    s.record(times.1, pid, Event::Connect(Connect { start, address, port: to.1, accepted }));
}

fn connect(s: &mut Stream, times: (u64, u64), to: (&str, u32), accepted: bool) {
    connect_by(s, KUBELET, times, to, accepted);
}

fn traces(mut s: Stream) -> Vec<Trace> {
    s.tick(20_000_000);
    s.feed(Config::default())
}

/// The connects in a trace, their attributes after them.
fn probes(trace: &Trace) -> Vec<String> {
    let text = render::trace(trace);
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("probe.connect"));
    let spans = trace.spans.iter().filter(|span| span.stage == "probe.connect");
    let both = lines.zip(spans).map(|(line, span)| {
        assert_eq!(span.parent, None);
        format!("{line} refused {}", span.attributes["refused"])
    });
    both.collect()
}

fn probed(s: Stream) -> Vec<String> {
    let traces = traces(s);
    assert!(traces[0].quality.notes.is_empty(), "{:?}", traces[0].quality);
    probes(&traces[0])
}

#[test]
fn refused_then_accepted() {
    let mut s = Stream::new();
    let pod = pod(&mut s, "web", "1", 1000);
    status(&mut s, 77_000, &pod, ADDRESS);
    // Before the entrypoint runs: another had the address.
    connect(&mut s, (100_000, 100_010), (ADDRESS, 8080), true);
    connect(&mut s, (140_000, 140_010), (ADDRESS, 8080), false);
    connect(&mut s, (150_000, 150_010), (ADDRESS, 8080), false);
    connect(&mut s, (160_000, 160_010), (ADDRESS, 8080), true);
    // The next period; another port; to the node; another client, who is never let in.
    connect(&mut s, (170_000, 170_010), (ADDRESS, 8080), false);
    connect(&mut s, (180_000, 180_010), (ADDRESS, 9090), true);
    connect(&mut s, (190_000, 190_010), ("10.88.0.1", 443), true);
    connect_by(&mut s, 51, (195_000, 195_010), (ADDRESS, 8080), false);
    let with = traces(s).remove(0);
    expect_test::expect![[r#"
        probe.connect (port 8080) 140000..160010 self 0 pid 50 refused 2
        probe.connect (port 9090) 180000..180010 self 0 pid 50 refused 0"#]]
    .assert_eq(&probes(&with).join("\n"));
}

/// Nothing waits for a probe: who owns the time is as without it, though it ends after all calls around it.
#[test]
fn it_owns_no_time() {
    let stages = |probe: bool| {
        let mut s = Stream::new();
        let pod = pod(&mut s, "web", "1", 1000);
        status(&mut s, 77_000, &pod, ADDRESS);
        if probe {
            connect(&mut s, (120_000, 120_010), (ADDRESS, 8080), false);
            connect(&mut s, (230_000, 251_000), (ADDRESS, 8080), true);
        }
        let trace = traces(s).remove(0);
        assert_eq!(probes(&trace).len(), usize::from(probe));
        let stages = trace.stages.iter().filter(|total| total.stage != "probe.connect");
        let own: Vec<_> = stages.map(|total| (total.stage.clone(), total.self_ns)).collect();
        assert_eq!(own.iter().map(|(_, own)| own).sum::<u64>(), trace.total_ns);
        (own, trace.named_ns, trace.total_ns)
    };
    assert_eq!(stages(true), stages(false));
}

#[test]
fn an_address_that_is_told_later() {
    let mut s = Stream::new();
    let pod = pod(&mut s, "web", "1", 1000);
    connect(&mut s, (140_000, 140_010), ("fd00::7", 8080), false);
    connect(&mut s, (145_000, 145_010), ("fd00::8", 8080), false);
    connect(&mut s, (150_000, 150_010), ("fd00::7", 8080), true);
    status(&mut s, 160_000, &pod, "fd00::7");
    assert_eq!(probed(s), ["probe.connect (port 8080) 140000..150010 self 0 pid 50 refused 1"]);
}

#[test]
fn what_is_not_shown() {
    let none = |change: fn(&mut Stream, &Pod)| {
        let mut s = Stream::new();
        let pod = pod(&mut s, "web", "1", 1000);
        change(&mut s, &pod);
        assert_eq!(probed(s), [""; 0]);
    };
    // The address stays unknown, or is another.
    none(|s, _| connect(s, (140_000, 140_010), (ADDRESS, 8080), true));
    none(|s, pod| {
        status(s, 77_000, pod, "10.88.0.8");
        connect(s, (140_000, 140_010), (ADDRESS, 8080), true);
    });
    // Accepted after the end, or never.
    none(|s, pod| {
        status(s, 77_000, pod, ADDRESS);
        connect(s, (140_000, 140_010), (ADDRESS, 8080), false);
        connect(s, (300_000, 300_010), (ADDRESS, 8080), true);
    });
    none(|s, pod| {
        status(s, 77_000, pod, ADDRESS);
        connect(s, (140_000, 140_010), (ADDRESS, 8080), false);
    });
}

/// On the node's network the address is everybody's.
#[test]
fn the_nodes_own_network() {
    let mut s = Stream::new();
    let pod = Pod { host_network: true, ..Pod::new("host", "3", 3000) };
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    container(&mut s, &pod, 200_000, "log", "/bin/log");
    status(&mut s, 77_000, &pod, ADDRESS);
    connect(&mut s, (140_000, 140_010), (ADDRESS, 8080), true);
    assert_eq!(probed(s), [""; 0]);
}

/// Two pods: each with its own address; with the same one; with one that the other gave back.
#[test]
fn two_pods() {
    let of_both = |addresses: [&str; 2], stop: bool| {
        let mut s = Stream::new();
        let one = pod(&mut s, "one", "1", 1000);
        status(&mut s, 77_000, &one, addresses[0]);
        let two = pod(&mut s, "two", "2", 3000);
        status(&mut s, 77_500, &two, addresses[1]);
        if stop {
            s.call((135_000, 135_100), "StopPodSandbox", &[(Field::SandboxId, &one.sandbox)], &[]);
        }
        connect(&mut s, (140_000, 140_010), (ADDRESS, 8080), false);
        connect(&mut s, (150_000, 150_010), (ADDRESS, 8080), true);
        let traces = traces(s);
        ["one", "two"].map(|name| {
            let its = traces.iter().filter(|trace| trace.pod.name.as_deref() == Some(name));
            its.map(|trace| probes(trace).len()).sum::<usize>()
        })
    };
    assert_eq!(of_both([ADDRESS, "10.88.0.8"], false), [1, 0]);
    assert_eq!(of_both(["10.88.0.8", ADDRESS], false), [0, 1]);
    assert_eq!(of_both([ADDRESS, ADDRESS], false), [0, 0]);
    assert_eq!(of_both([ADDRESS, ADDRESS], true), [0, 1]);
}

/// Many ports, and many connects to addresses of nobody.
#[test]
fn bounds() {
    let mut s = Stream::new();
    let web = pod(&mut s, "web", "1", 1000);
    status(&mut s, 77_000, &web, ADDRESS);
    for port in 1..=40 {
        connect(&mut s, (140_000 + u64::from(port), 141_000), (ADDRESS, port), true);
    }
    let trace = traces(s).remove(0);
    assert_eq!((probes(&trace).len(), trace.quality.notes), (32, vec!["more_probed_ports".to_owned()]));

    let mut s = Stream::new();
    let web = pod(&mut s, "web", "1", 1000);
    for port in 1..=258 {
        connect(&mut s, (140_000 + u64::from(port), 141_000 + u64::from(port)), (ADDRESS, port), true);
    }
    status(&mut s, 150_000, &web, "10.88.0.8");
    let trace = traces(s).remove(0);
    assert_eq!((probes(&trace).len(), trace.quality.evicted), (0, 2));
}

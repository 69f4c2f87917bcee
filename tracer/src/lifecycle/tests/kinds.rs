//! Kinds of containers and of pods.

use super::containerd::{Pod, container, network, oci, sandbox};
use super::dsl::{RUNTIME, Stream, id};
use crate::cri::Field;
use crate::engine::Config;
use crate::record::Sys;
use crate::trace::{ContainerKind, Outcome, Trace};

const NEWUSER: u64 = 0x1000_0000;
const NEWNET: u64 = 0x4000_0000;
const BIND: u64 = 0x1000;

fn kinds(mut s: Stream) -> Vec<ContainerKind> {
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces[0].outcome, Outcome::Complete);
    traces[0].containers.iter().map(|container| container.kind).collect()
}

/// `first`, then after `asked` (when somebody asked for its status) `second` at 200 ms.
fn two(exit: Option<(u64, u8)>, asked: Option<(u64, &str)>) -> Stream {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "first", "/bin/first");
    if let Some((at, status)) = exit {
        s.exit(at, 1143, status);
    }
    let first = id("1c2");
    if let Some((at, code)) = asked {
        let reply = [(Field::ContainerId, first.as_str()), (Field::State, "2"), (Field::ExitCode, code)];
        s.call((at, at + 100), "ContainerStatus", &[(Field::ContainerId, &first)], &reply);
    }
    container(&mut s, &pod, 200_000, "second", "/bin/second");
    s
}

#[test]
fn an_init_container_is_waited_for() {
    use ContainerKind::{Init, Unknown};
    assert_eq!(kinds(two(Some((150_000, 0)), Some((190_000, "0")))), [Init, Unknown]);
    // Nobody asked: an app container that was done early, and whose neighbour came in its turn.
    assert_eq!(kinds(two(Some((150_000, 0)), None)), [Unknown, Unknown]);
    // Asked too late.
    assert_eq!(kinds(two(Some((150_000, 0)), Some((210_000, "0")))), [Unknown, Unknown]);
    // It failed: nothing waits for that.
    assert_eq!(kinds(two(Some((150_000, 1)), Some((190_000, "1")))), [Unknown, Unknown]);
    // A restartable init container runs on; the CRI does not tell it from an app.
    assert_eq!(kinds(two(None, None)), [Unknown, Unknown]);
}

fn trace(mut s: Stream) -> Trace {
    s.tick(9_000_000);
    s.feed(Config::default()).remove(0)
}

/// A pod whose processes share one pid namespace: the container joins it instead of making its own.
#[test]
fn a_shared_process_namespace() {
    let mut s = Stream::new();
    let pod = Pod::new("shared", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    const NEWPID: u64 = 0x2000_0000;
    s.sys((100_250, 100_280), (1122, 1122), Sys::Setns, NEWPID, [""; 3]);
    let trace = trace(s);
    assert_eq!(trace.outcome, Outcome::Complete);
    let pid = |namespaces: Option<tracer_ebpf::Namespaces>| namespaces.map(|n| n.pid);
    assert_eq!(pid(trace.containers[0].namespaces), pid(trace.sandbox.namespaces));
    assert_eq!(trace.containers[0].pid.map(|pid| pid.0), Some(1123));
}

/// containerd 2.x: the pod's network namespace is made by a child that is cloned into a user namespace of its own.
#[test]
fn a_user_namespace() {
    let mut s = Stream::new();
    let pod = Pod::new("user", "1", 1000);
    s.call((0, 76_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
    network(&mut s, &pod);
    let netns = "/var/run/netns/cni-1";
    s = s.without(|at, item| at < 2_000 && at > 0 && matches!(item, super::dsl::Item::Record(_)));
    Stream::clone(&mut s, 1_100, RUNTIME, 1_950, NEWUSER | NEWNET | 0x11, 1);
    s.sys((1_600, 1_700), (RUNTIME, 1_900), Sys::Mount, BIND, ["/proc/1950/ns/net", netns, "none"]);
    s.record(
        1_800,
        1_950,
        crate::record::Event::Exit(crate::record::Exit { status: None, signal: Some(9), comm: String::new() }),
    );
    oci(&mut s, &pod, 44_000, &pod.sandbox, pod.pids + 20, "/pause", true);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    let trace = trace(s);
    assert_eq!(trace.outcome, Outcome::Complete);
    let netns: Vec<_> = trace.spans.iter().filter(|span| span.stage == "sandbox.netns").collect();
    assert_eq!(
        netns.iter().map(|span| (span.start_ns, span.end_ns)).collect::<Vec<_>>(),
        [(1_100_000, Some(1_700_000))]
    );
    assert!(trace.spans.iter().any(|span| span.stage == "sandbox.cni.bridge"));
}

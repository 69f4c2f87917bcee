//! What is wrong with the node: when it is told, and when it is over.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::containerd::{Pod, sandbox};
use super::dsl::{RUNTIME, Stream};
use crate::cri::{CallEvent, CallKey, Ending, Field, Value};
use crate::engine::{Config, Update};
use crate::ids::{ConnId, Tgid};
use crate::record::{Event, Exit, Role, Socket, SocketOp, Sys};
use crate::trace::{NodeVerdict, seconds};

const SECOND: u64 = 1_000_000;

/// What is told of the node, with a tick each 100 ms up to `until` seconds.
fn told(mut s: Stream, until: u64) -> Vec<NodeVerdict> {
    (0..=until * 10).for_each(|tenth| s.tick(tenth * SECOND / 10));
    let updates = s.updates(Config::default()).into_iter();
    updates.filter_map(|update| if let Update::Node(verdict) = update { Some(*verdict) } else { None }).collect()
}

fn check(s: Stream, until: u64, expect: Expect) {
    let mut out = String::new();
    for verdict in told(s, until) {
        let NodeVerdict { since, at, reason, message, evidence, open, .. } = &verdict;
        assert!(crate::diagnose::reason(reason).is_some(), "{reason} has no page");
        let state = if *open { "goes on" } else { "is over" };
        let _ = writeln!(out, "{} {reason} {state} since {}: {message}", seconds(at.0), seconds(since.0));
        for sentence in evidence.iter().filter(|_| *open) {
            let _ = writeln!(out, "  {sentence}");
        }
    }
    expect.assert_eq(&out);
}

/// The lists that kubelet asks for each second, answered within 5 ms.
fn polls(s: &mut Stream, seconds: impl Iterator<Item = u64>) {
    for second in seconds {
        for (method, after) in [("ListPodSandbox", 0), ("ListContainers", 20_000)] {
            let at = second * SECOND + 100_000 + after;
            s.call((at, at + 5_000), method, &[], &[]);
        }
    }
}

fn ends(s: &mut Stream, at: u64, key: CallKey, code: u32, message: &str) {
    s.end_call(at, key, Ending::Status { code, message: message.to_owned() });
}

#[test]
fn a_healthy_node() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    polls(&mut s, 0..60);
    sandbox(&mut s, &pod);
    // A pull, a stop with its grace, an exec and a stream of events take as long as they take.
    s.call((SECOND, 50 * SECOND), "PullImage", &[(Field::Image, "big")], &[]);
    s.call((SECOND, 31 * SECOND), "StopContainer", &[(Field::ContainerId, &pod.sandbox)], &[]);
    s.call((SECOND, 50 * SECOND), "ExecSync", &[(Field::ContainerId, &pod.sandbox)], &[]);
    s.begin_call(SECOND, "GetContainerEvents", &[]);
    check(s, 60, expect![""]);
}

/// A list is stuck behind a call that hangs: told after 10 s, 20 s, 40 s, 80 s and 3 min.
#[test]
fn a_list_hangs() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    sandbox(&mut s, &pod);
    polls(&mut s, 0..5);
    s.begin_call(4 * SECOND, "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)]);
    let list = s.begin_call(5 * SECOND, "ListContainers", &[]);
    ends(&mut s, 200 * SECOND, list, 0, "");
    polls(&mut s, 201..205);
    check(
        s,
        205,
        expect![[r#"
            15.0 s cri_list_slow goes on since 5.0 s: ListContainers is not answered for 10.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.8 polls a second in the last 15.0 s, 1 of them open
              the last answer, 10.8 s ago, to ListContainers, took 5.0 ms
              StopPodSandbox of default/web is open for 11.0 s
            25.0 s cri_list_slow goes on since 5.0 s: ListContainers is not answered for 20.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.5 polls a second in the last 25.0 s, 1 of them open
              the last answer, 20.8 s ago, to ListContainers, took 5.0 ms
              StopPodSandbox of default/web is open for 21.0 s
            45.0 s cri_list_slow goes on since 5.0 s: ListContainers is not answered for 40.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.3 polls a second in the last 45.0 s, 1 of them open
              the last answer, 40.8 s ago, to ListContainers, took 5.0 ms
              StopPodSandbox of default/web is open for 41.0 s
            85.0 s cri_list_slow goes on since 5.0 s: ListContainers is not answered for 80.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.0 polls a second in the last 60.0 s, 1 of them open
              the last answer, 80.8 s ago, to ListContainers, took 5.0 ms
              StopPodSandbox of default/web is open for 81.0 s
            185.0 s cri_list_slow goes on since 5.0 s: ListContainers is not answered for 180.0 s; that is past the 3 min after which kubelet's PLEG is unhealthy
              0.0 polls a second in the last 60.0 s, 1 of them open
              the last answer, 180.8 s ago, to ListContainers, took 5.0 ms
              StopPodSandbox of default/web is open for 181.0 s
            202.0 s cri_list_slow is over since 5.0 s: ListContainers is answered within 5.0 ms, after 197.0 s; the slowest answer took 195.0 s
        "#]],
    );
}

/// The client gives up, and asks again: it is the same story.
#[test]
fn a_list_that_is_given_up() {
    let mut s = Stream::new();
    for n in 0..4 {
        let list = s.begin_call(5 * SECOND + n * 5 * SECOND, "ListPodSandbox", &[]);
        s.end_call((5 + n * 5 + 4) * SECOND, list, Ending::ResetByClient(8));
    }
    check(
        s,
        100,
        expect![[r#"
            15.0 s cri_list_slow goes on since 5.0 s: ListPodSandbox is not answered for 10.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.2 polls a second in the last 15.0 s, 1 of them open
              no other call is open
            25.0 s cri_list_slow goes on since 5.0 s: ListPodSandbox is not answered for 20.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.2 polls a second in the last 25.0 s, 0 of them open
              no other call is open
            45.0 s cri_list_slow goes on since 5.0 s: ListPodSandbox is not answered for 40.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.1 polls a second in the last 45.0 s, 0 of them open
              no other call is open
            85.0 s cri_list_slow is over since 5.0 s: nobody asks any more, after 80.0 s
        "#]],
    );
}

/// One that asks once, and does not wait, is no story.
#[test]
fn one_that_does_not_wait() {
    let mut s = Stream::new();
    for minute in 0..3 {
        let list = s.begin_call((5 + minute * 100) * SECOND, "ListPodSandbox", &[]);
        s.end_call((6 + minute * 100) * SECOND, list, Ending::ResetByClient(8));
    }
    check(s, 300, expect![""]);
}

/// An answer that came late; its name came later still, with its own times.
#[test]
fn a_late_name() {
    let mut s = Stream::new();
    polls(&mut s, 0..1);
    s.call((2 * SECOND, 14 * SECOND), "ListContainers", &[], &[]);
    let s = s.named_late(|start| (start.at.0 == 2 * SECOND * 1000).then_some(20 * SECOND));
    check(
        s,
        24,
        expect![[r#"
            22.0 s cri_list_slow goes on since 2.0 s: ListContainers took 12.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.2 polls a second in the last 22.0 s, 0 of them open
              the last answer, 8.0 s ago, to ListContainers, took 12.0 s
              the slowest answer since then took 12.0 s
              no other call is open
        "#]],
    );
}

/// A streamed list is answered by its first message.
#[test]
fn a_streamed_list() {
    let mut s = Stream::new();
    let list = s.begin_call(SECOND, "StreamContainers", &[]);
    s.reply(SECOND + 5_000, list, Vec::new());
    s.begin_call(2 * SECOND, "StreamPodSandboxes", &[]);
    check(
        s,
        13,
        expect![[r#"
            12.0 s cri_list_slow goes on since 2.0 s: StreamPodSandboxes is not answered for 10.0 s; kubelet's PLEG is unhealthy after 3 min of that
              0.2 polls a second in the last 12.0 s, 1 of them open
              the last answer, 10.9 s ago, to StreamContainers, took 5.0 ms
              no other call is open
        "#]],
    );
}

/// All calls are slow together.
fn slow(s: &mut Stream) {
    for n in 0..20 {
        let at = (5 + 2 * n) * SECOND;
        let method = ["ListPodSandbox", "Status", "ListImages", "ListContainers"][n as usize % 4];
        s.call((at, at + 1_500_000), method, &[], &[]);
    }
}

#[test]
fn all_are_slow() {
    let mut s = Stream::new();
    slow(&mut s);
    polls(&mut s, 46..80);
    check(
        s,
        80,
        expect![[r#"
            17.0 s runtime_slow goes on since 5.0 s: 6 of the last 6 calls that only ask took a second or more, of 4 methods; it goes on for 12.0 s
              ListContainers took up to 1.5 s
              ListImages took up to 1.5 s
              ListPodSandbox took up to 1.5 s
              Status took up to 1.5 s
            29.0 s runtime_slow goes on since 5.0 s: 12 of the last 12 calls that only ask took a second or more, of 4 methods; it goes on for 24.0 s
              ListContainers took up to 1.5 s
              ListImages took up to 1.5 s
              ListPodSandbox took up to 1.5 s
              Status took up to 1.5 s
            53.0 s runtime_slow is over since 5.0 s: most calls are answered within a second, after 48.0 s
        "#]],
    );
}

/// The runtime waits for the disk meanwhile, in two threads.
#[test]
fn a_slow_disk() {
    let mut s = Stream::new();
    slow(&mut s);
    for n in 0..20 {
        let at = (5 + 2 * n) * SECOND;
        s.sys((at, at + 1_000_000), (RUNTIME, 101), Sys::Fdatasync, 3, [""; 3]);
        s.sys((at + 500_000, at + 1_400_000), (RUNTIME, 102), Sys::Umount2, 0, ["/run/x", "", ""]);
        // Another process's wait is its own.
        s.sys((at + 1_400_000, at + 1_900_000), (4711, 4711), Sys::Fsync, 3, [""; 3]);
    }
    check(
        s,
        45,
        expect![[r#"
        17.0 s runtime_slow_disk goes on since 5.0 s: 6 of the last 6 calls that only ask took a second or more, of 4 methods; it goes on for 12.0 s
          a thread of the runtime was in fsync, fdatasync, syncfs or umount2 for 70 % of the last 12.0 s
          ListContainers took up to 1.5 s
          ListImages took up to 1.5 s
          ListPodSandbox took up to 1.5 s
          Status took up to 1.5 s
        29.0 s runtime_slow_disk goes on since 5.0 s: 12 of the last 12 calls that only ask took a second or more, of 4 methods; it goes on for 24.0 s
          a thread of the runtime was in fsync, fdatasync, syncfs or umount2 for 70 % of the last 24.0 s
          ListContainers took up to 1.5 s
          ListImages took up to 1.5 s
          ListPodSandbox took up to 1.5 s
          Status took up to 1.5 s
    "#]],
    );
}

/// A runtime that is stopped for a moment, or whose lists alone are slow, is not slow as a whole.
#[test]
fn not_all_are_slow() {
    let mut s = Stream::new();
    polls(&mut s, 0..10);
    for method in ["ListPodSandbox", "Status", "ListImages", "Version"] {
        s.call((10 * SECOND, 14 * SECOND), method, &[], &[]);
    }
    for n in 0..20 {
        let at = (15 + 2 * n) * SECOND;
        s.call((at, at + 1_500_000), ["ListPodSandbox", "ListContainers"][n as usize % 2], &[], &[]);
        s.call((at, at + 5_000), "Status", &[], &[]);
    }
    check(s, 60, expect![""]);
}

fn socket(op: SocketOp) -> Event {
    let path = "/run/containerd/containerd.sock".to_owned();
    Event::Socket(Socket { op, conn: ConnId(9), fd: 7, other_fd: None, ret: 0, peer: None, path })
}

fn dies(s: &mut Stream, at: u64, status: Option<u8>, signal: Option<u8>) {
    s.record(at, RUNTIME, Event::Exit(Exit { status, signal, comm: "containerd".into() }));
}

#[test]
fn a_runtime_that_is_killed() {
    let mut s = Stream::new();
    let first = s.begin_call(SECOND, "RunPodSandbox", &[]);
    let second = s.begin_call(SECOND, "ListContainers", &[]);
    let kill = |signal, result| Event::Signal { target: Tgid(RUNTIME), signal, code: 0, result, comm: "bash".into() };
    // Go's own, one that is ignored, and the one that ends it.
    s.record(2 * SECOND, RUNTIME, kill(23, 0));
    s.record(2 * SECOND, 77, kill(9, 1));
    s.record(2 * SECOND, 78, kill(9, 0));
    dies(&mut s, 2 * SECOND + 1, None, Some(9));
    s.end_call(2 * SECOND + 1, first, Ending::RuntimeRestarted);
    s.end_call(2 * SECOND + 1, second, Ending::RuntimeRestarted);
    s.record(5 * SECOND, 900, socket(SocketOp::Bind));
    s.record(5 * SECOND, 900, socket(SocketOp::Listen));
    polls(&mut s, 6..20);
    check(
        s,
        20,
        expect![[r#"
            2.0 s runtime_restarted goes on since 2.0 s: containerd (pid 100) was ended by signal 9, which bash (pid 78) sent; calls that were cut off: 2; nobody serves its socket
              cut off: 1 ListContainers, 1 RunPodSandbox
            5.0 s runtime_restarted is over since 2.0 s: containerd (pid 100) was ended by signal 9, which bash (pid 78) sent; calls that were cut off: 2; pid 900 serves its socket after 2.9 s
        "#]],
    );
}

/// It reads no call, so that none is seen to be open.
#[test]
fn a_runtime_that_stands_still() {
    let mut s = Stream::new();
    let sent = |signal, result| Event::Signal { target: Tgid(RUNTIME), signal, code: 0, result, comm: "bash".into() };
    polls(&mut s, 0..5);
    s.record(5 * SECOND, 77, sent(19, 0));
    // The kernel says that it is ignored, for nobody catches it.
    s.record(18 * SECOND, 77, sent(18, 1));
    polls(&mut s, 19..25);
    check(
        s,
        25,
        expect![[r#"
            15.0 s cri_list_slow goes on since 5.0 s: the runtime is stopped by signal 19, which bash (pid 77) sent, and reads no call, for 10.0 s; kubelet's PLEG is unhealthy after 3 min of that
              polls that are open: 0
              the last answer, 10.8 s ago, to ListContainers, took 5.0 ms
              no other call is open
            20.0 s cri_list_slow is over since 5.0 s: ListContainers is answered within 5.0 ms, after 15.0 s
        "#]],
    );
}

#[test]
fn a_runtime_that_is_stopped_or_runs_out_of_memory() {
    let mut s = Stream::new();
    let term = Event::Signal { target: Tgid(RUNTIME), signal: 15, code: 0, result: 0, comm: "systemd".into() };
    s.record(SECOND, 1, term);
    dies(&mut s, 2 * SECOND, Some(0), None);
    s.found(3 * SECOND, 900, Role::Runtime, "/usr/bin/containerd");
    s.record(4 * SECOND, 4711, Event::Oom { victim: Tgid(900), rss_kib: 5 });
    s.record(4 * SECOND, 900, Event::Exit(Exit { status: None, signal: Some(9), comm: "containerd".into() }));
    check(
        s,
        6,
        expect![[r#"
            2.0 s runtime_restarted goes on since 2.0 s: containerd (pid 100) exited with 0 after signal 15, which systemd (pid 1) sent; calls that were cut off: 0; nobody serves its socket
            3.0 s runtime_restarted is over since 2.0 s: containerd (pid 100) exited with 0 after signal 15, which systemd (pid 1) sent; calls that were cut off: 0; pid 900 serves its socket after 1.0 s
            4.0 s runtime_restarted goes on since 4.0 s: containerd (pid 900) was killed by the kernel for memory; calls that were cut off: 0; nobody serves its socket
        "#]],
    );
}

/// The plugin is off: who asks is told so, again and again.
#[test]
fn no_cri() {
    let mut s = Stream::new();
    for n in 0..5 {
        let at = (1 + 5 * n) * SECOND;
        let key = s.begin_call(at, "Version", &[]);
        ends(&mut s, at + 1000, key, 12, "unknown service runtime.v1.RuntimeService");
    }
    s.call((30 * SECOND, 30 * SECOND + 1000), "Version", &[], &[]);
    check(
        s,
        32,
        expect![[r#"
            2.0 s cri_unavailable goes on since 1.0 s: the runtime does not have runtime.v1.RuntimeService; calls that were refused: 1
              Version of runtime.v1.RuntimeService was answered with UNIMPLEMENTED: unknown service runtime.v1.RuntimeService
            7.0 s cri_unavailable goes on since 1.0 s: the runtime does not have runtime.v1.RuntimeService; calls that were refused: 2
              Version of runtime.v1.RuntimeService was answered with UNIMPLEMENTED: unknown service runtime.v1.RuntimeService
            17.0 s cri_unavailable goes on since 1.0 s: the runtime does not have runtime.v1.RuntimeService; calls that were refused: 4
              Version of runtime.v1.RuntimeService was answered with UNIMPLEMENTED: unknown service runtime.v1.RuntimeService
            30.0 s cri_unavailable is over since 1.0 s: calls of the CRI are answered
        "#]],
    );
}

/// A client that tries one version after another, and a method that an older runtime does not have.
#[test]
fn another_version() {
    let mut s = Stream::new();
    let key = s.begin_call(SECOND, "Version", &[]);
    ends(&mut s, SECOND + 1000, key, 12, "unknown service runtime.v1.RuntimeService");
    s.call((SECOND + 2000, SECOND + 3000), "Version", &[], &[]);
    let key = s.begin_call(2 * SECOND, "RuntimeConfig", &[]);
    ends(&mut s, 2 * SECOND + 1000, key, 12, "unknown method RuntimeConfig for service runtime.v1.RuntimeService");
    check(s, 10, expect![""]);
}

fn mounts(s: &mut Stream, at: u64, count: u64) {
    s.record(at, 1, Event::Node(vec![("mounts".to_owned(), count.to_string())]));
}

#[test]
fn many_mounts() {
    let mut s = Stream::new();
    for (second, count) in [(1, 1200), (2, 6000), (3, 7000), (4, 37_000), (5, 900)] {
        mounts(&mut s, second * SECOND, count);
    }
    check(
        s,
        8,
        expect![[r#"
        2.0 s mount_table_large goes on since 2.0 s: the runtime's mount table has 6000 entries
          /proc/PID/mountinfo of the runtime has 6000 lines; 5000 are many
        4.0 s mount_table_large goes on since 2.0 s: the runtime's mount table has 37000 entries
          /proc/PID/mountinfo of the runtime has 37000 lines; 5000 are many
        5.0 s mount_table_large is over since 2.0 s: the runtime's mount table has 900 entries
    "#]],
    );
}

#[test]
fn large_responses() {
    let mut s = Stream::new();
    let mut list = |at: u64, method: &str, mib: u64, ending: Option<(u32, &str)>| {
        let key = s.begin_call(at, method, &[]);
        if ending.is_none() {
            s.reply(at + 1000, key, vec![(Field::Length, Value::Number(mib << 20))]);
        }
        let (code, text) = ending.unwrap_or_default();
        ends(&mut s, at + 1000, key, code, text);
    };
    let refused = "grpc: trying to send message larger than max (16791221 vs. 16777216)";
    list(SECOND, "ListPodSandbox", 11, None);
    list(2 * SECOND, "ListContainers", 13, None);
    list(3 * SECOND, "ListContainers", 14, None);
    list(4 * SECOND, "ListContainers", 0, Some((8, refused)));
    list(5 * SECOND, "ListContainers", 0, Some((8, refused)));
    list(6 * SECOND, "ListContainers", 0, None);
    list(7 * SECOND, "PullImage", 0, Some((8, "quota exceeded")));
    check(
        s,
        9,
        expect![[r#"
        3.0 s cri_response_large goes on since 2.0 s: the response to ListContainers has 13.0 of 16 MiB
          a response to ListContainers had 13631488 bytes
        5.0 s cri_response_large goes on since 2.0 s: the response to ListContainers is larger than what is allowed, and was not sent
          ListContainers was answered with RESOURCE_EXHAUSTED: grpc: trying to send message larger than max (16791221 vs. 16777216)
        7.0 s cri_response_large is over since 2.0 s: responses are smaller by now
    "#]],
    );
}

/// Each start of that time has it, and no other.
#[test]
fn starts_of_that_time() {
    let mut s = Stream::new();
    let pods = [Pod::new("before", "1", 1000), Pod::new("meanwhile", "2", 2000), Pod::new("after", "3", 3000)];
    let list = s.begin_call(5 * SECOND, "ListContainers", &[]);
    for (pod, at) in pods.iter().zip([0, 15, 60]) {
        s.offset = at * SECOND;
        sandbox(&mut s, pod);
        super::containerd::container(&mut s, pod, 80_000, "app", "/bin/app");
    }
    s.offset = 0;
    ends(&mut s, 17 * SECOND, list, 0, "");
    polls(&mut s, 18..70);
    (0..=70).for_each(|second| s.tick(second * SECOND));
    let traces = s.feed_last(Config::default());
    let with: Vec<_> = traces.iter().map(|t| (t.pod.name.as_deref().unwrap(), t.node.verdicts.len())).collect();
    assert_eq!(with, [("before", 0), ("meanwhile", 1), ("after", 0)]);
    let verdict = &traces[1].node.verdicts[0];
    assert!(!verdict.open || verdict.reason == "cri_list_slow");
    assert!(verdict.realtime.is_some());
}

/// podlapse's own calls are none.
#[test]
fn own_calls() {
    let mut s = Stream::new();
    s.found(0, 42, Role::Myself, "/usr/bin/podlapse");
    s.begin_call(SECOND, "ListContainers", &[]);
    for (_, item) in &mut s.items {
        if let super::dsl::Item::Call(CallEvent::Start(start)) = item {
            start.client = Some(Tgid(42));
        }
    }
    check(s, 20, expect![""]);
}

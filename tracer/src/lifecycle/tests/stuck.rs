//! Starts that take long: when they are looked at, and what is said of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::containerd::{Pod, create_container, network, oci, sandbox, sandbox_signs};
use super::dsl::{Item, Stream};
use crate::cri::{CallEvent, Ending, Field};
use crate::engine::{Config, Update};
use crate::ids::{MonotonicNs, Tgid};
use crate::lifecycle::Lifecycle;
use crate::record::{Event, Record, Waiting};
use crate::trace::{Outcome, Trace};

pub(super) const SECOND: u64 = 1_000_000;
const CONFIG: Config = Config { settle_ns: 2_000_000_000, containers: None, stuck_after_ns: 10_000_000_000 };

/// What `/proc` says when it is asked.
pub(super) type Answer = fn(u32) -> Option<Waiting>;

pub(super) fn nobody(_: u32) -> Option<Waiting> {
    None
}

/// All of them sleep, since 5 ms after the beginning.
fn asleep(pid: u32) -> Option<Waiting> {
    let (comm, started) = (format!("comm-{pid}"), MonotonicNs(5_000_000));
    let (syscall_name, wchan) = ("clock_nanosleep".to_owned(), "hrtimer_nanosleep".to_owned());
    Some(Waiting { started, state: Some('S'), syscall: Some(230), comm, syscall_name, wchan, stack: Vec::new() })
}

/// Feeds all, with a tick each 100 ms up to `until` seconds. A look is answered 200 ms later. Result: what was told, and
/// what is known at the end.
pub(super) fn live(mut s: Stream, until: u64, answer: Answer) -> (Vec<Update>, Vec<Trace>) {
    (0..=until * 10).for_each(|tenth| s.tick(tenth * SECOND / 10));
    s.items.sort_by_key(|(at, _)| *at);
    let (mut lifecycle, mut updates) = (Lifecycle::new(CONFIG), Vec::new());
    let mut asked: Vec<(MonotonicNs, Tgid)> = Vec::new();
    for (_, item) in &s.items {
        match item {
            Item::Call(event) => lifecycle.call(event, &mut updates),
            Item::Record(record) => {
                let due: BTreeSet<Tgid> =
                    asked.extract_if(.., |(at, _)| *at <= record.at).map(|(_, pid)| pid).collect();
                for pid in due {
                    if let Some(waiting) = answer(pid.0) {
                        let head = Record { tgid: pid, event: Event::Waiting(waiting), ..record.clone() };
                        lifecycle.feed(&head, &mut updates);
                    }
                }
                lifecycle.feed(record, &mut updates);
                let at = MonotonicNs(record.at.0 + 200_000_000);
                asked.extend(lifecycle.take_looks().into_iter().map(|pid| (at, pid)));
            }
        }
    }
    (updates, lifecycle.open())
}

/// When something was told of starts that go on, and what the last of it says.
fn told(updates: &[Update]) -> String {
    let mut out = String::new();
    let stuck = updates.iter().filter_map(|update| match update {
        Update::Stuck(trace) => Some(trace),
        Update::Started(_) | Update::Finished(_) | Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => None,
    });
    for trace in stuck {
        let waiting = trace.waiting.as_ref().unwrap();
        let at = crate::trace::seconds(trace.total_ns);
        let _ = writeln!(out, "at {at}: {}", waiting.sentence());
        let verdict = trace.verdict.as_ref().unwrap();
        assert_eq!((trace.outcome, verdict.stage.as_str()), (Outcome::InProgress, waiting.stage.as_str()));
    }
    out
}

fn check(s: Stream, until: u64, answer: Answer, expect: Expect) {
    expect.assert_eq(&told(&live(s, until, answer).0));
}

/// RunPodSandbox is open, and so are the processes of `pids`; nothing comes after `cut`.
fn hanging(cut: u64, pids: &[u32], signs: impl FnOnce(&mut Stream, &Pod)) -> Stream {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    s.begin_call(0, "RunPodSandbox", &pod.request());
    signs(&mut s, &pod);
    let lives = |record: &Record| matches!(record.event, Event::Exit(_)) && pids.contains(&record.tgid.0);
    s.without(|at, item| at > cut || matches!(item, Item::Record(record) if lives(record)))
}

#[test]
fn a_plugin_hangs() {
    let s = hanging(19_000, &[1002], network);
    let (updates, open) = live(s.clone(), 45, asleep);
    expect![[r#"
        at 10.2 s: waits for 10.1 s in sandbox.cni.bridge: comm-1002 (pid 1002, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 10.1 s old: setns by pid 1002
        at 20.2 s: waits for 20.1 s in sandbox.cni.bridge: comm-1002 (pid 1002, 20.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 20.1 s old: setns by pid 1002
        at 40.2 s: waits for 40.1 s in sandbox.cni.bridge: comm-1002 (pid 1002, 40.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 40.1 s old: setns by pid 1002
    "#]]
    .assert_eq(&told(&updates));
    let verdict = open[0].verdict.as_ref().unwrap();
    assert_eq!((verdict.reason.as_str(), verdict.culprit.as_deref()), ("stuck", Some("comm-1002 (pid 1002)")));
    assert_eq!(verdict.message, "bridge is open for 44.9 s");
    assert_eq!(verdict.evidence, open[0].waiting.as_ref().unwrap().evidence());
    // Without an answer the plugin is still the one.
    check(
        s,
        12,
        nobody,
        expect![[r#"
            at 10.5 s: waits for 10.4 s in sandbox.cni.bridge: exe (pid 1002, 10.4 s old) has not ended; the last sign is 10.4 s old: setns by pid 1002
        "#]],
    );
}

/// A script waits for what it runs: both are told, from the plugin down.
#[test]
fn what_a_plugin_runs_hangs() {
    let s = hanging(5_000, &[1001, 2002], |s, pod| {
        network(s, pod);
        s.process((4_000, 50_000), 1001, 2002, "/bin/sleep 600");
    });
    let s = s.without(|_, item| matches!(item, Item::Record(record) if record.tgid.0 == 1002));
    check(
        s,
        11,
        asleep,
        expect![[r#"
            at 10.2 s: waits for 10.1 s in sandbox.cni.loopback: comm-1001 (pid 1001, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); comm-2002 (pid 2002, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 10.1 s old: exec of sleep (pid 2002)
        "#]],
    );
}

#[test]
fn the_runtime_holds_the_call() {
    check(
        hanging(0, &[], |_, _| {}),
        11,
        asleep,
        expect![[r#"
        at 10.1 s: waits for 10.1 s in sandbox: no process of its own is seen: the runtime holds the call; the last sign is 10.1 s old: RunPodSandbox began
    "#]],
    );
}

/// The OCI runtime's create hangs, in the init that it made.
#[test]
fn a_create_hangs() {
    let s = hanging(54_000, &[], |s, pod| oci(s, pod, 44_000, &pod.sandbox, 1020, "/pause", true));
    check(
        s,
        11,
        asleep,
        expect![[r#"
        at 10.2 s: waits for 10.1 s in sandbox.oci.create: comm-1020 (pid 1020, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); comm-1023 (pid 1023, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 10.1 s old: mount by pid 1023
    "#]],
    );
}

/// The shim has been asked to make the container, and nothing of the OCI runtime is seen.
#[test]
fn a_shim_hangs() {
    let s = hanging(44_500, &[], sandbox_signs);
    check(
        s,
        11,
        asleep,
        expect![[r#"
        at 10.2 s: waits for 10.1 s in sandbox.oci.create: comm-1011 (pid 1011, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 10.1 s old: mount by pid 1011
    "#]],
    );
}

/// StartContainer is answered when init may go on: it has not run the entrypoint yet.
#[test]
fn init_does_not_go_on() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    sandbox(&mut s, &pod);
    let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
    s.call((90_000, 132_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
    let init = pid + 3;
    let enters = |record: &Record| record.tgid.0 == init && matches!(record.event, Event::Exec(_) | Event::Exit(_));
    let s = s.without(|_, item| matches!(item, Item::Record(record) if enters(record)));
    check(
        s,
        11,
        asleep,
        expect![[r#"
        at 10.2 s: waits for 10.0 s in container.exec: comm-1123 (pid 1123, 10.0 s old) waits in clock_nanosleep (hrtimer_nanosleep); the last sign is 10.0 s old: StartContainer ended
    "#]],
    );
}

/// Nothing is open: it is the client's turn.
#[test]
fn the_client_makes_no_call() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    sandbox(&mut s, &pod);
    check(
        s,
        11,
        asleep,
        expect![[r#"
        at 10.1 s: waits for 10.0 s in kubelet.gap: no call is open: the next one is the client's to make; the last sign is 10.0 s old: RunPodSandbox ended
    "#]],
    );
}

/// A start that goes on anew is given the same time again.
#[test]
fn a_later_container_has_its_own_time() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    sandbox(&mut s, &pod);
    super::containerd::container(&mut s, &pod, 80_000, "app", "/bin/app");
    create_container(&mut s, &pod, 30 * SECOND, "more");
    check(
        s,
        45,
        nobody,
        expect![[r#"
        at 40.1 s: waits for 10.0 s in kubelet.gap: no call is open: the next one is the client's to make; the last sign is 10.0 s old: CreateContainer ended
    "#]],
    );
}

/// The plugin ran before podlapse came: its age is its own.
#[test]
fn a_hang_that_began_before() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    s.offset = 60 * SECOND;
    s.found_helper((0, 0), super::dsl::RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("ADD"));
    for (at, item) in &mut s.items {
        // It was found half a minute later.
        *at += 30 * SECOND;
        let Item::Record(record) = item else { continue };
        record.at = MonotonicNs(*at * 1000);
    }
    s.offset = 0;
    check(
        s,
        95,
        nobody,
        expect![[r#"
        at 30.5 s: waits for 30.5 s in sandbox.cni.bridge: bridge (pid 1002, 30.5 s old) has not ended; the last sign is 30.5 s old: exec of bridge (pid 1002)
    "#]],
    );
}

/// A client that gives up is told what its call waited for then.
#[test]
fn the_client_gives_up() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    let key = s.begin_call(0, "RunPodSandbox", &pod.request());
    network(&mut s, &pod);
    let mut s = s.without(|at, _| at > 19_000);
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Start(start)) = item {
            start.timeout_ns = Some(15_000_000_000);
        }
    }
    s.end_call(15 * SECOND, key, Ending::ResetByClient(8));
    let (updates, _) = live(s, 16, asleep);
    let Some(Update::Finished(trace)) = updates.last() else { panic!("{updates:?}") };
    let verdict = trace.verdict.as_ref().unwrap();
    assert_eq!((verdict.reason.as_str(), verdict.stage.as_str()), ("client_deadline", "sandbox.cni.bridge"));
    assert_eq!(verdict.culprit.as_deref(), Some("comm-1002 (pid 1002)"));
    assert_eq!(verdict.evidence, trace.waiting.as_ref().unwrap().evidence());
}

/// What goes on is looked at when somebody asks, however young it is; nothing is told of it.
#[test]
fn a_look_at_all() {
    let s = hanging(19_000, &[1002], network);
    let (mut lifecycle, updates) = s.tables(Config::default());
    assert_eq!(told(&updates), "");
    assert_eq!(lifecycle.take_looks(), []);
    assert_eq!(lifecycle.look_at_all(), [Tgid(1002)]);
    assert!(lifecycle.open()[0].verdict.is_none());
}

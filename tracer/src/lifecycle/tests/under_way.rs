//! What was under way when podlapse came: plugins and the OCI runtime that already ran.

use expect_test::{Expect, expect};
use tracer_ebpf::mark;

use super::containerd::{Pod, container, sandbox, sandbox_signs};
use super::dsl::{Item, RUNTIME, Stream, id};
use super::listed::list;
use crate::cri::{Ending, Field, Value};
use crate::engine::{Config, Update};
use crate::record::{ContainerState, Event, Role};
use crate::trace::{Outcome, Trace};

/// The bridge plugin of `network` ran since 3 100 µs, and podlapse came then.
const CAME: u64 = 10_000;

fn pod() -> Pod {
    Pod::new("pair", "1", 1000)
}

fn good() -> Ending {
    Ending::Status { code: 0, message: String::new() }
}

/// A sandbox's making from `CAME` on.
fn from_then_on(s: &mut Stream, pod: &Pod) {
    let mut whole = Stream::default();
    sandbox_signs(&mut whole, pod);
    let early = |at: u64, item: &Item| at < CAME && matches!(item, Item::Record(_));
    s.items.extend(whole.without(early).items);
    s.found_helper((3_100, CAME), RUNTIME, pod.pids + 2, "/opt/cni/bin/bridge", &pod.env("ADD"));
}

fn feed(s: Stream) -> Vec<Trace> {
    s.feed_last(Config::default())
}

/// The one trace, of one container.
fn only(s: Stream) -> Trace {
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].containers.len()), (1, 1));
    traces.into_iter().next().unwrap()
}

/// Spans at the top and their ends, in µs of the trace, and what is known of the whole.
fn check(trace: &Trace, expect: Expect) {
    let mut text = format!("{} {:?} {}", trace.pod.full_name(), trace.outcome, trace.total_ns / 1000);
    if let Some(verdict) = &trace.verdict {
        text += &format!(" {} {}", verdict.stage, verdict.reason);
    }
    text.push('\n');
    for span in trace.spans.iter().filter(|span| span.parent.is_none()) {
        let end = span.end_ns.map_or("open".to_owned(), |end| (end / 1000).to_string());
        text += &format!("{} {} to {end}\n", span.stage, span.start_ns / 1000);
    }
    trace.quality.notes.iter().for_each(|note| text += &format!("{note}\n"));
    expect.assert_eq(&text);
}

#[test]
fn a_plugin_hangs() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("ADD"));
    // A delegate, and what a script runs.
    s.found_helper((4_000, CAME), 1002, 1003, "/opt/cni/bin/host-local", &pod.env("ADD"));
    s.found_helper((5_000, CAME), 1003, 1004, "sleep 1000", &pod.env("ADD"));
    s.tick(9_000_000);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].sandbox.id.as_ref().map(|id| id.0.as_str())), (1, Some(&*pod.sandbox)));
    let open: Vec<_> = traces[0].spans.iter().filter(|span| span.end_ns.is_none()).collect();
    let open: Vec<_> = open.iter().map(|span| (&*span.stage, span.process.as_ref().map(|it| it.pid.0))).collect();
    let plugins = [("sandbox.cni.bridge", Some(1002)), ("sandbox.cni.host-local", Some(1003))];
    assert_eq!(open, [&[("sandbox", None), ("sandbox.cni", None)], &plugins[..]].concat());
    check(
        &traces[0],
        expect![[r#"
            default/pair InProgress 8996900
            sandbox 0 to open
            begins_in_the_middle
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
}

/// The call is open until its reply comes, or at the latest until the pod's next call.
#[test]
fn it_goes_on() {
    let went_on = |replies: &[(u64, bool, Ending)]| {
        let (mut s, pod) = (Stream::new(), pod());
        from_then_on(&mut s, &pod);
        for (at, other, ending) in replies {
            s.unasked(*at, *other, ending.clone());
        }
        container(&mut s, &pod, 80_000, "app", "/bin/app");
        s.tick(20_000_000);
        only(s)
    };
    check(
        &went_on(&[(76_000, false, good())]),
        expect![[r#"
            default/pair Partial 128900
            sandbox 0 to 72900
            kubelet.gap 72900 to 76900
            container.create 76900 to 84900
            kubelet.gap 84900 to 86900
            container.start 86900 to 128900
            begins_in_the_middle
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
    // Others came in between: before the sandbox runs, and on a connection that is not the pod's.
    let others = [(50_000, false, good()), (76_000, false, good()), (77_000, false, Ending::NoStatus)];
    check(
        &went_on(&others),
        expect![[r#"
            default/pair Partial 128900
            sandbox 0 to 73900
            kubelet.gap 73900 to 76900
            container.create 76900 to 84900
            kubelet.gap 84900 to 86900
            container.start 86900 to 128900
            begins_in_the_middle
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
    check(
        &went_on(&[(76_000, false, good()), (77_000, true, good())]),
        expect![[r#"
            default/pair Partial 128900
            sandbox 0 to 76900
            container.create 76900 to 84900
            kubelet.gap 84900 to 86900
            container.start 86900 to 128900
            begins_in_the_middle
            reply_not_seen: RunPodSandbox
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
    check(
        &went_on(&[]),
        expect![[r#"
            default/pair Partial 128900
            sandbox 0 to 76900
            container.create 76900 to 84900
            kubelet.gap 84900 to 86900
            container.start 86900 to 128900
            begins_in_the_middle
            reply_not_seen: RunPodSandbox
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
}

/// A container's attempt counts over all sandboxes: in the new one it is the first.
#[test]
fn a_sandbox_that_is_made_again() {
    let (mut s, pod) = (Stream::new(), pod());
    from_then_on(&mut s, &pod);
    s.unasked(76_000, false, good());
    super::containerd::attempt(&mut s, &pod, 80_000, "app", "/bin/app", 1);
    s.tick(20_000_000);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].outcome, traces[0].containers.len()), (1, Outcome::Partial, 1));
}

#[test]
fn the_plugin_fails() {
    let failed = |message: Option<String>, again: bool| {
        let (mut s, pod) = (Stream::new(), pod());
        s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("ADD"));
        s.exit(20_000, 1002, 1);
        s.cni((21_000, 22_000), RUNTIME, 1005, "bridge", &pod.env("DEL"));
        message.into_iter().for_each(|message| s.unasked(23_000, false, Ending::Status { code: 2, message }));
        if again {
            s.call((900_000, 976_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, "1b")]);
        }
        s.tick(9_000_000);
        let traces = feed(s);
        assert_eq!(traces.len(), 1 + usize::from(again));
        traces.into_iter().next().unwrap()
    };
    let own = format!("failed to setup network for sandbox \"{}\": plugin type=\"bridge\" failed", pod().sandbox);
    check(
        &failed(Some(own), false),
        expect![[r#"
            default/pair Failed 19900 sandbox.cni.bridge cni_failed
            sandbox 0 to 19900
            begins_in_the_middle
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
    // Another call's failure says nothing; the next RunPodSandbox of the pod does.
    check(
        &failed(Some("no such image".to_owned()), true),
        expect![[r#"
            default/pair Failed 896900 sandbox no_status
            sandbox 0 to 896900
            begins_in_the_middle
            request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
}

/// A plugin of another command, one of no pod, and what was there all along begin nothing.
#[test]
fn what_is_no_start() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found_helper((3_100, CAME), RUNTIME, 1002, "/opt/cni/bin/bridge", &pod.env("DEL"));
    let mut env = pod.env("ADD");
    env.retain(|(name, _)| name != "CNI_ARGS");
    s.found_helper((3_100, CAME), RUNTIME, 1003, "/opt/cni/bin/bridge", &env);
    s.found_helper((3_100, CAME), RUNTIME, 1004, "/usr/bin/stargz", &[]);
    s.unasked(20_000, false, good());
    s.tick(9_000_000);
    assert!(feed(s).is_empty());
}

/// The container is made and its init waits; the OCI runtime's start hangs.
fn init_waits(s: &mut Stream, pod: &Pod, state: ContainerState) {
    let cgroup = pod.cgroup(&id("1c1"));
    s.found(CAME, 1011, Role::Shim, &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox));
    s.found_helper((3_100, CAME), 1011, 1123, "runc init", &[]);
    s.in_cgroup(&cgroup);
    list(s, CAME + 1_000, pod, &[("app", "1c1", state, 0)]);
}

#[test]
fn a_start_hangs() {
    let hangs = |then: &dyn Fn(&mut Stream, &Pod)| {
        let (mut s, pod) = (Stream::new(), pod());
        init_waits(&mut s, &pod, ContainerState::Created);
        then(&mut s, &pod);
        s.tick(9_000_000);
        only(s)
    };
    check(
        &hangs(&|_, _| {}),
        expect![[r#"
        default/pair InProgress 8996900
        container.start 0 to open
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
    "#]],
    );
    let goes_on = |s: &mut Stream, _: &Pod| {
        s.fork(99_000, 1011, 1124);
        s.exec(100_000, 1011, 1124, &format!("runc --root /r start {}", id("1c1")));
        s.exec_in_container(101_000, 1011, 1123, "/bin/app", 7);
        s.exit(102_000, 1124, 0);
    };
    check(
        &hangs(&goes_on),
        expect![[r#"
        default/pair Partial 97900
        container.start 0 to open
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
        reply_not_seen: StartContainer
    "#]],
    );
    let replied = |s: &mut Stream, pod: &Pod| {
        goes_on(s, pod);
        s.unasked(103_000, false, good());
        s.unasked(900_000, false, good());
        s.call((9_000_000, 9_100_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    };
    check(
        &hangs(&replied),
        expect![[r#"
        default/pair Partial 99900
        container.start 0 to 99900
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
    "#]],
    );
    check(
        &hangs(&|s, _| s.exit(100_000, 1123, 1)),
        expect![[r#"
            default/pair Failed 96900 container.exec exited_before_exec
            container.start 0 to open
            begins_in_the_middle
            request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
        "#]],
    );
    let stopped = |s: &mut Stream, _: &Pod| {
        s.call((100_000, 110_000), "StopContainer", &[(Field::ContainerId, &id("1c1"))], &[]);
    };
    check(
        &hangs(&stopped),
        expect![[r#"
        default/pair Failed 96900 container.start container_stopped
        container.start 0 to open
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
    "#]],
    );
}

/// A container's own program that is called like the runtime's init begins nothing, nor does one that is there no more.
#[test]
fn an_init_that_is_none() {
    for state in [ContainerState::Running, ContainerState::Exited] {
        let (mut s, pod) = (Stream::new(), pod());
        init_waits(&mut s, &pod, state);
        s.exec_in_container(100_000, 1011, 1123, "/bin/app", 7);
        s.tick(9_000_000);
        assert!(feed(s).is_empty());
    }
}

/// The pause container's runtime hangs: the sandbox is in no list.
#[test]
fn a_sandboxs_create_hangs() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found(CAME, 1011, Role::Shim, &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox));
    s.found_helper((3_100, CAME), 1011, 1020, &format!("runc --root /r create --bundle /b {}", pod.sandbox), &[]);
    s.found_helper((3_200, CAME), 1020, 1023, "runc init", &[]);
    s.in_cgroup(&pod.cgroup(&pod.sandbox));
    list(&mut s, CAME + 1_000, &Pod::new("other", "2", 2000), &[]);
    s.exit(50_000, 1020, 0);
    s.fork(51_000, 1011, 1024);
    s.exec(52_000, 1011, 1024, &format!("runc --root /r start {}", pod.sandbox));
    s.exec_in_container(53_000, 1011, 1023, "/pause", 7);
    s.exit(54_000, 1024, 0);
    s.unasked(56_000, false, good());
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(20_000_000);
    let traces = feed(s);
    assert_eq!(traces.len(), 1);
    check(
        &traces[0],
        expect![[r#"
        default/pair Partial 128900
        sandbox 0 to 52900
        kubelet.gap 52900 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
        request_not_seen: RunPodSandbox came before the attach, at which the runtime's helpers worked for it
    "#]],
    );
}

/// The exec of its entrypoint was missed: its shim's word is enough to end the wait.
#[test]
fn a_start_whose_exec_was_missed() {
    let (mut s, pod) = (Stream::new(), pod());
    s.found(CAME, 1011, Role::Shim, &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox));
    s.fork(99_000, 1011, 1124);
    s.exec(100_000, 1011, 1124, &format!("runc --root /r start {}", id("1c1")));
    s.exit(102_000, 1124, 0);
    s.task_reply((98_000, 103_000), "Start", &id("1c1"), vec![(Field::Pid, Value::Number(1123))]);
    list(&mut s, 104_000, &pod, &[("app", "1c1", ContainerState::Running, 1123)]);
    s.tick(20_000_000);
    let traces = feed(s);
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Partial), "{:?}", traces[0].quality.notes);
}

/// It began while podlapse attached: its exec may have come before the programs followed who ran it.
#[test]
fn an_exec_that_was_not_seen_while_podlapse_attached() {
    let outcome = |attached: Option<u64>| {
        let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
        sandbox(&mut s, &pod);
        container(&mut s, &pod, 80_000, "app", "/bin/app");
        attached.into_iter().for_each(|at| s.record(at, 1, Event::Mark(mark::ATTACHED)));
        s.tick(60_000_000);
        let s = s.without(|_, item| {
            matches!(item, Item::Record(r) if r.tgid.0 == 1123 && matches!(&r.event, Event::Exec(exec) if exec.container))
        });
        let traces = s.updates(Config::default());
        traces.iter().rev().find_map(|update| match update {
            Update::Finished(trace) => Some(trace.outcome),
            _ => None,
        })
    };
    assert_eq!(outcome(Some(70_000)), Some(Outcome::Partial));
    assert_eq!(outcome(Some(150_000)), Some(Outcome::Partial));
    assert_eq!(outcome(None), None);
}

/// Its exec came before podlapse; the OCI runtime that had let it go was still there, and the list was behind.
#[test]
fn a_start_whose_exec_came_before() {
    let came = |replies: &[u64]| {
        let (mut s, pod) = (Stream::new(), pod());
        s.found(CAME, 1011, Role::Shim, &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox));
        s.found_helper((3_100, CAME), 1011, 1124, &format!("runc --root /r start {}", id("1c1")), &[]);
        s.found_contained(CAME, 1011, 1123, "/bin/app", &pod.cgroup(&id("1c1")));
        list(&mut s, CAME + 1_000, &pod, &[("app", "1c1", ContainerState::Created, 0)]);
        s.exit(CAME + 2_000, 1124, 0);
        replies.iter().for_each(|at| s.unasked(*at, false, good()));
        s.tick(20_000_000);
        only(s)
    };
    check(
        &came(&[]),
        expect![[r#"
        default/pair Partial 0
        container.start 0 to open
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
        entrypoint_not_seen: app
        reply_not_seen: StartContainer
    "#]],
    );
    check(
        &came(&[14_000]),
        expect![[r#"
        default/pair Partial 10900
        container.start 0 to 10900
        begins_in_the_middle
        request_not_seen: StartContainer came before the attach, at which the runtime's helpers worked for it
        entrypoint_not_seen: app
    "#]],
    );
}

/// The same of a pause container: the pod's next call says that its sandbox was made.
#[test]
fn a_sandbox_whose_exec_came_before() {
    let came = |replies: &[u64]| {
        let (mut s, pod) = (Stream::new(), pod());
        s.found(CAME, 1011, Role::Shim, &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox));
        s.found_helper((3_100, CAME), 1011, 1024, &format!("runc --root /r start {}", pod.sandbox), &[]);
        s.found_contained(CAME, 1011, 1023, "/pause", &pod.cgroup(&pod.sandbox));
        list(&mut s, CAME + 1_000, &Pod::new("other", "2", 2000), &[]);
        s.exit(CAME + 2_000, 1024, 0);
        replies.iter().for_each(|at| s.unasked(*at, false, good()));
        container(&mut s, &pod, 80_000, "app", "/bin/app");
        s.tick(20_000_000);
        only(s)
    };
    check(
        &came(&[]),
        expect![[r#"
        default/pair Partial 128900
        sandbox.oci.start 0 to 8900
        kubelet.gap 8900 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
    "#]],
    );
    check(
        &came(&[14_000]),
        expect![[r#"
        default/pair Partial 128900
        sandbox.oci.start 0 to 8900
        kubelet.gap 8900 to 76900
        container.create 76900 to 84900
        kubelet.gap 84900 to 86900
        container.start 86900 to 128900
        begins_in_the_middle
    "#]],
    );
}

//! Starts that fail, are cut short, or are seen in part.

use expect_test::expect;

use super::check;
use super::containerd::{Pod, container, create_container, network, oci, sandbox};
use super::dsl::{Item, RUNTIME, Stream};
use crate::cri::{CallEvent, Ending, Field};
use crate::engine::Config;
use crate::record::{Event, Sys};
use crate::trace::Outcome;

fn set_exit(s: &mut Stream, pid: u32, code: u8) {
    for (_, item) in &mut s.items {
        if let Item::Record(record) = item
            && record.tgid.0 == pid
            && let Event::Exit(exit) = &mut record.event
        {
            exit.status = Some(code);
        }
    }
}

#[test]
fn a_plugin_fails() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    network(&mut s, &pod);
    s = s.without(|_, item| matches!(item, Item::Record(r) if r.tgid.0 == 1004 || r.tgid.0 == 1005));
    set_exit(&mut s, 1003, 1);
    set_exit(&mut s, 1002, 1);
    s.cni((31_000, 33_000), RUNTIME, 1006, "bridge", &pod.env("DEL"));
    let message = r#"failed to setup network: plugin type="bridge" failed (add): no IP addresses available"#;
    s.failing_call((0, 36_000), "RunPodSandbox", &pod.request(), message);
    check(
        s,
        expect![[r#"
            failed default/web total 36000 named 29720
              sandbox (RunPodSandbox) 0..36000 self 6280 code 2 *
                sandbox.netns (network namespace) 1000..1700 self 700 *
                sandbox.cni (CNI) 2990..30000 self 0 *
                  sandbox.cni.loopback 2990..6000 self 100 pid 1001 *
                  sandbox.cni.bridge 3090..30000 self 0 pid 1002 exit 1 *
                    sandbox.cni.bridge.host (on the node) 3090..8000 self 4910 *
                    sandbox.cni.bridge.netns (in the pod's network) 8000..14000 self 6000 *
                    sandbox.cni.bridge.host (on the node) 14000..19990 self 5990 *
                    sandbox.cni.host-local 19990..25000 self 5010 pid 1003 exit 1 *
                    sandbox.cni.bridge.host (on the node) 25000..26000 self 1000 *
                    sandbox.cni.bridge.netns (in the pod's network) 26000..27000 self 1000 *
                    sandbox.cni.bridge.host (on the node) 27000..30000 self 3000 *
                sandbox.cni (CNI DEL) 30990..33000 self 0 *
                  sandbox.cni.bridge 30990..33000 self 2010 pid 1006 *
            sandbox 1a pid ? shim ?
            verdict sandbox.cni.host-local / cni_failed: failed to setup network: plugin type="bridge" failed (add): no IP addresses available
        "#]],
    );
}

/// A container whose init dies instead of running the entrypoint.
fn dying(failing_exec: bool) -> Stream {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
    s.call((90_000, 132_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    let init = pid + 3;
    oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
    s = s.without(|_, item| matches!(item, Item::Record(r) if r.tgid.0 == init && matches!(r.event, Event::Exec(_))));
    if failing_exec {
        s.failing_sys((117_000, 117_100), (init, init), Sys::Execve, 0, ["/bin/app", "", ""], -8);
    }
    s.exit(118_000, init, 255);
    s.tick(5_000_000);
    s
}

/// SIGKILL in the middle of an execve makes it fail with EAGAIN: what counts is the signal.
#[test]
fn the_entrypoint_is_killed_in_its_execve() {
    let mut s = dying(true);
    for (_, item) in &mut s.items {
        if let Item::Record(record) = item
            && let Event::Exit(exit) = &mut record.event
            && exit.status == Some(255)
        {
            (exit.status, exit.signal) = (None, Some(9));
        }
    }
    let verdict = s.feed(Config::default())[0].verdict.clone().unwrap();
    assert_eq!(verdict.reason, "exited_before_exec");
    assert_eq!(verdict.message, "init was ended by signal 9 before it ran the entrypoint");
}

#[test]
fn the_entrypoint_fails_to_exec() {
    check(
        dying(true),
        expect![[r#"
            failed default/web total 132000 named 86440
              sandbox (RunPodSandbox) 0..76000 self 11780 code 0 *
                sandbox.netns (network namespace) 1000..1700 self 700 *
                sandbox.cni (CNI) 2990..40000 self 0 *
                  sandbox.cni.loopback 2990..6000 self 100 pid 1001 *
                  sandbox.cni.bridge 3090..30000 self 0 pid 1002 *
                    sandbox.cni.bridge.host (on the node) 3090..8000 self 4910 *
                    sandbox.cni.bridge.netns (in the pod's network) 8000..14000 self 6000 *
                    sandbox.cni.bridge.host (on the node) 14000..19990 self 5990 *
                    sandbox.cni.host-local 19990..25000 self 5010 pid 1003 *
                    sandbox.cni.bridge.host (on the node) 25000..26000 self 1000 *
                    sandbox.cni.bridge.netns (in the pod's network) 26000..27000 self 1000 *
                    sandbox.cni.bridge.host (on the node) 27000..30000 self 3000 *
                  sandbox.cni_next (next plugin) 30000..30990 self 990 *
                  sandbox.cni.portmap 30990..40000 self 9010 pid 1004 ran=iptables 1 *
                sandbox.shim (shim start) 40990..43000 self 910 pid 1010 *
                sandbox.shim.daemon (shim daemon) 41900..43510 self 1100 pid 1011 *
                sandbox.shim.connect (connecting to the shim) 43000..44100 self 1100 *
                sandbox.task.request (Task/Create) 44100..44200 self 100 *
                sandbox.rootfs (mount rootfs) 44200..44400 self 200 *
                sandbox.oci.create (runc create) 44900..60000 self 590 pid 1020 *
                  sandbox.oci.create.load (load the bundle) 44900..47200 self 2300 *
                  sandbox.oci.create.self_clone (self clone) 47200..48200 self 1000 *
                  sandbox.oci.create.cgroup_join (join cgroup) 47500..47900 self 0
                  sandbox.oci.create.bootstrap (bootstrap init) 48200..49100 self 900 *
                  sandbox.oci.create.namespaces 49100..50000 self 900 *
                  sandbox.oci.create.init (init starts) 50000..53000 self 3000 *
                  sandbox.oci.create.mounts 53000..54310 self 1310 *
                  sandbox.oci.create.sync (sync with init) 54310..55000 self 690 *
                  sandbox.oci.create.limits (cgroup limits) 55000..55300 self 300 *
                  sandbox.oci.create.sync (sync with init) 55300..56000 self 700 *
                  sandbox.oci.create.pivot (pivot_root) 56000..56600 self 600 *
                  sandbox.oci.create.mounts (masked paths) 57000..57100 self 100 *
                  sandbox.oci.create.state (save state) 57100..57310 self 210 *
                  sandbox.oci.create.privileges 57500..57610 self 110 *
                  sandbox.oci.create.seccomp (seccomp filter) 57610..59200 self 1590 *
                  sandbox.oci.create.finish 59200..60000 self 800 *
                sandbox.oci.fifo_wait (waiting for start) 60000..62900 self 2900 *
                sandbox.oci.start (runc start) 62900..66000 self 3100 pid 1024 *
                sandbox.task.reply (Task/Start) 66000..68000 self 2000 *
              kubelet.gap (between calls) 76000..80000 self 4000 *
              container.create (CreateContainer) 80000..88000 self 8000 code 0 *
              kubelet.gap (between calls) 88000..90000 self 2000 *
              container.start (StartContainer) 90000..132000 self 18600 code 0 *
                container.start.task.request (Task/Create) 95100..95200 self 100 *
                container.start.rootfs (mount rootfs) 95200..95400 self 200 *
                container.start.oci.create (runc create) 95900..111000 self 590 pid 1120 *
                  container.start.oci.create.load (load the bundle) 95900..98200 self 2300 *
                  container.start.oci.create.self_clone (self clone) 98200..99200 self 1000 *
                  container.start.oci.create.cgroup_join (join cgroup) 98500..98900 self 0
                  container.start.oci.create.bootstrap (bootstrap init) 99200..100100 self 900 *
                  container.start.oci.create.namespaces 100100..101000 self 900 *
                  container.start.oci.create.init (init starts) 101000..104000 self 3000 *
                  container.start.oci.create.mounts 104000..105310 self 1310 *
                  container.start.oci.create.sync (sync with init) 105310..106000 self 690 *
                  container.start.oci.create.limits (cgroup limits) 106000..106300 self 300 *
                  container.start.oci.create.sync (sync with init) 106300..107000 self 700 *
                  container.start.oci.create.pivot (pivot_root) 107000..107600 self 600 *
                  container.start.oci.create.mounts (masked paths) 108000..108100 self 100 *
                  container.start.oci.create.state (save state) 108100..108310 self 210 *
                  container.start.oci.create.privileges 108500..108610 self 110 *
                  container.start.oci.create.seccomp (seccomp filter) 108610..110200 self 1590 *
                  container.start.oci.create.finish 110200..111000 self 800 *
                container.start.oci.fifo_wait (waiting for start) 111000..113900 self 2900 *
                container.start.oci.start (runc start) 113900..117100 self 3200 pid 1124 *
                container.start.task.reply (Task/Start) 117100..119000 self 1900 *
                container.exec (/bin/app) 117100..117100 self 0 pid 1123 errno 8
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 1123 exec /bin/app at 117100 errno 8 exit 255 at 118000 [cpu.max=50000 100000, memory.max=134217728]
            verdict container.exec / exec_failed: exec of /bin/app failed with errno 8
        "#]],
    );
}

#[test]
fn init_dies_before_exec() {
    let traces = dying(false).feed(Config::default());
    let verdict = traces[0].verdict.as_ref().map(|v| (v.stage.as_str(), v.reason.as_str()));
    assert_eq!(verdict, Some(("container.exec", "exited_before_exec")));
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Failed));
}

#[test]
fn create_is_tried_again() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    let request = [(Field::SandboxId, pod.sandbox.as_str()), (Field::ContainerName, "app")];
    s.failing_call((80_000, 81_000), "CreateContainer", &request, "failed to reserve container name");
    container(&mut s, &pod, 200_000, "app", "/bin/app");
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Failed, Outcome::Complete]);
    assert_eq!(traces[1].quality.notes, ["retried: call_failed: failed to reserve container name"]);
}

#[test]
fn a_mount_fails_in_create() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    let (id, pid) = create_container(&mut s, &pod, 80_000, "app");
    s.failing_call((90_000, 125_000), "StartContainer", &[(Field::ContainerId, &id)], "OCI runtime create failed");
    oci(&mut s, &pod, 95_000, &id, pid, "/bin/app", true);
    let mut s = s.without(|at, item| at > 105_000 && matches!(item, Item::Record(_)));
    s.failing_sys((105_100, 105_200), (pid + 3, pid + 3), Sys::Mount, 0, ["/data", "/mnt", "bind"], -2);
    s.exit(106_000, pid + 3, 1);
    s.exit(107_000, pid, 1);
    let traces = s.feed(Config::default());
    let verdict = traces[0].verdict.as_ref().map(|v| (v.stage.as_str(), v.message.as_str()));
    assert_eq!(verdict, Some(("container.start.oci.create.mounts", "OCI runtime create failed")));
}

#[test]
fn a_pull_fails_then_works() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    let request = [(Field::PodUid, pod.uid.as_str()), (Field::Image, "docker.io/library/busybox:1")];
    s.failing_call((77_000, 78_000), "PullImage", &request, "not found");
    s.call((90_000, 95_000), "PullImage", &request, &[(Field::ImageRef, "sha256:1")]);
    container(&mut s, &pod, 100_000, "app", "/bin/app");
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Failed, Outcome::Complete]);
    assert_eq!(traces[0].verdict.as_ref().map(|v| v.stage.as_str()), Some("image.pull"));
    assert_eq!(traces[1].stages.iter().find(|s| s.stage == "image.pull").map(|s| s.count), Some(2));
}

#[test]
fn the_client_gives_up() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    let key = s.begin_call(0, "RunPodSandbox", &pod.request());
    network(&mut s, &pod);
    s = s.without(|at, _| at > 24_000);
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Start(start)) = item {
            start.timeout_ns = Some(60_000_000);
        }
    }
    s.end_call(60_000, key, Ending::ResetByClient(8));
    let traces = s.feed(Config::default());
    let verdict = traces[0].verdict.as_ref().map(|v| (v.stage.as_str(), v.reason.as_str(), v.culprit.as_deref()));
    assert_eq!(verdict, Some(("sandbox.cni.host-local", "client_deadline", Some("exe (pid 1003)"))));
}

/// containerd keeps the deadline as well: it has killed the plugin, and cleans up, before its client's reset arrives; or
/// it says that it was interrupted.
#[test]
fn the_runtime_keeps_its_clients_deadline() {
    let verdict = |method: &str, ending: Ending| {
        let mut s = Stream::new();
        let pod = Pod::new("web", "1", 1000);
        if method == "PullImage" {
            sandbox(&mut s, &pod);
        }
        let begin = if method == "PullImage" { 77_000 } else { 0 };
        let key = s.begin_call(begin, method, &pod.request());
        for (at, item) in &mut s.items {
            if let Item::Call(CallEvent::Start(start)) = item
                && *at == begin
            {
                start.timeout_ns = Some(2_000_000_000);
            }
        }
        if method == "RunPodSandbox" {
            s.cni((3_000, 6_000), super::dsl::RUNTIME, 1001, "loopback", &pod.env("ADD"));
            s.cni((3_500, 2_002_000), super::dsl::RUNTIME, 1002, "bridge", &pod.env("ADD"));
            super::verdicts::exit(&mut s, 1002, None, Some(9));
            s.cni((2_005_000, 2_020_000), super::dsl::RUNTIME, 1003, "loopback", &pod.env("DEL"));
        }
        s.end_call(begin + 2_008_000, key, ending);
        let traces = s.feed_last(Config::default());
        let found = traces[0].verdict.as_ref().expect("a verdict");
        format!("{} {} {}", found.stage, found.reason, found.culprit.as_deref().unwrap_or("-"))
    };
    let said = |code| Ending::Status { code, message: "context deadline exceeded".into() };
    let network = "sandbox.cni.bridge client_deadline bridge (pid 1002)";
    assert_eq!(verdict("RunPodSandbox", Ending::ResetByClient(8)), network);
    assert_eq!(verdict("RunPodSandbox", Ending::ResetByServer(8)), network);
    assert_eq!(verdict("RunPodSandbox", said(4)), network);
    assert_eq!(verdict("RunPodSandbox", said(2)), network);
    assert_eq!(verdict("PullImage", said(4)), "image.pull client_deadline -");
}

#[test]
fn the_runtime_restarts_in_the_middle() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    let key = s.begin_call(0, "RunPodSandbox", &pod.request());
    network(&mut s, &pod);
    s = s.without(|at, _| at > 24_000);
    s.exit(24_000, RUNTIME, 2);
    s.end_call(24_000, key, Ending::RuntimeRestarted);
    check(
        s,
        expect![[r#"
            failed default/web total 24000 named 800
              sandbox (RunPodSandbox) 0..24000 self 2290 ended=runtime_restarted *
                sandbox.netns (network namespace) 1000..1700 self 700 *
                sandbox.cni (CNI) 2990..24000 self 0 *
                  sandbox.cni.loopback 2990..6000 self 100 pid 1001 *
                  sandbox.cni.bridge 3090..24000 self 16900 pid 1002 *
                    sandbox.cni.host-local 19990..24000 self 4010 pid 1003 *
            sandbox 1a pid ? shim ?
            verdict sandbox.cni.host-local / runtime_restarted: the runtime's process ended before the reply
            quality lost 0 undecoded 0 notes ["runtime_restarted"]
        "#]],
    );
}

#[test]
fn the_client_is_gone() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    let key = s.begin_call(0, "RunPodSandbox", &pod.request());
    network(&mut s, &pod);
    s = s.without(|at, _| at > 24_000);
    s.end_call(24_000, key, Ending::ConnectionClosed);
    let traces = s.feed(Config::default());
    let verdict = traces[0].verdict.as_ref().map(|v| (v.stage.as_str(), v.reason.as_str()));
    assert_eq!(verdict, Some(("sandbox.cni.host-local", "connection_closed")));
    assert!(traces[0].quality.notes.is_empty(), "{:?}", traces[0].quality);
}

#[test]
fn podlapse_comes_in_the_middle() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    let s = s.without(|at, item| at < 79_000 && !matches!(item, Item::Record(r) if r.tgid.0 == RUNTIME && at == 0));
    check(
        s,
        expect![[r#"
            partial default/web total 52000 named 26920
              container.create (CreateContainer) 0..8000 self 8000 code 0 *
              kubelet.gap (between calls) 8000..10000 self 2000 *
              container.start (StartContainer) 10000..52000 self 14490 code 0 *
                container.start.shim (shim start) 10990..13000 self 2010 pid 1130 *
                container.start.shim.connect (connecting to the shim) 13000..15100 self 2100 *
                container.start.task.request (Task/Create) 15100..15200 self 100 *
                container.start.rootfs (mount rootfs) 15200..15400 self 200 *
                container.start.oci.create (runc create) 15900..31000 self 590 pid 1120 *
                  container.start.oci.create.load (load the bundle) 15900..18200 self 2300 *
                  container.start.oci.create.self_clone (self clone) 18200..19200 self 1000 *
                  container.start.oci.create.cgroup_join (join cgroup) 18500..18900 self 0
                  container.start.oci.create.bootstrap (bootstrap init) 19200..20100 self 900 *
                  container.start.oci.create.namespaces 20100..21000 self 900 *
                  container.start.oci.create.init (init starts) 21000..24000 self 3000 *
                  container.start.oci.create.mounts 24000..25310 self 1310 *
                  container.start.oci.create.sync (sync with init) 25310..26000 self 690 *
                  container.start.oci.create.limits (cgroup limits) 26000..26300 self 300 *
                  container.start.oci.create.sync (sync with init) 26300..27000 self 700 *
                  container.start.oci.create.pivot (pivot_root) 27000..27600 self 600 *
                  container.start.oci.create.mounts (masked paths) 28000..28100 self 100 *
                  container.start.oci.create.state (save state) 28100..28310 self 210 *
                  container.start.oci.create.privileges 28500..28610 self 110 *
                  container.start.oci.create.seccomp (seccomp filter) 28610..30200 self 1590 *
                  container.start.oci.create.finish 30200..31000 self 800 *
                container.start.oci.fifo_wait (waiting for start) 31000..33900 self 2900 *
                container.start.oci.start (runc start) 33900..37000 self 3100 pid 1124 *
                container.start.task.reply (Task/Start) 37000..39000 self 2000 *
                container.exec (/bin/app) 37000..37000 self 0 pid 1123
            sandbox 1a pid ? shim ?
            container app 1c1 pid 1123 exec /bin/app at 37000 [cpu.max=50000 100000, memory.max=134217728]
            quality lost 0 undecoded 0 notes ["begins_in_the_middle"]
        "#]],
    );
}

#[test]
fn a_reply_is_lost() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    let reply = |item: &Item| matches!(item, Item::Call(CallEvent::Response { .. } | CallEvent::End { .. }));
    let traces = s.without(|at, item| at == 76_000 && reply(item)).feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Complete));
    assert_eq!(traces[0].quality.notes, ["reply_not_seen: RunPodSandbox"]);
}

#[test]
fn the_last_reply_is_lost() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.record(140_000, 1, Event::Lost { counter: tracer_ebpf::counter::BYTES_LOST, count: 1 });
    s.tick(5_000_000);
    let reply = |item: &Item| matches!(item, Item::Call(CallEvent::Response { .. } | CallEvent::End { .. }));
    let traces = s.without(|at, item| at == 132_000 && reply(item)).feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Partial));
    assert_eq!(traces[0].quality.notes, ["reply_not_seen: StartContainer"]);
}

#[test]
fn signs_are_lost() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    // All signs of StartContainer.
    let mut s = s.without(|at, item| (90_000..132_000).contains(&at) && matches!(item, Item::Record(_)));
    s.record(133_000, 1, Event::Lost { counter: tracer_ebpf::counter::SIGNS_LOST, count: 40 });
    s.items.push((
        134_000,
        Item::Call(CallEvent::Undecoded {
            conn: crate::ids::ConnId(1),
            at: crate::ids::MonotonicNs(134_000_000),
            bytes: 9,
        }),
    ));
    check(
        s,
        expect![[r#"
            partial default/web total 132000 named 81530
              sandbox (RunPodSandbox) 0..76000 self 11780 code 0 *
                sandbox.netns (network namespace) 1000..1700 self 700 *
                sandbox.cni (CNI) 2990..40000 self 0 *
                  sandbox.cni.loopback 2990..6000 self 100 pid 1001 *
                  sandbox.cni.bridge 3090..30000 self 0 pid 1002 *
                    sandbox.cni.bridge.host (on the node) 3090..8000 self 4910 *
                    sandbox.cni.bridge.netns (in the pod's network) 8000..14000 self 6000 *
                    sandbox.cni.bridge.host (on the node) 14000..19990 self 5990 *
                    sandbox.cni.host-local 19990..25000 self 5010 pid 1003 *
                    sandbox.cni.bridge.host (on the node) 25000..26000 self 1000 *
                    sandbox.cni.bridge.netns (in the pod's network) 26000..27000 self 1000 *
                    sandbox.cni.bridge.host (on the node) 27000..30000 self 3000 *
                  sandbox.cni_next (next plugin) 30000..30990 self 990 *
                  sandbox.cni.portmap 30990..40000 self 9010 pid 1004 ran=iptables 1 *
                sandbox.shim (shim start) 40990..43000 self 910 pid 1010 *
                sandbox.shim.daemon (shim daemon) 41900..43510 self 1100 pid 1011 *
                sandbox.shim.connect (connecting to the shim) 43000..44100 self 1100 *
                sandbox.task.request (Task/Create) 44100..44200 self 100 *
                sandbox.rootfs (mount rootfs) 44200..44400 self 200 *
                sandbox.oci.create (runc create) 44900..60000 self 590 pid 1020 *
                  sandbox.oci.create.load (load the bundle) 44900..47200 self 2300 *
                  sandbox.oci.create.self_clone (self clone) 47200..48200 self 1000 *
                  sandbox.oci.create.cgroup_join (join cgroup) 47500..47900 self 0
                  sandbox.oci.create.bootstrap (bootstrap init) 48200..49100 self 900 *
                  sandbox.oci.create.namespaces 49100..50000 self 900 *
                  sandbox.oci.create.init (init starts) 50000..53000 self 3000 *
                  sandbox.oci.create.mounts 53000..54310 self 1310 *
                  sandbox.oci.create.sync (sync with init) 54310..55000 self 690 *
                  sandbox.oci.create.limits (cgroup limits) 55000..55300 self 300 *
                  sandbox.oci.create.sync (sync with init) 55300..56000 self 700 *
                  sandbox.oci.create.pivot (pivot_root) 56000..56600 self 600 *
                  sandbox.oci.create.mounts (masked paths) 57000..57100 self 100 *
                  sandbox.oci.create.state (save state) 57100..57310 self 210 *
                  sandbox.oci.create.privileges 57500..57610 self 110 *
                  sandbox.oci.create.seccomp (seccomp filter) 57610..59200 self 1590 *
                  sandbox.oci.create.finish 59200..60000 self 800 *
                sandbox.oci.fifo_wait (waiting for start) 60000..62900 self 2900 *
                sandbox.oci.start (runc start) 62900..66000 self 3100 pid 1024 *
                sandbox.task.reply (Task/Start) 66000..68000 self 2000 *
              kubelet.gap (between calls) 76000..80000 self 4000 *
              container.create (CreateContainer) 80000..88000 self 8000 code 0 *
              kubelet.gap (between calls) 88000..90000 self 2000 *
              container.start (StartContainer) 90000..132000 self 18100 code 0 *
                container.start.oci.create (Task/Create) 95100..112000 self 16900 *
                container.start.oci.fifo_wait (waiting for start) 112000..113000 self 1000 *
                container.start.oci.start (Task/Start) 113000..119000 self 6000 *
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 1123 []
            quality lost 40 undecoded 9 notes ["entrypoint_not_seen: app"]
        "#]],
    );
}

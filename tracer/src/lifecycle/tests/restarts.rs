//! Later attempts of a container in a sandbox that runs.

use expect_test::expect;

use super::check;
use super::containerd::{Pod, attempt, container, sandbox};
use super::dsl::{Stream, id};
use crate::cri::Field;
use crate::engine::Config;
use crate::trace::{Outcome, StartKind, Trace};

/// A pod with `app` and `log`, both running.
fn pair(s: &mut Stream) -> Pod {
    let pod = Pod::new("pair", "1", 1000);
    sandbox(s, &pod);
    container(s, &pod, 80_000, "app", "/bin/app");
    container(s, &pod, 140_000, "log", "/bin/log");
    pod
}

/// The init of the first attempt of `app`.
const APP: u32 = 1123;

fn names(traces: &[Trace]) -> Vec<(StartKind, Outcome, Vec<String>)> {
    let containers = |trace: &Trace| {
        let known = trace.containers.iter().map(|c| {
            let (id, peer) = (c.id.as_ref().map_or("?", |id| &id.as_str()[..3]), if c.peer { " peer" } else { "" });
            format!("{} {id}{peer}", c.name.as_deref().unwrap_or("?"))
        });
        known.collect()
    };
    traces.iter().map(|trace| (trace.kind, trace.outcome, containers(trace))).collect()
}

#[test]
fn an_app_that_was_killed() {
    let mut s = Stream::new();
    let pod = pair(&mut s);
    s.exit(3_000_000, APP, 1);
    attempt(&mut s, &pod, 4_000_000, "app", "/bin/app", 1);
    s.tick(9_000_000);
    let traces = check(
        s,
        expect![[r#"
            complete default/pair total 192000 named 117470
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
              container.start (StartContainer) 90000..132000 self 14490 code 0 *
                container.start.shim (shim start) 90990..93000 self 2010 pid 1130 *
                container.start.shim.connect (connecting to the shim) 93000..95100 self 2100 *
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
                container.start.oci.start (runc start) 113900..117000 self 3100 pid 1124 *
                container.start.task.reply (Task/Start) 117000..119000 self 2000 *
                container.exec (/bin/app) 117000..117000 self 0 pid 1123
              kubelet.gap (between calls) 132000..140000 self 8000 *
              container.create (CreateContainer) 140000..148000 self 8000 code 0 *
              kubelet.gap (between calls) 148000..150000 self 2000 *
              container.start (StartContainer) 150000..192000 self 14490 code 0 *
                container.start.shim (shim start) 150990..153000 self 2010 pid 1150 *
                container.start.shim.connect (connecting to the shim) 153000..155100 self 2100 *
                container.start.task.request (Task/Create) 155100..155200 self 100 *
                container.start.rootfs (mount rootfs) 155200..155400 self 200 *
                container.start.oci.create (runc create) 155900..171000 self 590 pid 1140 *
                  container.start.oci.create.load (load the bundle) 155900..158200 self 2300 *
                  container.start.oci.create.self_clone (self clone) 158200..159200 self 1000 *
                  container.start.oci.create.cgroup_join (join cgroup) 158500..158900 self 0
                  container.start.oci.create.bootstrap (bootstrap init) 159200..160100 self 900 *
                  container.start.oci.create.namespaces 160100..161000 self 900 *
                  container.start.oci.create.init (init starts) 161000..164000 self 3000 *
                  container.start.oci.create.mounts 164000..165310 self 1310 *
                  container.start.oci.create.sync (sync with init) 165310..166000 self 690 *
                  container.start.oci.create.limits (cgroup limits) 166000..166300 self 300 *
                  container.start.oci.create.sync (sync with init) 166300..167000 self 700 *
                  container.start.oci.create.pivot (pivot_root) 167000..167600 self 600 *
                  container.start.oci.create.mounts (masked paths) 168000..168100 self 100 *
                  container.start.oci.create.state (save state) 168100..168310 self 210 *
                  container.start.oci.create.privileges 168500..168610 self 110 *
                  container.start.oci.create.seccomp (seccomp filter) 168610..170200 self 1590 *
                  container.start.oci.create.finish 170200..171000 self 800 *
                container.start.oci.fifo_wait (waiting for start) 171000..173900 self 2900 *
                container.start.oci.start (runc start) 173900..177000 self 3100 pid 1144 *
                container.start.task.reply (Task/Start) 177000..179000 self 2000 *
                container.exec (/bin/log) 177000..177000 self 0 pid 1143
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 1123 exec /bin/app at 117000 [cpu.max=50000 100000, memory.max=134217728]
            container log 1c2 pid 1143 exec /bin/log at 177000 [cpu.max=50000 100000, memory.max=134217728]
            complete container of default/pair total 52000 named 26920
              container.create (CreateContainer) 0..8000 self 8000 code 0 *
              kubelet.gap (between calls) 8000..10000 self 2000 *
              container.start (StartContainer) 10000..52000 self 14490 code 0 *
                container.start.shim (shim start) 10990..13000 self 2010 pid 1530 *
                container.start.shim.connect (connecting to the shim) 13000..15100 self 2100 *
                container.start.task.request (Task/Create) 15100..15200 self 100 *
                container.start.rootfs (mount rootfs) 15200..15400 self 200 *
                container.start.oci.create (runc create) 15900..31000 self 590 pid 1520 *
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
                container.start.oci.start (runc start) 33900..37000 self 3100 pid 1524 *
                container.start.task.reply (Task/Start) 37000..39000 self 2000 *
                container.exec (/bin/app) 37000..37000 self 0 pid 1523
            sandbox 1a pid 1023 shim 1011
            peer container log 1c2 pid 1143 [cpu.max=50000 100000, memory.max=134217728]
            container app 1d1 pid 1523 exec /bin/app at 37000 [cpu.max=50000 100000, memory.max=134217728]
        "#]],
    );
    assert_eq!(traces[0].sandbox.id, traces[1].sandbox.id);
    assert_eq!(traces[1].pod.uid, traces[0].pod.uid);
    assert_ne!(traces[0].trace_id, traces[1].trace_id);
}

#[test]
fn while_the_pods_own_start_goes_on() {
    let mut s = Stream::new();
    let pod = pair(&mut s);
    s.exit(200_000, APP, 1);
    attempt(&mut s, &pod, 210_000, "app", "/bin/app", 1);
    s.tick(9_000_000);
    let (app, log) = ("app 1c1".to_owned(), "log 1c2".to_owned());
    let traces = s.feed(Config::default());
    let pods = traces.iter().filter(|trace| trace.kind == StartKind::Pod).cloned().collect::<Vec<_>>();
    assert_eq!(names(&pods), [(StartKind::Pod, Outcome::Complete, vec![app, log])]);
    assert_eq!(traces.len(), 2);
}

/// A start that failed is not reopened by the next attempt.
#[test]
fn each_attempt_for_itself() {
    let mut s = Stream::new();
    let pod = pair(&mut s);
    s.exit(3_000_000, APP, 1);
    attempt(&mut s, &pod, 4_000_000, "app", "/bin/app", 1);
    s.exit(6_500_000, APP + 400, 1);
    attempt(&mut s, &pod, 7_000_000, "app", "/bin/app", 2);
    s.tick(12_000_000);
    let traces = s.feed(Config { containers: Some(2), ..Config::default() });
    let log = "log 1c2 peer".to_owned();
    assert_eq!(
        names(&traces[1..]),
        [
            (StartKind::Container, Outcome::Complete, vec![log.clone(), "app 1d1".into()]),
            (StartKind::Container, Outcome::Complete, vec![log, "app 1e1".into()]),
        ]
    );
}

/// podlapse came when the pod ran.
#[test]
fn in_a_sandbox_that_was_there() {
    let mut s = Stream::new();
    let pod = Pod::new("pair", "1", 1000);
    attempt(&mut s, &pod, 4_000_000, "app", "/bin/app", 1);
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(names(&traces), [(StartKind::Container, Outcome::Complete, vec!["app 1d1".into()])]);
    assert_eq!(traces[0].pod.name.as_deref(), Some("pair"));
    assert_eq!(traces[0].quality.notes, ["sandbox_start_not_seen"]);
    assert!(traces[0].spans.iter().all(|span| !span.stage.starts_with("sandbox")));
}

/// A sandbox that is removed takes the starts of its containers with it; another pod's stay.
#[test]
fn of_a_pod_that_goes() {
    let mut s = Stream::new();
    let pod = pair(&mut s);
    s.exit(3_000_000, APP, 1);
    let key = |s: &mut Stream| {
        let request =
            [(Field::SandboxId, pod.sandbox.as_str()), (Field::ContainerName, "app"), (Field::ContainerAttempt, "1")];
        s.begin_call(4_000_000, "CreateContainer", &request)
    };
    key(&mut s);
    s.call((4_500_000, 4_600_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.call((4_700_000, 4_800_000), "RemovePodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Complete, Outcome::Failed]);
    assert_eq!(traces[1].verdict.as_ref().map(|v| v.reason.as_str()), Some("sandbox_stopped"));
}

/// A rebuilt sandbox is a pod's start, whatever its containers' attempts.
#[test]
fn a_rebuilt_sandbox() {
    let mut s = Stream::new();
    pair(&mut s);
    let mut again = Pod::new("pair", "1", 3000);
    again.sandbox = id("1b");
    s.offset = 5_000_000;
    sandbox(&mut s, &again);
    attempt(&mut s, &again, 80_000, "app", "/bin/app", 1);
    s.offset = 0;
    s.tick(12_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(names(&traces[1..]), [(StartKind::Pod, Outcome::Complete, vec!["app 1d1".into()])]);
}

/// A pull before the CreateContainer is where a container's start begins.
#[test]
fn with_a_pull() {
    let mut s = Stream::new();
    let pod = pair(&mut s);
    s.exit(3_000_000, APP, 1);
    let image = (Field::Image, "docker.io/library/busybox:1");
    let uid = (Field::PodUid, pod.uid.as_str());
    // Of another pod, and one that is too long ago.
    s.call((7_950_000, 7_960_000), "PullImage", &[image, (Field::PodUid, "x")], &[]);
    s.call((3_000_000, 3_100_000), "PullImage", &[image, uid], &[]);
    s.call((7_900_000, 7_990_000), "PullImage", &[image, uid], &[]);
    attempt(&mut s, &pod, 8_000_000, "app", "/bin/app", 1);
    s.tick(12_000_000);
    let traces = s.feed(Config::default());
    let calls = traces[1].spans.iter().filter(|span| span.call.is_some());
    let calls: Vec<_> = calls.map(|span| (span.name.as_str(), span.start_ns / 1_000_000)).collect();
    assert_eq!(calls, [("PullImage", 0), ("CreateContainer", 100), ("StartContainer", 110)]);
    assert_eq!((traces[1].outcome, traces[1].total_ns), (Outcome::Complete, 152_000_000));
}

//! What follows the entrypoint's exec: hooks, probes, the first listen.

use super::containerd::{Pod, container, sandbox};
use super::dsl::{Stream, id, namespaces};
use super::{check, render};
use crate::cri::{Ending, Field, Value};
use crate::engine::Config;
use crate::ids::CgroupId;
use crate::record::{Event, Listen};
use crate::trace::{Outcome, Trace};

/// The init of `app`.
const INIT: u32 = 1123;

fn running() -> (Stream, Pod) {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    (s, pod)
}

fn exec_sync(s: &mut Stream, times: (u64, u64), timeout: &str, code: u64) {
    let app = id("1c1");
    let mut request = vec![(Field::ContainerId, app.as_str())];
    if timeout != "0" {
        request.push((Field::Timeout, timeout));
    }
    let key = s.begin_call(times.0, "ExecSync", &request);
    s.reply(times.1, key, vec![(Field::ExecExitCode, Value::Number(code))]);
    s.end_call(times.1, key, Ending::Status { code: 0, message: String::new() });
}

fn traces(mut s: Stream) -> Vec<Trace> {
    s.tick(20_000_000);
    s.feed(Config::default())
}

fn after(trace: &Trace) -> Vec<String> {
    let text = render::trace(trace);
    let wanted = ["poststart", "probe.exec", "container.listen", "complete", "quality"];
    text.lines().map(str::trim).filter(|line| wanted.iter().any(|it| line.starts_with(it))).map(str::to_owned).collect()
}

#[test]
fn a_poststart_hook_and_probes() {
    let (mut s, pod) = running();
    exec_sync(&mut s, (133_000, 180_000), "0", 0);
    exec_sync(&mut s, (150_000, 160_000), "1", 1);
    container(&mut s, &pod, 200_000, "log", "/bin/log");
    exec_sync(&mut s, (240_000, 900_000), "1", 0);
    exec_sync(&mut s, (1_000_000, 1_100_000), "1", 0);
    // A PreStop hook.
    exec_sync(&mut s, (3_000_000, 3_100_000), "0", 0);
    let traces = traces(s);
    expect_test::expect![[r#"
        complete default/web total 252000 named 164470
        poststart (ExecSync) 133000..180000 self 47000 code 0 *
        probe.exec (ExecSync) 150000..160000 self 0 code 0
        probe.exec (ExecSync) 240000..252000 self 0 code 0"#]]
    .assert_eq(&after(&traces[0]).join("\n"));
    assert_eq!(traces[0].containers.len(), 2);
}

/// A hook that hangs keeps the start from being over; probes do not.
#[test]
fn what_is_waited_for() {
    let (mut s, _) = running();
    let app = id("1c1");
    s.begin_call(133_000, "ExecSync", &[(Field::ContainerId, &app)]);
    let hanging = traces(s);
    assert_eq!(hanging[0].outcome, Outcome::InProgress);
    assert!(hanging[0].spans.iter().any(|span| span.stage == "poststart" && span.end_ns.is_none()));

    let (mut s, _) = running_with_probes();
    s.tick(20_000_000);
    let traces = s.feed(Config::default());
    assert_eq!((traces[0].outcome, traces[0].total_ns), (Outcome::Complete, 132_000_000));
    assert_eq!(traces[0].quality.notes, ["more_exec_probes: 2"]);
}

/// A probe that hangs, and a probe each 50 ms.
fn running_with_probes() -> (Stream, Pod) {
    let (mut s, pod) = running();
    let app = id("1c1");
    s.begin_call(140_000, "ExecSync", &[(Field::ContainerId, &app), (Field::Timeout, "1")]);
    for number in 0..33 {
        exec_sync(&mut s, (150_000 + 50_000 * number, 151_000 + 50_000 * number), "1", 0);
    }
    (s, pod)
}

#[test]
fn a_hook_that_fails() {
    let (mut s, _) = running();
    let app = id("1c1");
    s.failing_call((133_000, 140_000), "ExecSync", &[(Field::ContainerId, &app)], "no such process");
    check(
        s,
        expect_test::expect![[r#"
            failed default/web total 140000 named 97550
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
              kubelet.gap (between calls) 132000..133000 self 1000 *
              poststart (ExecSync) 133000..140000 self 7000 code 2 *
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 1123 exec /bin/app at 117000 [cpu.max=50000 100000, memory.max=134217728]
            verdict poststart / poststart_failed: no such process
        "#]],
    );
}

/// A listen by `pid` in the network namespace with that number.
fn listen(s: &mut Stream, at: u64, pid: u32, cgroup: u64, net: u32, port: u32) {
    s.record(at, pid, Event::Listen(Listen { cgroup: CgroupId(cgroup), netns: namespaces(net).net, port }));
}

fn listening(s: Stream) -> Vec<Option<(u32, u64)>> {
    let trace = traces(s).remove(0);
    trace.containers.iter().map(|it| it.listen.map(|listen| (listen.port, listen.at_ns / 1_000_000))).collect()
}

#[test]
fn the_first_listen() {
    let (mut s, _) = running();
    // The runtime's own, another namespace, init, again.
    listen(&mut s, 117_500, 100, 1, 1000, 1);
    listen(&mut s, 118_000, INIT, 1, 5000, 2);
    listen(&mut s, 125_000, INIT, 1, 1000, 8080);
    listen(&mut s, 126_000, INIT, 1, 1000, 9090);
    let trace = traces(s).remove(0);
    let listens = ["container.listen (port 8080) 125000..125000 self 0 pid 1123"];
    assert_eq!(after(&trace).into_iter().filter(|line| line.starts_with("container")).collect::<Vec<_>>(), listens);
    let listen = trace.containers[0].listen.expect("a listen");
    assert_eq!((listen.port, listen.at_ns), (8080, 125_000_000));
}

/// While the start settles it still counts, outside of the trace's time.
#[test]
fn a_late_listen() {
    let (mut s, _) = running();
    listen(&mut s, 1_000_000, INIT, 1, 1000, 8080);
    let trace = traces(s).remove(0);
    assert_eq!((trace.total_ns, trace.containers[0].listen.map(|it| it.at_ns)), (132_000_000, Some(1_000_000_000)));
    assert!(trace.spans.iter().all(|span| span.stage != "container.listen"));
}

/// Where cgroups tell nothing, a child of the only container in the pod's namespace is known by that.
#[test]
fn a_child_of_the_only_container() {
    let (mut s, _) = running();
    listen(&mut s, 190_000, 7777, 1, 1000, 80);
    assert_eq!(listening(s), [Some((80, 190))]);
    // On the node's network everybody has the same.
    let mut s = Stream::new();
    let pod = Pod { host_network: true, ..Pod::new("host", "3", 3000) };
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    listen(&mut s, 190_000, 7777, 1, 3000, 80);
    assert_eq!(listening(s), [None]);
}

/// A child that nobody follows is known by its cgroup, unless two containers have the same, or it is the root.
#[test]
fn a_child_listens() {
    let with_cgroups = |app: u64, log: u64| {
        let (mut s, pod) = running();
        container(&mut s, &pod, 140_000, "log", "/bin/log");
        for (_, item) in &mut s.items {
            if let super::dsl::Item::Record(record) = item
                && let Event::Exec(exec) = &mut record.event
                && exec.container
            {
                let own = match exec.filename.as_str() {
                    "/bin/app" => app,
                    "/bin/log" => log,
                    _ => 1,
                };
                exec.cgroup = CgroupId(own);
            }
        }
        s
    };
    let mut s = with_cgroups(71, 72);
    listen(&mut s, 190_000, 7777, 72, 1000, 80);
    assert_eq!(listening(s), [None, Some((80, 190))]);
    for (app, log) in [(71, 71), (1, 1)] {
        let mut s = with_cgroups(app, log);
        listen(&mut s, 190_000, 7777, log, 1000, 80);
        assert_eq!(listening(s), [None, None]);
    }
    let mut s = with_cgroups(71, 72);
    listen(&mut s, 190_000, 7777, 72, 5000, 80);
    assert_eq!(listening(s), [None, None], "a namespace of its own");
}

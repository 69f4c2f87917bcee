//! CRI-O (FACTS 2.6): pinns, conmon, the runtime's create inside CreateContainer, no pause process.

use expect_test::expect;

use super::containerd::Pod;
use super::dsl::{RUNTIME, Stream, id};
use super::{check, render};
use crate::cri::{Ending, Field, Value};
use crate::engine::Config;
use crate::record::{CgroupOp, Event, Exit, Sys};
use crate::trace::Outcome;

const PINS: &str = "/usr/bin/pinns -d /var/run -f 1 --ipc --net --uts";
const SUBREAPER: u64 = 36;
const NEW_REST: u64 = 0x2c02_0000;

fn pod() -> Pod {
    Pod::new("web", "1", 1000)
}

/// What happens inside RunPodSandbox, 1 000 to 40 000.
fn network(s: &mut Stream) {
    s.process((1_000, 5_000), RUNTIME, 1001, PINS);
    let mut env = pod().env("ADD");
    for (name, value) in &mut env {
        if name == "CNI_NETNS" {
            *value = "/var/run/netns/1".to_owned();
        }
    }
    s.cni((8_000, 30_000), RUNTIME, 1002, "bridge", &env);
    s.cni((31_000, 40_000), RUNTIME, 1003, "portmap", &env);
}

fn app() -> String {
    id("1c")
}

/// What happens inside CreateContainer from `at` on, 30 ms.
fn conmon(s: &mut Stream, at: u64, runtime: &str) {
    let (conmon, monitor, create, init) = (1500, 1501, 1502, 1503);
    let app = app();
    s.fork(at, RUNTIME, conmon);
    let command = format!("/usr/bin/conmon -b /run/c/{app} -c {app} -r /usr/bin/{runtime} -u {app} -s");
    s.exec(at + 200, RUNTIME, conmon, &command);
    s.fork(at + 2_000, conmon, monitor);
    s.exit(at + 2_100, conmon, 0);
    s.sys((at + 2_200, at + 2_210), (monitor, monitor), Sys::Prctl, SUBREAPER, [""; 3]);
    s.fork(at + 3_000, monitor, create);
    let command = format!("/usr/bin/{runtime} --root=/run/{runtime} create --bundle /run/c/{app} {app}");
    s.exec(at + 3_300, monitor, create, &command);
    s.cgroup(at + 5_000, create, CgroupOp::Mkdir, &pod().cgroup(&format!("crio-{app}.scope")), None);
    s.clone(at + 6_000, create, init, if runtime == "crun" { NEW_REST } else { 0x11 }, super::dsl::CGROUP);
    if runtime == "runc" {
        s.exec(at + 6_300, create, init, "/proc/self/exe: runc init");
        s.sys((at + 7_000, at + 7_500), (init, init), Sys::Unshare, NEW_REST, [""; 3]);
    }
    s.sys((at + 10_000, at + 10_400), (init, init), Sys::Mount, 0, ["proc", "/proc", "proc"]);
    s.write((at + 12_000, at + 12_300), create, &app, "memory.max", "1000");
    s.sys((at + 14_000, at + 14_200), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
    s.exit(at + 20_000, create, 0);
}

/// What happens inside StartContainer from `at` on, 5 ms.
fn start(s: &mut Stream, at: u64, runtime: &str) {
    s.process((at, at + 5_000), RUNTIME, 1504, &format!("/usr/bin/{runtime} --root=/run/{runtime} start {}", app()));
    s.exec_in_container(at + 4_000, 1501, 1503, "/bin/app", 7);
}

fn request(sandbox: &str) -> [(Field, &str); 2] {
    [(Field::SandboxId, sandbox), (Field::ContainerName, "app")]
}

pub(super) fn whole(runtime: &str) -> Stream {
    let mut s = Stream::new();
    let pod = pod();
    s.call((0, 45_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
    network(&mut s);
    s.call((50_000, 85_000), "CreateContainer", &request(&pod.sandbox), &[(Field::ContainerId, &app())]);
    conmon(&mut s, 55_000, runtime);
    s.call((90_000, 100_000), "StartContainer", &[(Field::ContainerId, &app())], &[]);
    start(&mut s, 92_000, runtime);
    s.tick(9_000_000);
    s
}

#[test]
fn with_runc() {
    check(
        whole("runc"),
        expect![[r#"
        complete default/web total 100000 named 53440
          sandbox (RunPodSandbox) 0..45000 self 8980 code 0 *
            sandbox.netns (pinns) 990..5000 self 4010 pid 1001 *
            sandbox.cni (CNI) 7990..40000 self 0 *
              sandbox.cni.bridge 7990..30000 self 22010 pid 1002 *
              sandbox.cni_next (next plugin) 30000..30990 self 990 *
              sandbox.cni.portmap 30990..40000 self 9010 pid 1003 *
          kubelet.gap (between calls) 45000..50000 self 5000 *
          container.create (CreateContainer) 50000..85000 self 5790 code 0 *
            container.create.shim (conmon) 55000..57100 self 2000 pid 1500 *
            container.create.shim.daemon (shim daemon) 57000..57210 self 210 pid 1501 *
            container.create.oci.create (runc create) 58000..75000 self 5800 pid 1502 *
              container.create.oci.create.load (load the bundle) 58000..60000 self 2000 *
              container.create.oci.create.cgroup_join (join cgroup) 60000..61000 self 1000 *
              container.create.oci.create.bootstrap (bootstrap init) 61000..62000 self 1000 *
              container.create.oci.create.namespaces 62000..62500 self 500 *
              container.create.oci.create.init (init starts) 62500..65000 self 2500 *
              container.create.oci.create.mounts 65000..65400 self 400 *
              container.create.oci.create.sync (sync with init) 65400..67000 self 1600 *
              container.create.oci.create.limits (cgroup limits) 67000..67300 self 300 *
              container.create.oci.create.sync (sync with init) 67300..69000 self 1700 *
              container.create.oci.create.pivot (pivot_root) 69000..69200 self 200 *
            container.create.oci.fifo_wait (waiting for start) 75000..85000 self 10000 *
          kubelet.gap (between calls) 85000..90000 self 5000 *
          container.start (StartContainer) 90000..100000 self 5990 code 0 *
            container.start.oci.start (runc start) 91990..96000 self 4010 pid 1504 *
            container.exec (/bin/app) 96000..96000 self 0 pid 1503
        sandbox 1a pid ? shim ?
        container app 1c0 pid 1503 exec /bin/app at 96000 [memory.max=1000]
    "#]],
    );
}

#[test]
fn with_crun() {
    check(
        whole("crun"),
        expect![[r#"
        complete default/web total 100000 named 53440
          sandbox (RunPodSandbox) 0..45000 self 8980 code 0 *
            sandbox.netns (pinns) 990..5000 self 4010 pid 1001 *
            sandbox.cni (CNI) 7990..40000 self 0 *
              sandbox.cni.bridge 7990..30000 self 22010 pid 1002 *
              sandbox.cni_next (next plugin) 30000..30990 self 990 *
              sandbox.cni.portmap 30990..40000 self 9010 pid 1003 *
          kubelet.gap (between calls) 45000..50000 self 5000 *
          container.create (CreateContainer) 50000..85000 self 5790 code 0 *
            container.create.shim (conmon) 55000..57100 self 2000 pid 1500 *
            container.create.shim.daemon (shim daemon) 57000..57210 self 210 pid 1501 *
            container.create.oci.create (crun create) 58000..75000 self 5800 pid 1502 *
              container.create.oci.create.load (load the bundle) 58000..60000 self 2000 *
              container.create.oci.create.cgroup_join (join cgroup) 60000..61000 self 1000 *
              container.create.oci.create.namespaces 61000..61000 self 0
              container.create.oci.create.init (init starts) 61000..65000 self 4000 *
              container.create.oci.create.mounts 65000..65400 self 400 *
              container.create.oci.create.sync (sync with init) 65400..67000 self 1600 *
              container.create.oci.create.limits (cgroup limits) 67000..67300 self 300 *
              container.create.oci.create.sync (sync with init) 67300..69000 self 1700 *
              container.create.oci.create.pivot (pivot_root) 69000..69200 self 200 *
            container.create.oci.fifo_wait (waiting for start) 75000..85000 self 10000 *
          kubelet.gap (between calls) 85000..90000 self 5000 *
          container.start (StartContainer) 90000..100000 self 5990 code 0 *
            container.start.oci.start (crun start) 91990..96000 self 4010 pid 1504 *
            container.exec (/bin/app) 96000..96000 self 0 pid 1503
        sandbox 1a pid ? shim ?
        container app 1c0 pid 1503 exec /bin/app at 96000 [memory.max=1000]
    "#]],
    );
}

/// The client gives up, CRI-O goes on, and the same request gets the sandbox at once.
#[test]
fn a_held_sandbox() {
    let mut s = Stream::new();
    let pod = pod();
    let first = s.begin_call(0, "RunPodSandbox", &pod.request());
    s.end_call(20_000, first, Ending::ResetByClient(8));
    network(&mut s);
    let again = s.begin_call(60_000, "RunPodSandbox", &pod.request());
    s.reply(60_500, again, vec![(Field::SandboxId, Value::Text(pod.sandbox.clone()))]);
    s.end_call(60_500, again, Ending::Status { code: 0, message: String::new() });
    s.call((70_000, 105_000), "CreateContainer", &request(&pod.sandbox), &[(Field::ContainerId, &app())]);
    conmon(&mut s, 75_000, "crun");
    s.call((110_000, 120_000), "StartContainer", &[(Field::ContainerId, &app())], &[]);
    start(&mut s, 112_000, "crun");
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Failed, Outcome::Complete]);
    assert_eq!(traces[0].verdict.as_ref().map(|v| v.reason.as_str()), Some("client_cancel"));
    let text = render::trace(&traces[1]);
    let upto = text.find("  container.create").expect("a CreateContainer");
    expect![[r#"
        complete default/web total 120000 named 53440
          sandbox (RunPodSandbox) 0..60500 self 24480 code 0 *
            sandbox.netns (pinns) 990..5000 self 4010 pid 1001 *
            sandbox.cni (CNI) 7990..40000 self 0 *
              sandbox.cni.bridge 7990..30000 self 22010 pid 1002 *
              sandbox.cni_next (next plugin) 30000..30990 self 990 *
              sandbox.cni.portmap 30990..40000 self 9010 pid 1003 *
          kubelet.gap (between calls) 60500..70000 self 9500 *
    "#]]
    .assert_eq(&text[..upto]);
    assert_eq!(traces[1].spans[0].attributes["last_request_ns"], "60000000");
    assert_eq!(traces[1].quality.notes, ["held: RunPodSandbox: the sandbox was made for an earlier request"]);
}

/// The same of a container.
#[test]
fn a_held_container() {
    let mut s = Stream::new();
    let pod = pod();
    s.call((0, 45_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
    network(&mut s);
    let first = s.begin_call(50_000, "CreateContainer", &request(&pod.sandbox));
    s.end_call(60_000, first, Ending::ResetByClient(8));
    conmon(&mut s, 55_000, "runc");
    s.call((100_000, 100_500), "CreateContainer", &request(&pod.sandbox), &[(Field::ContainerId, &app())]);
    s.call((110_000, 120_000), "StartContainer", &[(Field::ContainerId, &app())], &[]);
    start(&mut s, 112_000, "runc");
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.outcome).collect::<Vec<_>>(), [Outcome::Failed, Outcome::Complete]);
    let made = traces[1].spans.iter().find(|span| span.stage == "container.create.oci.create").expect("a create");
    let call = traces[1].spans.iter().find(|span| Some(span.id) == made.parent).expect("its call");
    assert_eq!((call.start_ns, call.end_ns), (50_000_000, Some(100_500_000)));
    assert_eq!(traces[1].stages.iter().map(|stage| stage.self_ns).sum::<u64>(), traces[1].total_ns);
}

/// `container_create_timeout`: CRI-O kills the runtime, and says that time was up.
#[test]
fn a_creation_that_takes_too_long() {
    let mut s = Stream::new();
    let pod = pod();
    s.call((0, 45_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
    network(&mut s);
    conmon(&mut s, 55_000, "runc");
    let mut s = s.without(|at, _| at >= 65_000);
    s.record(300_000, 1502, Event::Exit(Exit { status: None, signal: Some(9), comm: "runc".to_owned() }));
    s.failing_call((50_000, 301_000), "CreateContainer", &request(&pod.sandbox), "create container timeout");
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    let verdict = traces[0].verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.stage.as_str(), verdict.reason.as_str()), ("container.create.oci.create", "call_failed"));
}

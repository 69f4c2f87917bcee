//! Runtimes that do it otherwise: runc 1.2 and later, crun with cgroup v2, CRI-O's order of calls, none at all.

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, create_container, sandbox};
use super::dsl::{CGROUP, RUNTIME, Stream, exec_of, id};
use super::render;
use crate::cri::Field;
use crate::engine::Config;
use crate::record::{CgroupOp, Event, Exec, Sys};

const NEW_ALL: u64 = 0x6c02_0000;

/// A container that `signs` make inside its StartContainer, 90 000 to 130 000; only that call is compared.
pub(super) fn check(signs: impl FnOnce(&mut Stream, &Pod, &str), expect: Expect) {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    let (id, _) = create_container(&mut s, &pod, 80_000, "app");
    s.call((90_000, 130_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    signs(&mut s, &pod, &id);
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    let text = render::trace(&traces[0]);
    let (_, call) = text.split_once("(StartContainer)").expect("a StartContainer");
    expect.assert_eq(&format!("StartContainer{call}"));
}

#[test]
fn runc_seals_itself_in_the_parent() {
    check(
        |s, _, id| {
            let (shim, create, stage0, init) = (1011, 2000, 2001, 2002);
            s.fork(95_000, shim, create);
            s.exec(95_100, shim, create, &format!("/usr/sbin/runc: runc --root /r create --bundle /b/{id} {id}"));
            s.sys((97_000, 97_100), (create, create), Sys::Fsopen, 0, ["overlay", "", ""]);
            s.sys((97_200, 97_300), (create, create), Sys::Fsmount, 0, [""; 3]);
            s.fork(98_000, create, stage0);
            s.exec(98_200, create, stage0, "/proc/self/fd/7: runc init");
            s.clone(100_000, create, init, 0x2000_8000, 1);
            s.sys((104_000, 104_100), (init, init), Sys::OpenTree, 0, ["/data", "", ""]);
            s.sys((104_200, 104_300), (init, init), Sys::MoveMount, 0, ["", "/mnt", ""]);
            // A hook on the host, then pivot_root.
            s.fork(105_000, create, 2003);
            s.exec(105_100, create, 2003, "/usr/bin/nvidia-hook prestart");
            s.exit(106_000, 2003, 0);
            s.sys((107_000, 107_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
            s.exit(110_000, create, 0);
            s.process((112_000, 115_000), shim, 2004, &format!("runc --root /r start {id}"));
            s.exec_in_container(114_000, shim, init, "/bin/app", 7);
        },
        expect![[r#"
            StartContainer 90000..130000 self 21000 code 0 *
                container.start.oci.create (runc create) 95000..110000 self 4600 pid 2000 *
                  container.start.oci.create.load (load the bundle) 95000..97000 self 2000 *
                  container.start.oci.create.self_clone (self clone) 97000..98200 self 1200 *
                  container.start.oci.create.bootstrap (bootstrap init) 98200..100000 self 1800 *
                  container.start.oci.create.namespaces 100000..100000 self 0
                  container.start.oci.create.init (init starts) 100000..104000 self 4000 *
                  container.start.oci.create.mounts 104000..104300 self 300 *
                  container.start.oci.create.hooks (nvidia-hook) 105000..106000 self 1000 pid 2003 *
                  container.start.oci.create.pivot (pivot_root) 107000..107100 self 100 *
                container.start.oci.fifo_wait (waiting for start) 110000..111990 self 1990 *
                container.start.oci.start (runc start) 111990..114000 self 2010 pid 2004 *
                container.exec (/bin/app) 114000..114000 self 0 pid 2002
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 2002 exec /bin/app at 114000 []
        "#]],
    );
}

#[test]
fn runc_maps_ids_with_a_process_of_its_own() {
    check(
        |s, _, id| {
            let (shim, create, stage0, helper, init) = (1011, 2000, 2001, 2002, 2003);
            s.fork(95_000, shim, create);
            s.exec(95_100, shim, create, &format!("/usr/sbin/runc: runc --root /r create --bundle /b/{id} {id}"));
            s.fork(98_000, create, stage0);
            s.exec(98_200, create, stage0, "/proc/self/fd/7: runc init");
            s.clone(100_000, create, init, 0x2000_8000, 1);
            // runc itself once more, in a new user namespace, to be killed once that is open.
            s.clone(101_000, create, helper, 0x1000_4100, 1);
            s.exec_in_container(101_500, create, helper, "/proc/self/exe", 9);
            s.exit(101_700, helper, 0);
            s.sys((107_000, 107_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
            s.exit(110_000, create, 0);
            s.process((112_000, 115_000), shim, 2004, &format!("runc --root /r start {id}"));
            s.exec_in_container(114_000, shim, init, "/bin/app", 7);
        },
        expect![[r#"
            StartContainer 90000..130000 self 21000 code 0 *
                container.start.oci.create (runc create) 95000..110000 self 11700 pid 2000 *
                  container.start.oci.create.load (load the bundle) 95000..98200 self 3200 *
                  container.start.oci.create.namespaces 100000..100000 self 0
                  container.start.oci.create.pivot (pivot_root) 107000..107100 self 100 *
                container.start.oci.fifo_wait (waiting for start) 110000..111990 self 1990 *
                container.start.oci.start (runc start) 111990..114000 self 2010 pid 2004 *
                container.exec (/bin/app) 114000..114000 self 0 pid 2003
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 2003 exec /bin/app at 114000 []
        "#]],
    );
}

#[test]
fn crun_clones_into_the_cgroup() {
    check(
        |s, pod, id| {
            let (shim, create, init) = (1011, 2000, 2001);
            s.fork(95_000, shim, create);
            s.exec(95_100, shim, create, &format!("/usr/bin/crun: crun --root /r create --bundle /b/{id} {id}"));
            s.exec(96_000, shim, create, &format!("/dev/fd/3: crun --root /r create --bundle /b/{id} {id}"));
            s.cgroup(97_000, create, CgroupOp::Mkdir, &pod.cgroup(id), None);
            s.clone(98_000, create, init, NEW_ALL, CGROUP);
            s.sys((99_000, 99_100), (init, init), Sys::Mount, 0, ["none", "/proc", "proc"]);
            s.write((100_000, 100_100), create, id, "memory.max", "1000");
            // It compiles the filter for init, which goes on with the masked paths.
            s.failing_sys((100_200, 100_210), (create, create), Sys::Seccomp, 0, [""; 3], -22);
            s.failing_sys((100_220, 100_230), (create, create), Sys::Seccomp, 1, [""; 3], -14);
            s.sys((100_900, 100_950), (init, init), Sys::Mount, 0, ["none", "/proc/kcore", "tmpfs"]);
            s.sys((101_000, 101_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
            s.sys((101_200, 101_300), (init, init), Sys::Umount2, 0, [".", "", ""]);
            s.sys((101_400, 101_410), (init, init), Sys::Capset, 0, [""; 3]);
            s.sys((101_500, 101_510), (init, init), Sys::Prctl, 38, [""; 3]);
            s.exit(103_000, create, 0);
            s.process((105_000, 108_000), shim, 2002, &format!("crun --root /r start {id}"));
            s.sys((106_000, 106_900), (init, init), Sys::Seccomp, 1, [""; 3]);
            s.exec_in_container(107_000, shim, init, "/bin/app", 7);
        },
        expect![[r#"
            StartContainer 90000..130000 self 28000 code 0 *
                container.start.oci.create (crun create) 95000..103000 self 250 pid 2000 *
                  container.start.oci.create.self_clone (self clone) 95000..96000 self 1000 *
                  container.start.oci.create.load (load the bundle) 96000..97000 self 1000 *
                  container.start.oci.create.cgroup_join (join cgroup) 97000..98000 self 1000 *
                  container.start.oci.create.namespaces 98000..98000 self 0
                  container.start.oci.create.init (init starts) 98000..99000 self 1000 *
                  container.start.oci.create.mounts 99000..99100 self 100 *
                  container.start.oci.create.sync (sync with init) 99100..100000 self 900 *
                  container.start.oci.create.limits (cgroup limits) 100000..100100 self 100 *
                  container.start.oci.create.seccomp (seccomp filter) 100200..100900 self 700 *
                  container.start.oci.create.mounts 100900..100950 self 50 *
                  container.start.oci.create.pivot (pivot_root) 101000..101300 self 300 *
                  container.start.oci.create.privileges 101400..101510 self 110 *
                  container.start.oci.create.finish 101510..103000 self 1490 *
                container.start.oci.fifo_wait (waiting for start) 103000..104990 self 1990 *
                container.start.oci.start (crun start) 104990..107000 self 2010 pid 2002 *
                container.exec (/bin/app) 107000..107000 self 0 pid 2001
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 2001 exec /bin/app at 107000 [memory.max=1000]
        "#]],
    );
}

#[test]
fn a_runtime_without_processes() {
    check(
        |s, _, id| {
            s.task((95_000, 110_000), "Create", id, 0);
            s.task((112_000, 120_000), "Start", id, 0);
        },
        expect![[r#"
            StartContainer 90000..130000 self 15000 code 0 *
                container.start.oci.create (Task/Create) 95000..110000 self 15000 *
                container.start.oci.fifo_wait (waiting for start) 110000..112000 self 2000 *
                container.start.oci.start (Task/Start) 112000..120000 self 8000 *
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid ? []
            quality lost 0 undecoded 0 notes ["entrypoint_not_seen: app"]
        "#]],
    );
}

#[test]
fn crio_creates_before_the_reply() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    let container = id("1c");
    s.call((0, 10_000), "RunPodSandbox", &pod.request(), &[(Field::SandboxId, &pod.sandbox)]);
    let request = [(Field::SandboxId, pod.sandbox.as_str()), (Field::ContainerName, "app")];
    s.call((20_000, 40_000), "CreateContainer", &request, &[(Field::ContainerId, &container)]);
    s.process((25_000, 35_000), 1500, 1501, &format!("/usr/bin/crun --root /r create --bundle /b {container}"));
    s.fork(27_000, 1501, 1502);
    s.cgroup(26_000, 1501, CgroupOp::Mkdir, &pod.cgroup(&container), None);
    s.sys((30_000, 30_100), (1502, 1502), Sys::PivotRoot, 0, [".", ".", ""]);
    s.call((50_000, 60_000), "StartContainer", &[(Field::ContainerId, &container)], &[]);
    s.process((52_000, 55_000), 100, 1503, &format!("/usr/bin/crun --root /r start {container}"));
    s.exec_in_container(54_000, 1500, 1502, "/bin/app", 7);
    s.tick(5_000_000);
    super::check(
        s,
        expect![[r#"
            complete default/web total 60000 named 3120
              sandbox (RunPodSandbox) 0..10000 self 10000 code 0 *
              kubelet.gap (between calls) 10000..20000 self 10000 *
              container.create (CreateContainer) 20000..40000 self 4990 code 0 *
                container.create.oci.create (crun create) 24990..35000 self 8900 pid 1501 *
                  container.create.oci.create.load (load the bundle) 24990..26000 self 1010 *
                  container.create.oci.create.pivot (pivot_root) 30000..30100 self 100 *
                container.create.oci.fifo_wait (waiting for start) 35000..40000 self 5000 *
              kubelet.gap (between calls) 40000..50000 self 10000 *
              container.start (StartContainer) 50000..60000 self 7990 code 0 *
                container.start.oci.start (crun start) 51990..54000 self 2010 pid 1503 *
                container.exec (/bin/app) 54000..54000 self 0 pid 1502
            sandbox 1a pid ? shim ?
            container app 1c0 pid 1502 exec /bin/app at 54000 []
        "#]],
    );
}

/// The kernel runs the interpreter with the script's path; what the script runs has the same variables.
#[test]
fn a_plugin_that_is_a_script() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    s.offset = 1_000_000;
    sandbox(&mut s, &pod);
    let mut env = pod.env("ADD");
    env.push(("CNI_PATH".into(), "/opt/cni/bin".into()));
    s.with_env((41_000, 47_000), RUNTIME, 1800, "/opt/cni/bin/tune: /usr/bin/env bash /opt/cni/bin/tune", &env);
    let bash = Exec { cni: env.clone(), ..exec_of(RUNTIME, "/usr/bin/bash: bash /opt/cni/bin/tune") };
    s.record(41_500, 1800, Event::Exec(bash));
    s.with_env((42_000, 43_000), 1800, 1801, "/bin/cat: cat", &env);
    s.with_env((44_000, 45_000), 1800, 1802, "/opt/cni/bin/host-local: /opt/cni/bin/host-local", &env);
    container(&mut s, &pod, 80_000, "app", "/bin/sleep");
    s.tick(5_000_000);
    let trace = &s.feed(Config::default())[0];
    let shown = render::trace(trace);
    let lines =
        shown.lines().filter(|line| line.contains("cni.tune") || line.contains("host-local") || line.contains("cat"));
    expect![[r#"
        sandbox.cni.host-local 19990..25000 self 5010 pid 1003 *
        sandbox.cni.tune 40990..47000 self 0 pid 1800 ran=cat 1 *
        sandbox.cni.tune.host (on the node) 40990..43990 self 3000 *
        sandbox.cni.host-local 43990..45000 self 910 pid 1802 *
        sandbox.cni.tune.host (on the node) 45000..47000 self 0
    "#]]
    .assert_eq(&lines.map(|line| format!("{}\n", line.trim_start())).collect::<String>());
}

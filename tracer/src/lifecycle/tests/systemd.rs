//! The systemd cgroup driver, as a Debian node does it with cgroup v2 alone: PID 1 makes pod slices and container
//! scopes, sets their limits and moves init; the runtime waits for it.

use expect_test::expect;

use super::containerd::{Pod, sandbox};
use super::dsl::Stream;
use super::runtimes::check;
use crate::record::{CgroupOp, Sys};

const CONTROLLERS: (&str, &str) = ("cgroup.subtree_control", "+cpuset +cpu +io +memory +pids");
const NEW_ALL: u64 = 0x6c02_0000;

/// The directory that systemd makes for a container, and its path below the hierarchy's root.
fn scope(pod: &Pod, container: &str) -> (String, String) {
    let (dir, slice) = (format!("cri-containerd-{container}.scope"), slice(pod));
    (dir.clone(), format!("{slice}/{dir}"))
}

fn slice(pod: &Pod) -> String {
    let uid = pod.uid.replace('-', "_");
    format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice")
}

#[test]
fn runc_waits_for_pid_1() {
    check(
        |s, pod, id| {
            let (shim, create, stage0, stage1, init) = (1011, 2000, 2001, 2002, 2003);
            let (dir, path) = scope(pod, id);
            s.fork(95_000, shim, create);
            s.exec(95_100, shim, create, &format!("/usr/sbin/runc: runc --root /r --systemd-cgroup create {id}"));
            s.fork(96_000, create, stage0);
            s.exec(96_200, create, stage0, "/proc/self/exe: runc init");
            s.exec(97_000, create, stage0, "/dev/fd/6: runc init");
            s.cgroup(97_500, 1, CgroupOp::Mkdir, &path, None);
            s.write((97_600, 97_650), 1, &dir, "cpu.max", "50000 100000\n");
            s.write((97_700, 97_750), 1, &dir, "memory.max", "134217728\n");
            s.write((97_800, 97_950), 1, &dir, "cgroup.procs", "2001");
            s.cgroup(97_900, 1, CgroupOp::Attach, &path, Some(stage0));
            s.write((98_000, 98_200), create, "kubepods.slice", CONTROLLERS.0, CONTROLLERS.1);
            s.fork(98_500, create, stage1);
            s.sys((98_600, 98_800), (stage1, stage1), Sys::Unshare, NEW_ALL, [""; 3]);
            s.fork(99_000, create, init);
            s.exit(99_100, stage1, 0);
            s.exit(99_200, stage0, 0);
            s.sys((104_000, 104_300), (init, init), Sys::Mount, 0, ["none", "/proc", "proc"]);
            // SetUnitProperties, then the runtime itself.
            s.write((105_000, 105_100), 1, &dir, "memory.max", "134217728\n");
            s.write((105_800, 105_900), create, &dir, "cpu.max", "50000 100000");
            s.sys((107_000, 107_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
            s.exit(110_000, create, 0);
            s.process((112_000, 115_000), shim, 2004, &format!("runc --root /r start {id}"));
            s.exec_in_container(114_000, shim, init, "/bin/app", 7);
        },
        expect![[r#"
            StartContainer 90000..130000 self 21000 code 0 *
                container.start.oci.create (runc create) 95000..110000 self 2900 pid 2000 *
                  container.start.oci.create.load (load the bundle) 95000..96200 self 1200 *
                  container.start.oci.create.self_clone (self clone) 96200..97000 self 0
                  container.start.oci.create.cgroup_join (join cgroup) 96200..98200 self 2000 cgroup_manager=pid 1 *
                  container.start.oci.create.bootstrap (bootstrap init) 98200..98600 self 400 *
                  container.start.oci.create.namespaces 98600..99000 self 400 *
                  container.start.oci.create.init (init starts) 99000..104000 self 5000 *
                  container.start.oci.create.mounts 104000..104300 self 300 *
                  container.start.oci.create.sync (sync with init) 104300..105000 self 700 *
                  container.start.oci.create.limits (cgroup limits) 105000..105900 self 900 *
                  container.start.oci.create.sync (sync with init) 105900..107000 self 1100 *
                  container.start.oci.create.pivot (pivot_root) 107000..107100 self 100 *
                container.start.oci.fifo_wait (waiting for start) 110000..111990 self 1990 *
                container.start.oci.start (runc start) 111990..114000 self 2010 pid 2004 *
                container.exec (/bin/app) 114000..114000 self 0 pid 2003
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 2003 exec /bin/app at 114000 [cpu.max=50000 100000, memory.max=134217728]
        "#]],
    );
}

#[test]
fn crun_waits_for_pid_1_and_goes_below() {
    check(
        |s, pod, id| {
            let (shim, create, init) = (1011, 2000, 2001);
            let (dir, path) = scope(pod, id);
            let below = format!("{path}/container");
            s.fork(95_000, shim, create);
            s.exec(95_100, shim, create, &format!("/usr/bin/crun: crun --root /r --systemd-cgroup create {id}"));
            s.clone(97_000, create, init, NEW_ALL, 1);
            // Its last sign before it waits.
            s.failing_sys((97_300, 97_400), (create, create), Sys::Mkdirat, 0, ["/r", "", ""], -17);
            s.cgroup(98_000, 1, CgroupOp::Mkdir, &path, None);
            s.cgroup(98_200, 1, CgroupOp::Attach, &path, Some(init));
            s.cgroup(98_400, create, CgroupOp::Mkdir, &below, None);
            s.cgroup(98_600, create, CgroupOp::Attach, &below, Some(init));
            s.write((98_500, 98_700), create, "container", "cgroup.procs", "2001");
            s.write((98_800, 98_900), create, &dir, CONTROLLERS.0, CONTROLLERS.1);
            s.write((99_000, 99_100), create, "container", "memory.max", "134217728");
            s.sys((101_000, 101_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
            s.exit(103_000, create, 0);
            s.process((105_000, 108_000), shim, 2002, &format!("crun --root /r start {id}"));
            s.exec_in_container(107_000, shim, init, "/bin/app", 7);
        },
        expect![[r#"
            StartContainer 90000..130000 self 28000 code 0 *
                container.start.oci.create (crun create) 95000..103000 self 2400 pid 2000 *
                  container.start.oci.create.load (load the bundle) 95000..97000 self 2000 *
                  container.start.oci.create.namespaces 97000..97000 self 0
                  container.start.oci.create.cgroup_join (join cgroup) 97400..98900 self 1500 cgroup_manager=pid 1 *
                  container.start.oci.create.limits (cgroup limits) 99000..99100 self 100 *
                  container.start.oci.create.sync (sync with init) 99100..101000 self 1900 *
                  container.start.oci.create.pivot (pivot_root) 101000..101100 self 100 *
                container.start.oci.fifo_wait (waiting for start) 103000..104990 self 1990 *
                container.start.oci.start (crun start) 104990..107000 self 2010 pid 2002 *
                container.exec (/bin/app) 107000..107000 self 0 pid 2001
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 2001 exec /bin/app at 107000 [memory.max=134217728]
        "#]],
    );
}

#[test]
fn a_pod_slice_begins_the_start() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    s.offset = 50_000;
    sandbox(&mut s, &pod);
    s.offset = 0;
    s.cgroup(20_000, 1, CgroupOp::Mkdir, "/kubepods.slice", None);
    s.cgroup(30_000, 1, CgroupOp::Mkdir, &slice(&pod), None);
    s.tick(9_000_000);
    let traces = s.feed(crate::engine::Config::default());
    let prepare = traces[0].spans.iter().find(|span| span.stage == "kubelet.prepare").expect("a kubelet.prepare");
    assert_eq!((prepare.start_ns, prepare.end_ns), (0, Some(20_000_000)));
}

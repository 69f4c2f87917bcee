//! Waits for the disk and the like: whose they are.

use expect_test::expect;

use super::check;
use super::containerd::{Pod, create_container, sandbox};
use super::dsl::{RUNTIME, Stream};
use crate::cri::Field;
use crate::record::Sys;

/// A sync by a thread of the runtime.
fn sync(s: &mut Stream, times: (u64, u64), tid: u32) {
    s.sys(times, (RUNTIME, tid), Sys::Fdatasync, 3, [""; 3]);
}

/// Chores around a CreateContainer, 80 000 to 88 000; `others` adds other calls.
fn create(others: impl FnOnce(&mut Stream), expect: expect_test::Expect) {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    create_container(&mut s, &pod, 80_000, "app");
    let temporary = "/var/lib/containerd/tmpmounts/containerd-mount123";
    // Before the call; a transaction's two syncs; another transaction; one that outlasts the call.
    for (times, tid) in [
        ((79_900, 80_100), 1),
        ((80_500, 81_000), 1),
        ((81_100, 81_200), 1),
        ((81_250, 81_300), 2),
        ((82_000, 82_400), 2),
        ((87_900, 88_100), 2),
    ] {
        sync(&mut s, times, tid);
    }
    s.sys((83_000, 83_100), (RUNTIME, 2), Sys::Mount, 0, ["overlay", temporary, "overlay"]);
    s.sys((83_500, 83_600), (RUNTIME, 2), Sys::Umount2, 0, [temporary, "", ""]);
    s.failing_sys((83_700, 83_701), (RUNTIME, 2), Sys::Umount2, 0, [temporary, "", ""], -22);
    s.sys((84_000, 84_010), (RUNTIME, 2), Sys::Fchownat, 0, ["/var/lib/x", "", ""]);
    s.sys((85_000, 85_010), (RUNTIME, 2), Sys::Lsetxattr, 0, ["/vol/a", "security.selinux", ""]);
    s.sys((85_100, 85_110), (RUNTIME, 2), Sys::Lsetxattr, 0, ["/vol/b", "security.selinux", ""]);
    s.sys((85_200, 85_210), (RUNTIME, 2), Sys::Lsetxattr, 0, ["/vol/b", "user.note", ""]);
    s.sys((86_000, 86_010), (RUNTIME, 2), Sys::Lchown, 0, ["/vol/a", "", ""]);
    s.sys((86_100, 86_110), (RUNTIME, 2), Sys::Fchownat, 0, ["/vol/b", "", ""]);
    others(&mut s);
    let s = s.without(|at, _| at < 79_000 && at > 76_000);
    let traces = s.feed(crate::engine::Config::default());
    let text = super::render::trace(&traces[0]);
    let (_, call) = text.split_once("(CreateContainer)").expect("a CreateContainer");
    let (call, _) = call.split_once("container app").expect("a container");
    expect.assert_eq(call);
}

#[test]
fn of_the_only_call() {
    create(
        |_| {},
        expect![[r#"
         80000..88000 self 5929 code 0 *
            container.create.fsync (sync to disk) 80500..81200 self 700 *
            container.create.fsync (sync to disk) 81250..81300 self 50 *
            container.create.fsync (sync to disk) 82000..82400 self 400 *
            container.create.tmp_mount (temporary mount) 83000..83701 self 701 *
            container.create.relabel (change labels) 85000..85110 self 110 *
            container.create.chown (change owners) 86000..86110 self 110 *
          kubelet.gap (between calls) 88000..… self 100 *
        sandbox 1a pid 1023 shim 1011
    "#]],
    );
}

#[test]
fn of_nobody_while_another_call_may_write() {
    create(
        |s| {
            s.call((80_600, 82_100), "RemoveContainer", &[], &[]);
            // Who only asks changes nothing.
            s.call((84_500, 86_500), "ListContainers", &[], &[]);
            s.call((84_500, 86_500), "ContainerStatus", &[], &[]);
        },
        expect![[r#"
             80000..88000 self 7079 code 0 *
                container.create.tmp_mount (temporary mount) 83000..83701 self 701 *
                container.create.relabel (change labels) 85000..85110 self 110 *
                container.create.chown (change owners) 86000..86110 self 110 *
              kubelet.gap (between calls) 88000..… self 100 *
            sandbox 1a pid 1023 shim 1011
        "#]],
    );
}

/// While the plugins, the shim and the OCI runtime work, the call waits: what the runtime syncs then is its own business.
#[test]
fn not_while_the_call_waits() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    sync(&mut s, (200, 700), 1);
    sync(&mut s, (50_000, 51_000), 1);
    sync(&mut s, (75_000, 75_500), 1);
    s.call((77_000, 78_000), "RemovePodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    let traces = s.feed(crate::engine::Config::default());
    let spans = |stage: &str| {
        let spans = traces[0].spans.iter().filter(|span| span.stage == stage);
        spans.map(|span| (span.start_ns / 1000, span.end_ns.map(|end| end / 1000))).collect::<Vec<_>>()
    };
    assert_eq!(spans("sandbox.fsync"), [(200, Some(700)), (75_000, Some(75_500))]);
}

#[test]
fn of_the_runtime_alone() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    s.sys((200, 700), (pod.pids + 11, 1), Sys::Fsync, 3, [""; 3]);
    let (id, _) = create_container(&mut s, &pod, 80_000, "app");
    s.failing_call((90_000, 91_000), "StartContainer", &[(Field::ContainerId, &id)], "no");
    let traces = check(
        s,
        expect![[r#"
            failed default/web total 91000 named 63630
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
              container.start (StartContainer) 90000..91000 self 1000 code 2 *
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid ? []
            verdict container.start / call_failed: no
        "#]],
    );
    assert!(traces[0].spans.iter().all(|span| !span.stage.ends_with(".fsync")));
}

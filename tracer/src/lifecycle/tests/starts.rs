//! Starts that succeed.

use expect_test::expect;

use super::containerd::{Pod, container, create_container, sandbox};
use super::dsl::{Item, Stream, id};
use super::{check, render};
use crate::cri::{CallEvent, Field, Value};
use crate::engine::Config;
use crate::ids::MonotonicNs;
use crate::record::{CgroupOp, Event, Exit, Role, Sys};
use crate::trace::Outcome;

fn one() -> Stream {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    s.offset = 1_000_000;
    s.cgroup(0, 1, CgroupOp::Mkdir, &format!("/kubepods/burstable/pod{}", pod.uid), None);
    s.offset = 1_002_000;
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/sleep");
    s.tick(5_000_000);
    s
}

#[test]
fn containerd_1_6() {
    let traces = check(
        one(),
        expect![[r#"
            complete default/web total 134000 named 90550
              kubelet.prepare (pod cgroup) 0..2000 self 2000 *
              sandbox (RunPodSandbox) 2000..78000 self 11780 code 0 *
                sandbox.netns (network namespace) 3000..3700 self 700 *
                sandbox.cni (CNI) 4990..42000 self 0 *
                  sandbox.cni.loopback 4990..8000 self 100 pid 1001 *
                  sandbox.cni.bridge 5090..32000 self 0 pid 1002 *
                    sandbox.cni.bridge.host (on the node) 5090..10000 self 4910 *
                    sandbox.cni.bridge.netns (in the pod's network) 10000..16000 self 6000 *
                    sandbox.cni.bridge.host (on the node) 16000..21990 self 5990 *
                    sandbox.cni.host-local 21990..27000 self 5010 pid 1003 *
                    sandbox.cni.bridge.host (on the node) 27000..28000 self 1000 *
                    sandbox.cni.bridge.netns (in the pod's network) 28000..29000 self 1000 *
                    sandbox.cni.bridge.host (on the node) 29000..32000 self 3000 *
                  sandbox.cni_next (next plugin) 32000..32990 self 990 *
                  sandbox.cni.portmap 32990..42000 self 9010 pid 1004 ran=iptables 1 *
                sandbox.shim (shim start) 42990..45000 self 910 pid 1010 *
                sandbox.shim.daemon (shim daemon) 43900..45510 self 1100 pid 1011 *
                sandbox.shim.connect (connecting to the shim) 45000..46100 self 1100 *
                sandbox.task.request (Task/Create) 46100..46200 self 100 *
                sandbox.rootfs (mount rootfs) 46200..46400 self 200 *
                sandbox.oci.create (runc create) 46900..62000 self 590 pid 1020 *
                  sandbox.oci.create.load (load the bundle) 46900..49200 self 2300 *
                  sandbox.oci.create.self_clone (self clone) 49200..50200 self 1000 *
                  sandbox.oci.create.cgroup_join (join cgroup) 49500..49900 self 0
                  sandbox.oci.create.bootstrap (bootstrap init) 50200..51100 self 900 *
                  sandbox.oci.create.namespaces 51100..52000 self 900 *
                  sandbox.oci.create.init (init starts) 52000..55000 self 3000 *
                  sandbox.oci.create.mounts 55000..56310 self 1310 *
                  sandbox.oci.create.sync (sync with init) 56310..57000 self 690 *
                  sandbox.oci.create.limits (cgroup limits) 57000..57300 self 300 *
                  sandbox.oci.create.sync (sync with init) 57300..58000 self 700 *
                  sandbox.oci.create.pivot (pivot_root) 58000..58600 self 600 *
                  sandbox.oci.create.mounts (masked paths) 59000..59100 self 100 *
                  sandbox.oci.create.state (save state) 59100..59310 self 210 *
                  sandbox.oci.create.privileges 59500..59610 self 110 *
                  sandbox.oci.create.seccomp (seccomp filter) 59610..61200 self 1590 *
                  sandbox.oci.create.finish 61200..62000 self 800 *
                sandbox.oci.fifo_wait (waiting for start) 62000..64900 self 2900 *
                sandbox.oci.start (runc start) 64900..68000 self 3100 pid 1024 *
                sandbox.task.reply (Task/Start) 68000..70000 self 2000 *
              kubelet.gap (between calls) 78000..82000 self 4000 *
              container.create (CreateContainer) 82000..90000 self 8000 code 0 *
              kubelet.gap (between calls) 90000..92000 self 2000 *
              container.start (StartContainer) 92000..134000 self 14490 code 0 *
                container.start.shim (shim start) 92990..95000 self 2010 pid 1130 *
                container.start.shim.connect (connecting to the shim) 95000..97100 self 2100 *
                container.start.task.request (Task/Create) 97100..97200 self 100 *
                container.start.rootfs (mount rootfs) 97200..97400 self 200 *
                container.start.oci.create (runc create) 97900..113000 self 590 pid 1120 *
                  container.start.oci.create.load (load the bundle) 97900..100200 self 2300 *
                  container.start.oci.create.self_clone (self clone) 100200..101200 self 1000 *
                  container.start.oci.create.cgroup_join (join cgroup) 100500..100900 self 0
                  container.start.oci.create.bootstrap (bootstrap init) 101200..102100 self 900 *
                  container.start.oci.create.namespaces 102100..103000 self 900 *
                  container.start.oci.create.init (init starts) 103000..106000 self 3000 *
                  container.start.oci.create.mounts 106000..107310 self 1310 *
                  container.start.oci.create.sync (sync with init) 107310..108000 self 690 *
                  container.start.oci.create.limits (cgroup limits) 108000..108300 self 300 *
                  container.start.oci.create.sync (sync with init) 108300..109000 self 700 *
                  container.start.oci.create.pivot (pivot_root) 109000..109600 self 600 *
                  container.start.oci.create.mounts (masked paths) 110000..110100 self 100 *
                  container.start.oci.create.state (save state) 110100..110310 self 210 *
                  container.start.oci.create.privileges 110500..110610 self 110 *
                  container.start.oci.create.seccomp (seccomp filter) 110610..112200 self 1590 *
                  container.start.oci.create.finish 112200..113000 self 800 *
                container.start.oci.fifo_wait (waiting for start) 113000..115900 self 2900 *
                container.start.oci.start (runc start) 115900..119000 self 3100 pid 1124 *
                container.start.task.reply (Task/Start) 119000..121000 self 2000 *
                container.exec (/bin/sleep) 119000..119000 self 0 pid 1123
            sandbox 1a pid 1023 shim 1011
            container app 1c1 pid 1123 exec /bin/sleep at 119000 [cpu.max=50000 100000, memory.max=134217728]
        "#]],
    );
    let trace = &traces[0];
    expect![[r#"
        kubelet.prepare wall 2000 self 2000 count 1
        sandbox wall 76000 self 0 count 1
        sandbox.runtime wall 11780 self 11780 count 1
        sandbox.netns wall 700 self 700 count 1
        sandbox.cni wall 37010 self 0 count 1
        sandbox.cni.loopback wall 3010 self 100 count 1
        sandbox.cni.bridge wall 26910 self 0 count 1
        sandbox.cni.bridge.host wall 14900 self 14900 count 4
        sandbox.cni.bridge.netns wall 7000 self 7000 count 2
        sandbox.cni.host-local wall 5010 self 5010 count 1
        sandbox.cni_next wall 990 self 990 count 1
        sandbox.cni.portmap wall 9010 self 9010 count 1
        sandbox.shim wall 2010 self 910 count 1
        sandbox.shim.daemon wall 1610 self 1100 count 1
        sandbox.shim.connect wall 1100 self 1100 count 1
        sandbox.task.request wall 100 self 100 count 1
        sandbox.rootfs wall 200 self 200 count 1
        sandbox.oci.create wall 15100 self 590 count 1
        sandbox.oci.create.load wall 2300 self 2300 count 1
        sandbox.oci.create.self_clone wall 1000 self 1000 count 1
        sandbox.oci.create.cgroup_join wall 400 self 0 count 1
        sandbox.oci.create.bootstrap wall 900 self 900 count 1
        sandbox.oci.create.namespaces wall 900 self 900 count 1
        sandbox.oci.create.init wall 3000 self 3000 count 1
        sandbox.oci.create.mounts wall 1410 self 1410 count 2
        sandbox.oci.create.sync wall 1390 self 1390 count 2
        sandbox.oci.create.limits wall 300 self 300 count 1
        sandbox.oci.create.pivot wall 600 self 600 count 1
        sandbox.oci.create.state wall 210 self 210 count 1
        sandbox.oci.create.privileges wall 110 self 110 count 1
        sandbox.oci.create.seccomp wall 1590 self 1590 count 1
        sandbox.oci.create.finish wall 800 self 800 count 1
        sandbox.oci.fifo_wait wall 2900 self 2900 count 1
        sandbox.oci.start wall 3100 self 3100 count 1
        sandbox.task.reply wall 2000 self 2000 count 1
        kubelet.gap wall 6000 self 6000 count 2
        container.create wall 8000 self 0 count 1
        container.create.runtime wall 8000 self 8000 count 1
        container.start wall 42000 self 0 count 1
        container.start.runtime wall 14490 self 14490 count 1
        container.start.shim wall 2010 self 2010 count 1
        container.start.shim.connect wall 2100 self 2100 count 1
        container.start.task.request wall 100 self 100 count 1
        container.start.rootfs wall 200 self 200 count 1
        container.start.oci.create wall 15100 self 590 count 1
        container.start.oci.create.load wall 2300 self 2300 count 1
        container.start.oci.create.self_clone wall 1000 self 1000 count 1
        container.start.oci.create.cgroup_join wall 400 self 0 count 1
        container.start.oci.create.bootstrap wall 900 self 900 count 1
        container.start.oci.create.namespaces wall 900 self 900 count 1
        container.start.oci.create.init wall 3000 self 3000 count 1
        container.start.oci.create.mounts wall 1410 self 1410 count 2
        container.start.oci.create.sync wall 1390 self 1390 count 2
        container.start.oci.create.limits wall 300 self 300 count 1
        container.start.oci.create.pivot wall 600 self 600 count 1
        container.start.oci.create.state wall 210 self 210 count 1
        container.start.oci.create.privileges wall 110 self 110 count 1
        container.start.oci.create.seccomp wall 1590 self 1590 count 1
        container.start.oci.create.finish wall 800 self 800 count 1
        container.start.oci.fifo_wait wall 2900 self 2900 count 1
        container.start.oci.start wall 3100 self 3100 count 1
        container.start.task.reply wall 2000 self 2000 count 1
        container.exec wall 0 self 0 count 1
    "#]]
    .assert_eq(&render::stages(trace));
    assert_eq!(trace.trace_id.len(), 32);
    assert_eq!(trace.start_realtime, Some(1_001_000_000_000));
    assert_eq!(trace.pod.qos.as_deref(), Some("burstable"));
    assert_eq!(trace.sandbox.netns.as_deref(), Some("/var/run/netns/cni-1"));
    assert_eq!(trace.sandbox.namespaces.map(|n| n.net), Some(1001));
    assert_eq!(trace.containers[0].oom_score_adj, Some(1000));
    assert_eq!(trace.node.probes["exec"], "tracepoint");
}

#[test]
fn two_containers_and_a_pull() {
    let mut s = Stream::new();
    let pod = Pod::new("two", "2", 2000);
    sandbox(&mut s, &pod);
    s.call(
        (77_000, 79_000),
        "PullImage",
        &[(Field::Image, "docker.io/library/busybox:1")],
        &[(Field::ImageRef, "sha256:b0")],
    );
    container(&mut s, &pod, 80_000, "first", "/bin/first");
    container(&mut s, &pod, 140_000, "second", "/bin/second");
    s.tick(5_000_000);
    let traces = check(
        s,
        expect![[r#"
            complete default/two total 192000 named 117470
              sandbox (RunPodSandbox) 0..76000 self 11780 code 0 *
                sandbox.netns (network namespace) 1000..1700 self 700 *
                sandbox.cni (CNI) 2990..40000 self 0 *
                  sandbox.cni.loopback 2990..6000 self 100 pid 2001 *
                  sandbox.cni.bridge 3090..30000 self 0 pid 2002 *
                    sandbox.cni.bridge.host (on the node) 3090..8000 self 4910 *
                    sandbox.cni.bridge.netns (in the pod's network) 8000..14000 self 6000 *
                    sandbox.cni.bridge.host (on the node) 14000..19990 self 5990 *
                    sandbox.cni.host-local 19990..25000 self 5010 pid 2003 *
                    sandbox.cni.bridge.host (on the node) 25000..26000 self 1000 *
                    sandbox.cni.bridge.netns (in the pod's network) 26000..27000 self 1000 *
                    sandbox.cni.bridge.host (on the node) 27000..30000 self 3000 *
                  sandbox.cni_next (next plugin) 30000..30990 self 990 *
                  sandbox.cni.portmap 30990..40000 self 9010 pid 2004 ran=iptables 1 *
                sandbox.shim (shim start) 40990..43000 self 910 pid 2010 *
                sandbox.shim.daemon (shim daemon) 41900..43510 self 1100 pid 2011 *
                sandbox.shim.connect (connecting to the shim) 43000..44100 self 1100 *
                sandbox.task.request (Task/Create) 44100..44200 self 100 *
                sandbox.rootfs (mount rootfs) 44200..44400 self 200 *
                sandbox.oci.create (runc create) 44900..60000 self 590 pid 2020 *
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
                sandbox.oci.start (runc start) 62900..66000 self 3100 pid 2024 *
                sandbox.task.reply (Task/Start) 66000..68000 self 2000 *
              kubelet.gap (between calls) 76000..77000 self 1000 *
              image.pull (PullImage) 77000..79000 self 2000 code 0 *
              kubelet.gap (between calls) 79000..80000 self 1000 *
              container.create (CreateContainer) 80000..88000 self 8000 code 0 *
              kubelet.gap (between calls) 88000..90000 self 2000 *
              container.start (StartContainer) 90000..132000 self 14490 code 0 *
                container.start.shim (shim start) 90990..93000 self 2010 pid 2150 *
                container.start.shim.connect (connecting to the shim) 93000..95100 self 2100 *
                container.start.task.request (Task/Create) 95100..95200 self 100 *
                container.start.rootfs (mount rootfs) 95200..95400 self 200 *
                container.start.oci.create (runc create) 95900..111000 self 590 pid 2140 *
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
                container.start.oci.start (runc start) 113900..117000 self 3100 pid 2144 *
                container.start.task.reply (Task/Start) 117000..119000 self 2000 *
                container.exec (/bin/first) 117000..117000 self 0 pid 2143
              kubelet.gap (between calls) 132000..140000 self 8000 *
              container.create (CreateContainer) 140000..148000 self 8000 code 0 *
              kubelet.gap (between calls) 148000..150000 self 2000 *
              container.start (StartContainer) 150000..192000 self 14490 code 0 *
                container.start.shim (shim start) 150990..153000 self 2010 pid 2230 *
                container.start.shim.connect (connecting to the shim) 153000..155100 self 2100 *
                container.start.task.request (Task/Create) 155100..155200 self 100 *
                container.start.rootfs (mount rootfs) 155200..155400 self 200 *
                container.start.oci.create (runc create) 155900..171000 self 590 pid 2220 *
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
                container.start.oci.start (runc start) 173900..177000 self 3100 pid 2224 *
                container.start.task.reply (Task/Start) 177000..179000 self 2000 *
                container.exec (/bin/second) 177000..177000 self 0 pid 2223
            sandbox 2a pid 2023 shim 2011
            container first 2c2 pid 2143 exec /bin/first at 117000 [cpu.max=50000 100000, memory.max=134217728]
            container second 2c6 pid 2223 exec /bin/second at 177000 [cpu.max=50000 100000, memory.max=134217728]
        "#]],
    );
    assert_eq!(traces[0].containers[1].image_digest.as_deref(), Some("sha256:b0"));
    expect![[r#"
        sandbox wall 76000 self 0 count 1
        sandbox.runtime wall 11780 self 11780 count 1
        sandbox.netns wall 700 self 700 count 1
        sandbox.cni wall 37010 self 0 count 1
        sandbox.cni.loopback wall 3010 self 100 count 1
        sandbox.cni.bridge wall 26910 self 0 count 1
        sandbox.cni.bridge.host wall 14900 self 14900 count 4
        sandbox.cni.bridge.netns wall 7000 self 7000 count 2
        sandbox.cni.host-local wall 5010 self 5010 count 1
        sandbox.cni_next wall 990 self 990 count 1
        sandbox.cni.portmap wall 9010 self 9010 count 1
        sandbox.shim wall 2010 self 910 count 1
        sandbox.shim.daemon wall 1610 self 1100 count 1
        sandbox.shim.connect wall 1100 self 1100 count 1
        sandbox.task.request wall 100 self 100 count 1
        sandbox.rootfs wall 200 self 200 count 1
        sandbox.oci.create wall 15100 self 590 count 1
        sandbox.oci.create.load wall 2300 self 2300 count 1
        sandbox.oci.create.self_clone wall 1000 self 1000 count 1
        sandbox.oci.create.cgroup_join wall 400 self 0 count 1
        sandbox.oci.create.bootstrap wall 900 self 900 count 1
        sandbox.oci.create.namespaces wall 900 self 900 count 1
        sandbox.oci.create.init wall 3000 self 3000 count 1
        sandbox.oci.create.mounts wall 1410 self 1410 count 2
        sandbox.oci.create.sync wall 1390 self 1390 count 2
        sandbox.oci.create.limits wall 300 self 300 count 1
        sandbox.oci.create.pivot wall 600 self 600 count 1
        sandbox.oci.create.state wall 210 self 210 count 1
        sandbox.oci.create.privileges wall 110 self 110 count 1
        sandbox.oci.create.seccomp wall 1590 self 1590 count 1
        sandbox.oci.create.finish wall 800 self 800 count 1
        sandbox.oci.fifo_wait wall 2900 self 2900 count 1
        sandbox.oci.start wall 3100 self 3100 count 1
        sandbox.task.reply wall 2000 self 2000 count 1
        kubelet.gap wall 14000 self 14000 count 5
        image.pull wall 2000 self 0 count 1
        image.pull.runtime wall 2000 self 2000 count 1
        container.create wall 16000 self 0 count 2
        container.create.runtime wall 16000 self 16000 count 2
        container.start wall 84000 self 0 count 2
        container.start.runtime wall 28980 self 28980 count 2
        container.start.shim wall 4020 self 4020 count 2
        container.start.shim.connect wall 4200 self 4200 count 2
        container.start.task.request wall 200 self 200 count 2
        container.start.rootfs wall 400 self 400 count 2
        container.start.oci.create wall 30200 self 1180 count 2
        container.start.oci.create.load wall 4600 self 4600 count 2
        container.start.oci.create.self_clone wall 2000 self 2000 count 2
        container.start.oci.create.cgroup_join wall 800 self 0 count 2
        container.start.oci.create.bootstrap wall 1800 self 1800 count 2
        container.start.oci.create.namespaces wall 1800 self 1800 count 2
        container.start.oci.create.init wall 6000 self 6000 count 2
        container.start.oci.create.mounts wall 2820 self 2820 count 4
        container.start.oci.create.sync wall 2780 self 2780 count 4
        container.start.oci.create.limits wall 600 self 600 count 2
        container.start.oci.create.pivot wall 1200 self 1200 count 2
        container.start.oci.create.state wall 420 self 420 count 2
        container.start.oci.create.privileges wall 220 self 220 count 2
        container.start.oci.create.seccomp wall 3180 self 3180 count 2
        container.start.oci.create.finish wall 1600 self 1600 count 2
        container.start.oci.fifo_wait wall 5800 self 5800 count 2
        container.start.oci.start wall 6200 self 6200 count 2
        container.start.task.reply wall 4000 self 4000 count 2
        container.exec wall 0 self 0 count 2
    "#]]
    .assert_eq(&render::stages(&traces[0]));
}

#[test]
fn host_network() {
    let mut s = Stream::new();
    let pod = Pod { host_network: true, ..Pod::new("host", "3", 3000) };
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    // Before the reply the sandbox is known by its cgroup path alone.
    let mut early = s.clone().without(|at, _| at > 60_000);
    early.tick(60_000);
    let open = early.feed(Config::default());
    assert_eq!(open[0].outcome, Outcome::InProgress);
    assert_eq!(open[0].sandbox.id.as_ref().map(|id| id.as_str()), Some(pod.sandbox.as_str()));
    check(
        s,
        expect![[r#"
            complete default/host total 132000 named 52840
              sandbox (RunPodSandbox) 0..76000 self 49490 code 0 *
                sandbox.shim (shim start) 40990..43000 self 910 pid 3010 *
                sandbox.shim.daemon (shim daemon) 41900..43510 self 1100 pid 3011 *
                sandbox.shim.connect (connecting to the shim) 43000..44100 self 1100 *
                sandbox.task.request (Task/Create) 44100..44200 self 100 *
                sandbox.rootfs (mount rootfs) 44200..44400 self 200 *
                sandbox.oci.create (runc create) 44900..60000 self 590 pid 3020 *
                  sandbox.oci.create.load (load the bundle) 44900..47200 self 2300 *
                  sandbox.oci.create.self_clone (self clone) 47200..48200 self 1000 *
                  sandbox.oci.create.cgroup_join (join cgroup) 47500..47900 self 0
                  sandbox.oci.create.bootstrap (bootstrap init) 48200..49300 self 1100 *
                  sandbox.oci.create.namespaces 49300..50000 self 700 *
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
                sandbox.oci.start (runc start) 62900..66000 self 3100 pid 3024 *
                sandbox.task.reply (Task/Start) 66000..68000 self 2000 *
              kubelet.gap (between calls) 76000..80000 self 4000 *
              container.create (CreateContainer) 80000..88000 self 8000 code 0 *
              kubelet.gap (between calls) 88000..90000 self 2000 *
              container.start (StartContainer) 90000..132000 self 14490 code 0 *
                container.start.shim (shim start) 90990..93000 self 2010 pid 3130 *
                container.start.shim.connect (connecting to the shim) 93000..95100 self 2100 *
                container.start.task.request (Task/Create) 95100..95200 self 100 *
                container.start.rootfs (mount rootfs) 95200..95400 self 200 *
                container.start.oci.create (runc create) 95900..111000 self 590 pid 3120 *
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
                container.start.oci.start (runc start) 113900..117000 self 3100 pid 3124 *
                container.start.task.reply (Task/Start) 117000..119000 self 2000 *
                container.exec (/bin/app) 117000..117000 self 0 pid 3123
            sandbox 3a pid 3023 shim 3011
            container app 3c1 pid 3123 exec /bin/app at 117000 [cpu.max=50000 100000, memory.max=134217728]
        "#]],
    );
}

#[test]
fn two_pods_at_once() {
    let mut s = Stream::new();
    let (one, two) = (Pod::new("one", "4", 4000), Pod::new("two", "5", 5000));
    let alone = |pod: &Pod| {
        let mut s = Stream::new();
        sandbox(&mut s, pod);
        container(&mut s, pod, 80_000, "app", "/bin/app");
        s.tick(5_000_000);
        s.feed(Config::default()).iter().map(render::trace).collect::<String>()
    };
    for (pod, offset) in [(&one, 0), (&two, 70)] {
        s.offset = offset;
        sandbox(&mut s, pod);
        container(&mut s, pod, 80_000, "app", "/bin/app");
    }
    s.offset = 0;
    s.tick(5_000_000);
    let both: Vec<String> = s.feed(Config::default()).iter().map(render::trace).collect();
    assert_eq!(both, [alone(&one), alone(&two)]);
}

#[test]
fn a_second_sandbox_of_a_pod() {
    let mut s = Stream::new();
    let pod = Pod::new("again", "8", 8000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Request { fields, .. }) = item {
            fields.0.retain(|(field, _)| *field != Field::ContainerAttempt);
            fields.0.extend([Field::PodAttempt, Field::ContainerAttempt].map(|field| (field, Value::Number(3))));
        }
    }
    let traces = s.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Complete));
    assert_eq!((traces[0].pod.attempt, traces[0].containers[0].attempt), (Some(3), Some(3)));
}

#[test]
fn as_many_containers_as_wanted() {
    let s = one().without(|at, _| at > 1_500_000);
    let traces = s.feed(Config { containers: Some(1), ..Config::default() });
    assert_eq!(traces.len(), 1);
    assert_eq!(traces[0].outcome, Outcome::Complete);
}

#[test]
fn a_late_container_reopens() {
    let mut s = one();
    let pod = Pod::new("web", "1", 1000);
    container(&mut s, &pod, 6_000_000, "late", "/bin/late");
    s.tick(9_000_000);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(|t| t.containers.len()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(traces[0].trace_id, traces[1].trace_id);
    assert!(traces.iter().all(|trace| trace.outcome == Outcome::Complete));
}

/// Ten seconds after it was over and after its last container ended; in ms, at that time of the stream.
#[test]
fn when_a_start_is_final() {
    let mut s = one();
    s.tick(4_500_000);
    // It ends with 0, as an init container does, and the next one is made.
    s.exit(5_000_000, 1123, 0);
    let pod = Pod::new("web", "1", 1000);
    container(&mut s, &pod, 6_000_000, "late", "/bin/late");
    s.tick(9_000_000);
    let id = s.clone().feed(Config::default())[0].trace_id.clone();
    let at = |until| {
        let (tables, _) = s.clone().without(|at, _| at > until + s.offset).tables(Config::default());
        tables.final_at(&id).map(|at| at.0 / 1_000_000)
    };
    expect![[r#"
        [
            None,
            Some(
                13134,
            ),
            Some(
                16002,
            ),
            None,
            Some(
                19054,
            ),
        ]
    "#]]
    .assert_debug_eq(&[1_000_000, 4_500_000, 5_500_000, 6_020_000, 9_000_000].map(at));
    let (tables, _) = s.tables(Config::default());
    assert_eq!(tables.final_at("unknown").map(|at| at.0), Some(0));
}

#[test]
fn others_are_not_part() {
    let mut s = one();
    let quiet = render::trace(&one().feed(Config::default())[0]);
    // podlapse's own call, an exec probe, polling.
    s.found(0, 50, Role::Myself, "podlapse trace");
    let key = s.begin_call(90_000, "RunPodSandbox", &[(Field::PodUid, "x")]);
    for (_, item) in &mut s.items {
        if let Item::Call(CallEvent::Start(start)) = item
            && start.key == key
        {
            start.client = Some(crate::ids::Tgid(50));
        }
    }
    let app = id("1c9");
    s.process((133_000, 134_000), 1011, 1700, &format!("runc --root /r exec --process /tmp/p --detach {app}"));
    s.fork(133_500, 1700, 1701);
    s.exec_in_container(133_600, 1011, 1701, "/bin/probe", 1000);
    s.call((90_000, 91_000), "ContainerStatus", &[(Field::ContainerId, &app)], &[]);
    let traces = s.feed(Config::default());
    assert_eq!(traces.iter().map(render::trace).collect::<Vec<_>>(), [quiet]);
}

#[test]
fn pids_are_used_again() {
    let mut s = one();
    let mut again = Stream::new();
    // Another pod with the same pids, and the exit of one process of the first is never seen.
    let pod = Pod::new("next", "6", 1000);
    again.offset = 3_000_000;
    sandbox(&mut again, &pod);
    container(&mut again, &pod, 80_000, "app", "/bin/other");
    again.tick(5_000_000);
    let alone: Vec<String> = again.clone().feed(Config::default()).iter().map(render::trace).collect();
    s.items.extend(again.items);
    s = s.without(|at, item| {
        let lost = matches!(item, Item::Record(r) if matches!(r.event, Event::Exit(_)) && r.tgid.0 == 1004);
        lost && at < 3_000_000
    });
    let traces = s.feed(Config::default());
    let next: Vec<String> =
        traces.iter().filter(|t| t.pod.name.as_deref() == Some("next")).map(render::trace).collect();
    assert_eq!(next, alone);
    let portmap = traces[0].spans.iter().find(|span| span.name == "portmap").expect("portmap");
    assert_eq!(portmap.process.as_ref().and_then(|p| p.exit_code), None);
}

#[test]
fn a_stopped_sandbox_settles_at_once() {
    let mut s = one().without(|at, _| at > 2_000_000);
    s.offset = 1_200_000;
    s.call((0, 1_000), "StopPodSandbox", &[(Field::SandboxId, &id("1a"))], &[]);
    let traces = s.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Complete));
    let mut cut = Stream::new();
    let pod = Pod::new("cut", "7", 7000);
    sandbox(&mut cut, &pod);
    create_container(&mut cut, &pod, 80_000, "app");
    cut.call((90_000, 91_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    let traces = cut.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Failed));
    assert_eq!(traces[0].verdict.as_ref().map(|v| v.reason.as_str()), Some("sandbox_stopped"));
}

/// StartContainer answers when the fifo is released; on a busy machine init runs the entrypoint later.
#[test]
fn a_stop_that_comes_before_the_entrypoint_ran() {
    let mut s = one().without(|at, _| at > 2_000_000);
    let late = 1_400_000;
    let is_entrypoint = |item: &Item| match item {
        Item::Record(r) => matches!(&r.event, Event::Exec(exec) if exec.container && exec.filename == "/bin/sleep"),
        Item::Call(_) => false,
    };
    let (at, entrypoint) = s.items.iter_mut().find(|(_, item)| is_entrypoint(item)).expect("an entrypoint");
    *at = late;
    if let Item::Record(record) = entrypoint {
        record.at = MonotonicNs(late * 1000);
    }
    s.offset = 1_200_000;
    s.call((0, 300_000), "StopPodSandbox", &[(Field::SandboxId, &id("1a"))], &[]);
    s.offset = 0;
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Complete));
    assert_eq!(traces[0].containers[0].exec.as_ref().map(|exec| exec.path.as_str()), Some("/bin/sleep"));
}

/// The kill of a stop interrupts the entrypoint's execve.
#[test]
fn a_stop_that_keeps_the_entrypoint_from_running() {
    let whole = one().without(|at, _| at > 2_000_000);
    let init = whole.items.iter().find_map(|(_, item)| match item {
        Item::Record(r) if matches!(&r.event, Event::Exec(e) if e.container && e.filename == "/bin/sleep") => {
            Some(r.tgid.0)
        }
        Item::Record(_) | Item::Call(_) => None,
    });
    let init = init.expect("an entrypoint");
    let of_init =
        |item: &Item| matches!(item, Item::Record(r) if r.tgid.0 == init && matches!(r.event, Event::Exec(_)));
    let mut s = whole.without(|_, item| of_init(item));
    s.offset = 1_200_000;
    s.call((0, 300_000), "StopPodSandbox", &[(Field::SandboxId, &id("1a"))], &[]);
    s.failing_sys((100_000, 100_100), (init, init), Sys::Execve, 0, ["/bin/sleep", "", ""], -4);
    s.record(100_200, init, Event::Exit(Exit { status: None, signal: Some(9), comm: "runc:[2:INIT]".to_owned() }));
    s.offset = 0;
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    assert_eq!((traces.len(), traces[0].outcome), (1, Outcome::Failed));
    assert_eq!(traces[0].verdict.as_ref().map(|v| v.reason.as_str()), Some("sandbox_stopped"));
    assert_eq!(traces[0].containers[0].exit.as_ref().map(|exit| exit.signal), Some(Some(9)));
}

/// kubelet mounts by a child that nobody else follows; another pod's volumes, and later mounts, are not its own.
#[test]
fn volumes_before_the_sandbox() {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    let onto = |uid: &str, name: &str| format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~secret/{name}");
    s.offset = 1_000_000;
    s.sys((0, 300), (4000, 4000), Sys::Mount, 0, ["tmpfs", &onto(&pod.uid, "token"), "tmpfs"]);
    s.failing_sys((400, 600), (4001, 4001), Sys::Mount, 0, ["tmpfs", &onto(&pod.uid, "key"), "tmpfs"], -12);
    s.sys((500, 700), (4002, 4002), Sys::MoveMount, 0, ["", &onto("70000000-0", "other"), ""]);
    s.offset = 1_002_000;
    sandbox(&mut s, &pod);
    s.sys((10_000, 10_100), (4003, 4003), Sys::Mount, 0, ["tmpfs", &onto(&pod.uid, "late"), "tmpfs"]);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    s.tick(5_000_000);
    let traces = s.feed(Config::default());
    let text = render::trace(&traces[0]);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("kubelet.prepare")).map(str::trim).collect();
    expect![[r#"
        kubelet.prepare (pod cgroup) 0..2000 self 1500 *
        kubelet.prepare.volume (token) 0..300 self 300 *
        kubelet.prepare.volume (key) 400..600 self 200 errno=12 *"#]]
    .assert_eq(&lines.join("\n"));
}

/// Two pods pull the same image at once, and each container gets its own pod's pull.
#[test]
fn two_pulls_of_one_image() {
    let (one, two) = (Pod::new("one", "4", 4000), Pod::new("two", "5", 5000));
    let image = (Field::Image, "docker.io/library/busybox:1");
    let feed = |named: bool| {
        let mut s = Stream::new();
        for (pod, offset) in [(&one, 0), (&two, 70)] {
            s.offset = offset;
            sandbox(&mut s, pod);
            let mut request = vec![image];
            if named {
                request.push((Field::PodUid, &pod.uid));
            }
            if named || pod.name == "two" {
                s.call((77_000, 78_000), "PullImage", &request, &[(Field::ImageRef, "sha256:b0")]);
            }
            container(&mut s, pod, 80_000, "app", "/bin/app");
        }
        s.offset = 0;
        s.tick(5_000_000);
        let traces = s.feed(Config::default());
        let pulls = |trace: &crate::trace::Trace| -> Vec<u64> {
            trace.spans.iter().filter(|span| span.stage == "image.pull").map(|span| span.start_ns).collect()
        };
        traces.iter().map(|trace| (pulls(trace), trace.quality.notes.clone())).collect::<Vec<_>>()
    };
    let own = (vec![77_000_000], Vec::new());
    assert_eq!(feed(true), [own.clone(), own]);
    // The pull of the second names nobody, and the first asks for the image first.
    let note = "pull_names_no_pod: docker.io/library/busybox:1 may have been pulled for another".to_owned();
    assert_eq!(feed(false), [(vec![77_070_000], vec![note]), (Vec::new(), Vec::new())]);
}

//! What happens to sandboxes: their pause, their shim, their plugins, their next one.

use expect_test::expect;

use super::super::containerd::{Pod, attempt, container, network, sandbox};
use super::super::dsl::{RUNTIME, Stream, id};
use super::super::verdicts::exit;
use super::{APP, PAUSE, SHIM, app, check, running, stopped};
use crate::cri::{Ending, Field};
use crate::record::{ContainerState, Event, ListSource, Listed, ListedContainer, ListedSandbox, Listing};

#[test]
fn pause_is_killed() {
    let (mut s, pod) = running();
    s.signal(5_000_000, (4242, "bash"), PAUSE, 9);
    s.killed(5_000_100, PAUSE, 9);
    torn_down_after(&mut s, &pod);
    check(
        s,
        expect![[r#"
        5000100 default/web sandbox_exit - lasted=4934100 by=bash pid 4242 signal=9 sender=bash (pid 4242)
          sandbox.run / sandbox_exited seen: the sandbox ended: kubelet makes another one, and its containers anew
            pause (pid 1023) was ended by SIGKILL; bash (pid 4242) had sent it
        6000000 default/web sandbox_stop -
        6010000 default/web signal app by=runc pid 1500 signal=9 for=stop
        6011000 default/web exit app lasted=5894000 by=runc pid 1500 signal=9 sender=runtime asked=true
        6060000 default/web sandbox_stopped - lasted=60000
    "#]],
    );
}

/// kubelet ends what is left in the cgroup of a pod that goes, while its containers are still being stopped.
#[test]
fn kubelet_ends_what_is_left() {
    let (mut s, _) = running();
    s.begin_call(5_000_000, "StopContainer", &[(Field::ContainerId, &app()), (Field::Timeout, "30")]);
    s.runc_kill(5_005_000, SHIM, 1500, (&app(), APP), 15);
    for (at, pid) in [(5_500_000, PAUSE), (5_501_000, APP)] {
        s.signal(at, (4242, "kubelet"), pid, 9);
        s.killed(at + 100, pid, 9);
    }
    check(
        s,
        expect![[r#"
            5000000 default/web stop app grace_s=30
            5005000 default/web signal app by=runc pid 1500 signal=15 for=stop
            5501000 default/web signal app by=kubelet pid 4242 signal=9
            5501100 default/web exit app lasted=5384100 by=kubelet pid 4242 signal=9 sender=kubelet (pid 4242) asked=true
        "#]],
    );
}

/// The rest of a pod whose pause has gone.
fn torn_down_after(s: &mut Stream, pod: &Pod) {
    let app = app();
    s.call((6_000_000, 6_060_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.runc_kill(6_010_000, SHIM, 1500, (&app, APP), 9);
    s.killed(6_011_000, APP, 9);
    s.exit(6_050_000, SHIM, 0);
}

/// Its containers are ended by the runtime, which cleans up.
fn the_shim_dies(s: &mut Stream) {
    s.killed(5_000_000, SHIM, 9);
    s.process((5_010_000, 5_030_000), RUNTIME, 1600, &format!("runc --root /r delete --force {}", app()));
    s.signal(5_020_000, (1600, "runc"), APP, 9);
    s.killed(5_020_100, APP, 9);
}

#[test]
fn the_shim_is_killed() {
    let (mut s, pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    the_shim_dies(&mut s);
    check(
        s,
        expect![[r#"
            5000000 default/web shim_exit - by=app pid 1011 signal=9 running=3
              sandbox.run / shim_died seen: the shim ended before processes that it had started: nobody looks after what it leaves
                app (pid 1011) was ended by SIGKILL
            5020000 default/web signal app by=runc pid 1600 signal=9
            5020100 default/web exit app lasted=4903100 by=runc pid 1600 signal=9 sender=runtime asked=false
              container.run / shim_died seen: its shim had ended, so the runtime ended the container
                the first process was ended by SIGKILL; the runtime had sent it
        "#]],
    );
}

#[test]
fn del_fails() {
    let (mut s, pod) = running();
    s.cni((5_010_000, 5_020_000), RUNTIME, 1511, "bridge", &pod.env("DEL"));
    s.cni((5_012_000, 5_015_000), 1511, 1512, "host-local", &pod.env("DEL"));
    for pid in [1511, 1512] {
        exit(&mut s, pid, Some(1), None);
    }
    s.failing_call(
        (5_000_000, 5_030_000),
        "StopPodSandbox",
        &[(Field::SandboxId, &pod.sandbox)],
        "plugin failed (delete)",
    );
    // It is tried again, and again when that was good.
    s.call((6_000_000, 6_010_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.call((7_000_000, 7_010_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    check(
        s,
        expect![[r#"
        5000000 default/web sandbox_stop -
        5015000 default/web cni_del - lasted=3010 by=host-local pid 1512 exit=1
          sandbox.stop.cni.host-local / cni_del_failed seen: host-local could not take the pod off the network
            host-local (pid 1512) exited with 1
        5020000 default/web cni_del - lasted=10010 by=bridge pid 1511 exit=1
        5030000 default/web sandbox_stopped - lasted=30000 code=2
          sandbox.stop.cni / cni_del_failed seen: plugin failed (delete)
            a plugin that was to take the pod off the network had failed
        6000000 default/web sandbox_stop -
        6010000 default/web sandbox_stopped - lasted=10000
    "#]],
    );
}

/// What cleans up after a sandbox that was never made may fail.
#[test]
fn del_fails_in_a_cleanup() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    network(&mut s, &pod);
    exit(&mut s, 1004, Some(1), None);
    s.cni((41_000, 43_000), RUNTIME, 1006, "bridge", &pod.env("DEL"));
    exit(&mut s, 1006, Some(7), None);
    s.failing_call((0, 46_000), "RunPodSandbox", &pod.request(), "plugin failed");
    check(
        s,
        expect![[r#"
        43000 default/web cni_del - lasted=2010 by=bridge pid 1006 exit=7
    "#]],
    );
}

#[test]
fn a_stop_that_its_client_gave_up() {
    let (mut s, pod) = running();
    let key = s.begin_call(5_000_000, "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)]);
    s.end_call(9_000_000, key, Ending::ResetByClient(8));
    check(
        s,
        expect![[r#"
        5000000 default/web sandbox_stop -
        9000000 default/web sandbox_stopped - lasted=4000000
          sandbox.stop / client_cancel seen: reset by the client (HTTP/2 error 8)
    "#]],
    );
}

/// The next attempt of a container in the same sandbox, then the pod's end.
#[test]
fn a_restart_in_the_same_sandbox() {
    let (mut s, pod) = running();
    s.exit(3_000_000, APP, 1);
    attempt(&mut s, &pod, 4_000_000, "app", "/bin/app", 1);
    let second = id("1d1");
    s.exit(7_000_000, APP + 400, 0);
    s.call((8_000_000, 8_001_000), "RemoveContainer", &[(Field::ContainerId, &second)], &[]);
    check(
        s,
        expect![[r#"
        3000000 default/web exit app lasted=2883000 exit=1 asked=false
          container.run / exited_with_error seen: it exited with 1
            the first process (pid 1123) exited with 1
        7000000 default/web exit app attempt=1 lasted=2963000 exit=0 asked=false
        8001000 default/web removed app attempt=1 lasted=1000
    "#]],
    );
}

/// Pause died; the pod gets another sandbox before the first one is removed.
#[test]
fn a_sandbox_is_made_again() {
    let (mut s, pod) = running();
    s.signal(4_000_000, (4242, "bash"), PAUSE, 9);
    s.killed(4_000_100, PAUSE, 9);
    torn_down_after(&mut s, &pod);
    let next = Pod { sandbox: id("2a"), uid: pod.uid.clone(), ..Pod::new("web", "2", 3000) };
    s.offset = 10_000_000;
    sandbox(&mut s, &next);
    container(&mut s, &next, 80_000, "app", "/bin/app");
    s.offset = 0;
    let remove = |s: &mut Stream, at: u64, id: &str| {
        s.call((at, at + 1_000), "RemovePodSandbox", &[(Field::SandboxId, id)], &[]);
    };
    remove(&mut s, 15_000_000, &pod.sandbox);
    // Again, and then the other one.
    remove(&mut s, 16_000_000, &pod.sandbox);
    remove(&mut s, 20_000_000, &next.sandbox);
    check(
        s,
        expect![[r#"
        4000100 default/web sandbox_exit - lasted=3934100 by=bash pid 4242 signal=9 sender=bash (pid 4242)
          sandbox.run / sandbox_exited seen: the sandbox ended: kubelet makes another one, and its containers anew
            pause (pid 1023) was ended by SIGKILL; bash (pid 4242) had sent it
        6000000 default/web sandbox_stop -
        6010000 default/web signal app by=runc pid 1500 signal=9 for=stop
        6011000 default/web exit app lasted=5894000 by=runc pid 1500 signal=9 sender=runtime asked=true
        6060000 default/web sandbox_stopped - lasted=60000
        15001000 default/web sandbox_removed - lasted=1000 last=false
        20001000 default/web sandbox_removed - lasted=1000 last=true
    "#]],
    );
}

fn listed(s: &mut Stream, pod: &Pod) {
    let sandbox = ListedSandbox {
        id: crate::ids::SandboxId(pod.sandbox.clone()),
        uid: crate::ids::PodUid(pod.uid.clone()),
        namespace: "default".into(),
        name: pod.name.into(),
        attempt: Some(0),
        ready: Some(true),
        pid: Some(crate::ids::Tgid(PAUSE)),
        ..ListedSandbox::default()
    };
    let app = ListedContainer {
        id: crate::ids::ContainerId(app()),
        sandbox: crate::ids::SandboxId(pod.sandbox.clone()),
        name: "app".into(),
        attempt: Some(2),
        state: Some(ContainerState::Running),
        pid: Some(crate::ids::Tgid(APP)),
        ..ListedContainer::default()
    };
    for what in [Listing::Sandbox(sandbox), Listing::Container(app), Listing::End { trouble: None }] {
        s.record(1_000, 1, Event::Listed(Listed { asked: crate::ids::MonotonicNs(0), source: ListSource::Cri, what }));
    }
}

/// A pod that ran before podlapse came.
#[test]
fn a_pod_of_before() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    s.found(
        10,
        SHIM,
        crate::record::Role::Shim,
        &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox),
    );
    listed(&mut s, &pod);
    stopped(&mut s, &pod, 5_000_000);
    check(
        s,
        expect![[r#"
        5000000 default/web stop app attempt=2 grace_s=30
        5005000 default/web signal app attempt=2 by=runc pid 1500 signal=15 for=stop
        5040000 default/web exit app attempt=2 exit=143 asked=true
        5050000 default/web stopped app attempt=2 lasted=50000 killed=false
        5060000 default/web sandbox_stop -
        5069000 default/web cni_del - lasted=4010 by=portmap pid 1510 exit=0
        5075000 default/web cni_del - lasted=3010 by=host-local pid 1512 exit=0
        5080000 default/web cni_del - lasted=10010 by=bridge pid 1511 exit=0
        5120000 default/web sandbox_stopped - lasted=60000
        5210000 default/web removed app attempt=2 lasted=10000
        5240000 default/web sandbox_removed - lasted=20000 last=true
    "#]],
    );

    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    s.found(
        10,
        SHIM,
        crate::record::Role::Shim,
        &format!("containerd-shim-runc-v2 -namespace k8s.io -id {}", pod.sandbox),
    );
    listed(&mut s, &pod);
    s.killed(5_000_000, SHIM, 9);
    s.exit(6_000_000, APP, 3);
    s.exit(7_000_000, PAUSE, 0);
    check(
        s,
        expect![[r#"
            5000000 default/web shim_exit - by=app pid 1011 signal=9 running=2
              sandbox.run / shim_died seen: the shim ended before processes that it had started: nobody looks after what it leaves
                app (pid 1011) was ended by SIGKILL
            6000000 default/web exit app attempt=2 exit=3 asked=false
              container.run / exited_with_error seen: it exited with 3
                the first process (pid 1123) exited with 3
            7000000 default/web sandbox_exit - exit=0
        "#]],
    );
}

/// Of what ends just after podlapse came nobody knows who had asked for it; the kernel's own word is one.
#[test]
fn just_after_the_attach() {
    let before = |s: &mut Stream, at: u64| {
        let pod = Pod::new("web", "1", 1000);
        listed(s, &pod);
        s.record(2_000, 1, Event::Mark(tracer_ebpf::mark::ATTACHED));
        s.exit(at, APP, 143);
        s.exit(at + 500_000, PAUSE, 0);
    };
    let mut s = Stream::new();
    before(&mut s, 5_000_000);
    check(
        s,
        expect![[r#"
        5000000 default/web exit app attempt=2 exit=143
    "#]],
    );
    let mut s = Stream::new();
    before(&mut s, 500_000_000);
    check(
        s,
        expect![[r#"
        500000000 default/web exit app attempt=2 exit=143 asked=false
          container.run / exited_with_error seen: it exited with 143
            the first process (pid 1123) exited with 143
        500500000 default/web sandbox_exit - exit=0
          sandbox.run / sandbox_exited seen: the sandbox ended: kubelet makes another one, and its containers anew
            pause (pid 1023) exited with 0
    "#]],
    );
    let mut s = Stream::new();
    listed(&mut s, &Pod::new("web", "1", 1000));
    s.record(2_000, 1, Event::Mark(tracer_ebpf::mark::ATTACHED));
    s.oom(5_000_000, APP, 1_000);
    s.killed(5_000_100, APP, 9);
    check(
        s,
        expect![[r#"
        5000000 default/web oom app attempt=2 by= pid 1123 rss_kib=1000 init=true
        5000100 default/web exit app attempt=2 signal=9
          container.run / oom_killed seen: the kernel killed the container's first process for memory
            the kernel chose app (pid 1123); it had 1000 KiB of memory
    "#]],
    );
}

/// A shim that ends well has nobody left, or the end of one was not seen.
#[test]
fn the_shim_ends_well() {
    let (mut s, pod) = running();
    s.exit(4_000_000, APP, 0);
    s.call((5_000_000, 5_060_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.exit(5_050_000, SHIM, 0);
    check(
        s,
        expect![[r#"
        4000000 default/web exit app lasted=3883000 exit=0 asked=false
        5000000 default/web sandbox_stop -
        5060000 default/web sandbox_stopped - lasted=60000
    "#]],
    );
}

/// Its containers have no name yet.
#[test]
fn the_shim_of_the_nameless_is_killed() {
    let (mut s, _) = running();
    the_shim_dies(&mut s);
    check(
        s.named_late(|start| (start.method == "CreateContainer").then_some(9_000_000)),
        expect![[r#"
            5000000 default/web shim_exit - by=app pid 1011 signal=9 running=2
              sandbox.run / shim_died seen: the shim ended before processes that it had started: nobody looks after what it leaves
                app (pid 1011) was ended by SIGKILL
            5020000 default/web signal app by=runc pid 1600 signal=9
            5020100 default/web exit app lasted=4903100 by=runc pid 1600 signal=9 sender=runtime asked=false
              container.run / shim_died seen: its shim had ended, so the runtime ended the container
                the first process was ended by SIGKILL; the runtime had sent it
        "#]],
    );
}

/// CRI-O: a monitor each container, the runtime's kill by the daemon, no pause.
#[test]
fn crio() {
    let (id, init, monitor) = (id("1c"), 1503, 1501);
    let mut s = super::super::crio::whole("crun");
    s.call((20_000_000, 20_200_000), "StopContainer", &[(Field::ContainerId, &id), (Field::Timeout, "30")], &[]);
    s.process((20_001_000, 20_003_000), RUNTIME, 1600, &format!("/usr/bin/crun --root=/run/crun kill {id} 15"));
    s.signal(20_002_000, (1600, "crun"), init, 15);
    s.exit(20_100_000, init, 0);
    s.exit(20_110_000, monitor, 0);
    check(
        s,
        expect![[r#"
        20000000 default/web stop app grace_s=30
        20002000 default/web signal app by=crun pid 1600 signal=15 for=stop
        20100000 default/web exit app lasted=20004000 exit=0 asked=true
        20200000 default/web stopped app lasted=200000 killed=false
    "#]],
    );
    let mut s = super::super::crio::whole("crun");
    s.signal(20_000_000, (4242, "bash"), monitor, 9);
    s.killed(20_000_100, monitor, 9);
    s.exit(30_000_000, init, 2);
    check(
        s,
        expect![[r#"
            20000100 default/web shim_exit app by=app pid 1501 signal=9 running=1
              sandbox.run / shim_died seen: the shim ended before a process that it had started: nobody looks after what it leaves
                app (pid 1501) was ended by SIGKILL
            30000000 default/web exit app lasted=29904000 exit=2 asked=false
              container.run / exited_with_error seen: it exited with 2
                the first process (pid 1503) exited with 2
        "#]],
    );
}

/// A container of the runtime's own API (`ctr run`) is no pod's.
#[test]
fn a_container_of_no_pod() {
    let mut s = Stream::new();
    let pod = Pod { host_network: true, ..Pod::new("none", "f", 9000) };
    super::super::containerd::oci(&mut s, &pod, 10_000, &id("f1"), 9020, "/bin/tool", false);
    let s =
        s.without(|_, item| matches!(item, super::super::dsl::Item::Record(r) if matches!(r.event, Event::Cgroup(_))));
    let mut s = s;
    s.signal(5_000_000, (4242, "bash"), 9023, 9);
    s.killed(5_000_100, 9023, 9);
    check(s, expect![[""]]);
}

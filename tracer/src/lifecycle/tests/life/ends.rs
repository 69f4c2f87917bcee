//! How containers end.

use expect_test::expect;

use super::super::containerd::container;
use super::super::dsl::{Item, Stream};
use super::{APP, PAUSE, SHIM, app, check, running};
use crate::cri::Field;
use crate::record::Event;

/// SIGTERM is ignored, SIGKILL follows.
#[test]
fn a_grace_that_is_over() {
    let (mut s, _) = running();
    let app = app();
    s.call((5_000_000, 7_050_000), "StopContainer", &[(Field::ContainerId, &app), (Field::Timeout, "2")], &[]);
    s.process((5_004_000, 5_006_000), SHIM, 1500, &format!("runc --root /r kill {app} 15"));
    s.signal_with(5_005_000, (1500, "runc"), APP, 15, (0, 1));
    s.runc_kill(7_005_000, SHIM, 1501, (&app, APP), 9);
    s.killed(7_006_000, APP, 9);
    check(
        s,
        expect![[r#"
            5000000 default/web stop app grace_s=2
            5005000 default/web signal app by=runc pid 1500 signal=15 for=stop ignored=true
            7005000 default/web signal app by=runc pid 1501 signal=9 for=stop
            7006000 default/web exit app lasted=6889000 by=runc pid 1501 signal=9 sender=runtime asked=true
              container.stop / grace_exceeded seen: it did not end within 2.0 s of SIGTERM, so the runtime killed it
                the runtime sent SIGTERM, and SIGKILL 2.0 s later
                the kernel dropped SIGTERM: the process ignores it, or is the first of its pid namespace and has no handler for it
            7050000 default/web stopped app lasted=2050000 killed=true
        "#]],
    );
}

#[test]
fn ends_by_itself() {
    for (code, expect) in [
        (
            0,
            expect![[r#"
            5000000 default/web exit app lasted=4883000 exit=0 asked=false
        "#]],
        ),
        (
            3,
            expect![[r#"
            5000000 default/web exit app lasted=4883000 exit=3 asked=false
              container.run / exited_with_error seen: it exited with 3
                the first process (pid 1123) exited with 3
        "#]],
        ),
    ] {
        let (mut s, _) = running();
        s.exit(5_000_000, APP, code);
        check(s, expect);
    }
}

#[test]
fn a_crash() {
    let (mut s, _) = running();
    s.signal_with(5_000_000, (APP, "app"), APP, 11, (1, 0));
    s.killed(5_000_100, APP, 11);
    check(
        s,
        expect![[r#"
            5000100 default/web exit app lasted=4883100 signal=11 sender=kernel asked=false
              container.run / crashed seen: it crashed: SIGSEGV
                the first process (pid 1123) was ended by SIGSEGV
        "#]],
    );
}

#[test]
fn killed_by_somebody() {
    let (mut s, _) = running();
    s.signal(5_000_000, (4242, "bash"), APP, 9);
    s.killed(5_000_100, APP, 9);
    check(
        s,
        expect![[r#"
        5000000 default/web signal app by=bash pid 4242 signal=9
        5000100 default/web exit app lasted=4883100 by=bash pid 4242 signal=9 sender=bash (pid 4242) asked=false
          container.run / killed seen: bash (pid 4242) sent SIGKILL to it
            the first process (pid 1123) was ended by SIGKILL
    "#]],
    );
    // A handler makes an exit code of it.
    let (mut s, _) = running();
    s.signal(5_000_000, (4242, "bash"), APP, 15);
    s.exit(5_300_000, APP, 143);
    check(
        s,
        expect![[r#"
        5000000 default/web signal app by=bash pid 4242 signal=15
        5300000 default/web exit app lasted=5183000 exit=143 asked=false
          container.run / killed inferred: bash (pid 4242) sent SIGTERM to it
            the first process (pid 1123) exited with 143
    "#]],
    );
    // One that runs in the container by runc exec is not the runtime.
    let (mut s, _) = running();
    s.process((4_000_000, 4_100_000), SHIM, 1600, &format!("runc --root /r exec --process /tmp/p --detach {}", app()));
    s.fork(4_010_000, 1600, 1601);
    s.exec_in_container(4_020_000, SHIM, 1601, "/bin/sh", 1000);
    s.signal(5_000_000, (1601, "sh"), APP, 2);
    s.exit(5_000_100, APP, 130);
    check(
        s,
        expect![[r#"
        5000000 default/web signal app by=sh pid 1601 signal=2
        5000100 default/web exit app lasted=4883100 exit=130 asked=false
          container.run / killed inferred: sh (pid 1601) sent SIGINT to it
            the first process (pid 1123) exited with 130
    "#]],
    );
}

/// Who kills it first has killed it: what comes after that is dropped.
#[test]
fn killed_twice() {
    let (mut s, _) = running();
    s.signal(5_000_000, (4242, "bash"), APP, 9);
    s.call((5_001_000, 5_100_000), "RemoveContainer", &[(Field::ContainerId, &app())], &[]);
    s.runc_kill(5_002_000, SHIM, 1500, (&app(), APP), 9);
    s.killed(5_003_000, APP, 9);
    check(
        s,
        expect![[r#"
        5000000 default/web signal app by=bash pid 4242 signal=9
        5003000 default/web exit app lasted=4886000 by=bash pid 4242 signal=9 sender=bash (pid 4242) asked=false
          container.run / killed seen: bash (pid 4242) sent SIGKILL to it
            the first process (pid 1123) was ended by SIGKILL
        5100000 default/web removed app lasted=99000
    "#]],
    );
}

#[test]
fn out_of_memory() {
    let (mut s, _) = running();
    s.oom(5_000_000, APP, 130_000);
    s.signal_with(5_000_010, (APP, "app"), APP, 9, (0x80, 0));
    s.killed(5_000_100, APP, 9);
    check(
        s,
        expect![[r#"
            5000000 default/web oom app by=exe pid 1123 rss_kib=130000 limit=134217728 init=true
            5000100 default/web exit app lasted=4883100 signal=9 sender=kernel asked=false
              container.run / oom_killed seen: the kernel killed the container's first process for memory
                the kernel chose app (pid 1123); it had 130000 KiB of memory; the container's limit is 134217728 bytes
        "#]],
    );
}

/// A child that nobody follows: its shim says whose it was.
#[test]
fn a_child_is_out_of_memory() {
    let child = |code: Option<u8>| {
        let (mut s, pod) = running();
        container(&mut s, &pod, 140_000, "log", "/bin/log");
        s.oom(5_000_000, 7777, 90_000);
        s.task_event(5_020_000, "/tasks/oom", &app(), &[]);
        code.into_iter().for_each(|code| s.exit(5_010_000, APP, code));
        s
    };
    check(
        child(None),
        expect![[r#"
        5000000 default/web oom app by= pid 7777 rss_kib=90000 limit=134217728 init=false
          container.run / oom_killed seen: the kernel killed a process of the container for memory; the container's first process lives on
            the kernel chose pid 7777; it had 90000 KiB of memory; the container's limit is 134217728 bytes
    "#]],
    );
    // A shell ends with its child.
    check(
        child(Some(137)),
        expect![[r#"
        5000000 default/web oom app by= pid 7777 rss_kib=90000 limit=134217728 init=false
        5010000 default/web exit app lasted=4893000 exit=137 asked=false
          container.run / oom_killed inferred: the container exited with 137 just after the kernel had killed a process of it for memory
            the kernel chose pid 7777; it had 90000 KiB of memory; the container's limit is 134217728 bytes
    "#]],
    );
    // No shim says so, or two do: nobody's.
    let (mut s, _) = running();
    s.oom(5_000_000, 7777, 90_000);
    check(s, expect![[""]]);
    let (mut s, pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    s.oom(5_000_000, 7777, 90_000);
    s.task_event(5_020_000, "/tasks/oom", &app(), &[]);
    s.task_event(5_030_000, "/tasks/oom", &super::log(), &[]);
    check(s, expect![[""]]);
}

/// Before the entrypoint it is the start that fails, and has the verdict.
#[test]
fn init_is_out_of_memory() {
    check(
        super::super::verdicts::oom("init died"),
        expect![[r#"
        106550 default/web oom app by= pid 1123 limit=134217728
    "#]],
    );
}

/// All of a group go at once: the first victim is not the first process.
#[test]
fn a_group_is_out_of_memory() {
    let (mut s, _) = running();
    // A process of the container that ran when podlapse came is followed.
    s.fork(3_000_000, SHIM, 1700);
    s.found(3_000_100, 1700, crate::record::Role::Other, "/bin/worker");
    s.in_cgroup(&format!("/kubepods/burstable/podx/{}", app()));
    s.oom(5_000_000, 1700, 90_000);
    s.oom(5_000_020, APP, 20_000);
    s.signal_with(5_000_030, (1700, "worker"), APP, 9, (0x80, 0));
    s.killed(5_000_100, APP, 9);
    check(
        s,
        expect![[r#"
            5000000 default/web oom app by= pid 1700 rss_kib=90000 limit=134217728 init=false group=true
            5000020 default/web oom app by=exe pid 1123 rss_kib=20000 limit=134217728 init=true group=true
            5000100 default/web exit app lasted=4883100 signal=9 sender=kernel asked=false
              container.run / oom_killed seen: the kernel killed the container's first process for memory
                the kernel chose app (pid 1123); it had 20000 KiB of memory; the container's limit is 134217728 bytes
                all processes of the container go together
        "#]],
    );
}

/// An init that never ran the entrypoint: its start has the verdict.
#[test]
fn an_exec_that_fails() {
    let (s, _) = running();
    let mut s = s.without(|_, item| {
        matches!(item, Item::Record(r) if r.tgid.0 == APP && matches!(&r.event, Event::Exec(e) if e.container))
    });
    s.failing_sys((117_000, 117_100), (APP, APP), crate::record::Sys::Execve, 0, ["/bin/app", "", ""], -8);
    s.exit(118_000, APP, 255);
    check(
        s,
        expect![[r#"
            118000 default/web exit app exit=255 asked=false
              container.exec / exec_failed seen: init exited with 255 without having run the entrypoint
        "#]],
    );
}

/// Where records were lost, what was not seen says nothing.
#[test]
fn after_a_loss() {
    let lost =
        |s: &mut Stream, at: u64| s.record(at, 1, Event::Lost { counter: tracer_ebpf::counter::SIGNS_LOST, count: 3 });
    let (mut s, _) = running();
    lost(&mut s, 4_000_000);
    s.exit(5_000_000, APP, 3);
    check(
        s,
        expect![[r#"
            5000000 default/web exit app lasted=4883000 exit=3
        "#]],
    );
    let (mut s, _) = running();
    lost(&mut s, 4_000_000);
    s.killed(5_000_000, APP, 11);
    check(
        s,
        expect![[r#"
            5000000 default/web exit app lasted=4883000 signal=11
        "#]],
    );
    // The signal itself was seen.
    let (mut s, _) = running();
    lost(&mut s, 4_000_000);
    s.signal(4_900_000, (4242, "bash"), APP, 9);
    s.killed(5_000_000, APP, 9);
    check(
        s,
        expect![[r#"
            4900000 default/web signal app by=bash pid 4242 signal=9
            5000000 default/web exit app lasted=4883000 by=bash pid 4242 signal=9 sender=bash (pid 4242)
              container.run / killed seen: bash (pid 4242) sent SIGKILL to it
                the first process (pid 1123) was ended by SIGKILL
        "#]],
    );
}

/// Two of which one is stopped.
#[test]
fn one_of_two() {
    let (mut s, pod) = running();
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    s.call((5_000_000, 5_050_000), "StopContainer", &[(Field::ContainerId, &app()), (Field::Timeout, "30")], &[]);
    s.runc_kill(5_005_000, SHIM, 1500, (&app(), APP), 15);
    s.exit(5_010_000, super::LOG, 1);
    s.exit(5_040_000, APP, 143);
    check(
        s,
        expect![[r#"
        5000000 default/web stop app grace_s=30
        5005000 default/web signal app by=runc pid 1500 signal=15 for=stop
        5010000 default/web exit log lasted=4833000 exit=1 asked=false
          container.run / exited_with_error seen: it exited with 1
            the first process (pid 1143) exited with 1
        5040000 default/web exit app lasted=4923000 exit=143 asked=true
        5050000 default/web stopped app lasted=50000 killed=false
    "#]],
    );
}

/// The pid of an app is used again by a process that has nothing to do with it.
#[test]
fn a_pid_is_used_again() {
    let (mut s, _) = running();
    s.exit(5_000_000, APP, 0);
    s.process((6_000_000, 7_000_000), 1, APP, "/usr/bin/stranger");
    s.signal(6_500_000, (4242, "bash"), APP, 9);
    check(
        s,
        expect![[r#"
        5000000 default/web exit app lasted=4883000 exit=0 asked=false
    "#]],
    );
}

/// Signals that end nothing, its own, and a timer's are not told.
#[test]
fn signals_that_are_none() {
    let (mut s, _) = running();
    s.signal(5_000_000, (4242, "bash"), APP, 28);
    s.signal(5_100_000, (APP, "app"), APP, 10);
    s.signal_with(5_200_000, (4242, "bash"), APP, 27, (-2, 0));
    s.signal_with(5_300_000, (PAUSE, "pause"), APP, 14, (0x80, 0));
    s.signal(5_400_000, (4242, "bash"), APP, 1);
    s.signal(5_500_000, (4242, "bash"), APP, 1);
    check(
        s,
        expect![[r#"
        5400000 default/web signal app by=bash pid 4242 signal=1
    "#]],
    );
}

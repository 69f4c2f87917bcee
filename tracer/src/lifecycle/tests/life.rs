//! What happens to a pod besides its starts.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, sandbox};
use super::dsl::{RUNTIME, Stream, id};
use crate::cri::Field;
use crate::engine::{Config, Update};
use crate::trace::{LifeEvent, Verdict};

/// The init of `app` and of pause, and their shim.
const APP: u32 = 1123;
const PAUSE: u32 = 1023;
const SHIM: u32 = 1011;

/// An event in a line or two, times in µs.
fn line(event: &LifeEvent) -> String {
    let mut out = String::new();
    let name = event.container.as_ref().map_or("-", |it| it.name.as_deref().unwrap_or("?"));
    let _ = write!(out, "{} {} {} {name}", event.at.0 / 1000, event.pod.full_name(), event.kind.name());
    let attempt = event.container.as_ref().and_then(|it| it.attempt).filter(|attempt| *attempt > 0);
    let process = event.process.as_ref().map(|it| format!("{} pid {}", it.comm, it.pid));
    let numbers = [
        ("attempt", attempt.map(|it| it.to_string())),
        ("lasted", event.lasted_ns.map(|it| (it / 1000).to_string())),
        ("code", event.call.as_ref().and_then(|it| it.code).filter(|code| *code > 0).map(|it| it.to_string())),
        ("by", process),
        ("signal", event.signal.map(|it| it.to_string())),
        ("exit", event.exit_code.map(|it| it.to_string())),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let attributes = event.attributes.iter().map(|(name, value)| (*name, value.clone()));
    for (name, value) in numbers.chain(attributes) {
        let _ = write!(out, " {name}={value}");
    }
    out.push('\n');
    if let Some(verdict) = &event.verdict {
        assert!(crate::diagnose::reason(&verdict.reason).is_some(), "{} is not in the list", verdict.reason);
        assert!(crate::trace::lookup(&verdict.stage).is_some(), "{} is not registered", verdict.stage);
        let Verdict { stage, reason, message, evidence, .. } = verdict;
        let _ = writeln!(out, "  {stage} / {reason} {}: {message}", verdict.confidence.name());
        for text in evidence {
            let _ = writeln!(out, "    {text}");
        }
    }
    out
}

pub(super) fn events(stream: Stream) -> Vec<LifeEvent> {
    let updates = stream.updates(Config::default()).into_iter();
    let life = updates.filter_map(|update| match update {
        Update::Life(event) => Some(*event),
        _ => None,
    });
    life.collect()
}

fn check(mut stream: Stream, expect: Expect) {
    stream.tick(60_000_000);
    expect.assert_eq(&events(stream).iter().map(line).collect::<String>());
}

/// A pod whose `app` runs.
fn running() -> (Stream, Pod) {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    (s, pod)
}

fn app() -> String {
    id("1c1")
}

/// The end of a pod: StopContainer that is obeyed, StopPodSandbox, both removed.
fn stopped(s: &mut Stream, pod: &Pod, at: u64) {
    let app = app();
    s.call((at, at + 50_000), "StopContainer", &[(Field::ContainerId, &app), (Field::Timeout, "30")], &[]);
    s.runc_kill(at + 5_000, SHIM, 1500, (&app, APP), 15);
    s.exit(at + 40_000, APP, 143);
    torn_down(s, pod, at + 60_000);
    s.call((at + 200_000, at + 210_000), "RemoveContainer", &[(Field::ContainerId, &app)], &[]);
    s.call((at + 220_000, at + 240_000), "RemovePodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
}

/// StopPodSandbox, 60 ms.
fn torn_down(s: &mut Stream, pod: &Pod, at: u64) {
    s.call((at, at + 60_000), "StopPodSandbox", &[(Field::SandboxId, &pod.sandbox)], &[]);
    s.cni((at + 5_000, at + 9_000), RUNTIME, 1510, "portmap", &pod.env("DEL"));
    s.cni((at + 10_000, at + 20_000), RUNTIME, 1511, "bridge", &pod.env("DEL"));
    s.cni((at + 12_000, at + 15_000), 1511, 1512, "host-local", &pod.env("DEL"));
    s.runc_kill(at + 30_000, SHIM, 1513, (&pod.sandbox, PAUSE), 9);
    s.killed(at + 32_000, PAUSE, 9);
    s.exit(at + 50_000, SHIM, 0);
}

#[test]
fn stop_and_removal() {
    let (mut s, pod) = running();
    stopped(&mut s, &pod, 5_000_000);
    check(
        s,
        expect![[r#"
            5000000 default/web stop app grace_s=30
            5005000 default/web signal app by=runc pid 1500 signal=15 for=stop
            5040000 default/web exit app lasted=4923000 exit=143 asked=true
            5050000 default/web stopped app lasted=50000 killed=false
            5060000 default/web sandbox_stop -
            5069000 default/web cni_del - lasted=4010 by=portmap pid 1510 exit=0
            5075000 default/web cni_del - lasted=3010 by=host-local pid 1512 exit=0
            5080000 default/web cni_del - lasted=10010 by=bridge pid 1511 exit=0
            5120000 default/web sandbox_stopped - lasted=60000
            5210000 default/web removed app lasted=10000
            5240000 default/web sandbox_removed - lasted=20000 last=true
        "#]],
    );
}

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
            the kernel dropped SIGTERM: pid 1 of a pid namespace that has no handler for it
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

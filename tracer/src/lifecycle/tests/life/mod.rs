//! What happens to a pod besides its starts.

mod calls;
mod ends;
mod late;
mod sandboxes;
pub(super) mod verdicts;

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::containerd::{Pod, container, sandbox};
use super::dsl::{RUNTIME, Stream, id};
use crate::cri::Field;
use crate::engine::{Config, Update};
use crate::trace::{LifeEvent, Verdict};

/// The init of `app`, of `log`, of pause, and their shim.
const APP: u32 = 1123;
const LOG: u32 = 1143;
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

fn log() -> String {
    id("1c2")
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

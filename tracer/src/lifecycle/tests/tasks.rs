//! What shims say, beside what the kernel says.

use super::containerd::{Pod, container, sandbox};
use super::dsl::{Stream, id};
use crate::cri::{Field, Value};
use crate::engine::Config;
use crate::record::{Event, Exit};
use crate::trace::Trace;

/// The init of `app`.
const INIT: u32 = 1123;

/// A pod whose container has this id.
fn app() -> (Stream, String) {
    let mut s = Stream::new();
    let pod = Pod::new("web", "1", 1000);
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    (s, id("1c1"))
}

fn notes(mut s: Stream) -> Vec<String> {
    s.tick(9_000_000);
    s.feed(Config::default()).remove(0).quality.notes
}

fn killed(s: &mut Stream, at: u64) {
    s.record(at, INIT, Event::Exit(Exit { status: None, signal: Some(9), comm: "app".into() }));
}

#[test]
fn both_agree() {
    let (mut s, id) = app();
    s.task_event(112_100, "/tasks/create", &id, &[(Field::Pid, INIT.into())]);
    s.task_event(119_100, "/tasks/start", &id, &[(Field::Pid, INIT.into())]);
    killed(&mut s, 200_000);
    s.task_event(201_000, "/tasks/exit", &id, &[(Field::Pid, INIT.into()), (Field::ExitStatus, 137)]);
    assert_eq!(notes(s), Vec::<String>::new());
}

#[test]
fn another_init() {
    let (mut s, id) = app();
    s.task_event(119_100, "/tasks/start", &id, &[(Field::Pid, 1)]);
    assert_eq!(notes(s), ["init_pid_disagrees: kernel 1123, shim 1"]);
}

#[test]
fn another_exit_status() {
    let (mut s, id) = app();
    killed(&mut s, 200_000);
    s.task_event(201_000, "/tasks/exit", &id, &[(Field::ExitStatus, 1)]);
    assert_eq!(notes(s), ["exit_status_disagrees: kernel 137, shim 1"]);
    // 0 is left out on the wire, and Wait's reply says it as well.
    let (mut s, id) = app();
    killed(&mut s, 200_000);
    s.task_reply((119_500, 201_000), "Wait", &id, Vec::new());
    assert_eq!(notes(s), ["exit_status_disagrees: kernel 137, shim 0"]);
}

#[test]
fn an_exit_told_too_early() {
    let (mut s, id) = app();
    killed(&mut s, 200_000);
    s.task_event(199_000, "/tasks/exit", &id, &[(Field::ExitStatus, 137)]);
    assert_eq!(notes(s), ["exit_order_disagrees: kernel at 200000000 ns, shim at 199000000 ns"]);
}

#[test]
fn an_exec_before_it_was_asked_for() {
    let (s, id) = app();
    let mut s = s.without(|at, item| (113_000..=119_000).contains(&at) && matches!(item, super::dsl::Item::Call(_)));
    s.task((117_500, 119_000), "Start", &id, INIT);
    let asked = "exec_order_disagrees: kernel exec at 117000000 ns, shim asked to start at 117500000 ns";
    assert_eq!(notes(s), [asked]);
}

#[test]
fn out_of_memory_or_not() {
    let (mut s, id) = app();
    s.task_event(200_000, "/tasks/oom", &id, &[]);
    assert_eq!(notes(s), ["oom_disagrees: kernel no, shim yes"]);
    // The kernel's victim may be a child that nobody follows.
    for victim in [INIT, 4711] {
        let (mut s, id) = app();
        s.record(199_000, 1, Event::Oom { victim: crate::ids::Tgid(victim), rss_kib: 0 });
        s.task_event(200_000, "/tasks/oom", &id, &[]);
        assert_eq!(notes(s), Vec::<String>::new());
    }
}

/// Events of a process beside init, or of an unknown container, say nothing of the init.
#[test]
fn of_somebody_else() {
    let (mut s, id) = app();
    killed(&mut s, 200_000);
    s.task_event(190_000, "/tasks/exit", &super::dsl::id("ff"), &[(Field::ExitStatus, 7)]);
    s.task_event(190_000, "/tasks/exit", &id, &[(Field::ExitStatus, 7)]);
    for (_, item) in &mut s.items {
        if let super::dsl::Item::Call(crate::cri::CallEvent::Request { fields, .. }) = item {
            for (field, value) in &mut fields.0 {
                if *field == Field::ExecId {
                    *value = Value::Text("probe".into());
                }
            }
        }
    }
    assert_eq!(notes(s), Vec::<String>::new());
}

#[test]
fn the_calls_of_a_start() {
    let (mut s, id) = app();
    s.task_reply((119_500, 8_000_000), "Wait", &id, vec![(Field::ExitStatus, Value::Number(0))]);
    s.task((8_000_100, 8_000_200), "Kill", &id, INIT);
    s.tick(9_000_000);
    let traces: Vec<Trace> = s.feed(Config::default());
    let calls: Vec<String> = traces[0].containers[0]
        .task_calls
        .iter()
        .map(|c| format!("{} {}..{:?} pid {:?}", c.method, c.start_ns, c.end_ns, c.pid.map(|pid| pid.0)))
        .collect();
    let [create, start, wait] = [
        "Create 95100000..Some(112000000) pid Some(1123)",
        "Start 113000000..Some(119000000) pid Some(1123)",
        "Wait 119500000..None pid None",
    ];
    assert_eq!(calls, [create, start, wait]);
}

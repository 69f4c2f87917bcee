//! One story a pod: attempts of one UID, and what was between them.

use super::containerd::{Pod, attempt, container, network, sandbox};
use super::dsl::{Stream, id};
use crate::cri::Ending;
use crate::engine::Config;
use crate::trace::{Attempt, Outcome, StartKind, Trace};

const SECOND: u64 = 1_000_000;

/// Kind, attempt, outcome, reason, exit code, and in ms: begin before this one's, what it waited after it.
type Line<'a> = (StartKind, Option<u32>, Outcome, Option<&'a str>, Option<u8>, u64, Option<u64>);

fn lines(trace: &Trace) -> Vec<Line<'_>> {
    let line = |it: &'_ Attempt| {
        let code = it.exit.and_then(|exit| exit.code);
        (it.kind, it.attempt, it.outcome, code, it.before_ns / 1_000_000, it.waited_ns.map(|ns| ns / 1_000_000))
    };
    let reasons = trace.attempts.iter().map(|it| it.reason.as_deref());
    let all = trace.attempts.iter().map(line).zip(reasons);
    all.map(|((kind, number, outcome, code, before, waited), reason)| {
        (kind, number, outcome, reason, code, before, waited)
    })
    .collect()
}

#[test]
fn a_container_that_crashes_again_and_again() {
    let (mut s, pod) = (Stream::new(), Pod::new("crash", "1", 1000));
    sandbox(&mut s, &pod);
    container(&mut s, &pod, 80_000, "app", "/bin/app");
    // Beside it; it goes on.
    container(&mut s, &pod, 140_000, "log", "/bin/log");
    s.exit(3 * SECOND, 1123, 7);
    let again = Pod { pids: 3000, ..pod };
    attempt(&mut s, &again, 4 * SECOND, "app", "/bin/app", 1);
    s.exit(8 * SECOND, 3523, 8);
    let again = Pod { pids: 5000, ..again };
    attempt(&mut s, &again, 18 * SECOND, "app", "/bin/app", 2);
    s.tick(25 * SECOND);
    let traces = s.feed(Config::default());
    assert_eq!(traces.len(), 3);
    assert_eq!(lines(&traces[0]), []);
    let whole = Outcome::Complete;
    assert_eq!(lines(&traces[1]), [(StartKind::Pod, Some(0), whole, None, Some(7), 4000, Some(1000))]);
    assert_eq!(
        lines(&traces[2]),
        [
            (StartKind::Pod, Some(0), whole, None, Some(7), 18_000, Some(1000)),
            (StartKind::Container, Some(1), whole, None, Some(8), 14_000, Some(10_000)),
        ]
    );
    assert_eq!(traces[2].attempts[1].trace_id, traces[1].trace_id);
}

#[test]
fn a_sandbox_that_fails_until_it_does_not() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    let text = "plugin type=\"bridge\" failed (add): no IP addresses available in range set: 10.0.0.1-10.0.0.2";
    s.failing_call((0, 40_000), "RunPodSandbox", &pod.request(), text);
    s.failing_call((13 * SECOND, 13 * SECOND + 50_000), "RunPodSandbox", &pod.request(), text);
    // Another pod's is no attempt of this one.
    let other = Pod::new("web", "2", 5000);
    s.failing_call((14 * SECOND, 14 * SECOND + 50_000), "RunPodSandbox", &other.request(), text);
    s.offset = 26 * SECOND;
    let again = Pod { pids: 3000, ..pod };
    sandbox(&mut s, &again);
    container(&mut s, &again, 80_000, "app", "/bin/app");
    s.tick(9 * SECOND);
    let traces = s.feed(Config::default());
    let last = traces.last().unwrap();
    let (kind, failed, reason) = (StartKind::Pod, Outcome::Failed, Some("ipam_exhausted"));
    assert_eq!(
        lines(last),
        [
            (kind, Some(0), failed, reason, None, 26_000, Some(12_960)),
            (kind, Some(0), failed, reason, None, 13_000, Some(12_950)),
        ]
    );
    assert_eq!(last.attempts[0].stage.as_deref(), Some("sandbox"));
}

/// The holder's id is not known to be the first attempt's sandbox: nothing of it was seen but its call.
#[test]
fn a_retry_that_meets_what_the_client_gave_up() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    let key = s.begin_call(0, "RunPodSandbox", &pod.request());
    s.end_call(4 * SECOND, key, Ending::ResetByClient(8));
    let text = format!("failed to reserve sandbox name \"web\": name \"web\" is reserved for \"{}\"", id("f0"));
    s.failing_call((5 * SECOND, 5 * SECOND + 500), "RunPodSandbox", &pod.request(), &text);
    let traces = s.feed(Config::default());
    let verdict = traces[1].verdict.as_ref().unwrap();
    assert_eq!(verdict.reason, "name_reserved");
    assert_eq!(verdict.is_consequence_of.as_ref(), Some(&traces[0].trace_id));
    let given_up = (StartKind::Pod, Some(0), Outcome::Failed, Some("client_cancel"), None, 5000, Some(1000));
    assert_eq!(lines(&traces[1]), [given_up]);
}

/// The first and the latest are told of many.
#[test]
fn of_many_attempts() {
    let (mut s, pod) = (Stream::new(), Pod::new("web", "1", 1000));
    for number in 0..40 {
        let at = number * 10 * SECOND;
        s.failing_call((at, at + 50_000), "RunPodSandbox", &pod.request(), "no");
    }
    network(&mut s, &Pod::new("other", "2", 3000));
    let traces = s.feed(Config::default());
    let before: Vec<u64> = traces[39].attempts.iter().map(|it| it.before_ns / 10_000_000_000).collect();
    assert_eq!(before, [&[39][..], &(1..=15).rev().collect::<Vec<_>>()].concat());
}

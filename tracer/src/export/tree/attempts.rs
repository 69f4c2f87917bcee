//! What was tried before, a line an attempt.

use super::super::text::Charset;
use super::super::time::duration;
use crate::trace::{Attempt, AttemptExit, StartKind, Trace};

pub(super) fn lines(trace: &Trace, charset: Charset) -> Vec<String> {
    let Some(first) = trace.attempts.first() else { return Vec::new() };
    let head = format!("earlier attempts, the first {} before this one:", duration(first.before_ns));
    let tried = trace.attempts.iter().map(|attempt| line(trace, attempt, charset));
    [head].into_iter().chain(tried).collect()
}

fn line(trace: &Trace, attempt: &Attempt, charset: Charset) -> String {
    let number = attempt.attempt.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let what = if trace.kind == StartKind::Container && attempt.kind == StartKind::Pod {
        "the pod's start"
    } else {
        "attempt"
    };
    let mut text = format!("  {what} {number}: {} after {}", attempt.outcome.name(), duration(attempt.total_ns));
    if let (Some(stage), Some(reason)) = (&attempt.stage, &attempt.reason) {
        text += &format!(", {} in {}", charset.clean(reason), charset.clean(stage));
    }
    text += &attempt.exit.map_or_else(String::new, |exit| format!(", then {}", ended(exit)));
    match (attempt.waited_ns, attempt.kubelet(trace.kind)) {
        (Some(waited), Some(word)) => text += &format!("; backoff {} ({word})", duration(waited)),
        (Some(waited), None) => text += &format!("; the next {} later", duration(waited)),
        (None, _) => {}
    }
    text
}

fn ended(exit: AttemptExit) -> String {
    match (exit.oom, exit.signal, exit.code) {
        (true, ..) => "OOM-killed".to_owned(),
        (_, Some(signal), _) => format!("ended by signal {signal}"),
        (_, None, Some(code)) => format!("exited with {code}"),
        (_, None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::super::samples;
    use super::*;
    use crate::trace::Outcome;

    #[test]
    fn a_crash_loop() {
        let exit = |code, oom: bool, before_ns| AttemptExit { code, signal: oom.then_some(9), oom, before_ns };
        let pod = Attempt {
            trace_id: "0".repeat(32),
            kind: StartKind::Pod,
            attempt: Some(0),
            outcome: Outcome::Complete,
            stage: None,
            reason: None,
            before_ns: 42_500_000_000,
            total_ns: 1_200_000_000,
            exit: Some(exit(Some(1), false, 31_000_000_000)),
            waited_ns: Some(900_000_000),
        };
        let killed = Attempt {
            kind: StartKind::Container,
            attempt: Some(1),
            before_ns: 30_000_000_000,
            exit: Some(exit(None, true, 20_000_000_000)),
            waited_ns: Some(20_000_000_000),
            ..pod.clone()
        };
        let failed = Attempt {
            attempt: Some(2),
            outcome: Outcome::Failed,
            stage: Some("container.start.oci.create.lookpath".into()),
            reason: Some("entrypoint_not_found".into()),
            exit: None,
            ..killed.clone()
        };
        // kubelet backs off what it could start, and tries to make what it could not at its next look.
        let not_made = Attempt {
            attempt: Some(3),
            stage: Some("container.create".into()),
            reason: Some("call_failed".into()),
            ..failed.clone()
        };
        let mut trace = samples::complete();
        (trace.kind, trace.attempts) = (StartKind::Container, vec![pod, killed, failed, not_made]);
        let mut json = Vec::new();
        crate::export::write_json(&mut json, &trace).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let words: Vec<_> = json["attempts"].as_array().unwrap().iter().map(|it| it["kubelet"].as_str()).collect();
        assert_eq!(words, [None, Some("CrashLoopBackOff"), Some("CrashLoopBackOff"), None]);
        expect![[r#"
            earlier attempts, the first 42.50 s before this one:
              the pod's start 0: complete after 1.200 s, then exited with 1; the next 900.0 ms later
              attempt 1: complete after 1.200 s, then OOM-killed; backoff 20.00 s (CrashLoopBackOff)
              attempt 2: failed after 1.200 s, entrypoint_not_found in container.start.oci.create.lookpath; backoff 20.00 s (CrashLoopBackOff)
              attempt 3: failed after 1.200 s, call_failed in container.create; the next 20.00 s later"#]].assert_eq(&lines(&trace, Charset::Ascii).join("\n"));
    }
}

//! The calls that containerd says it served: its own log at the level `trace`, which has a line for each.

use std::path::Path;

use anyhow::{Context, Result};

/// A call's first line in the log (containerd `pkg/cri/server/instrumented_service.go`).
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    /// On CLOCK_MONOTONIC.
    pub(crate) at: u64,
    pub(crate) method: &'static str,
    /// Sandbox or container, where the request names one.
    pub(crate) id: Option<String>,
}

const METHODS: [&str; 29] = [
    "Attach",
    "ContainerStats",
    "ContainerStatus",
    "CreateContainer",
    "Exec",
    "ExecSync",
    "ImageFsInfo",
    "ImageStatus",
    "ListContainerStats",
    "ListContainers",
    "ListImages",
    "ListPodSandbox",
    "ListPodSandboxStats",
    "PodSandboxStats",
    "PodSandboxStatus",
    "PortForward",
    "PullImage",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "ReopenContainerLog",
    "RunPodSandbox",
    "StartContainer",
    "Status",
    "StopContainer",
    "StopPodSandbox",
    "UpdateContainerResources",
    "UpdateRuntimeConfig",
    "Version",
];

/// All of a log by time, which is not quite its own order; `offset` is CLOCK_REALTIME less CLOCK_MONOTONIC.
pub(crate) fn read(log: &Path, offset: u64) -> Result<Vec<Logged>> {
    let text = std::fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let mut calls: Vec<Logged> = text.lines().filter_map(|line| logged(line, offset)).collect();
    calls.sort_by_key(|call| call.at);
    Ok(calls)
}

/// CLOCK_REALTIME less CLOCK_MONOTONIC.
pub(crate) fn clock_offset() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    };
    ns(ClockId::Realtime) - ns(ClockId::Monotonic)
}

fn logged(line: &str, offset: u64) -> Option<Logged> {
    let time = line.strip_prefix("time=\"")?.split('"').next()?;
    let (_, rest) = line.split_once(" level=")?;
    let (level, rest) = rest.split_once(" msg=")?;
    let message = rest.strip_prefix('"').unwrap_or(rest);
    let word = message.split([' ', '"']).next()?;
    let method = METHODS.into_iter().find(|method| *method == word)?;
    // The end of a call has a line, too, and a step of its work may begin with the method's name.
    let details = &message[method.len()..];
    let begins = ["", "\"", " for ", " with ", " within ", " \\\""].into_iter().any(|start| match start {
        "" | "\"" => details == start,
        _ => details.starts_with(start),
    });
    if level == "error" || !begins || details.contains(" returns") {
        return None;
    }
    let between = |before: &str, after: &str| Some(details.split_once(before)?.1.split_once(after)?.0.to_owned());
    let id = match method {
        "RunPodSandbox" => between("Uid:", ","),
        _ => between(" for \\\"", "\\\"").or_else(|| between(" within sandbox \\\"", "\\\"")),
    };
    Some(Logged { at: nanoseconds(time)?.checked_sub(offset)?, method, id })
}

/// Since the epoch, of `2026-11-30T01:19:47.678133550Z`: containerd logs in UTC unless its machine has another zone,
/// and a node's has not.
fn nanoseconds(rfc3339: &str) -> Option<u64> {
    let (date, time) = rfc3339.strip_suffix('Z')?.split_once('T')?;
    let numbers =
        |text: &str, by: char| text.split(by).map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hours, minutes, seconds] = numbers(clock, ':')?.try_into().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    // Days since the epoch in the Gregorian calendar, years beginning in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log() {
        let of = |rest: &str| logged(&format!("time=\"2026-11-30T01:19:47.678133550Z\" {rest}"), 0);
        let call = of(r#"level=info msg="StartContainer for \"9878\"""#).expect("a call");
        assert_eq!(
            (call.at, call.method, call.id.as_deref()),
            (1_796_001_587_678_133_550, "StartContainer", Some("9878"))
        );
        let call =
            of(r#"level=info msg="CreateContainer within sandbox \"10fa\" for container &X{}""#).expect("a call");
        assert_eq!((call.method, call.id.as_deref()), ("CreateContainer", Some("10fa")));
        let call = of(r#"level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:a,Uid:f6c9,}""#).expect("a call");
        assert_eq!((call.method, call.id.as_deref()), ("RunPodSandbox", Some("f6c9")));
        assert_eq!(of("level=trace msg=Status").expect("a call").method, "Status");
        for other in [
            r#"level=info msg="StartContainer for \"9878\" returns successfully""#,
            r#"level=error msg="StopPodSandbox for \"10fa\" failed""#,
            r#"level=debug msg="Exec process \"ba36\" exits with exit code 0""#,
            r#"level=trace msg="Status returns status &RuntimeStatus{}""#,
        ] {
            assert!(of(other).is_none(), "{other}");
        }
    }
}

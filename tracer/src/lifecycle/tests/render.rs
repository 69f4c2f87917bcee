//! A trace as compact text, times in µs.

use std::fmt::Write as _;

use crate::trace::{ProcessInfo, Span, StartKind, Trace};

/// Everything but the stage table.
pub(super) fn trace(trace: &Trace) -> String {
    let mut out = String::new();
    let pod = &trace.pod;
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".into());
    let (total, named) = (us(trace.total_ns), us(trace.named_ns));
    let _ = writeln!(
        out,
        "{}{} {}/{} total {total} named {named}",
        trace.outcome.name(),
        if trace.kind == StartKind::Container { " container of" } else { "" },
        text(&pod.namespace),
        text(&pod.name)
    );
    for span in &trace.spans {
        let _ = writeln!(out, "{}", line(trace, span));
    }
    if let Some(id) = &trace.sandbox.id {
        let (pid, shim) = (trace.sandbox.pid, trace.sandbox.shim_pid);
        let _ = writeln!(out, "sandbox {} pid {} shim {}", &id.as_str()[..2], maybe(pid), maybe(shim));
    }
    for container in &trace.containers {
        if container.peer {
            let _ = write!(out, "peer ");
        }
        let id = container.id.as_ref().map_or("?", |id| &id.as_str()[..3]);
        let _ = write!(out, "container {} {id} pid {}", text(&container.name), maybe(container.pid));
        if let Some(exec) = &container.exec {
            let errno = exec.errno.map_or(String::new(), |errno| format!(" errno {errno}"));
            let _ = write!(out, " exec {} at {}{errno}", exec.path, us(exec.at_ns));
        }
        if let Some(exit) = &container.exit {
            let _ = write!(out, " exit {} at {}", maybe(exit.code), us(exit.at_ns));
        }
        let limits: Vec<String> = container.limits.iter().map(|(file, value)| format!("{file}={value}")).collect();
        let _ = writeln!(out, " [{}]", limits.join(", "));
    }
    if let Some(verdict) = &trace.verdict {
        let _ = writeln!(out, "verdict {} / {}: {}", verdict.stage, verdict.reason, verdict.message);
    }
    let quality = &trace.quality;
    if quality.lost_records + quality.undecoded_bytes + quality.evicted > 0 || !quality.notes.is_empty() {
        let (lost, undecoded) = (quality.lost_records, quality.undecoded_bytes);
        let _ = writeln!(out, "quality lost {lost} undecoded {undecoded} notes {:?}", quality.notes);
    }
    out
}

/// The stage table.
pub(super) fn stages(trace: &Trace) -> String {
    trace.stages.iter().fold(String::new(), |mut out, s| {
        let _ = writeln!(out, "{} wall {} self {} count {}", s.stage, us(s.wall_ns), us(s.self_ns), s.count);
        out
    })
}

fn line(trace: &Trace, span: &Span) -> String {
    let mut depth = 0;
    let mut parent = span.parent;
    while let Some(id) = parent {
        depth += 1;
        parent = trace.spans[id.0 as usize - 1].parent;
    }
    let end = span.end_ns.map_or("…".to_owned(), |end| us(end).to_string());
    let mark = if span.critical() { " *" } else { "" };
    let process = span.process.as_ref().map(process).unwrap_or_default();
    let code = span.call.as_ref().and_then(|call| call.code).map_or(String::new(), |code| format!(" code {code}"));
    let indent = "  ".repeat(depth + 1);
    let extra = ["ran", "errno", "ended", "cgroup_manager"]
        .iter()
        .filter_map(|key| Some(format!(" {key}={}", span.attributes.get(*key)?)));
    let extra: String = extra.collect();
    let name = if span.stage.ends_with(&span.name) { String::new() } else { format!(" ({})", span.name) };
    format!(
        "{indent}{}{name} {}..{end} self {}{process}{code}{extra}{mark}",
        span.stage,
        us(span.start_ns),
        us(span.self_ns)
    )
}

fn process(process: &ProcessInfo) -> String {
    let ended = match (process.exit_code, process.errno) {
        (_, Some(errno)) => format!(" errno {errno}"),
        (Some(0) | None, None) => String::new(),
        (Some(code), None) => format!(" exit {code}"),
    };
    format!(" pid {}{ended}", process.pid)
}

fn maybe(value: Option<impl ToString>) -> String {
    value.map_or("?".to_owned(), |value| value.to_string())
}

fn us(ns: u64) -> u64 {
    ns / 1000
}

//! The waterfall: one line a span, nested, to scale, the critical path marked.

mod attempts;
mod line;
mod order;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use self::line::Columns;
use super::Charset;
use super::text::{flow, percent, wrap};
use super::time::duration;
use crate::trace::{Confidence, Container, NodeVerdict, Outcome, Span, StartKind, Trace, Verdict};

/// How a waterfall is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// Columns that it may use.
    pub width: usize,
    /// Characters that it may use.
    pub charset: Charset,
    /// Whether it may use colour.
    pub colour: bool,
    /// Shorter stages are left out.
    pub min_ns: u64,
}

pub(super) const HEAD: Style = Style::new().bold();
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(super) const OPEN: Style = AnsiColor::Yellow.on_default();
const CRITICAL: Style = AnsiColor::Cyan.on_default().bold();
pub(super) const FAINT: Style = Style::new().dimmed();

/// Narrowest waterfall; a narrower terminal wraps.
const MIN_WIDTH: usize = 48;

/// Widest waterfall; beyond it a scale tells no more, and formatting takes no width above 65535.
const MAX_WIDTH: usize = 1000;

/// Writes the waterfall of `trace`.
///
/// # Errors
/// What `out` gives.
pub fn write_tree(out: &mut dyn Write, trace: &Trace, tree: &Tree) -> io::Result<()> {
    let tree = Tree { width: tree.width.clamp(MIN_WIDTH, MAX_WIDTH), ..*tree };
    for line in flow(&head(trace, tree.charset), tree.width) {
        writeln!(out, "{}", tree.paint(HEAD, &line))?;
    }
    let (rows, hidden) = order::rows(&trace.spans, |span| span_is_short(span, tree.min_ns));
    let columns = Columns::new(&rows, &tree);
    if !rows.is_empty() {
        writeln!(out, "{}", tree.paint(FAINT, &columns.ruler(trace.total_ns)))?;
    }
    for row in &rows {
        columns.write(out, trace, row, &tree)?;
    }
    if hidden > 0 {
        let stages = if hidden == 1 { "stage" } else { "stages" };
        let line = format!("{hidden} {stages} shorter than {} not shown", duration(tree.min_ns));
        writeln!(out, "{}", tree.paint(FAINT, &line))?;
    }
    if let Some(waiting) = trace.waiting.as_ref().filter(|_| trace.verdict.is_none()) {
        for line in wrap(&tree.charset.clean(&waiting.sentence()), tree.width, 8) {
            writeln!(out, "{}", tree.paint(OPEN, &line))?;
        }
    }
    for line in verdict(trace, &tree) {
        writeln!(out, "{}", tree.paint(BAD, &line))?;
    }
    for line in attempts::lines(trace, tree.charset) {
        for line in wrap(&line, tree.width, 8) {
            writeln!(out, "{line}")?;
        }
    }
    for verdict in &trace.node.verdicts {
        for line in wrap(&tree.charset.clean(&of_node(verdict, trace)), tree.width, 8) {
            writeln!(out, "{}", tree.paint(BAD, &line))?;
        }
    }
    for note in &trace.quality.notes {
        writeln!(out, "note: {}", tree.charset.clean(note))?;
    }
    for line in flow(&peers(trace, tree.charset), tree.width) {
        writeln!(out, "{line}")?;
    }
    for line in flow(&foot(trace, tree.charset), tree.width) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// What was wrong with the node meanwhile.
fn of_node(verdict: &NodeVerdict, trace: &Trace) -> String {
    let began = match trace.start.since(verdict.since) {
        0 => format!("{} after the start began", duration(verdict.since.since(trace.start))),
        before => format!("{} before the start began", duration(before)),
    };
    let NodeVerdict { reason, message, .. } = verdict;
    let over = if verdict.open { "" } else { ", over by now" };
    format!("node: {reason}, since {began}{over}: {message}; podlapse explain {reason}")
}

/// Over, not a point, not failed, and shorter than that.
fn span_is_short(span: &Span, min_ns: u64) -> bool {
    let length = span.end_ns.map(|end| end.saturating_sub(span.start_ns));
    length.is_some_and(|length| (1..min_ns).contains(&length)) && !line::failed(span)
}

impl Tree {
    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

fn head(trace: &Trace, charset: Charset) -> Vec<String> {
    let text = |text: &Option<String>| charset.clean(text.as_deref().unwrap_or("?"));
    let mut parts = vec![format!("pod {}", charset.clean(&trace.pod.full_name()))];
    if let Some(uid) = &trace.pod.uid {
        parts.push(format!("uid {}", charset.clean(uid.as_str())));
    }
    if let Some(attempt) = trace.pod.attempt.filter(|attempt| *attempt > 0) {
        parts.push(format!("attempt {attempt}"));
    }
    if trace.kind == StartKind::Container {
        for container in trace.containers.iter().filter(|container| !container.peer) {
            let attempt = container.attempt.map_or(String::new(), |attempt| format!(" attempt {attempt}"));
            parts.push(format!("container {}{attempt}", text(&container.name)));
        }
    }
    if trace.node.name.is_some() {
        parts.push(format!("node {}", text(&trace.node.name)));
    }
    if trace.node.runtime.is_some() {
        let version = trace.node.runtime_version.as_deref().unwrap_or_default();
        parts.push(charset.clean(format!("{} {version}", text(&trace.node.runtime)).trim_end()));
    }
    parts.push(trace.outcome.name().to_owned());
    parts
}

/// Who lives in the sandbox beside the container that starts.
fn peers(trace: &Trace, charset: Charset) -> Vec<String> {
    let name = |container: &Container| {
        let name = charset.clean(container.name.as_deref().unwrap_or("?"));
        container.pid.map_or(format!("beside {name}"), |pid| format!("beside {name} (pid {pid})"))
    };
    trace.containers.iter().filter(|container| container.peer).map(name).collect()
}

fn verdict(trace: &Trace, tree: &Tree) -> Vec<String> {
    let Some(verdict) = &trace.verdict else { return Vec::new() };
    let (stage, reason) = (tree.charset.clean(&verdict.stage), tree.charset.clean(&verdict.reason));
    let message = tree.charset.clean(&verdict.message);
    let text = match (trace.outcome, reason.as_str()) {
        (Outcome::InProgress, "stuck") => format!("stuck in {stage}: {message}"),
        (Outcome::InProgress, _) => format!("stuck in {stage}: {reason}: {message}"),
        _ => format!("failed in {stage}: {reason}: {message}"),
    };
    let mut lines = wrap(&text, tree.width, 8);
    lines.extend(grounds(verdict, tree));
    lines
}

/// What a verdict rests on, and what to do next.
pub(super) fn grounds(verdict: &Verdict, tree: &Tree) -> Vec<String> {
    let kubelet = verdict.kubelet.as_ref().map(|word| format!("kubelet shows {word}"));
    let why = match verdict.evidence.join("; ") {
        none if none.is_empty() => None,
        some if verdict.confidence == Confidence::Inferred => Some(format!("{some} (inferred)")),
        some => Some(some),
    };
    let about = [
        ("culprit", verdict.culprit.clone()),
        ("why", why),
        ("follows from trace", verdict.is_consequence_of.clone()),
        ("next", verdict.next_check.clone()),
        ("see", kubelet.map(|word| format!("{word}; podlapse explain {}", verdict.reason))),
    ];
    let about = about.into_iter().filter_map(|(what, text)| Some((what, text?)));
    about.flat_map(|(what, text)| wrap(&format!("{what}: {}", tree.charset.clean(&text)), tree.width, 8)).collect()
}

fn foot(trace: &Trace, charset: Charset) -> Vec<String> {
    let quality = &trace.quality;
    let total = if trace.outcome == Outcome::InProgress { "so far" } else { "total" };
    let mut parts = vec![
        format!("{total} {}", duration(trace.total_ns)),
        format!("named {}", percent(trace.named_ns, trace.total_ns)),
        format!("lost {}", quality.lost_records),
    ];
    for (count, what) in [
        (quality.undecoded_bytes, "undecoded bytes"),
        (u64::from(quality.inferred_methods), "inferred methods"),
        (quality.evicted, "evicted"),
    ] {
        if count > 0 {
            parts.push(format!("{what} {count}"));
        }
    }
    let probes = &trace.node.probes;
    let mut backends: Vec<&str> = probes.values().map(String::as_str).collect();
    backends.dedup();
    match backends[..] {
        [] => {}
        [one] => parts.push(format!("probes {}", charset.clean(one))),
        _ => parts.extend(probes.iter().map(|(group, by)| charset.clean(&format!("{group} {by}")))),
    }
    parts
}

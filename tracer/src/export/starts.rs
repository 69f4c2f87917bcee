//! A table of starts, one line each: what a recording holds.

use std::io::{self, Write};
use std::ops::Range;

use super::time::{duration, rfc3339};
use super::{Charset, grid};
use crate::trace::{StartKind, Trace};

/// What a narrow screen does without, in this order: the UID, the reason, the start's time, the containers.
const SPARE: [Range<usize>; 4] = [4..5, 3..4, 0..1, 2..3];

/// Columns of text; the others are numbers and instants.
const LEFT: usize = 3;

/// What the table says of one start.
#[derive(Clone, Debug)]
pub struct StartLine {
    pod: String,
    kind: &'static str,
    outcome: &'static str,
    start: String,
    total_ns: u64,
    containers: usize,
    reason: String,
    uid: String,
}

impl From<&Trace> for StartLine {
    fn from(trace: &Trace) -> StartLine {
        StartLine {
            pod: trace.pod.full_name(),
            kind: match trace.kind {
                StartKind::Pod => "pod",
                StartKind::Container => "restart",
            },
            outcome: trace.outcome.name(),
            // Without a wall time, the monotonic one.
            start: trace.start_realtime.map_or_else(|| trace.start.0.to_string(), rfc3339),
            total_ns: trace.total_ns,
            containers: trace.containers.len(),
            reason: trace.verdict.as_ref().map_or_else(|| "-".to_owned(), |verdict| verdict.reason.clone()),
            uid: trace.pod.uid.as_ref().map_or_else(|| "?".to_owned(), |uid| uid.as_str().to_owned()),
        }
    }
}

/// Writes the table.
///
/// # Errors
/// What `out` gives.
pub fn write_starts(
    out: &mut dyn Write,
    starts: &[StartLine],
    width: Option<usize>,
    charset: Charset,
) -> io::Result<()> {
    let heads = ["pod", "kind", "outcome", "start", "total", "containers", "reason", "uid"];
    let mut table: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    table.extend(starts.iter().map(|start| {
        let StartLine { pod, kind, outcome, start, total_ns, containers, reason, uid } = start;
        let [kind, outcome] = [*kind, *outcome].map(str::to_owned);
        let [pod, reason, uid] = [pod, reason, uid].map(|text| charset.clean(text));
        vec![pod, kind, outcome, start.clone(), duration(*total_ns), containers.to_string(), reason, uid]
    }));
    for line in grid::lines(&table, LEFT, width, &SPARE, charset) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

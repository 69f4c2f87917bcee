//! A table of starts, one line each: what a recording holds.

use std::io::{self, Write};
use std::ops::Range;

use super::time::{duration, rfc3339};
use super::{Charset, grid};
use crate::trace::{StartKind, Trace};

/// What a narrow screen does without, in this order: the start's time, the containers.
const SPARE: [Range<usize>; 2] = [0..1, 2..3];

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
    let heads = ["pod", "kind", "outcome", "start", "total", "containers"];
    let mut table: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    table.extend(starts.iter().map(|start| {
        let StartLine { pod, kind, outcome, start, total_ns, containers } = start;
        let [kind, outcome] = [*kind, *outcome].map(str::to_owned);
        vec![charset.clean(pod), kind, outcome, start.clone(), duration(*total_ns), containers.to_string()]
    }));
    for line in grid::lines(&table, LEFT, width, &SPARE, charset) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

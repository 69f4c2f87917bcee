//! Two traces, stage by stage: as a table and as JSON.

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;

use super::time::duration;
use super::{Charset, grid};
use crate::stats::{Change, StageTimes};

/// What a narrow screen does without, in this order: the four columns of wall, B/A.
const SPARE: [Range<usize>; 2] = [4..8, 3..4];

/// What is said of one of two traces.
#[derive(Clone, Debug, Serialize)]
pub struct DiffSide {
    /// Namespace and name of its pod, as far as known.
    pub pod: String,
    /// Its id.
    pub trace_id: String,
    /// How the start ended.
    pub outcome: String,
    /// How long it took.
    pub total_ns: u64,
}

/// Writes the table.
///
/// # Errors
/// What `out` gives.
pub fn write_diff(
    out: &mut dyn Write,
    (a, b): (&DiffSide, &DiffSide),
    changes: &[Change],
    width: Option<usize>,
    charset: Charset,
) -> io::Result<()> {
    for (name, side) in [("A", a), ("B", b)] {
        let DiffSide { pod, trace_id, outcome, total_ns } = side;
        let what = format!("{pod}  {outcome}  {}  trace {trace_id}", duration(*total_ns));
        writeln!(out, "{name}  {}", charset.clean(&what))?;
    }
    let heads = ["self A", "B", "change", "B/A", "wall A", "B", "change", "B/A"];
    let mut table: Vec<Vec<String>> = vec![["stage"].into_iter().chain(heads).map(str::to_owned).collect()];
    let total = |side: &DiffSide| Some(StageTimes { self_ns: side.total_ns, wall_ns: side.total_ns, count: 1 });
    table.push(line(&Change { stage: "total".into(), a: total(a), b: total(b) }, charset));
    table.extend(changes.iter().map(|change| line(change, charset)));
    for line in grid::lines(&table, 1, width, &SPARE, charset) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn line(change: &Change, charset: Charset) -> Vec<String> {
    let mut line = vec![charset.clean(&change.stage)];
    let times: [fn(&StageTimes) -> u64; 2] = [|times| times.self_ns, |times| times.wall_ns];
    for time in times {
        for side in [&change.a, &change.b] {
            line.push(side.as_ref().map_or("-".to_owned(), |times| duration(time(times))));
        }
        line.push(signed(change.by(time)));
        line.push(ratio(change, time).map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
    }
    line
}

fn signed(ns: i128) -> String {
    let size = duration(u64::try_from(ns.unsigned_abs()).unwrap_or(u64::MAX));
    match ns {
        0 => "=".to_owned(),
        ..0 => format!("-{size}"),
        1.. => format!("+{size}"),
    }
}

fn ratio(change: &Change, time: fn(&StageTimes) -> u64) -> Option<f64> {
    let (a, b) = (time(change.a.as_ref()?), time(change.b.as_ref()?));
    (a > 0).then(|| b as f64 / a as f64)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    a: &'a DiffSide,
    b: &'a DiffSide,
    stages: Vec<Stage<'a>>,
}

#[derive(Serialize)]
struct Stage<'a> {
    stage: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Times>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Times>,
    /// B minus A.
    self_change_ns: i128,
    wall_change_ns: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Times {
    self_ns: u64,
    wall_ns: u64,
    count: u64,
}

/// Writes `podlapse.diff/v1`, one object in one line: see `docs/diff-v1.schema.json`.
///
/// # Errors
/// What `out` gives.
pub fn write_diff_json(out: &mut dyn Write, (a, b): (&DiffSide, &DiffSide), changes: &[Change]) -> io::Result<()> {
    let stages = changes.iter().map(stage).collect();
    serde_json::to_writer(&mut *out, &Document { schema: "podlapse.diff/v1", a, b, stages })?;
    writeln!(out)
}

fn stage(change: &Change) -> Stage<'_> {
    Stage {
        stage: &change.stage,
        a: change.a.map(Times::from),
        b: change.b.map(Times::from),
        self_change_ns: change.by(|times| times.self_ns),
        wall_change_ns: change.by(|times| times.wall_ns),
        self_ratio: ratio(change, |times| times.self_ns),
        wall_ratio: ratio(change, |times| times.wall_ns),
    }
}

impl From<StageTimes> for Times {
    fn from(StageTimes { self_ns, wall_ns, count }: StageTimes) -> Times {
        Times { self_ns, wall_ns, count }
    }
}

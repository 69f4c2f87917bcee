//! Histograms of stages: as a table, as JSON, and two of them side by side.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;

use super::text::percent;
use super::time::{duration, rfc3339};
use super::{Charset, grid};
use crate::stats::{By, Pair, Row, Stats, pairs};

/// What a table shows of a distribution, beside its minimum and maximum.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// What a narrow screen does without, in this order: p99.9, min, p90, max.
const SPARE: [Range<usize>; 4] = [5..6, 1..2, 3..4, 6..7];

/// What two tables are compared by.
const COMPARED: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// What a narrow screen does without, in this order: p90, p99.
const SPARE_COMPARED: [Range<usize>; 2] = [5..8, 8..11];

/// Writes the table.
///
/// # Errors
/// What `out` gives.
pub fn write_stages(
    out: &mut dyn Write,
    stats: &Stats,
    by: Option<By>,
    width: Option<usize>,
    charset: Charset,
) -> io::Result<()> {
    let rows = stats.rows(by);
    for (index, rows) in rows.chunk_by(|a, b| a.outcome == b.outcome).enumerate() {
        let outcome = rows.first().map_or("", |row| &row.outcome);
        let gap = if index > 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}: {}", charset.clean(outcome), starts(stats.starts(outcome)))?;
        let mut table =
            vec![head(by, ["count", "min"].into_iter().chain(QUANTILES.map(|q| q.0)).chain(["max", "share"]))];
        table.extend(rows.iter().map(|row| line(row, by, charset)));
        for line in grid::lines(&table, if by.is_some() { 2 } else { 1 }, width, &SPARE, charset) {
            writeln!(out, "{line}")?;
        }
    }
    let sum = |count: fn(&Row) -> u64| rows.iter().map(count).fold(0, u64::saturating_add);
    notes(out, stats, (sum(|row| row.entry.below), sum(|row| row.entry.above)))
}

fn head<'a>(by: Option<By>, columns: impl Iterator<Item = &'a str>) -> Vec<String> {
    ["stage"].into_iter().chain(by.map(By::name)).chain(columns).map(str::to_owned).collect()
}

fn line(row: &Row, by: Option<By>, charset: Charset) -> Vec<String> {
    let ns = |ns: Option<u64>| ns.map_or("-".to_owned(), duration);
    let entry = &row.entry;
    let mut line = names(row, by, charset);
    line.push(entry.count().to_string());
    line.push(ns(entry.range_ns().map(|range| range.0)));
    line.extend(QUANTILES.map(|(_, quantile)| ns(entry.quantile_ns(quantile))));
    line.push(ns(entry.range_ns().map(|range| range.1)));
    line.push(if row.total_ns > 0 { percent(entry.self_ns, row.total_ns) } else { "-".to_owned() });
    line
}

/// The columns that say what a row is about.
fn names(row: &Row, by: Option<By>, charset: Charset) -> Vec<String> {
    let group = by.map(|_| charset.clean(row.group.as_deref().unwrap_or("-")));
    [charset.clean(&row.stage)].into_iter().chain(group).collect()
}

fn starts(count: u64) -> String {
    format!("{count} start{}", if count == 1 { "" } else { "s" })
}

fn notes(out: &mut dyn Write, stats: &Stats, (below, above): (u64, u64)) -> io::Result<()> {
    let notes = [
        (stats.open, "starts are not over, and not in the table"),
        (below, "values below 1 us, counted as 1 us"),
        (above, "values above 1 h, counted as 1 h"),
        (stats.left_out, "values left out: too many keys"),
        (stats.lost_records, "records lost during these starts"),
    ];
    for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "note: {count} {what}")?;
    }
    Ok(())
}

/// Writes two tables side by side, with the second's quantiles as multiples of the first's.
///
/// # Errors
/// What `out` gives.
pub fn write_comparison(
    out: &mut dyn Write,
    (a, b): (&Stats, &Stats),
    by: Option<By>,
    width: Option<usize>,
    charset: Charset,
) -> io::Result<()> {
    let outcome = |pair: &Pair| pair.any().map(|row| row.outcome.clone()).unwrap_or_default();
    for (index, pairs) in pairs(a, b, by).chunk_by(|a, b| outcome(a) == outcome(b)).enumerate() {
        let outcome = pairs.first().map(outcome).unwrap_or_default();
        let (gap, of) = (if index > 0 { "\n" } else { "" }, |stats: &Stats| starts(stats.starts(&outcome)));
        writeln!(out, "{gap}{}: A {}, B {}", charset.clean(&outcome), of(a), of(b))?;
        let columns = COMPARED.iter().flat_map(|(name, _)| [format!("{name} A"), "B".into(), "B/A".into()]);
        let columns: Vec<String> = ["count A".to_owned(), "B".into()].into_iter().chain(columns).collect();
        let mut table = vec![head(by, columns.iter().map(String::as_str))];
        table.extend(pairs.iter().filter_map(|pair| compared(pair, by, charset)));
        for line in grid::lines(&table, if by.is_some() { 2 } else { 1 }, width, &SPARE_COMPARED, charset) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn compared(pair: &Pair, by: Option<By>, charset: Charset) -> Option<Vec<String>> {
    let mut line = names(pair.any()?, by, charset);
    let cells = [&pair.a, &pair.b].map(|row| row.as_ref().map(|row| &row.entry));
    line.extend(cells.map(|entry| entry.map_or("-".to_owned(), |entry| entry.count().to_string())));
    for (_, quantile) in COMPARED {
        let values = cells.map(|entry| entry?.quantile_ns(quantile));
        line.extend(values.map(|ns| ns.map_or("-".to_owned(), duration)));
        line.push(ratio(values[0], values[1]).map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
    }
    Some(line)
}

fn ratio(a: Option<u64>, b: Option<u64>) -> Option<f64> {
    Some(b? as f64 / a.filter(|a| *a > 0)? as f64)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    #[serde(flatten)]
    about: About,
    rows: Vec<Line<'a>>,
}

/// What the rows do not say.
#[derive(Serialize)]
struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    starts: BTreeMap<String, u64>,
    open_starts: u64,
    left_out_values: u64,
    lost_records: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    what: What<'a>,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize)]
struct What<'a> {
    outcome: &'a str,
    stage: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
}

#[derive(Serialize)]
struct Numbers {
    count: u64,
    #[serde(flatten)]
    values_ns: BTreeMap<&'static str, u64>,
    self_ns: u64,
    total_ns: u64,
    below: u64,
    above: u64,
}

#[derive(Serialize)]
struct Comparison<'a> {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    a: About,
    b: About,
    rows: Vec<Both<'a>>,
}

#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    what: What<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Numbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Numbers>,
    ratio: BTreeMap<&'static str, f64>,
}

/// Writes `podlapse.stages/v1`, one object in one line: see `docs/stages-v1.schema.json`.
///
/// # Errors
/// What `out` gives.
pub fn write_stages_json(out: &mut dyn Write, stats: &Stats, by: Option<By>) -> io::Result<()> {
    let rows = stats.rows(by);
    let rows = rows.iter().map(|row| Line { what: what(row), numbers: numbers(row) }).collect();
    let document = Document { schema: "podlapse.stages/v1", by: by.map(By::name), about: about(stats), rows };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

/// Writes `podlapse.stages-comparison/v1`, one object in one line: see `docs/stages-v1.schema.json`.
///
/// # Errors
/// What `out` gives.
pub fn write_comparison_json(out: &mut dyn Write, (a, b): (&Stats, &Stats), by: Option<By>) -> io::Result<()> {
    let pairs = pairs(a, b, by);
    let both = |pair: &'_ Pair| {
        let (a, b) = (pair.a.as_ref().map(numbers), pair.b.as_ref().map(numbers));
        let of = |numbers: &Option<Numbers>| numbers.as_ref().map(|n| n.values_ns.clone()).unwrap_or_default();
        let (first, second) = (of(&a), of(&b));
        let names =
            first.keys().filter_map(|name| Some((*name, ratio(first.get(name).copied(), second.get(name).copied())?)));
        let ratio = names.map(|(name, ratio)| (name.trim_end_matches("_ns"), ratio)).collect();
        (a, b, ratio)
    };
    let rows = pairs.iter().filter_map(|pair| {
        let (what, (a, b, ratio)) = (what(pair.any()?), both(pair));
        Some(Both { what, a, b, ratio })
    });
    let rows = rows.collect();
    let schema = "podlapse.stages-comparison/v1";
    let document = Comparison { schema, by: by.map(By::name), a: about(a), b: about(b), rows };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn about(stats: &Stats) -> About {
    let outcomes: Vec<String> = stats.entries().map(|(key, _)| key.outcome.clone()).collect();
    About {
        from: stats.interval.map(|(from, _)| rfc3339(from)),
        to: stats.interval.map(|(_, to)| rfc3339(to)),
        starts: outcomes.into_iter().map(|outcome| (outcome.clone(), stats.starts(&outcome))).collect(),
        open_starts: stats.open,
        left_out_values: stats.left_out,
        lost_records: stats.lost_records,
    }
}

fn what(row: &Row) -> What<'_> {
    What { outcome: &row.outcome, stage: &row.stage, group: row.group.as_deref() }
}

fn numbers(row: &Row) -> Numbers {
    let entry = &row.entry;
    let values = [
        ("min_ns", entry.range_ns().map(|range| range.0)),
        ("p50_ns", entry.quantile_ns(0.5)),
        ("p90_ns", entry.quantile_ns(0.9)),
        ("p99_ns", entry.quantile_ns(0.99)),
        ("p999_ns", entry.quantile_ns(0.999)),
        ("max_ns", entry.range_ns().map(|range| range.1)),
    ];
    Numbers {
        count: entry.count(),
        values_ns: values.into_iter().filter_map(|(name, ns)| Some((name, ns?))).collect(),
        self_ns: entry.self_ns,
        total_ns: row.total_ns,
        below: entry.below,
        above: entry.above,
    }
}

//! The pieces of a trace that no stage names, from its JSON: who owns each instant by the trace's own rule (the
//! innermost open span; of concurrent siblings the one that ends last), less the leaves whose edges are signs.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use podlapse_tests::trace;
use serde_json::Value;

struct Span<'a> {
    id: Option<u64>,
    parent: Option<u64>,
    stage: &'a str,
    start: u64,
    end: u64,
    call: bool,
}

/// Nanoseconds of each piece; a piece is `parent: what ended before it → what begins after it`. What the trace counts as unnamed
/// beyond these pieces is one more.
pub(crate) fn pieces(trace: &Value) -> Result<BTreeMap<String, u64>> {
    let total = trace["total_ns"].as_u64().context("no total_ns")?;
    let named = trace["named_ns"].as_u64().context("no named_ns")?;
    let mut spans: Vec<Span<'_>> = trace::spans(trace)
        .iter()
        .map(|span| Span {
            id: span["id"].as_u64(),
            parent: span["parent"].as_u64(),
            stage: span["stage"].as_str().unwrap_or_default(),
            start: span["start_ns"].as_u64().unwrap_or_default(),
            end: span["end_ns"].as_u64().unwrap_or(total).min(total),
            call: span["call"].is_object(),
        })
        .collect();
    spans.sort_by_key(|span| std::cmp::Reverse(span.end));

    let mut found = BTreeMap::new();
    divide(&spans, None, (0, total), ("begin", "end"), &mut found);
    let sum: u64 = found.values().sum();
    ensure!(sum <= total - named, "{sum} ns found unnamed, the trace says {}", total - named);
    if sum < total - named {
        found.insert("leaves with an edge that was not seen, or cut at their parent's".to_owned(), total - named - sum);
    }
    Ok(found)
}

/// From the end of a window back to its start, as `tracer/src/trace/partition.rs`.
fn divide(
    spans: &[Span<'_>],
    owner: Option<&Span<'_>>,
    window: (u64, u64),
    edges: (&str, &str),
    found: &mut BTreeMap<String, u64>,
) {
    let mut children = spans.iter().filter(|span| span.parent == owner.and_then(|owner| owner.id)).peekable();
    let gap = owner.is_some_and(|owner| owner.stage == "kubelet.gap" || owner.stage.ends_with(".runtime"));
    if children.peek().is_none() && owner.is_some_and(|owner| !gap && !owner.call) {
        return;
    }
    let name = owner.map_or("the start", |owner| owner.stage);
    let mut piece = |from: u64, to: u64, before: &str, after: &str| {
        if from < to {
            *found.entry(format!("{name}: {before} → {after}")).or_default() += to - from;
        }
    };
    let (start, mut cursor, mut after) = (window.0, window.1, edges.1);
    let mut windows = Vec::new();
    for child in children {
        let (from, to) = (child.start.max(start), child.end.min(cursor));
        if from < to {
            piece(to, cursor, child.stage, after);
            windows.push((child, (from, to)));
            (cursor, after) = (from, child.stage);
        }
    }
    piece(start, cursor, edges.0, after);
    for (child, window) in windows {
        divide(spans, Some(child), window, ("begin", "end"), found);
    }
}

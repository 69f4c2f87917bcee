//! Reads `podlapse.trace/v1` objects in tests.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The spans of a trace.
pub fn spans(trace: &Value) -> &[Value] {
    trace["spans"].as_array().map_or(&[], Vec::as_slice)
}

/// Spans of one stage.
pub fn stage<'a>(trace: &'a Value, stage: &str) -> Vec<&'a Value> {
    spans(trace).iter().filter(|span| span["stage"] == stage).collect()
}

/// Spans of one CRI method.
pub fn calls<'a>(trace: &'a Value, method: &str) -> Vec<&'a Value> {
    spans(trace).iter().filter(|span| span["call"]["method"] == method).collect()
}

/// The only span of one stage.
pub fn only<'a>(trace: &'a Value, name: &str) -> Result<&'a Value> {
    let found = stage(trace, name);
    ensure!(found.len() == 1, "{} spans of stage {name}, not 1; the trace has {:?}", found.len(), names(trace));
    Ok(found[0])
}

/// The stages of all spans, in order.
pub fn names(trace: &Value) -> Vec<&str> {
    spans(trace).iter().filter_map(|span| span["stage"].as_str()).collect()
}

/// The parent of a span.
pub fn parent<'a>(trace: &'a Value, span: &Value) -> Option<&'a Value> {
    spans(trace).iter().find(|other| !span["parent"].is_null() && other["id"] == span["parent"])
}

/// An instant of a trace on CLOCK_MONOTONIC.
pub fn monotonic(trace: &Value, relative: &Value) -> Result<u64> {
    let start = trace["start"]["monotonic_ns"].as_str().context("start.monotonic_ns is no string")?;
    Ok(start.parse::<u64>()? + relative.as_u64().context("no relative time")?)
}

/// What holds for every trace: the partition is exact and nothing was lost.
pub fn sound(trace: &Value) -> Result<()> {
    ensure!(trace["schema"] == "podlapse.trace/v1", "the schema is {}", trace["schema"]);
    let total = trace["total_ns"].as_u64().context("no total_ns")?;
    let stages = trace["stages"].as_array().context("no stages")?;
    let sum: u64 = stages.iter().filter_map(|stage| stage["self_ns"].as_u64()).sum();
    ensure!(sum == total, "the stages sum up to {sum}, the total is {total}");
    ensure!(trace["quality"]["lost_records"] == 0, "quality: {}", trace["quality"]);
    for span in spans(trace) {
        let (start, end) = (span["start_ns"].as_u64(), span["end_ns"].as_u64());
        ensure!(start <= end.or(start), "span {span} ends before it starts");
        if let Some(parent) = parent(trace, span) {
            ensure!(parent["start_ns"].as_u64() <= start, "span {span} starts before its parent {parent}");
        }
    }
    Ok(())
}

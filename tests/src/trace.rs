//! Reads `podlapse.trace/v1` objects in tests.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cri::StartedPod;

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

/// A trace has exactly the ids and pids that the CRI reported of its pod.
pub fn belongs(trace: &Value, pod: &StartedPod) -> Result<()> {
    ensure!(trace["pod"]["uid"] == pod.uid, "pod {}, not {}", trace["pod"], pod.uid);
    ensure!(trace["pod"]["name"] == pod.name && trace["pod"]["namespace"] == pod.namespace, "pod {}", trace["pod"]);
    ensure!(trace["sandbox"]["id"] == pod.id && trace["sandbox"]["pid"] == pod.pid, "sandbox {}", trace["sandbox"]);
    let containers = trace["containers"].as_array().context("no containers")?;
    ensure!(containers.len() == pod.containers.len(), "{} containers", containers.len());
    for (seen, real) in containers.iter().zip(&pod.containers) {
        ensure!(seen["id"] == real.id && seen["pid"] == real.pid, "{seen}, not {} {}", real.id, real.pid);
    }
    Ok(())
}

/// None of `all` ids but its `own` is anywhere in a trace.
pub fn names_no_other<'a>(
    trace: &Value,
    own: impl IntoIterator<Item = &'a str>,
    all: impl IntoIterator<Item = &'a str>,
) -> Result<()> {
    let (text, own) = (trace.to_string(), own.into_iter().collect::<BTreeSet<_>>());
    for id in all.into_iter().filter(|id| !own.contains(id)) {
        ensure!(!text.contains(id), "the trace of {} names {id} of another pod", trace["pod"]);
    }
    Ok(())
}

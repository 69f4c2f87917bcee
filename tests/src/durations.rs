//! The durations of stages, counted from JSON traces alone: what podlapse's histograms are held against.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::trace;

const QUANTILES: [(&str, f64); 4] = [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999)];

/// The durations of each stage, as the documentation says that they are counted, from the JSON alone.
pub fn of(traces: &[Value]) -> Result<BTreeMap<String, Vec<u64>>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for trace in traces {
        ensure!(trace["outcome"] == "complete", "{}: outcome {}", trace["pod"]["name"], trace["outcome"]);
        all.entry("start".into()).or_default().push(trace["total_ns"].as_u64().context("no total")?);
        for span in trace::spans(trace) {
            let stage = span["stage"].as_str().context("no stage")?;
            let start = span["start_ns"].as_u64().context("no start")?;
            let length = span["end_ns"].as_u64().context("a span is open")? - start;
            if stage != "container.exec" || length > 0 {
                all.entry(stage.to_owned()).or_default().push(length);
            }
            if !span["call"].is_null() {
                let own = span["self_ns"].as_u64().context("no self time")?;
                all.entry(format!("{stage}.runtime")).or_default().push(own);
            }
        }
    }
    all.values_mut().for_each(|values| values.sort_unstable());
    Ok(all)
}

/// Equal but for three significant digits; durations below 1 us count as 1 us.
pub fn near(got: u64, exact: u64) -> bool {
    let exact = exact.max(1_000);
    got.abs_diff(exact) <= exact / 1000
}

/// Every row is what the traces give, and no stage is missing.
pub fn are_those_of(document: &Value, traces: &[Value]) -> Result<()> {
    let exact = of(traces)?;
    let rows = document["rows"].as_array().context("no rows")?;
    for (stage, values) in &exact {
        let row = rows.iter().find(|row| row["stage"] == **stage).with_context(|| format!("no row for {stage}"))?;
        let number = |name: &str| row[name].as_u64().with_context(|| format!("{stage} has no {name}"));
        ensure!(number("count")? == values.len() as u64, "{stage}: {row}, not {} values", values.len());
        for (name, quantile) in QUANTILES {
            let place = ((quantile * values.len() as f64).ceil() as usize).max(1) - 1;
            ensure!(near(number(name)?, values[place]), "{stage}: {name} is {}, not {}", number(name)?, values[place]);
        }
        let (min, max) = (values[0].max(1_000), values[values.len() - 1].max(1_000));
        ensure!(number("min_ns")? == min && number("max_ns")? == max, "{stage}: {row}, not {min} to {max}");
    }
    let total: u64 = traces.iter().filter_map(|trace| trace["total_ns"].as_u64()).sum();
    let own = rows.iter().filter(|row| row["stage"] != "start").filter_map(|row| row["self_ns"].as_u64());
    ensure!(own.sum::<u64>() == total, "the shares do not add up");
    ensure!(rows.iter().all(|row| row["total_ns"] == total), "rows have other totals than {total}");
    Ok(())
}

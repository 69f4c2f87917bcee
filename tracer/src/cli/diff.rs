//! `podlapse diff`: two traces from JSON, stage by stage.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::args::{Diff, DiffFormat};
use super::output::{self, OutputError};
use super::{Done, Failure};
use crate::export::{DiffSide, write_diff, write_diff_json};
use crate::stats::{StageTimes, changes};

const SCHEMA: &str = "podlapse.trace/v1";

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiffError {
    #[error("cannot read {}: {}", .0.display(), .1)]
    Read(PathBuf, std::io::Error),
    #[error("{} is no JSON: {}; write it with `podlapse replay RECORDING -o json`", .0.display(), .1)]
    NoJson(PathBuf, serde_json::Error),
    #[error("{} holds no podlapse trace, but {}", .0.display(), .1)]
    NoTrace(PathBuf, String),
    #[error("{} does not keep to {SCHEMA}: {}", .0.display(), .1)]
    Broken(PathBuf, serde_json::Error),
    #[error("{} holds no trace; write one with `podlapse replay RECORDING -o json`", .0.display())]
    Nothing(PathBuf),
    #[error("{} holds {}, not {}: {}", .0.display(), traces_in_words(*.1), .2, count_advice(*.1, *.2))]
    Count(PathBuf, usize, usize),
}

fn traces_in_words(count: usize) -> String {
    format!("{count} trace{}", if count == 1 { "" } else { "s" })
}

fn count_advice(count: usize, wanted: usize) -> &'static str {
    match count < wanted {
        true => "name a second file",
        false => "leave one line for each of the two, as with `sed -n 2p`",
    }
}

/// What is read of a trace.
#[derive(Deserialize)]
struct Trace {
    trace_id: String,
    pod: Pod,
    outcome: String,
    total_ns: u64,
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Pod {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Stage {
    stage: String,
    self_ns: u64,
    wall_ns: u64,
    count: u64,
}

pub(super) fn diff(args: &Diff) -> Result<Done, Failure> {
    let mut first = traces(&args.a)?;
    let mut second = args.b.as_deref().map(traces).transpose()?;
    let found = first.len();
    let pair = match &mut second {
        Some(second) if found == 1 && second.len() == 1 => first.pop().zip(second.pop()),
        Some(second) if found == 1 => {
            return Err(DiffError::Count(args.b.clone().unwrap_or_default(), second.len(), 1).into());
        }
        Some(_) => return Err(DiffError::Count(args.a.clone(), found, 1).into()),
        None => first.pop().zip(first.pop()).filter(|_| found == 2).map(|(b, a)| (a, b)),
    };
    let Some((a, b)) = pair else { return Err(DiffError::Count(args.a.clone(), found, 2).into()) };

    let changes = changes(&stages(&a), &stages(&b));
    let (a, b, mut text) = (side(a), side(b), Vec::new());
    match args.output {
        DiffFormat::Json => write_diff_json(&mut text, (&a, &b), &changes),
        DiffFormat::Table => {
            let (charset, width) = output::screen();
            write_diff(&mut text, (&a, &b), &changes, width, charset)
        }
    }
    .map_err(OutputError::new)?;
    output::write(&text)?;
    Ok(Done)
}

/// All traces of a file, which is one object or several.
fn traces(path: &Path) -> Result<Vec<Trace>, DiffError> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| DiffError::Read(path.to_owned(), error))?)
    };
    let mut traces = Vec::new();
    for value in serde_json::Deserializer::from_reader(BufReader::new(input)).into_iter::<Value>() {
        let value = value.map_err(|error| match error.is_io() {
            true => DiffError::Read(path.to_owned(), error.into()),
            false => DiffError::NoJson(path.to_owned(), error),
        })?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => return Err(DiffError::NoTrace(path.to_owned(), other.to_owned())),
            None => return Err(DiffError::NoTrace(path.to_owned(), "JSON without a schema".to_owned())),
        }
        traces.push(serde_json::from_value(value).map_err(|error| DiffError::Broken(path.to_owned(), error))?);
    }
    if traces.is_empty() { Err(DiffError::Nothing(path.to_owned())) } else { Ok(traces) }
}

fn stages(trace: &Trace) -> std::collections::BTreeMap<String, StageTimes> {
    let times = |stage: &Stage| {
        let Stage { self_ns, wall_ns, count, .. } = *stage;
        (stage.stage.clone(), StageTimes { self_ns, wall_ns, count })
    };
    trace.stages.iter().map(times).collect()
}

fn side(trace: Trace) -> DiffSide {
    let known = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let pod = format!("{}/{}", known(trace.pod.namespace), known(trace.pod.name));
    DiffSide { pod, trace_id: trace.trace_id, outcome: trace.outcome, total_ns: trace.total_ns }
}

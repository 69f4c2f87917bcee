//! The verdicts of a recording from the kernel's signs alone: every text of a reply is taken away.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use podlapse::engine::{Config, Engine, Update};
use podlapse::recording::Reader;
use podlapse::trace::Trace;

use super::Found;

/// Pod and verdict.
pub(super) type Verdicts = Vec<(String, Found)>;

/// Those of each start that failed, in the order of their beginning.
pub(super) fn verdicts(recording: &Path) -> Result<Verdicts> {
    let mut reader = Reader::open(recording)?;
    let mut engine = Engine::new(Config::default()).without_messages();
    let (mut updates, mut last) = (Vec::new(), BTreeMap::new());
    while let Some(record) = reader.read()? {
        engine.feed(&record, &mut updates);
        for update in updates.drain(..) {
            if let Update::Finished(trace) = update {
                last.insert((trace.start, trace.trace_id.clone()), *trace);
            }
        }
    }
    for trace in engine.open() {
        last.entry((trace.start, trace.trace_id.clone())).or_insert(trace);
    }
    Ok(last.values().filter_map(found).collect())
}

fn found(trace: &Trace) -> Option<(String, Found)> {
    let verdict = trace.verdict.as_ref()?;
    let found = Found {
        stage: verdict.stage.clone(),
        reason: verdict.reason.clone(),
        confidence: verdict.confidence.name().into(),
        after: Duration::from_nanos(trace.total_ns),
    };
    Some((trace.pod.uid.as_ref()?.as_str().to_owned(), found))
}

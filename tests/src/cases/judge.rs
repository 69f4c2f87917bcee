//! The verdicts of a recording: those of starts and those of the lives after them, with the texts of replies or from the
//! kernel's signs alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use podlapse::engine::{Config, Engine, Update};
use podlapse::recording::Reader;
use podlapse::trace::{PodInfo, Verdict};

use super::Found;

/// Pod and verdict.
type Verdicts = Vec<(String, Found)>;

/// What a recording holds.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Of each start that failed, in the order of their beginning.
    pub(super) starts: Verdicts,
    /// Of each event of a life, by stage and reason: what has one cause comes in any order.
    pub(super) life: Verdicts,
}

impl Judged {
    /// Those of one pod.
    pub(super) fn of(&self, uid: &str) -> (Vec<Found>, Vec<Found>) {
        let own = |all: &Verdicts| all.iter().filter(|(of, _)| of == uid).map(|(_, found)| found.clone()).collect();
        (own(&self.starts), own(&self.life))
    }
}

/// Judges all of it; `texts`: the replies have their texts.
pub(super) fn judge(recording: &Path, texts: bool) -> Result<Judged> {
    let mut reader = Reader::open(recording)?;
    let mut engine = Engine::new(Config::default());
    if !texts {
        engine = engine.without_messages();
    }
    let (mut updates, mut last, mut life) = (Vec::new(), BTreeMap::new(), Vec::new());
    while let Some(record) = reader.read()? {
        engine.feed(&record, &mut updates);
        for update in updates.drain(..) {
            match update {
                Update::Finished(trace) => {
                    last.insert((trace.start, trace.trace_id.clone()), *trace);
                }
                // How long it took to be known.
                Update::Life(event) => {
                    let after = Duration::from_nanos(record.at.since(event.at));
                    life.extend(found(&event.pod, event.verdict.as_ref(), after).map(|found| (event.at, found)));
                }
                Update::Started(_) | Update::Stuck(_) | Update::Withdrawn { .. } | Update::Node(_) => {}
            }
        }
    }
    for trace in engine.open() {
        last.entry((trace.start, trace.trace_id.clone())).or_insert(trace);
    }
    life.sort_by(|(_, (_, one)), (_, (_, other))| (&one.stage, &one.reason).cmp(&(&other.stage, &other.reason)));
    let start = |trace: &podlapse::trace::Trace| {
        found(&trace.pod, trace.verdict.as_ref(), Duration::from_nanos(trace.total_ns))
    };
    let starts = last.values().filter_map(start).collect();
    Ok(Judged { starts, life: life.into_iter().map(|(_, found)| found).collect() })
}

fn found(pod: &PodInfo, verdict: Option<&Verdict>, after: Duration) -> Option<(String, Found)> {
    let verdict = verdict?;
    let found = Found {
        stage: verdict.stage.clone(),
        reason: verdict.reason.clone(),
        confidence: verdict.confidence.name().into(),
        after,
    };
    Some((pod.uid.as_ref()?.as_str().to_owned(), found))
}

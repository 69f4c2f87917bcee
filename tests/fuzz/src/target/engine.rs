//! The whole engine on any records: no panic, every trace adds up, and a recording replays to the same traces.

use super::recording::{records, write};
use crate::engine::{Config, Engine, Update};
use crate::input::Input;
use crate::record::Record;
use crate::trace::Trace;

/// A start's traces are made again with each update: more records only take longer.
const MOST: usize = 300;

/// Starts are looked at early: the records of a corpus are of a second or so.
const STUCK_AFTER_NS: u64 = 1_000_000;

fn feed(records: &[Record]) -> Vec<Trace> {
    let config = Config { stuck_after_ns: STUCK_AFTER_NS, ..Config::default() };
    let (mut engine, mut updates) = (Engine::new(config), Vec::new());
    for record in records {
        engine.feed(record, &mut updates);
    }
    let traces = updates.into_iter().filter_map(|update| match update {
        Update::Started(trace) | Update::Stuck(trace) | Update::Finished(trace) => Some(*trace),
        Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => None,
    });
    let mut traces: Vec<Trace> = traces.collect();
    traces.extend(engine.open());
    traces
}

/// Records in ABI layout, one after another.
pub fn run(data: &[u8]) {
    let mut records = records(Input::new(data).rest());
    records.truncate(MOST);
    let (_, written) = write(records.clone());
    let live = feed(&records);
    for trace in &live {
        let sum = trace.stages.iter().map(|stage| stage.self_ns).sum::<u64>();
        assert_eq!(sum, trace.total_ns, "each nanosecond belongs to one stage");
        assert!(trace.named_ns <= trace.total_ns);
    }
    assert_eq!(format!("{live:#?}"), format!("{:#?}", feed(&written)), "what is recorded replays to the same");
}

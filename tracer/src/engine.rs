//! The engine: records in, traces out. Pure; live and replay feed it the same way.

#![forbid(unsafe_code)]

use crate::lifecycle::Lifecycle;
use crate::record::Record;
use crate::trace::Trace;

/// What the engine is told before the first record.
#[derive(Clone, Debug)]
pub struct Config {
    /// A start is over when no call of its sandbox was open for this long (record time).
    pub settle_ns: u64,
    /// A start is over at once when this many containers reached their exec.
    pub containers: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Config { settle_ns: 2_000_000_000, containers: None }
    }
}

/// What a record changed.
#[derive(Clone, Debug)]
pub enum Update {
    /// A pod start began; the trace holds what is known so far (pod, start).
    Started(Box<Trace>),
    /// A start is over. A later container of attempt 0 in the same sandbox reopens it; the trace then comes again.
    Finished(Box<Trace>),
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    lifecycle: Lifecycle,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new(Config::default())
    }
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(config: Config) -> Engine {
        Engine { lifecycle: Lifecycle::new(config) }
    }

    /// Takes one record; records come in the order of their times.
    pub fn feed(&mut self, record: &Record, updates: &mut Vec<Update>) {
        self.lifecycle.feed(record, updates);
    }

    /// Traces that are not over, as known at the last record's time.
    pub fn open(&self) -> Vec<Trace> {
        self.lifecycle.open()
    }
}

//! The engine: records in, traces out. Pure; live and replay feed it the same way.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::cri::{CallEvent, Ending};
use crate::ids::{ConnId, MonotonicNs, Tgid};
use crate::lifecycle::{Answered, Lifecycle, Standing};
use crate::record::Record;
use crate::trace::{LifeEvent, NodeVerdict, Trace};
use crate::wire::{Decoder, Limits};

/// What the engine is told before the first record.
#[derive(Clone, Debug)]
pub struct Config {
    /// A start is over when no call of its sandbox was open for this long (record time).
    pub settle_ns: u64,
    /// A start is over at once when this many containers reached their exec.
    pub containers: Option<u32>,
    /// A start that takes longer is looked at, then each time that it took twice as long; 0: never.
    pub stuck_after_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { settle_ns: 2_000_000_000, containers: None, stuck_after_ns: 0 }
    }
}

/// What a record changed.
#[derive(Clone, Debug)]
pub enum Update {
    /// A pod start began; the trace holds what is known so far (pod, start).
    Started(Box<Trace>),
    /// A start goes on for longer than [`Config::stuck_after_ns`]; the trace says what it waits for.
    Stuck(Box<Trace>),
    /// A start is over. A later container of attempt 0 in the same sandbox reopens it; the trace then comes again.
    Finished(Box<Trace>),
    /// A start that was told of is part of another one, as a call's late name shows: that one's trace comes, or comes
    /// again, and this one is none.
    Withdrawn {
        /// Its id.
        trace_id: String,
        /// Namespace and name of the other one's pod.
        pod: String,
    },
    /// Something happened to a pod besides its starts.
    Life(Box<LifeEvent>),
    /// Something is wrong with the node or its runtime, or is no longer.
    Node(Box<NodeVerdict>),
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    decoder: Decoder,
    lifecycle: Lifecycle,
    /// Events of the record at hand; kept for its memory.
    calls: Vec<CallEvent>,
    /// Texts of replies are taken away.
    blank: bool,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new(Config::default())
    }
}

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(config: Config) -> Engine {
        Engine {
            decoder: Decoder::new(Limits::default()),
            lifecycle: Lifecycle::new(config),
            calls: Vec::new(),
            blank: false,
        }
    }

    /// For tests of what is known from signs alone: no call ends with a text.
    pub fn without_messages(mut self) -> Engine {
        self.blank = true;
        self
    }

    /// Takes one record; records come in the order of their times.
    pub fn feed(&mut self, record: &Record, updates: &mut Vec<Update>) {
        let before = updates.len();
        self.decoder.record(record, &mut self.calls);
        // The record first: that a runtime ended is to be known when its calls end with it.
        self.lifecycle.feed(record, updates);
        for mut event in self.calls.drain(..) {
            if let CallEvent::End { ending, .. } | CallEvent::Unasked { ending, .. } = &mut event
                && let Ending::Status { message, .. } = ending
                && self.blank
            {
                message.clear();
            }
            self.lifecycle.call(&event, updates);
        }
        self.lifecycle.wire_evicted(self.decoder.counters().connections_evicted);
        if updates.len() > before + 1 {
            only_last(updates, before);
        }
    }

    /// Connections whose bytes nobody needs, since the last such question; see [`Decoder::take_muted`].
    pub fn take_muted(&mut self) -> Vec<ConnId> {
        self.decoder.take_muted()
    }

    /// The processes that starts wait for, since the last such question: what each does is to come as an
    /// [`Event::Waiting`](crate::record::Event::Waiting).
    pub fn take_looks(&mut self) -> Vec<Tgid> {
        self.lifecycle.take_looks()
    }

    /// The same, of every start that is not over.
    pub fn look_at_all(&mut self) -> Vec<Tgid> {
        self.lifecycle.look_at_all()
    }

    /// When a start that is over is final, as far as is known now; none while it is not over. See
    /// [`Lifecycle::final_at`].
    pub fn final_at(&self, trace_id: &str) -> Option<MonotonicNs> {
        self.lifecycle.final_at(trace_id)
    }

    /// A line for each client whose calls could not be named, and never will be.
    pub fn nameless(&self) -> Vec<String> {
        self.lifecycle.nameless()
    }

    /// The calls of the CRI that were answered since the last such question.
    pub fn take_answered(&mut self) -> Vec<Answered> {
        self.lifecycle.take_answered()
    }

    /// How it stands: what is open, and what was missed.
    pub fn standing(&self) -> Standing {
        self.lifecycle.standing()
    }

    /// Traces that are not over, as known at the last record's time.
    pub fn open(&self) -> Vec<Trace> {
        self.lifecycle.open()
    }
}

/// One record may name many calls of a start, each of which tells its trace again: the last one says all.
fn only_last(updates: &mut Vec<Update>, from: usize) {
    let mut seen = BTreeSet::new();
    let mut last = |update: &Update| match update {
        Update::Started(_) | Update::Stuck(_) | Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => true,
        Update::Finished(trace) => seen.insert(trace.trace_id.clone()),
    };
    let mut fresh = updates.split_off(from);
    fresh.reverse();
    fresh.retain(&mut last);
    updates.extend(fresh.into_iter().rev());
}

//! Latency histograms of stages over many starts: traces or logs in, rows out. Pure.
//!
//! Each value is the duration of one span, in nanoseconds, with three significant digits from 1 us to 1 h; what lies
//! outside is counted as the nearest of the two, and how often that was is kept. A call's remainder (`*.runtime`) has a
//! value a call, its own time. [`START`] is not a stage: it holds each start's total.

#![forbid(unsafe_code)]

mod diff;
mod durations;
mod entry;
mod key;
mod log;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::diff::{Change, StageTimes, changes};
use self::durations::images;
pub use self::durations::{Duration, durations};
pub use self::entry::{Entry, HIGHEST_NS, LOWEST_NS};
pub use self::key::{By, Key};
pub use self::log::{LogError, MAGIC as LOG_MAGIC};
pub use self::rows::{Pair, Row, pairs};
use crate::trace::{Outcome, Trace, self_stage};

/// The name under which whole starts are counted.
pub const START: &str = "start";

/// Keys that are kept; a histogram takes 135 KB.
const MAX_KEYS: usize = 512;

/// Histograms by stage, outcome and runtime handler, and by what else was asked for.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    by: Option<By>,
    entries: BTreeMap<Key, Entry>,
    /// Starts that were not over, which are in no histogram.
    pub open: u64,
    /// Values that were left out, since there were too many keys.
    pub left_out: u64,
    /// Records that were lost during the starts.
    pub lost_records: u64,
    /// Realtime of the first start's beginning and the last one's end, ns since the epoch.
    pub interval: Option<(u64, u64)>,
}

impl Stats {
    /// Holds nothing; of `by`, namespace and image become part of the keys.
    pub fn new(by: Option<By>) -> Stats {
        Stats { by: by.filter(|by| by.is_kept()), ..Stats::default() }
    }

    /// What is part of the keys beside stage, outcome and handler.
    pub fn by(&self) -> Option<By> {
        self.by
    }

    /// Whether no start is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All histograms.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Starts of one outcome.
    pub fn starts(&self, outcome: &str) -> u64 {
        let of = |key: &Key| key.stage == START && key.outcome == outcome;
        self.entries.iter().filter(|(key, _)| of(key)).map(|(_, entry)| entry.count()).sum()
    }

    /// Takes a start that is over; one that goes on is only counted.
    pub fn add(&mut self, trace: &Trace) {
        if trace.outcome == Outcome::InProgress {
            self.open += 1;
            return;
        }
        self.lost_records += trace.quality.lost_records;
        if let Some(begin) = trace.start_realtime {
            self.cover((begin, begin.saturating_add(trace.total_ns)));
        }
        let namespace = trace.pod.namespace.clone().filter(|_| self.by == Some(By::Namespace));
        let by = self.by;
        let group = |image: Option<&str>| match by {
            Some(By::Image) => image.map(str::to_owned),
            _ => namespace.clone(),
        };
        for value in durations(trace) {
            self.value(trace, &value.stage, &group(value.image), value.ns);
        }
        self.own(trace, START, &namespace, trace.total_ns);

        // What no span covers is in the stages' totals alone.
        let mut uncovered: BTreeMap<&str, u64> =
            trace.stages.iter().map(|stage| (stage.stage.as_str(), stage.self_ns)).collect();
        let images = images(trace);
        for span in &trace.spans {
            let owner = self_stage(&span.stage);
            self.own(trace, &owner, &group(images.get(&span.id).copied()), span.self_ns);
            if let Some(left) = uncovered.get_mut(owner.as_ref()) {
                *left = left.saturating_sub(span.self_ns);
            }
        }
        for (stage, left) in uncovered {
            self.own(trace, stage, &namespace, left);
        }
    }

    /// Takes all of `other`, which must have the same [`Stats::by`].
    pub fn merge(&mut self, other: &Stats) {
        debug_assert_eq!(self.by, other.by, "keys that mean the same");
        for (key, entry) in &other.entries {
            if let Some(mine) = self.entry(key.clone()) {
                mine.merge(entry);
            }
        }
        self.count_others(other);
    }

    /// Takes what of `other` is in no histogram. A log may claim any number.
    fn count_others(&mut self, other: &Stats) {
        self.open = self.open.saturating_add(other.open);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.lost_records = self.lost_records.saturating_add(other.lost_records);
        other.interval.into_iter().for_each(|interval| self.cover(interval));
    }

    /// The same without what only [`Stats::by`] tells apart.
    pub fn without_groups(&self) -> Stats {
        let mut stats = Stats { by: None, entries: BTreeMap::new(), ..self.clone() };
        for (key, entry) in &self.entries {
            if let Some(mine) = stats.entry(Key { group: None, ..key.clone() }) {
                mine.merge(entry);
            }
        }
        stats
    }

    fn value(&mut self, trace: &Trace, stage: &str, group: &Option<String>, duration_ns: u64) {
        if let Some(entry) = self.entry(Key::of(trace, stage, group)) {
            entry.record(duration_ns);
        }
    }

    fn own(&mut self, trace: &Trace, stage: &str, group: &Option<String>, self_ns: u64) {
        if self_ns > 0
            && let Some(entry) = self.entry(Key::of(trace, stage, group))
        {
            entry.self_ns = entry.self_ns.saturating_add(self_ns);
        }
    }

    fn entry(&mut self, key: Key) -> Option<&mut Entry> {
        if self.entries.len() >= MAX_KEYS && !self.entries.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        Some(self.entries.entry(key).or_default())
    }

    fn cover(&mut self, (from, to): (u64, u64)) {
        let (first, last) = self.interval.unwrap_or((from, to));
        self.interval = Some((first.min(from), last.max(to)));
    }
}

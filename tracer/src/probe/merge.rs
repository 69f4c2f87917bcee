//! Merges what the rings hold by time, in a small window. Pure.
//!
//! Records reach user space in the order in which the kernel finished them: on other CPUs, in the other ring, and at
//! the exit of a write that counts from its entry, an earlier one may come later; on a starved machine by tens of
//! milliseconds. A record is handed on once the window has passed it; one that comes later still is handed on at once,
//! late but not lost.

#![forbid(unsafe_code)]

use crate::ids::MonotonicNs;
use crate::record::{Event, Record};

/// How long a record waits for earlier ones.
pub(crate) const WINDOW_NS: u64 = 100_000_000;

/// Records that may wait; beyond, the earlier half goes on without waiting.
const LIMIT: usize = 65_536;

/// Bytes of payload that may wait; beyond, the same.
const BYTES_LIMIT: usize = 64 << 20;

/// Records that wait for earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    waiting: Vec<Record>,
    /// Payload of those that wait.
    bytes: usize,
}

impl Merge {
    /// Takes a record in.
    pub(crate) fn push(&mut self, record: Record) {
        self.bytes += payload(&record);
        self.waiting.push(record);
    }

    /// Takes several in.
    pub(crate) fn extend(&mut self, records: Vec<Record>) {
        records.into_iter().for_each(|record| self.push(record));
    }

    /// The records up to a time, in time order; those of one time in the order in which they came.
    pub(crate) fn take(&mut self, until: MonotonicNs) -> Vec<Record> {
        self.waiting.sort_by_key(|record| record.at);
        let mut count = self.waiting.partition_point(|record| record.at <= until);
        if self.waiting.len() - count > LIMIT || self.bytes > BYTES_LIMIT {
            count = count.max(self.waiting.len() / 2);
        }
        let taken: Vec<Record> = self.waiting.drain(..count).collect();
        self.bytes -= taken.iter().map(payload).sum::<usize>();
        taken
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> Vec<Record> {
        self.take(MonotonicNs(u64::MAX))
    }
}

fn payload(record: &Record) -> usize {
    match &record.event {
        Event::Bytes(bytes) => bytes.data.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::Merge;
    use crate::ids::{ConnId, MonotonicNs, Tgid, Tid};
    use crate::record::{Bytes, Direction, Event, Record};

    fn mark(at: u64, what: u32) -> Record {
        Record { at: MonotonicNs(at), tgid: Tgid(1), tid: Tid(1), event: Event::Mark(what) }
    }

    fn times(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.at.0).collect()
    }

    #[test]
    fn records_leave_in_time_order_once_the_window_has_passed() {
        let mut merge = Merge::default();
        for at in [5, 3, 9, 4] {
            merge.push(mark(at, 0));
        }
        assert_eq!(times(&merge.take(MonotonicNs(5))), [3, 4, 5]);
        merge.push(mark(2, 0));
        assert_eq!(times(&merge.take(MonotonicNs(5))), [2]);
        assert_eq!(times(&merge.rest()), [9]);
        assert_eq!(merge.rest(), []);
    }

    #[test]
    fn records_of_one_time_keep_their_order() {
        let mut merge = Merge::default();
        let pair = [mark(1, 7), mark(1, 8)];
        pair.iter().cloned().for_each(|record| merge.push(record));
        assert_eq!(merge.rest(), pair);
    }

    #[test]
    fn payload_that_waits_is_bounded() {
        let mut merge = Merge::default();
        let count = super::BYTES_LIMIT / (1 << 20) + 2;
        for at in 1..=count as u64 {
            let data = vec![0; 1 << 20];
            let (other_at, direction) = (MonotonicNs(at), Direction::In);
            let bytes = Bytes { conn: ConnId(1), offset: 0, other_at, fd: 3, direction, len: 1 << 20, data };
            merge.push(Record { event: Event::Bytes(bytes), ..mark(at, 0) });
        }
        assert_eq!(merge.take(MonotonicNs(0)).len(), count / 2);
        assert_eq!(merge.take(MonotonicNs(0)).len(), 0);
        assert_eq!(merge.rest().len(), count - count / 2);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut merge = Merge::default();
        for at in 1..=super::LIMIT as u64 + 2 {
            merge.push(mark(at, 0));
        }
        assert_eq!(merge.take(MonotonicNs(0)).len(), super::LIMIT / 2 + 1);
    }
}

//! One direction of a connection as a byte stream: which bytes of a record are new, and how many are missing.
//!
//! Losses are located by arithmetic on the running offset that each record carries; nothing is buffered.

use crate::record::Bytes;

/// How far one direction has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// Offset of the next byte; none before the first record of a connection that was found open.
    next: Option<u64>,
}

/// A record's place in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Bytes missing before the record's first new byte.
    pub(crate) gap_before: u64,
    /// Bytes of the record's payload that were read before (a repeat).
    pub(crate) repeated: usize,
    /// End of the payload within the record's data; data past the syscall's length is not part of the stream.
    pub(crate) end: usize,
    /// Bytes that the syscall moved and the record does not hold.
    pub(crate) gap_after: u64,
}

impl Position {
    /// A direction that is seen from its first byte.
    pub(crate) fn start() -> Position {
        Position { next: Some(0) }
    }

    /// A direction that is seen from wherever the first record begins.
    pub(crate) fn middle() -> Position {
        Position { next: None }
    }

    /// Places a record and moves on past it.
    pub(crate) fn place(&mut self, bytes: &Bytes) -> Placed {
        let len = u64::from(bytes.len);
        let end = bytes.data.len().min(usize::try_from(bytes.len).unwrap_or(usize::MAX));
        let next = self.next.unwrap_or(bytes.offset);
        let record_end = bytes.offset.saturating_add(len);
        let captured_end = bytes.offset.saturating_add(end as u64);
        self.next = Some(next.max(record_end));
        let repeated = usize::try_from(next.saturating_sub(bytes.offset)).unwrap_or(usize::MAX).min(end);
        Placed {
            gap_before: bytes.offset.saturating_sub(next),
            repeated,
            end,
            gap_after: record_end.saturating_sub(captured_end.max(next)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnId, MonotonicNs};
    use crate::record::Direction;

    fn record(offset: u64, len: u32, captured: usize) -> Bytes {
        Bytes {
            conn: ConnId(1),
            offset,
            other_at: MonotonicNs(0),
            fd: 3,
            direction: Direction::In,
            len,
            data: vec![0; captured],
        }
    }

    #[test]
    fn gaps_and_repeats_are_located_by_arithmetic() {
        let mut position = Position::start();
        let place = |position: &mut Position, offset, len, captured| {
            let p = position.place(&record(offset, len, captured));
            (p.gap_before, p.repeated, p.end, p.gap_after)
        };
        assert_eq!(place(&mut position, 0, 10, 10), (0, 0, 10, 0), "in order");
        assert_eq!(place(&mut position, 12, 10, 10), (2, 0, 10, 0), "a jump");
        assert_eq!(place(&mut position, 20, 10, 10), (0, 2, 10, 0), "an overlap");
        assert_eq!(place(&mut position, 0, 10, 10), (0, 10, 10, 0), "a whole repeat");
        assert_eq!(place(&mut position, 30, 10, 4), (0, 0, 4, 6), "cut short");
        assert_eq!(place(&mut position, 36, 8, 2), (0, 2, 2, 4), "the new part was not captured");
        assert_eq!(place(&mut position, 44, 3, 9), (0, 0, 3, 0), "more data than length");
        let mut position = Position::middle();
        assert_eq!(place(&mut position, 1000, 10, 10), (0, 0, 10, 0), "found open");
        assert_eq!(place(&mut position, u64::MAX, u32::MAX, 10), (u64::MAX - 1010, 0, 10, 0), "no overflow");
    }
}

//! How far the kernel may send what the runtime reads, ahead of what user space has looked at. Pure.
//!
//! A connection whose payload nobody needs is known by its first calls, and muted; until user space has looked at
//! those, only so much of it is sent. See [`tracer_ebpf::shared::AHEAD`].

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use tracer_ebpf::shared::AHEAD;

use crate::ids::ConnId;
use crate::record::{Direction, Event, Record, Socket, SocketOp};

/// Connections that may be read further.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Offset behind what was handed on, and offset that the kernel was told.
    handed: BTreeMap<ConnId, (u64, u64)>,
}

impl Ahead {
    /// Notes what is handed on to whom knows what it is.
    pub(crate) fn hand_on(&mut self, records: &[Record]) {
        for record in records {
            match &record.event {
                Event::Bytes(bytes) if bytes.direction == Direction::In => {
                    let (read, _) = self.handed.entry(bytes.conn).or_insert((0, AHEAD));
                    *read = (*read).max(bytes.offset.saturating_add(u64::from(bytes.len)));
                }
                // Where another descriptor names it still, what follows says anew how far it was read.
                Event::Socket(Socket { op: SocketOp::Close, conn, .. }) => self.mute(*conn),
                _ => {}
            }
        }
    }

    /// Nobody needs it.
    pub(crate) fn mute(&mut self, conn: ConnId) {
        self.handed.remove(&conn);
    }

    /// Connections of which half of what was allowed is used up, with the offset that is allowed from now on.
    pub(crate) fn take(&mut self) -> Vec<(ConnId, u64)> {
        let mut moved = Vec::new();
        for (conn, (read, allowed)) in &mut self.handed {
            let next = read.saturating_add(AHEAD);
            if next.saturating_sub(*allowed) > AHEAD / 2 {
                *allowed = next;
                moved.push((*conn, next));
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MonotonicNs, Tgid, Tid};
    use crate::record::Bytes;

    fn read(conn: u64, offset: u64, len: u32) -> Record {
        let (other_at, direction, data) = (MonotonicNs(1), Direction::In, Vec::new());
        let bytes = Bytes { conn: ConnId(conn), offset, other_at, fd: 7, direction, len, data };
        Record { at: MonotonicNs(1), tgid: Tgid(1), tid: Tid(1), event: Event::Bytes(bytes) }
    }

    #[test]
    fn the_kernel_is_told_every_half() {
        let mut ahead = Ahead::default();
        let half = (AHEAD / 2) as u32;
        ahead.hand_on(&[read(1, 0, half), read(2, 0, 100)]);
        assert_eq!(ahead.take(), []);
        ahead.hand_on(&[read(1, AHEAD / 2, 1)]);
        assert_eq!(ahead.take(), [(ConnId(1), AHEAD + AHEAD / 2 + 1)]);
        assert_eq!(ahead.take(), []);
    }

    #[test]
    fn a_muted_connection_goes_no_further() {
        let mut ahead = Ahead::default();
        ahead.hand_on(&[read(1, 0, AHEAD as u32)]);
        ahead.mute(ConnId(1));
        assert_eq!(ahead.take(), []);
    }
}

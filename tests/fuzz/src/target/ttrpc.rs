//! ttrpc in both directions, from the first byte or from anywhere: messages that are well framed, and any bytes.

use crate::check;
use crate::cri::CallEvent;
use crate::ids::{ConnId, MonotonicNs, Tgid, Tid};
use crate::input::Input;
use crate::record::{Bytes, Direction, Event, Record, Socket, SocketOp};
use crate::wire::Limits;

pub(crate) fn record(at: u64, event: Event) -> Record {
    Record { at: MonotonicNs(at), tgid: Tgid(100), tid: Tid(100), event }
}

pub(crate) fn socket(conn: u64, op: SocketOp, path: &str) -> Event {
    let fd = i32::try_from(conn).unwrap_or(0);
    Event::Socket(Socket {
        op,
        conn: ConnId(conn),
        fd,
        other_fd: None,
        ret: fd,
        peer: Some(Tgid(7)),
        path: path.into(),
    })
}

/// A record of bytes that `missing` more follow.
pub(crate) fn bytes(conn: u64, direction: Direction, offset: u64, data: Vec<u8>, missing: u32) -> Event {
    let len = u32::try_from(data.len()).unwrap() + missing;
    let fd = i32::try_from(conn).unwrap_or(0);
    Event::Bytes(Bytes { conn: ConnId(conn), offset, other_at: MonotonicNs(0), fd, direction, len, data })
}

/// A message with its header.
pub(crate) fn message(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [&len.to_be_bytes()[..], &stream.to_be_bytes(), &[kind, flags], payload].concat()
}

/// How the connection came, then per step: what and which way, and its bytes; the length of pieces at the end.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let opened = match input.byte() % 4 {
        0 => (SocketOp::Connect, "/run/containerd/s/0"),
        1 => (SocketOp::Accept, "/run/containerd/containerd.sock.ttrpc"),
        2 => (SocketOp::Found, "/run/containerd/s/0"),
        _ => (SocketOp::Found, ""),
    };
    let mut sizes = input.sizes();
    let mut whole = vec![record(0, socket(1, opened.0, opened.1))];
    let mut pieces = whole.clone();
    let mut offsets = [0; 2];
    while !input.is_over() {
        let op = input.byte();
        let way = usize::from(op & 1);
        let direction = [Direction::In, Direction::Out][way];
        let data = match op >> 1 & 7 {
            0 => {
                // Bytes that nobody saw.
                offsets[way] += input.byte() as u64;
                continue;
            }
            1 | 2 => input.run().to_vec(),
            _ => {
                let (stream, kind) = (u32::from(op >> 4) * 2 + 1, input.byte());
                message(stream, kind & 3, kind >> 2 & 7, input.run())
            }
        };
        let mut offset = offsets[way];
        for piece in sizes.cut(&data) {
            pieces.push(record(0, bytes(1, direction, offset, piece.to_vec(), 0)));
            offset += piece.len() as u64;
        }
        whole.push(record(0, bytes(1, direction, offsets[way], data, 0)));
        offsets[way] = offset;
    }
    check::records(&pieces);
    let events = check::records(&whole);
    let (_, counters) = check::decode(&whole, Limits::default());
    // From anywhere, a record that ends with a message is a boundary, which its pieces are not.
    let lost = counters.gaps + counters.skipped_bytes + counters.unknown_bytes;
    if opened.0 != SocketOp::Found && lost == 0 {
        let said = |events: Vec<CallEvent>| -> Vec<CallEvent> {
            events.into_iter().filter(|event| !matches!(event, CallEvent::Undecoded { .. })).collect()
        };
        assert!(said(events) == said(check::records(&pieces)), "cut in pieces");
    }
}

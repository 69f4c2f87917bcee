//! One connection: which protocol it speaks, and where each direction stands.
//!
//! ```text
//!  accept  *.ttrpc ──► Ttrpc ─┐ first header is none
//!          else    ──► Http2 ─┤ no preface             found, or joined late: Undecided
//!  connect         ──► Ttrpc ─┴─────► Unknown             │ preface ──► Http2
//!                                                         └ a chain of one protocol's headers ──► Http2, Ttrpc
//! ```

use super::context::Context;
use super::http2::{self, PREFACE, Side};
use super::piece::Piece;
use super::resync;
use super::stream::Position;
use super::ttrpc;
use crate::cri::Ending;
use crate::record::{Bytes, Direction};

/// A connection's decoding.
pub(super) struct Session {
    protocol: Protocol,
    read: Position,
    written: Position,
}

enum Protocol {
    Undecided,
    Http2(Box<http2::Connection>),
    Ttrpc(Box<ttrpc::Connection>),
    Unknown,
}

impl Session {
    /// Accepted by the traced process on the socket at `path`.
    pub(super) fn accepted(path: &str) -> Session {
        match is_ttrpc(path) {
            true => Session::start(Protocol::Ttrpc(Box::new(ttrpc::Connection::start()))),
            false => Session::start(Protocol::Http2(Box::new(http2::Connection::start()))),
        }
    }

    /// Made by the traced process.
    pub(super) fn connected() -> Session {
        Session::start(Protocol::Ttrpc(Box::new(ttrpc::Connection::start())))
    }

    /// Open before it was watched.
    pub(super) fn found(path: &str) -> Session {
        let protocol = if is_ttrpc(path) {
            Protocol::Ttrpc(Box::new(ttrpc::Connection::middle()))
        } else if is_systemd(path) {
            Protocol::Unknown
        } else {
            Protocol::Undecided
        };
        Session { protocol, read: Position::middle(), written: Position::middle() }
    }

    fn start(protocol: Protocol) -> Session {
        Session { protocol, read: Position::start(), written: Position::start() }
    }

    /// Reads a record.
    pub(super) fn bytes(&mut self, bytes: &Bytes, cx: &mut Context<'_>) {
        let position = match bytes.direction {
            Direction::In => &mut self.read,
            Direction::Out => &mut self.written,
        };
        let placed = position.place(bytes);
        cx.whole = placed.gap_after == 0;
        if placed.gap_before > 0 {
            self.gap(bytes.direction, placed.gap_before, cx);
        }
        let mut piece = Piece::new(bytes.data.get(..placed.end).unwrap_or_default());
        piece.take(placed.repeated);
        if !piece.is_empty() {
            self.piece(bytes, piece, cx);
        }
        if placed.gap_after > 0 {
            self.gap(bytes.direction, placed.gap_after, cx);
        }
    }

    /// Whether all that is spoken here is the containerd API.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(&self.protocol, Protocol::Http2(connection) if connection.is_foreign())
    }

    /// The connection is over.
    pub(super) fn close(&mut self, ending: &Ending, cx: &mut Context<'_>) {
        match &mut self.protocol {
            Protocol::Http2(connection) => connection.close(ending, cx),
            Protocol::Ttrpc(connection) => connection.close(ending, cx),
            Protocol::Undecided | Protocol::Unknown => {}
        }
    }

    fn gap(&mut self, direction: Direction, bytes: u64, cx: &mut Context<'_>) {
        cx.counters.gaps += 1;
        cx.counters.gap_bytes = cx.counters.gap_bytes.saturating_add(bytes);
        // What is not known to be a call's is not a loss of one.
        if !matches!(self.protocol, Protocol::Unknown) {
            cx.undecoded = cx.undecoded.saturating_add(bytes);
        }
        match &mut self.protocol {
            Protocol::Http2(connection) => connection.gap(side(direction), bytes, cx),
            Protocol::Ttrpc(connection) => connection.gap(direction, bytes, cx),
            Protocol::Undecided | Protocol::Unknown => {}
        }
    }

    fn piece(&mut self, bytes: &Bytes, mut piece: Piece<'_>, cx: &mut Context<'_>) {
        let direction = bytes.direction;
        if matches!(self.protocol, Protocol::Undecided) {
            self.decide(bytes, &mut piece, cx);
        }
        let spoken = match &mut self.protocol {
            Protocol::Http2(connection) => connection.bytes(side(direction), piece, cx),
            Protocol::Ttrpc(connection) => connection.bytes(direction, piece, cx),
            Protocol::Undecided => {
                cx.skip(piece.len() as u64);
                true
            }
            Protocol::Unknown => {
                cx.counters.unknown_bytes += piece.len() as u64;
                true
            }
        };
        if !spoken {
            self.protocol = Protocol::Unknown;
            cx.counters.unknown_connections += 1;
            cx.counters.unknown_bytes += piece.len() as u64;
            // Nothing of it is kept, and nothing of it was a call's.
            cx.mask.clear();
            cx.undecoded = 0;
        }
    }

    /// Looks for a protocol in a record of a connection that was open before; skips up to where it begins. Within one
    /// record, for the reason that `resync` gives; bytes that two protocols could claim decide nothing.
    fn decide(&mut self, bytes: &Bytes, piece: &mut Piece<'_>, cx: &mut Context<'_>) {
        if bytes.direction == Direction::In && piece.bytes.starts_with(PREFACE) {
            self.protocol = Protocol::Http2(Box::new(http2::Connection::start()));
            return;
        }
        let (data, whole) = (piece.bytes, cx.whole);
        let shadowed =
            |p| resync::shadowed::<http2::Head>(data, p, whole) || resync::shadowed::<ttrpc::Head>(data, p, whole);
        let found = (0..data.len()).find_map(|p| {
            let h2 = resync::chain::<http2::Head>(data, p, whole);
            let ttrpc = resync::chain::<ttrpc::Head>(data, p, whole);
            (h2 != ttrpc && !shadowed(p)).then_some((p, h2))
        });
        let Some((at, is_h2)) = found else { return };
        cx.skip(piece.take(at).len() as u64);
        self.protocol = match is_h2 {
            true => Protocol::Http2(Box::new(http2::Connection::middle())),
            false => Protocol::Ttrpc(Box::new(ttrpc::Connection::middle())),
        };
    }
}

/// On the CRI socket the traced process is the server.
fn side(direction: Direction) -> Side {
    match direction {
        Direction::In => Side::Client,
        Direction::Out => Side::Server,
    }
}

/// Paths of systemd's own sockets: a unit's log goes to the journal's, and is no call.
fn is_systemd(path: &str) -> bool {
    path.starts_with("/run/systemd/")
}

/// Paths of ttrpc sockets: containerd's own, for events, and a shim's (`/run/containerd/s/<sha256>`).
fn is_ttrpc(path: &str) -> bool {
    path.ends_with(".ttrpc") || path.contains("/containerd/s/")
}

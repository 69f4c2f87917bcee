//! What a protocol decoder is given with each record, limits, and the counters of what it could not do.

use super::piece::Mask;
use crate::cri::infer::Infer;
use crate::cri::{CallEvent, CallKey, Ending};
use crate::ids::{ConnId, MonotonicNs, Tgid};

/// Bounds of the decoders' tables; what is evicted is counted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Open calls of one connection.
    pub calls: usize,
    /// Bytes of one header block.
    pub header_block: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 4096, calls: 1024, header_block: 64 * 1024 }
    }
}

/// What was decoded, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls whose start was seen.
    pub calls: u64,
    /// Of them, calls without a name.
    pub opaque_calls: u64,
    /// Holes in a connection's bytes.
    pub gaps: u64,
    /// Bytes in those holes.
    pub gap_bytes: u64,
    /// Bytes skipped while looking for a frame boundary.
    pub skipped_bytes: u64,
    /// Frame boundaries found again.
    pub resyncs: u64,
    /// Connections that are neither gRPC nor ttrpc.
    pub unknown_connections: u64,
    /// Their bytes.
    pub unknown_bytes: u64,
    /// Header blocks that were incomplete, too long or malformed.
    pub header_blocks_lost: u64,
    /// Times that a header table became unknown.
    pub table_epochs: u64,
    /// Messages that were compressed, and so not read.
    pub compressed_messages: u64,
    /// Messages that are not protobuf.
    pub malformed_messages: u64,
    /// Messages of which bytes are missing.
    pub incomplete_messages: u64,
    /// Fields that found no room in their message.
    pub fields_dropped: u64,
    /// Connections that gave way to newer ones.
    pub connections_evicted: u64,
    /// Open calls that gave way to newer ones.
    pub calls_evicted: u64,
}

/// A record's surroundings.
pub(crate) struct Context<'a> {
    /// The record's time.
    pub(crate) at: MonotonicNs,
    /// Connection.
    pub(crate) conn: ConnId,
    /// Process at the client's end.
    pub(crate) client: Option<Tgid>,
    /// The traced process.
    pub(crate) process: Option<Tgid>,
    /// The payload reaches up to the end of what the syscall moved.
    pub(crate) whole: bool,
    /// Events go here.
    pub(crate) out: &'a mut Vec<CallEvent>,
    pub(crate) infer: &'a mut Infer,
    pub(crate) counters: &'a mut Counters,
    pub(crate) limits: &'a Limits,
    pub(crate) mask: Mask<'a>,
    /// Bytes of this record that were missing or skipped.
    pub(crate) undecoded: u64,
}

impl Context<'_> {
    pub(crate) fn key(&self, stream: u32) -> CallKey {
        CallKey { conn: self.conn, stream }
    }

    pub(crate) fn skip(&mut self, bytes: u64) {
        self.counters.skipped_bytes += bytes;
        self.undecoded = self.undecoded.saturating_add(bytes);
    }

    pub(crate) fn end(&mut self, stream: u32, at: MonotonicNs, ending: Ending) {
        let key = self.key(stream);
        self.out.push(CallEvent::End { key, at, ending });
    }
}

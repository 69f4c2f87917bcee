//! The entry: records in, calls out; and the same run of it for the sake of what a recording may keep.
//!
//! Never fails and never reads a connection's bytes as another's: a connection is its id, not its descriptor.

use std::fmt;

use super::connections::{Connection, Connections};
use super::context::{Context, Counters, Limits};
use super::piece::Mask;
use super::session::Session;
use crate::cri::infer::Infer;
use crate::cri::{CallEvent, Ending};
use crate::ids::{ConnId, MonotonicNs, Tgid};
use crate::record::{Bytes, Event, Record, Role, Socket, SocketOp};

/// A connection of another API is worth muting from so many bytes on: a client that speaks the CRI as well, after a few
/// calls of the other, is still read.
const MUTED_FROM: u64 = 256 * 1024;

/// Decodes the calls of all watched connections.
#[derive(Default)]
pub struct Decoder {
    connections: Connections,
    infer: Infer,
    /// Connections that turned out to be of no interest; see [`Decoder::take_muted`].
    muted: Vec<ConnId>,
    /// Late names of the record at hand; kept for its memory.
    late: Vec<CallEvent>,
    counters: Counters,
    limits: Limits,
}

/// What was read stays out of debug lines.
impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("counters", &self.counters)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder that has seen nothing.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, ..Decoder::default() }
    }

    /// What was decoded so far, and what was not.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes one record, as the engine and the redactor do.
    pub fn record(&mut self, record: &Record, out: &mut Vec<CallEvent>) {
        let Record { at, tgid, .. } = *record;
        match &record.event {
            Event::Bytes(bytes) => return self.bytes(at, tgid, bytes, out),
            Event::Socket(socket) => self.socket(at, tgid, socket, out),
            Event::Exit(_) => self.runtime_exited(tgid, at, out),
            Event::Process(process) if process.role == Role::Runtime => self.runtime_found(tgid, at, out),
            _ => {}
        }
        // What the kernel and the bootstrap say may tell which method an opaque call is.
        self.infer.sign(record, out);
    }

    /// A socket of a watched process changed; calls end with their connection.
    pub fn socket(&mut self, at: MonotonicNs, tgid: Tgid, socket: &Socket, out: &mut Vec<CallEvent>) {
        if socket.ret < 0 {
            return;
        }
        let session = match socket.op {
            SocketOp::Accept => Session::accepted(&socket.path),
            SocketOp::Connect => Session::connected(),
            SocketOp::Found => {
                // It may have been accepted, or spoken, since the programs were attached: then more is known already.
                if let Some(connection) = self.connections.get(socket.conn) {
                    connection.peer = connection.peer.or(socket.peer);
                    return;
                }
                Session::found(&socket.path)
            }
            SocketOp::Dup => {
                let old = self.connections.name(socket.conn, (tgid, socket.fd));
                self.ended(old, at, &Ending::ConnectionClosed, out);
                return;
            }
            SocketOp::Close => {
                let old = self.connections.close(socket.conn, (tgid, socket.fd));
                self.ended(old, at, &Ending::ConnectionClosed, out);
                return;
            }
            SocketOp::Bind | SocketOp::Listen => return,
        };
        if socket.conn != ConnId(0) {
            self.open(at, (tgid, socket.fd), socket.conn, session, socket.peer, out);
        }
    }

    /// Payload of a watched connection.
    pub fn bytes(&mut self, at: MonotonicNs, tgid: Tgid, bytes: &Bytes, out: &mut Vec<CallEvent>) {
        self.read(at, tgid, bytes, out, Mask::off());
    }

    /// Connections of the containerd API, since the last such question: no call of a pod's start will ever come there,
    /// and an image import may move gigabytes.
    pub fn take_muted(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.muted)
    }

    /// A process ended, and with it its connections, if it was a watched one.
    pub fn runtime_exited(&mut self, tgid: Tgid, at: MonotonicNs, out: &mut Vec<CallEvent>) {
        while let Some(ended) = self.connections.exited(tgid) {
            self.ended(Some(ended), at, &Ending::RuntimeRestarted, out);
        }
    }

    /// That process is the runtime from now on: one before it has ended, also where its end was not seen.
    pub fn runtime_found(&mut self, tgid: Tgid, at: MonotonicNs, out: &mut Vec<CallEvent>) {
        for other in self.connections.owners().into_iter().filter(|owner| *owner != tgid) {
            self.runtime_exited(other, at, out);
        }
    }

    fn read(&mut self, at: MonotonicNs, tgid: Tgid, bytes: &Bytes, out: &mut Vec<CallEvent>, mask: Mask<'_>) {
        if !self.connections.contains(bytes.conn) {
            // Its accept or connect was not seen.
            self.open(at, (tgid, bytes.fd), bytes.conn, Session::found(""), None, out);
        }
        let renamed = self.connections.name(bytes.conn, (tgid, bytes.fd));
        self.ended(renamed, at, &Ending::ConnectionClosed, out);
        let Some(connection) = self.connections.get(bytes.conn) else { return };
        let first = out.len();
        let mut cx = Context {
            at,
            conn: bytes.conn,
            client: connection.peer,
            process: Some(tgid),
            whole: true,
            out,
            infer: &mut self.infer,
            counters: &mut self.counters,
            limits: &self.limits,
            mask,
            undecoded: 0,
        };
        connection.session.bytes(bytes, &mut cx);
        let undecoded = cx.undecoded;
        connection.moved = connection.moved.saturating_add(u64::from(bytes.len));
        let idle = connection.moved >= MUTED_FROM && connection.session.is_foreign();
        if idle && !std::mem::replace(&mut connection.muted, true) {
            self.muted.push(bytes.conn);
        }
        if undecoded > 0 {
            out.push(CallEvent::Undecoded { conn: bytes.conn, at, bytes: undecoded });
        }
        self.learn(first, out);
    }

    /// The inference sees what came of a record; what it found out follows.
    fn learn(&mut self, first: usize, out: &mut Vec<CallEvent>) {
        let mut late = std::mem::take(&mut self.late);
        for event in out.get(first..).unwrap_or_default() {
            self.infer.event(event, &mut late);
        }
        out.append(&mut late);
        self.late = late;
    }

    fn open(
        &mut self,
        at: MonotonicNs,
        descriptor: (Tgid, i32),
        id: ConnId,
        session: Session,
        peer: Option<Tgid>,
        out: &mut Vec<CallEvent>,
    ) {
        let old = self.connections.insert(id, session, descriptor.0, peer).map(|connection| (id, connection));
        self.ended(old, at, &Ending::ConnectionClosed, out);
        let renamed = self.connections.name(id, descriptor);
        self.ended(renamed, at, &Ending::ConnectionClosed, out);
        let evicted = self.connections.evict(self.limits.connections.max(1));
        self.counters.connections_evicted += u64::from(evicted.is_some());
        self.ended(evicted, at, &Ending::NoStatus, out);
    }

    fn ended(
        &mut self,
        ended: Option<(ConnId, Connection)>,
        at: MonotonicNs,
        ending: &Ending,
        out: &mut Vec<CallEvent>,
    ) {
        let Some((conn, mut connection)) = ended else { return };
        let first = out.len();
        let mut cx = Context {
            at,
            conn,
            client: connection.peer,
            process: None,
            whole: true,
            out,
            infer: &mut self.infer,
            counters: &mut self.counters,
            limits: &self.limits,
            mask: Mask::off(),
            undecoded: 0,
        };
        connection.session.close(ending, &mut cx);
        self.learn(first, out);
        self.infer.closed(conn);
    }
}

/// Zeroes in records what a recording must not hold; the rest decodes to the same calls.
///
/// Kept are frame headers, control frames, header blocks and the allow-listed parts of messages. Header blocks are
/// kept whole, with whatever metadata a client put there, since the header table hangs on each of their bytes; none
/// but the call's name, agent, time limit and status ever becomes a value.
#[derive(Default)]
pub struct Redactor {
    decoder: Decoder,
    events: Vec<CallEvent>,
    mask: Vec<u8>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor that has seen nothing. It must be given the same records as the decoder, with the same limits.
    pub fn new(limits: Limits) -> Redactor {
        Redactor { decoder: Decoder::new(limits), ..Redactor::default() }
    }

    /// Takes one record, and zeroes every payload byte of it that is not kept.
    pub fn record(&mut self, record: &mut Record) {
        let Record { at, tgid, .. } = *record;
        let Event::Bytes(bytes) = &mut record.event else {
            self.decoder.record(record, &mut self.events);
            return self.events.clear();
        };
        self.mask.clear();
        self.mask.resize(bytes.data.len(), 0);
        self.decoder.read(at, tgid, bytes, &mut self.events, Mask::on(&mut self.mask));
        self.events.clear();
        for (byte, kept) in bytes.data.iter_mut().zip(&self.mask) {
            *byte &= kept;
        }
    }
}

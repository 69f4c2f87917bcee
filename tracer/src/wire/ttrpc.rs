//! ttrpc, between the runtime and its shims (containerd/ttrpc `PROTOCOL.md`, `channel.go`, `request.proto`).
//!
//! A message has a 10-byte header and carries all of its own state: after a loss the next header is enough. Which end
//! is the client the messages tell: only a client sends requests.

mod head;

use std::collections::BTreeMap;

pub(super) use head::Head;
use head::{HEAD_LEN, Kind};

use super::context::Context;
use super::piece::Piece;
use super::proto::Scanner;
use super::resync;
use super::taken::Taken;
use crate::cri::allow::{Allow, NOTHING};
use crate::cri::{CallEvent, CallStart, Ending, Fields, HeaderSigns, MethodSource, Protocol, schema};
use crate::ids::MonotonicNs;
use crate::record::Direction;

/// Flag: the sender sends no more on this stream.
const REMOTE_CLOSED: u8 = 1;

/// A ttrpc connection.
pub(super) struct Connection {
    read: Half,
    written: Half,
    calls: BTreeMap<u32, Call>,
    /// A header was read: from then on an invalid one is a loss, not another protocol.
    proven: bool,
}

/// An open call: how its messages are read.
struct Call {
    request: &'static Allow,
    response: &'static Allow,
    client: Direction,
}

struct Half {
    state: State,
    /// When the current message's first byte was moved.
    at: MonotonicNs,
}

enum State {
    Head([u8; HEAD_LEN], usize),
    Body(Box<Body>),
    Lost,
}

struct Body {
    head: Head,
    left: u64,
    scanner: Scanner,
    taken: Taken,
    incomplete: bool,
}

impl Connection {
    /// A connection that is seen from its first byte.
    pub(super) fn start() -> Connection {
        Connection::with(State::boundary(), State::boundary(), false)
    }

    /// A connection that is seen from somewhere in its middle.
    pub(super) fn middle() -> Connection {
        Connection::with(State::Lost, State::Lost, true)
    }

    fn with(read: State, written: State, proven: bool) -> Connection {
        Connection { read: Half::new(read), written: Half::new(written), calls: BTreeMap::new(), proven }
    }

    /// Reads one direction's bytes. False: this is not ttrpc.
    pub(super) fn bytes(&mut self, direction: Direction, mut piece: Piece<'_>, cx: &mut Context<'_>) -> bool {
        while !piece.is_empty() {
            let half = match direction {
                Direction::In => &mut self.read,
                Direction::Out => &mut self.written,
            };
            match &mut half.state {
                State::Lost => match resync::find::<Head>(piece.bytes, cx.whole) {
                    Some(at) => {
                        cx.skip(piece.take(at).len() as u64);
                        cx.counters.resyncs += 1;
                        half.state = State::boundary();
                    }
                    None => cx.skip(piece.take(usize::MAX).len() as u64),
                },
                State::Head(bytes, have) => {
                    // Kept even when no message begins so: the same must be found in the recording.
                    let run = piece.take(HEAD_LEN - *have);
                    cx.mask.keep(run);
                    if *have == 0 {
                        half.at = cx.at;
                    }
                    bytes[*have..*have + run.len()].copy_from_slice(run.bytes);
                    *have += run.len();
                    if *have < HEAD_LEN {
                        break;
                    }
                    match Head::parse(*bytes) {
                        Some(head) => {
                            self.proven = true;
                            self.begin(direction, head, cx);
                        }
                        None if !self.proven => return false,
                        None => {
                            cx.skip(HEAD_LEN as u64);
                            half.state = State::Lost;
                        }
                    }
                }
                State::Body(body) => {
                    let run = piece.take_u64(body.left);
                    body.left -= run.len() as u64;
                    body.scanner.feed(run, &mut cx.mask, &mut body.taken);
                    self.complete(direction, cx);
                }
            }
        }
        true
    }

    /// Bytes of one direction are missing.
    pub(super) fn gap(&mut self, direction: Direction, bytes: u64, cx: &mut Context<'_>) {
        let half = self.half(direction);
        match &mut half.state {
            State::Body(body) => {
                let beyond = bytes > body.left;
                body.left = body.left.saturating_sub(bytes);
                body.incomplete = true;
                body.scanner.lose();
                self.complete(direction, cx);
                if beyond {
                    self.half(direction).state = State::Lost;
                }
            }
            State::Head(..) | State::Lost => half.state = State::Lost,
        }
    }

    /// The connection is over: so is each of its calls.
    pub(super) fn close(&mut self, ending: &Ending, cx: &mut Context<'_>) {
        for stream in std::mem::take(&mut self.calls).into_keys() {
            cx.end(stream, cx.at, ending.clone());
        }
    }

    fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::In => &mut self.read,
            Direction::Out => &mut self.written,
        }
    }

    fn begin(&mut self, direction: Direction, head: Head, cx: &mut Context<'_>) {
        let call = self.calls.get(&head.stream);
        let (allow, taken) = match head.kind {
            Kind::Request => (&schema::TTRPC_REQUEST, Taken::new()),
            Kind::Response => (&schema::TTRPC_RESPONSE, Taken::reply(call.map_or(&NOTHING, |c| c.response))),
            Kind::Data => (call.map_or(&NOTHING, |c| c.allow(direction)), Taken::new()),
        };
        let left = u64::from(head.length);
        let scanner = Scanner::new(allow, left);
        self.half(direction).state = State::Body(Box::new(Body { head, left, scanner, taken, incomplete: false }));
        // An empty message is complete already.
        self.complete(direction, cx);
    }

    fn complete(&mut self, direction: Direction, cx: &mut Context<'_>) {
        let half = self.half(direction);
        let at = half.at;
        if !matches!(&half.state, State::Body(body) if body.left == 0) {
            return;
        }
        let State::Body(mut body) = std::mem::replace(&mut half.state, State::boundary()) else { return };
        cx.counters.incomplete_messages += u64::from(body.incomplete);
        cx.counters.malformed_messages += u64::from(body.scanner.malformed());
        cx.counters.fields_dropped += body.taken.dropped;
        match body.head.kind {
            Kind::Request => self.request(direction, at, *body, cx),
            Kind::Response => self.response(at, *body, cx),
            Kind::Data => self.data(direction, at, body.head, body.taken.fields, cx),
        }
    }

    fn request(&mut self, direction: Direction, start: MonotonicNs, body: Body, cx: &mut Context<'_>) {
        let stream = body.head.stream;
        let taken = body.taken;
        if self.calls.remove(&stream).is_some() {
            // Stream ids are not used twice: the end of the earlier call was lost.
            cx.end(stream, start, Ending::NoStatus);
        }
        let named = !taken.service.is_empty() && !taken.method.is_empty();
        let (service, method, source) = match named {
            true => (taken.service, taken.method, MethodSource::Literal),
            false => (String::new(), String::new(), MethodSource::Opaque),
        };
        cx.counters.calls += 1;
        cx.counters.opaque_calls += u64::from(!named);
        let call = Call {
            // A Data message is the request or response itself, without an envelope.
            request: schema::request(&service, &method),
            response: schema::response(&service, &method),
            client: direction,
        };
        let (key, at) = (cx.key(stream), cx.at);
        let client =
            cx.client.filter(|_| direction == Direction::In).or(cx.process.filter(|_| direction == Direction::Out));
        cx.out.push(CallEvent::Start(CallStart {
            key,
            at: start,
            protocol: Protocol::Ttrpc,
            service,
            method,
            source,
            user_agent: None,
            client,
            timeout_ns: taken.timeout_ns,
            slot: None,
            signs: HeaderSigns::default(),
        }));
        cx.out.push(CallEvent::Request { key, at, fields: taken.fields });
        self.calls.insert(stream, call);
        if self.calls.len() > cx.limits.calls
            && let Some((stream, _)) = self.calls.pop_first()
        {
            cx.counters.calls_evicted += 1;
            cx.end(stream, cx.at, Ending::NoStatus);
        }
    }

    fn response(&mut self, start: MonotonicNs, body: Body, cx: &mut Context<'_>) {
        let stream = body.head.stream;
        if self.calls.remove(&stream).is_none() {
            return;
        }
        if body.taken.code == 0 && !body.incomplete {
            cx.out.push(CallEvent::Response { key: cx.key(stream), at: cx.at, fields: body.taken.fields });
        }
        // The status comes first (field 1 before 2); when bytes are missing it may be among them.
        let ending = match body.taken.code == 0 && body.incomplete {
            true => Ending::NoStatus,
            false => Ending::Status { code: body.taken.code, message: body.taken.message },
        };
        cx.end(stream, start, ending);
    }

    fn data(&mut self, direction: Direction, start: MonotonicNs, head: Head, fields: Fields, cx: &mut Context<'_>) {
        let Some(call) = self.calls.get(&head.stream) else { return };
        let (key, at, from_client) = (cx.key(head.stream), cx.at, call.client == direction);
        if head.length > 0 {
            cx.out.push(match from_client {
                true => CallEvent::Request { key, at, fields },
                false => CallEvent::Response { key, at, fields },
            });
        }
        if head.flags & REMOTE_CLOSED != 0 && !from_client {
            self.calls.remove(&head.stream);
            cx.end(head.stream, start, Ending::Status { code: 0, message: String::new() });
        }
    }
}

impl Call {
    fn allow(&self, direction: Direction) -> &'static Allow {
        if direction == self.client { self.request } else { self.response }
    }
}

impl Half {
    fn new(state: State) -> Half {
        Half { state, at: MonotonicNs(0) }
    }
}

impl State {
    fn boundary() -> State {
        State::Head([0; HEAD_LEN], 0)
    }
}

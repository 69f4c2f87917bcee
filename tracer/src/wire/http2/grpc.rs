//! gRPC's messages within one direction of a stream (gRPC over HTTP/2, "Length-Prefixed-Message").
//!
//! A compressed message is skipped by its length and kept nowhere.

use crate::cri::allow::{Allow, NOTHING};
use crate::cri::{Field, Fields, Value};
use crate::wire::context::Context;
use crate::wire::piece::Piece;
use crate::wire::proto::Scanner;
use crate::wire::taken::Taken;

/// Compressed flag and length.
const PREFIX: usize = 5;
/// Of a longer message the length is told.
const LONG: u64 = 1 << 20;

/// One direction of a stream.
pub(crate) struct Messages {
    /// What is read of each; none while the call's method is not known.
    allow: Option<&'static Allow>,
    state: State,
}

/// What comes of the next bytes.
pub(crate) enum Step<'a> {
    /// A message is complete.
    Message(Fields),
    /// The first bytes of a message of an unknown method, as far as the record holds them; `complete`: all of it.
    Opaque { start: Piece<'a>, complete: bool },
}

enum State {
    Prefix([u8; PREFIX], usize),
    Body(Box<Body>),
    /// A message of an unknown method, of which this much is left; and whether its first bytes came.
    Opaque(u64, bool),
    /// Where the next message begins is not known.
    Lost,
}

struct Body {
    left: u64,
    scanner: Scanner,
    taken: Taken,
    incomplete: bool,
}

impl Messages {
    /// Messages of which `allow` is read; none: of a method that is not known yet.
    pub(crate) fn new(allow: Option<&'static Allow>) -> Messages {
        Messages { allow, state: State::Prefix([0; PREFIX], 0) }
    }

    /// The method is known now: messages to come are read by its list.
    pub(crate) fn named(&mut self, allow: &'static Allow) {
        self.allow = Some(allow);
    }

    /// The method is known by the first bytes of a message, `start`: reads them again, by its list. Gives the fields
    /// when that was all of it.
    pub(crate) fn read(&mut self, start: Piece<'_>, allow: &'static Allow, cx: &mut Context<'_>) -> Option<Fields> {
        let State::Opaque(left, _) = self.state else { return None };
        self.allow = Some(allow);
        self.body(allow, start.len() as u64 + left);
        let State::Body(body) = &mut self.state else { return None };
        body.left = left;
        body.scanner.feed(start, &mut cx.mask, &mut body.taken);
        self.complete(cx)
    }

    /// The method is not known by the first bytes: when that was all of the message, it is over.
    pub(crate) fn pass(&mut self) -> Option<Fields> {
        let over = matches!(self.state, State::Opaque(0, _));
        over.then(|| {
            self.restart();
            Fields::default()
        })
    }

    /// Reads on; stops behind a message that is complete, and behind the first bytes of an opaque one.
    pub(crate) fn next<'a>(&mut self, piece: &mut Piece<'a>, cx: &mut Context<'_>) -> Option<Step<'a>> {
        while !piece.is_empty() {
            match &mut self.state {
                State::Lost => {
                    piece.take(usize::MAX);
                }
                State::Prefix(prefix, have) => {
                    let run = piece.take(PREFIX - *have);
                    cx.mask.keep(run);
                    prefix[*have..*have + run.len()].copy_from_slice(run.bytes);
                    *have += run.len();
                    if *have == PREFIX {
                        let [compressed, length @ ..] = *prefix;
                        self.begin(compressed, u32::from_be_bytes(length), cx);
                        match self.state {
                            // An empty message is complete already.
                            State::Opaque(0, _) => {
                                return Some(Step::Opaque { start: piece.take(0), complete: true });
                            }
                            _ => {
                                if let Some(fields) = self.complete(cx) {
                                    return Some(Step::Message(fields));
                                }
                            }
                        }
                    }
                }
                State::Body(body) => {
                    let run = piece.take_u64(body.left);
                    body.left -= run.len() as u64;
                    body.scanner.feed(run, &mut cx.mask, &mut body.taken);
                    if let Some(fields) = self.complete(cx) {
                        return Some(Step::Message(fields));
                    }
                }
                State::Opaque(left, begun) => {
                    let run = piece.take_u64(*left);
                    *left -= run.len() as u64;
                    let complete = *left == 0;
                    if !std::mem::replace(begun, true) {
                        return Some(Step::Opaque { start: run, complete });
                    }
                    if let Some(fields) = self.pass() {
                        return Some(Step::Message(fields));
                    }
                }
            }
        }
        None
    }

    /// `bytes` of the direction are missing; gives the fields of a message that ends with them.
    pub(crate) fn gap(&mut self, bytes: u64, cx: &mut Context<'_>) -> Option<Fields> {
        match &mut self.state {
            State::Body(body) if bytes <= body.left => {
                body.left -= bytes;
                body.incomplete = true;
                body.scanner.lose();
                self.complete(cx)
            }
            State::Opaque(left, begun) if bytes <= *left => {
                *left -= bytes;
                *begun = true;
                self.pass()
            }
            _ => {
                self.lose();
                None
            }
        }
    }

    /// The message under way, and where the next one begins, are lost.
    pub(crate) fn lose(&mut self) {
        self.state = State::Lost;
    }

    /// A message begins here.
    pub(crate) fn restart(&mut self) {
        self.state = State::Prefix([0; PREFIX], 0);
    }

    fn begin(&mut self, compressed: u8, length: u32, cx: &mut Context<'_>) {
        let length = u64::from(length);
        match (compressed, self.allow) {
            (0, Some(allow)) => self.body(allow, length),
            (0, None) => self.state = State::Opaque(length, false),
            (1, _) => {
                cx.counters.compressed_messages += 1;
                self.body(&NOTHING, length);
                if let State::Body(body) = &mut self.state {
                    body.taken.fields.0.push((Field::Compressed, Value::Number(1)));
                }
            }
            // No gRPC message begins so.
            _ => self.state = State::Lost,
        }
    }

    fn body(&mut self, allow: &'static Allow, left: u64) {
        let (scanner, mut taken) = (Scanner::new(allow, left), Taken::new());
        if left > LONG {
            taken.fields.0.push((Field::Length, Value::Number(left)));
        }
        self.state = State::Body(Box::new(Body { left, scanner, taken, incomplete: false }));
    }

    fn complete(&mut self, cx: &mut Context<'_>) -> Option<Fields> {
        let State::Body(body) = &mut self.state else { return None };
        if body.left > 0 {
            return None;
        }
        cx.counters.incomplete_messages += u64::from(body.incomplete);
        cx.counters.malformed_messages += u64::from(body.scanner.malformed());
        cx.counters.fields_dropped += body.taken.dropped;
        let fields = std::mem::take(&mut body.taken.fields);
        self.state = State::Prefix([0; PREFIX], 0);
        Some(fields)
    }
}

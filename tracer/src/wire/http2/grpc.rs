//! gRPC's messages within one direction of a stream (gRPC over HTTP/2, "Length-Prefixed-Message").
//!
//! A compressed message is skipped by its length and kept nowhere.

use crate::cri::Fields;
use crate::cri::allow::{Allow, NOTHING};
use crate::wire::context::Context;
use crate::wire::piece::Piece;
use crate::wire::proto::Scanner;
use crate::wire::taken::Taken;

/// Compressed flag and length.
const PREFIX: usize = 5;

/// One direction of a stream.
pub(crate) struct Messages {
    allow: &'static Allow,
    state: State,
}

enum State {
    Prefix([u8; PREFIX], usize),
    Body(Box<Body>),
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
    /// Messages of which `allow` is read.
    pub(crate) fn new(allow: &'static Allow) -> Messages {
        Messages { allow, state: State::Prefix([0; PREFIX], 0) }
    }

    /// Reads on; stops behind a message that is complete and gives its fields.
    pub(crate) fn next(&mut self, piece: &mut Piece<'_>, cx: &mut Context<'_>) -> Option<Fields> {
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
                        // An empty message is complete already.
                        if let Some(fields) = self.complete(cx) {
                            return Some(fields);
                        }
                    }
                }
                State::Body(body) => {
                    let run = piece.take_u64(body.left);
                    body.left -= run.len() as u64;
                    body.scanner.feed(run, &mut cx.mask, &mut body.taken);
                    if let Some(fields) = self.complete(cx) {
                        return Some(fields);
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
        let allow = match compressed {
            0 => self.allow,
            1 => {
                cx.counters.compressed_messages += 1;
                &NOTHING
            }
            // No gRPC message begins so.
            _ => {
                self.state = State::Lost;
                return;
            }
        };
        let left = u64::from(length);
        let scanner = Scanner::new(allow, left);
        self.state = State::Body(Box::new(Body { left, scanner, taken: Taken::new(), incomplete: false }));
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

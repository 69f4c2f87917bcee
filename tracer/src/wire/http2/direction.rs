//! One direction's bytes as frames.
//!
//! ```text
//!  Preface ──24 bytes──► Head ──9 bytes──► Body ──length──► Head …
//!     │                   │ impossible      │ gap beyond the frame
//!     └───────────────────┴────────► Lost ◄─┘
//!                                     └── resync ──► Head
//! ```

use super::PREFACE;
use super::frame::{HEAD_LEN, Head, MAX_FRAME};
use crate::ids::MonotonicNs;
use crate::wire::context::Context;
use crate::wire::piece::Piece;
use crate::wire::resync;

/// How far a direction has been cut into frames.
pub(crate) struct Direction {
    state: State,
    /// Longest frame that its receiver allows.
    pub(crate) max_frame: u32,
    /// When the current frame's first byte was moved.
    pub(crate) frame_at: MonotonicNs,
    /// When the current frame's flags were moved.
    pub(crate) flags_at: MonotonicNs,
}

enum State {
    Preface(usize),
    Head([u8; HEAD_LEN], usize),
    Body(Head, u32),
    Lost,
}

/// What the next bytes are.
pub(crate) enum Step<'a> {
    /// Nothing is complete; more bytes are needed.
    More,
    /// Payload of a frame, from its byte `start` on.
    Payload { head: Head, start: u32, piece: Piece<'a> },
    /// No frame starts here: the boundary is lost.
    Invalid,
    /// The connection does not begin as HTTP/2 does.
    NotHttp2,
}

impl Direction {
    fn with(state: State) -> Direction {
        Direction { state, max_frame: MAX_FRAME, frame_at: MonotonicNs(0), flags_at: MonotonicNs(0) }
    }

    /// A client's direction from its first byte.
    pub(crate) fn client() -> Direction {
        Direction::with(State::Preface(0))
    }

    /// A server's direction from its first byte.
    pub(crate) fn server() -> Direction {
        Direction::with(State::Head([0; HEAD_LEN], 0))
    }

    /// A direction that is seen from somewhere in its middle.
    pub(crate) fn middle() -> Direction {
        Direction::with(State::Lost)
    }

    /// Loses the boundary.
    pub(crate) fn lose(&mut self) {
        self.state = State::Lost;
    }

    /// Cuts the next step off `piece`.
    pub(crate) fn step<'a>(&mut self, piece: &mut Piece<'a>, cx: &mut Context<'_>) -> Step<'a> {
        if let State::Body(head, done) = self.state {
            let run = piece.take_u64(u64::from(head.length - done));
            let moved = u32::try_from(run.len()).unwrap_or(u32::MAX);
            self.advance(head, done, moved);
            return match run.is_empty() && head.length > 0 {
                true => Step::More,
                false => Step::Payload { head, start: done, piece: run },
            };
        }
        while !piece.is_empty() {
            match &mut self.state {
                State::Preface(have) => {
                    let run = piece.take(PREFACE.len() - *have);
                    if PREFACE.get(*have..*have + run.len()) != Some(run.bytes) {
                        return Step::NotHttp2;
                    }
                    cx.mask.keep(run);
                    *have += run.len();
                    if *have == PREFACE.len() {
                        self.state = State::Head([0; HEAD_LEN], 0);
                    }
                }
                State::Head(bytes, have) => {
                    // Kept even when no frame begins so: the same must be found in the recording.
                    let run = piece.take(HEAD_LEN - *have);
                    cx.mask.keep(run);
                    if *have == 0 {
                        self.frame_at = cx.at;
                    }
                    if *have < 5 {
                        self.flags_at = cx.at;
                    }
                    bytes[*have..*have + run.len()].copy_from_slice(run.bytes);
                    *have += run.len();
                    if *have < HEAD_LEN {
                        return Step::More;
                    }
                    let Some(head) = Head::parse(*bytes, self.max_frame) else { return Step::Invalid };
                    if head.length == 0 {
                        self.state = State::Head([0; HEAD_LEN], 0);
                        return Step::Payload { head, start: 0, piece: piece.take(0) };
                    }
                    self.state = State::Body(head, 0);
                    return self.step(piece, cx);
                }
                State::Lost => match resync::find::<Head>(piece.bytes, cx.whole) {
                    Some(at) => {
                        cx.skip(piece.take(at).len() as u64);
                        cx.counters.resyncs += 1;
                        self.state = State::Head([0; HEAD_LEN], 0);
                    }
                    None => cx.skip(piece.take(usize::MAX).len() as u64),
                },
                State::Body(..) => return Step::More,
            }
        }
        Step::More
    }

    /// `bytes` are missing. When they lie within a frame's payload: that frame, and which of its bytes; else the
    /// boundary is lost.
    pub(crate) fn gap(&mut self, bytes: u64) -> Option<(Head, u32, u32)> {
        let State::Body(head, done) = self.state else { return None };
        let missing = u32::try_from(bytes).ok().filter(|n| *n <= head.length - done)?;
        self.advance(head, done, missing);
        Some((head, done, missing))
    }

    fn advance(&mut self, head: Head, done: u32, moved: u32) {
        let done = done + moved;
        self.state = match done < head.length {
            true => State::Body(head, done),
            false => State::Head([0; HEAD_LEN], 0),
        };
    }
}

//! The allow-list protobuf reader: fed a message byte run by byte run, it takes what [`Allow`] names and nothing else.
//!
//! Constant memory whatever the message's size; works on a prefix; says of each byte whether a recording may keep it,
//! such that reading the masked bytes takes the same values: tags, lengths and continuation bits of the messages that
//! it walks stay, taken values stay, all else becomes zero. It must never buffer or return a field that is not listed.
//! Source: protobuf.dev/programming-guides/encoding.

use super::piece::{Mask, Piece};
use super::taken::Taken;
use super::text::{MAX_MESSAGE, MAX_TEXT};
use crate::cri::allow::{Allow, Leaf, Take};

/// Deepest nesting that is walked; the allow-list's own depth, with room.
const DEPTH: usize = 12;

/// Longest varint, in bytes.
const MAX_VARINT: u8 = 10;

/// Reads one message.
pub(crate) struct Scanner {
    levels: [Level; DEPTH],
    /// Levels in use, the message itself included.
    depth: usize,
    /// Bytes read.
    position: u64,
    state: State,
    text: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Level {
    allow: &'static Allow,
    end: u64,
}

#[derive(Clone, Copy)]
enum State {
    Tag(Varint),
    /// The length of a field, and what to do with that field.
    Length(Varint, Option<Take>),
    /// A varint field.
    Number(Varint, Option<Leaf>),
    /// Up to this position nothing is read.
    Skip(u64),
    /// A string up to this position.
    Text(u64, Leaf),
    /// The rest of the message is not read: it is malformed.
    Malformed,
    /// The rest of the message is not read: bytes of it are missing.
    Lost,
}

#[derive(Clone, Copy, Default)]
struct Varint {
    value: u64,
    bytes: u8,
}

impl Varint {
    /// Adds a byte; the value when it was the last one.
    fn push(&mut self, byte: u8) -> Option<u64> {
        // Bits past the 64th fall off, as in every protobuf reader that is lenient; they are masked for a field
        // that is not listed, so they must not decide anything.
        self.value |= u64::from(byte & 0x7f).checked_shl(7 * u32::from(self.bytes)).unwrap_or(0);
        self.bytes += 1;
        (byte & 0x80 == 0).then_some(self.value)
    }

    fn overlong(&self) -> bool {
        self.bytes >= MAX_VARINT
    }
}

impl Scanner {
    /// A reader for a message of `len` bytes.
    pub(crate) fn new(allow: &'static Allow, len: u64) -> Scanner {
        Scanner {
            levels: [Level { allow, end: len }; DEPTH],
            depth: 1,
            position: 0,
            state: if allow.0.is_empty() { State::Skip(len) } else { State::Tag(Varint::default()) },
            text: Vec::new(),
        }
    }

    /// Reads on. The caller never feeds past the message's end.
    pub(crate) fn feed(&mut self, mut piece: Piece<'_>, mask: &mut Mask<'_>, taken: &mut Taken) {
        while !piece.is_empty() {
            self.close_levels();
            let left = self.levels[self.depth - 1].end.saturating_sub(self.position);
            match self.state {
                State::Malformed | State::Lost => return,
                State::Skip(end) => {
                    self.position += piece.take_u64(end.saturating_sub(self.position)).len() as u64;
                    if self.position >= end {
                        self.state = State::Tag(Varint::default());
                    }
                }
                State::Text(end, leaf) => {
                    let run = piece.take_u64(end.saturating_sub(self.position));
                    self.position += run.len() as u64;
                    self.take_text(run, leaf, mask);
                    if self.position >= end {
                        self.finish_text(leaf, taken);
                    }
                }
                State::Tag(_) | State::Length(..) | State::Number(..) if left == 0 => self.state = State::Malformed,
                State::Tag(varint) => self.tag(varint, piece.take(1), mask),
                State::Length(varint, take) => self.length(varint, take, piece.take(1), mask, taken),
                State::Number(varint, leaf) => self.number(varint, leaf, piece.take(1), mask, taken),
            }
        }
    }

    /// Bytes of the message are missing here.
    pub(crate) fn lose(&mut self) {
        if !matches!(self.state, State::Malformed) {
            self.state = State::Lost;
        }
    }

    /// Whether the message broke the encoding's rules; asked at its end.
    pub(crate) fn malformed(&mut self) -> bool {
        self.close_levels();
        match self.state {
            State::Lost => false,
            State::Tag(varint) => varint.bytes > 0 || self.depth > 1 || self.position < self.levels[0].end,
            State::Skip(end) => self.position < end,
            State::Malformed | State::Length(..) | State::Number(..) | State::Text(..) => true,
        }
    }

    /// Leaves the messages that end here.
    fn close_levels(&mut self) {
        while self.depth > 1
            && matches!(self.state, State::Tag(Varint { bytes: 0, .. }))
            && self.position >= self.levels[self.depth - 1].end
        {
            self.depth -= 1;
        }
    }

    fn tag(&mut self, mut varint: Varint, byte: Piece<'_>, mask: &mut Mask<'_>) {
        mask.keep(byte);
        self.position += 1;
        let Some(tag) = byte.bytes.first().and_then(|b| varint.push(*b)) else {
            self.state = if varint.bytes >= 5 { State::Malformed } else { State::Tag(varint) };
            return;
        };
        let Ok(number) = u32::try_from(tag >> 3) else {
            self.state = State::Malformed;
            return;
        };
        let take = self.levels[self.depth - 1].allow.get(number);
        let end = self.levels[self.depth - 1].end;
        self.state = match tag & 7 {
            _ if number == 0 || number >= 1 << 29 => State::Malformed,
            0 => State::Number(
                Varint::default(),
                match take {
                    Some(Take::Number(leaf)) => Some(leaf),
                    _ => None,
                },
            ),
            1 => fixed(self.position + 8, end),
            2 => State::Length(Varint::default(), take),
            5 => fixed(self.position + 4, end),
            // 3, 4: groups, which proto3 does not have. 6, 7: not defined.
            _ => State::Malformed,
        };
    }

    fn length(
        &mut self,
        mut varint: Varint,
        take: Option<Take>,
        byte: Piece<'_>,
        mask: &mut Mask<'_>,
        taken: &mut Taken,
    ) {
        mask.keep(byte);
        self.position += 1;
        let Some(len) = byte.bytes.first().and_then(|b| varint.push(*b)) else {
            self.state = if varint.overlong() { State::Malformed } else { State::Length(varint, take) };
            return;
        };
        let end = self.position.saturating_add(len);
        if end > self.levels[self.depth - 1].end {
            self.state = State::Malformed;
            return;
        }
        match take {
            Some(Take::Enter(allow)) => self.enter(allow, end, taken),
            Some(Take::Payload) => self.enter(taken.payload(), end, taken),
            Some(Take::AnyValue) => self.enter(taken.any(), end, taken),
            Some(Take::Text(leaf)) => {
                self.text.clear();
                self.state = State::Text(end, leaf);
                if len == 0 {
                    self.finish_text(leaf, taken);
                }
            }
            Some(Take::Present(leaf)) => {
                taken.number(leaf, 1);
                self.state = fixed(end, end);
            }
            Some(Take::Size(leaf)) => {
                taken.number(leaf, len);
                self.state = fixed(end, end);
            }
            Some(Take::Number(_)) | None => self.state = fixed(end, end),
        }
    }

    fn enter(&mut self, allow: &'static Allow, end: u64, taken: &mut Taken) {
        taken.entered();
        match self.levels.get_mut(self.depth) {
            Some(level) if !allow.0.is_empty() => {
                *level = Level { allow, end };
                self.depth += 1;
                self.state = State::Tag(Varint::default());
            }
            _ => self.state = fixed(end, end),
        }
        if self.position == end {
            self.state = State::Tag(Varint::default());
        }
    }

    fn number(
        &mut self,
        mut varint: Varint,
        leaf: Option<Leaf>,
        byte: Piece<'_>,
        mask: &mut Mask<'_>,
        taken: &mut Taken,
    ) {
        match leaf {
            Some(_) => mask.keep(byte),
            None => mask.keep_continuation(byte),
        }
        self.position += 1;
        let Some(value) = byte.bytes.first().and_then(|b| varint.push(*b)) else {
            self.state = if varint.overlong() { State::Malformed } else { State::Number(varint, leaf) };
            return;
        };
        if let Some(leaf) = leaf {
            taken.number(leaf, value);
        }
        self.state = State::Tag(Varint::default());
    }

    fn take_text(&mut self, run: Piece<'_>, leaf: Leaf, mask: &mut Mask<'_>) {
        // One byte more than the bound, so that the text is known to be longer.
        let max = max_len(leaf) + 1;
        let mut run = run;
        let kept = run.take(max.saturating_sub(self.text.len()));
        mask.keep(kept);
        self.text.extend_from_slice(kept.bytes);
    }

    fn finish_text(&mut self, leaf: Leaf, taken: &mut Taken) {
        taken.text(leaf, &self.text, max_len(leaf));
        self.text.clear();
        self.state = State::Tag(Varint::default());
    }
}

/// Skips up to `skip_to`, which must lie within the message that ends at `end`.
fn fixed(skip_to: u64, end: u64) -> State {
    if skip_to > end { State::Malformed } else { State::Skip(skip_to) }
}

fn max_len(leaf: Leaf) -> usize {
    match leaf {
        Leaf::Message => MAX_MESSAGE,
        Leaf::Field(_) | Leaf::Service | Leaf::Method | Leaf::TimeoutNs | Leaf::Code | Leaf::TypeUrl => MAX_TEXT,
    }
}

#[cfg(test)]
mod tests;

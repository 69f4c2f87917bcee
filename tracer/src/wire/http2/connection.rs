//! A gRPC connection: both directions' frames, their header tables, and the calls that are open.
//!
//! What is lost is lost for its direction alone. A table is trusted only while every block since its epoch's start was
//! decoded; a client's stream ids are consecutive, so a jump or a repeat betrays a loss that nobody announced.

mod calls;
mod half;

use std::collections::BTreeMap;

use calls::Call;
use half::{Block, Half};

use super::Side;
use super::direction::{self, Direction};
use super::frame::{ACK, END_HEADERS, END_STREAM, Head, Kind, PADDED};
use super::grpc::Step;
use super::order::Order;
use crate::cri::Ending;
use crate::wire::context::Context;
use crate::wire::piece::Piece;

/// Longest control frame that is looked into; SETTINGS has six parameters in all.
const MAX_CONTROL: usize = 256;

/// A connection.
pub(in crate::wire) struct Connection {
    client: Half,
    server: Half,
    calls: BTreeMap<u32, Call>,
    /// The client's first stream that was seen, and its last.
    first: Option<u32>,
    last: Option<u32>,
    /// Where its client puts the path.
    order: Order,
    /// The containerd API was called, and anything else.
    foreign: bool,
    others: bool,
}

impl Connection {
    /// A connection that is seen from its first byte.
    pub(in crate::wire) fn start() -> Connection {
        Connection::with(Half::new(Direction::client()), Half::new(Direction::server()))
    }

    /// A connection that is seen from somewhere in its middle.
    pub(in crate::wire) fn middle() -> Connection {
        let mut connection = Connection::with(Half::new(Direction::middle()), Half::new(Direction::middle()));
        connection.client.table.forget();
        connection.server.table.forget();
        connection
    }

    fn with(client: Half, server: Half) -> Connection {
        Connection {
            client,
            server,
            calls: BTreeMap::new(),
            first: None,
            last: None,
            order: Order::default(),
            foreign: false,
            others: false,
        }
    }

    /// Reads one side's bytes. False: this is not HTTP/2.
    pub(in crate::wire) fn bytes(&mut self, side: Side, mut piece: Piece<'_>, cx: &mut Context<'_>) -> bool {
        loop {
            match self.half(side).frames.step(&mut piece, cx) {
                direction::Step::More => return true,
                direction::Step::NotHttp2 => return false,
                direction::Step::Invalid => {
                    cx.skip(super::frame::HEAD_LEN as u64);
                    self.lose(side, cx);
                }
                direction::Step::Payload { head, start, piece } => self.payload(side, head, start, piece, cx),
            }
        }
    }

    /// Whether the containerd API was called here, and nothing else: a client of it has its own connection.
    pub(in crate::wire) fn is_foreign(&self) -> bool {
        self.foreign && !self.others
    }

    /// Bytes of one side are missing.
    pub(in crate::wire) fn gap(&mut self, side: Side, bytes: u64, cx: &mut Context<'_>) {
        match self.half(side).frames.gap(bytes) {
            Some((head, start, missing)) => self.payload_gap(side, head, start, missing, cx),
            None => self.lose(side, cx),
        }
    }

    /// The connection is over: so is each of its calls.
    pub(in crate::wire) fn close(&mut self, ending: &Ending, cx: &mut Context<'_>) {
        for stream in std::mem::take(&mut self.calls).into_keys() {
            cx.end(stream, cx.at, ending.clone());
        }
    }

    fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Loses a direction's frame boundary.
    fn lose(&mut self, side: Side, cx: &mut Context<'_>) {
        if let Some(block) = self.begun_block(side) {
            self.block(side, Block { lost: true, ..block }, cx);
        }
        self.half(side).frames.lose();
        self.forget(side, cx);
        for call in self.calls.values_mut() {
            call.messages(side).lose();
        }
    }

    fn begun_block(&mut self, side: Side) -> Option<Block> {
        self.half(side).block.take()
    }

    fn forget(&mut self, side: Side, cx: &mut Context<'_>) {
        cx.counters.table_epochs += 1;
        self.half(side).table.forget();
        if side == Side::Client {
            self.order.forget();
        }
    }

    fn payload(&mut self, side: Side, head: Head, start: u32, piece: Piece<'_>, cx: &mut Context<'_>) {
        self.expect_continuation(side, head, start, cx);
        let done = start.saturating_add(u32::try_from(piece.len()).unwrap_or(u32::MAX));
        let last = done >= head.length;
        match head.kind {
            Kind::Data => self.data(side, head, start, piece, cx),
            Kind::Headers | Kind::Continuation => {
                cx.mask.keep(piece);
                let limit = cx.limits.header_block;
                self.half(side).fragment(head, start, piece.bytes, limit);
            }
            Kind::Settings | Kind::RstStream | Kind::GoAway => {
                let control = &mut self.half(side).control;
                if start == 0 {
                    control.clear();
                }
                // A GOAWAY may say anything after its 8 bytes.
                let max = if head.kind == Kind::GoAway { 8 } else { MAX_CONTROL };
                let mut piece = piece;
                let kept = piece.take(max.saturating_sub(control.len()));
                cx.mask.keep(kept);
                control.extend_from_slice(kept.bytes);
            }
            Kind::Ping | Kind::WindowUpdate | Kind::Priority => cx.mask.keep(piece),
            Kind::PushPromise | Kind::Unknown => {}
        }
        if last {
            self.frame_end(side, head, cx);
        }
    }

    fn payload_gap(&mut self, side: Side, head: Head, start: u32, missing: u32, cx: &mut Context<'_>) {
        self.expect_continuation(side, head, start, cx);
        match head.kind {
            Kind::Data => {
                let (from, to) = match (start, head.has(PADDED), self.half(side).content_end) {
                    // The length of the padding is among what is missing.
                    (0, true, _) => {
                        self.half(side).content_end = None;
                        if let Some(call) = self.calls.get_mut(&head.stream) {
                            call.messages(side).lose();
                        }
                        (0, 0)
                    }
                    (0, false, _) => {
                        self.half(side).content_end = Some(head.length);
                        (0, missing)
                    }
                    (_, _, Some(end)) => (start.min(end), (start + missing).min(end)),
                    (_, _, None) => (0, 0),
                };
                if to > from {
                    let fields = self
                        .calls
                        .get_mut(&head.stream)
                        .and_then(|call| call.messages(side).gap(u64::from(to - from), cx));
                    if let Some(fields) = fields {
                        self.message(side, head.stream, fields, cx);
                    }
                }
            }
            Kind::Headers | Kind::Continuation => {
                let half = self.half(side);
                half.fragment(head, start, &[], 0);
                if let Some(block) = &mut half.block {
                    block.lost = true;
                }
            }
            // What a lost SETTINGS or RST_STREAM said is not known; a call that it ended ends with its connection.
            Kind::Settings | Kind::RstStream | Kind::GoAway => self.half(side).control.clear(),
            Kind::PushPromise | Kind::Ping | Kind::WindowUpdate | Kind::Priority | Kind::Unknown => {}
        }
        if start + missing >= head.length {
            self.frame_end(side, head, cx);
        }
    }

    /// RFC 9113, 6.10: nothing comes between a header block's frames; so one that something follows was cut off.
    fn expect_continuation(&mut self, side: Side, head: Head, start: u32, cx: &mut Context<'_>) {
        if start > 0 {
            return;
        }
        let half = self.half(side);
        match (&mut half.block, head.kind) {
            (Some(block), Kind::Continuation) if block.stream == head.stream => block.frame = block.bytes.len(),
            (Some(_), _) => {
                if let Some(block) = half.block.take() {
                    self.block(side, Block { lost: true, ..block }, cx);
                }
                self.expect_continuation(side, head, start, cx);
            }
            (None, Kind::Headers) => {
                half.block = Some(Block {
                    stream: head.stream,
                    end_stream: head.has(END_STREAM),
                    at: half.frames.frame_at,
                    flags_at: half.frames.flags_at,
                    bytes: Vec::new(),
                    frame: 0,
                    lost: false,
                });
            }
            // The rest of a block whose beginning was lost, or one that no gRPC peer sends: the table moved on unseen.
            (None, Kind::Continuation | Kind::PushPromise) => {
                cx.counters.header_blocks_lost += 1;
                self.forget(side, cx);
            }
            (None, _) => {}
        }
    }

    fn data(&mut self, side: Side, head: Head, start: u32, piece: Piece<'_>, cx: &mut Context<'_>) {
        let mut content = piece;
        let half = self.half(side);
        if start == 0 {
            half.content_end = Some(head.length);
            if head.has(PADDED) {
                let pad = content.take(1);
                cx.mask.keep(pad);
                // 6.1: padding is shorter than the payload; else the frame holds nothing that can be trusted.
                half.content_end = Some(pad.bytes.first().map_or(0, |p| head.length.saturating_sub(u32::from(*p))));
            }
        }
        let from = start.saturating_add(u32::try_from(piece.len() - content.len()).unwrap_or(u32::MAX));
        let Some(end) = half.content_end else { return };
        let mut content = content.take_u64(u64::from(end.saturating_sub(from)));
        while !content.is_empty() {
            let Some(call) = self.calls.get_mut(&head.stream) else { return };
            match call.messages(side).next(&mut content, cx) {
                Some(Step::Message(fields)) => self.message(side, head.stream, fields, cx),
                Some(Step::Opaque { start, complete }) => self.opaque(side, head.stream, start, complete, cx),
                None => {}
            }
        }
    }

    fn frame_end(&mut self, side: Side, head: Head, cx: &mut Context<'_>) {
        match head.kind {
            Kind::Headers | Kind::Continuation if head.has(END_HEADERS) => {
                if let Some(block) = self.begun_block(side) {
                    self.block(side, block, cx);
                }
            }
            // gRPC ends with trailers; a server that ends with DATA gave no status.
            Kind::Data if head.has(END_STREAM) && side == Side::Server => {
                if self.calls.remove(&head.stream).is_some() {
                    cx.end(head.stream, cx.at, Ending::NoStatus);
                }
            }
            Kind::RstStream => {
                let code = self.half(side).control.first_chunk().map(|c| u32::from_be_bytes(*c));
                if let Some(code) = code
                    && self.calls.remove(&head.stream).is_some()
                {
                    let ending = match side {
                        Side::Client => Ending::ResetByClient(code),
                        Side::Server => Ending::ResetByServer(code),
                    };
                    cx.end(head.stream, self.half(side).frames.flags_at, ending);
                }
            }
            Kind::GoAway if side == Side::Server => self.go_away(cx),
            Kind::Settings if !head.has(ACK) => self.settings(side),
            Kind::Data
            | Kind::Headers
            | Kind::Continuation
            | Kind::GoAway
            | Kind::Settings
            | Kind::PushPromise
            | Kind::Ping
            | Kind::WindowUpdate
            | Kind::Priority
            | Kind::Unknown => {}
        }
    }

    /// 6.5.2. `SETTINGS_HEADER_TABLE_SIZE` (1) needs no looking at: the encoder says in its next block what it made of
    /// it (RFC 7541, 4.2), and until then its table is what it was.
    fn settings(&mut self, side: Side) {
        /// `SETTINGS_MAX_FRAME_SIZE`.
        const MAX_FRAME_SIZE: u16 = 5;
        let control = std::mem::take(&mut self.half(side).control);
        for parameter in control.as_chunks::<6>().0 {
            let [i1, i0, value @ ..] = *parameter;
            let value = u32::from_be_bytes(value);
            if u16::from_be_bytes([i1, i0]) == MAX_FRAME_SIZE && (1 << 14..1 << 24).contains(&value) {
                // What this side allows, the other side may send.
                let other = match side {
                    Side::Client => Side::Server,
                    Side::Server => Side::Client,
                };
                self.half(other).frames.max_frame = value;
            }
        }
        self.half(side).control = control;
    }
}

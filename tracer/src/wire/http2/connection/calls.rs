//! A connection's calls: what header blocks, messages and resets make of them.
//!
//! ```text
//!  client's HEADERS ──► open ──► server's END_STREAM, RST_STREAM of either side, GOAWAY below it, close ──► ended
//! ```

use std::ops::Range;

use super::half::Block;
use super::{Connection, Side};
use crate::cri::infer::{self, Keep, Part};
use crate::cri::{CallEvent, CallStart, Ending, Fields, HeaderSigns, MethodSource, Protocol, Slot, schema};
use crate::wire::context::Context;
use crate::wire::http2::grpc::Messages;
use crate::wire::http2::{headers, hpack};
use crate::wire::piece::Piece;

pub(super) struct Call {
    request: Messages,
    response: Messages,
    /// Response headers were seen.
    answered: bool,
    /// Response messages.
    replies: u64,
    /// More than one reply is possible.
    streams: bool,
}

impl Connection {
    /// A header block is complete, or lost.
    pub(super) fn block(&mut self, side: Side, block: Block, cx: &mut Context<'_>) {
        match side {
            Side::Client => self.request(block, cx),
            Side::Server => self.response(block, cx),
        }
    }

    fn request(&mut self, block: Block, cx: &mut Context<'_>) {
        // RFC 9113, 5.1.1; grpc-go and h2 count up by two.
        if self.last.is_some_and(|last| last.checked_add(2) != Some(block.stream)) {
            self.forget(Side::Client, cx);
        }
        let mut headers = headers::Request::default();
        let decoded = self.decode(Side::Client, &block, &mut |header| headers.take(&header), cx);
        self.first.get_or_insert(block.stream);
        self.last = Some(block.stream);
        if self.calls.contains_key(&block.stream) {
            // No gRPC client sends trailers; whatever this is, the call is open already.
            return;
        }
        // A name that stood before the fault in the block was read with a table that was believed in wrongly.
        let (service, method, source) = match decoded || headers.name().2 == MethodSource::Literal {
            true => headers.name(),
            false => ("", "", MethodSource::Opaque),
        };
        let opaque = decoded && source == MethodSource::Opaque;
        let slot = if opaque { self.slot(&headers) } else { None };
        if let Some(authority) = headers.authority_entry().filter(|_| decoded) {
            self.order.authority(authority);
        }
        let mut start = CallStart {
            key: cx.key(block.stream),
            at: block.at,
            protocol: Protocol::Grpc,
            service: service.to_owned(),
            method: method.to_owned(),
            source,
            user_agent: headers.user_agent.clone().filter(|_| decoded),
            client: cx.client,
            timeout_ns: headers.timeout_ns.filter(|_| decoded),
            slot,
            signs: HeaderSigns { placeless: opaque && slot.is_none(), ..headers.signs },
        };
        if let Some((service, method)) = cx.infer.start(&start) {
            (start.service, start.method, start.source) = (service.into(), method.into(), MethodSource::Inferred);
        }
        let known = start.source != MethodSource::Opaque;
        let foreign = start.signs.namespace || schema::is_foreign(&start.service);
        self.foreign |= foreign;
        self.others |= !foreign;
        cx.counters.calls += 1;
        cx.counters.opaque_calls += u64::from(!known);
        let call = Call {
            request: Messages::new(known.then(|| schema::request(&start.service, &start.method))),
            response: Messages::new(known.then(|| schema::response(&start.service, &start.method))),
            answered: false,
            replies: 0,
            streams: schema::streams(&start.service, &start.method),
        };
        cx.out.push(CallEvent::Start(start));
        self.calls.insert(block.stream, call);
        if self.calls.len() > cx.limits.calls
            && let Some((stream, _)) = self.calls.pop_first()
        {
            cx.counters.calls_evicted += 1;
            cx.end(stream, cx.at, Ending::NoStatus);
        }
    }

    fn response(&mut self, block: Block, cx: &mut Context<'_>) {
        let mut headers = headers::Response::default();
        let decoded = self.decode(Side::Server, &block, &mut |header| headers.take(&header), cx);
        let Some(call) = self.calls.get_mut(&block.stream) else {
            if block.end_stream && self.first.is_none_or(|first| block.stream < first) {
                let ending = match headers.code.filter(|_| decoded) {
                    Some(code) => Ending::Status { code, message: headers.message },
                    None => Ending::NoStatus,
                };
                cx.out.push(CallEvent::Unasked { key: cx.key(block.stream), at: block.flags_at, ending });
            }
            return;
        };
        if !block.end_stream {
            // The first answer follows, whatever was lost before it.
            call.answered = true;
            call.response.restart();
            return;
        }
        let ending = match headers.code.filter(|_| decoded) {
            Some(code) => Ending::Status { code, message: headers.message },
            // A runtime's handler fails before it answers: an unreadable status after one whole answer is OK. Told
            // apart from a stream of answers, which may fail after each.
            None if decoded && headers.opaque && call.answered && call.replies == 1 && !call.streams => {
                Ending::Status { code: 0, message: String::new() }
            }
            None => Ending::NoStatus,
        };
        self.calls.remove(&block.stream);
        if headers.literal {
            cx.infer.told_why(cx.key(block.stream));
        }
        cx.end(block.stream, block.flags_at, ending);
    }

    /// Where an opaque name stands.
    fn slot(&mut self, headers: &headers::Request) -> Option<Slot> {
        let entry = headers.path_entry(&mut self.order)?;
        Some(Slot { epoch: self.client.table.epoch(), entry })
    }

    /// The first bytes of a message of an unknown method.
    pub(super) fn opaque(&mut self, side: Side, stream: u32, start: Piece<'_>, complete: bool, cx: &mut Context<'_>) {
        let part = match side {
            Side::Client => Part::Request,
            Side::Server => Part::Response,
        };
        let (key, at, mask) = (cx.key(stream), cx.at, &mut cx.mask);
        let mut keep = |range: Range<usize>, how| {
            let mut piece = start;
            piece.take(range.start);
            let piece = piece.take(range.len());
            match how {
                Keep::All => mask.keep(piece),
                Keep::Continuation => mask.keep_continuation(piece),
            }
        };
        let message = infer::Start { key, part, at, bytes: start.bytes, complete };
        let name = cx.infer.message(message, &mut keep, cx.out);
        let Some(call) = self.calls.get_mut(&stream) else { return };
        let fields = match name {
            Some((service, method)) => {
                call.streams = schema::streams(service, method);
                call.request.named(schema::request(service, method));
                call.response.named(schema::response(service, method));
                let allow = match side {
                    Side::Client => schema::request(service, method),
                    Side::Server => schema::response(service, method),
                };
                call.messages(side).read(start, allow, cx)
            }
            None => call.messages(side).pass().filter(|_| complete),
        };
        if let Some(fields) = fields {
            self.message(side, stream, fields, cx);
        }
    }

    pub(super) fn message(&mut self, side: Side, stream: u32, fields: Fields, cx: &mut Context<'_>) {
        let (key, at) = (cx.key(stream), cx.at);
        cx.out.push(match side {
            Side::Client => CallEvent::Request { key, at, fields },
            Side::Server => {
                if let Some(call) = self.calls.get_mut(&stream) {
                    call.replies += 1;
                }
                CallEvent::Response { key, at, fields }
            }
        });
    }

    /// 6.8: streams above the last one are not processed; grpc-go's client opens them anew elsewhere.
    pub(super) fn go_away(&mut self, cx: &mut Context<'_>) {
        /// RFC 9113, 7: REFUSED_STREAM.
        const REFUSED: u32 = 7;
        let Some(last) = self.server.control.first_chunk().map(|c| u32::from_be_bytes(*c) & 0x7fff_ffff) else {
            return;
        };
        let at = self.server.frames.flags_at;
        for stream in self.calls.split_off(&last.saturating_add(1)).into_keys() {
            cx.end(stream, at, Ending::ResetByServer(REFUSED));
        }
    }

    /// Decodes a block; false, and a new epoch, when that cannot be done.
    fn decode(
        &mut self,
        side: Side,
        block: &Block,
        each: &mut dyn FnMut(hpack::Header<'_>),
        cx: &mut Context<'_>,
    ) -> bool {
        let decoded = !block.lost && hpack::decode(&mut self.half(side).table, &block.bytes, each).is_ok();
        if !decoded {
            cx.counters.header_blocks_lost += 1;
            self.forget(side, cx);
        }
        decoded
    }
}

impl Call {
    pub(super) fn messages(&mut self, side: Side) -> &mut Messages {
        match side {
            Side::Client => &mut self.request,
            Side::Server => &mut self.response,
        }
    }
}

//! What a message gave: its allow-listed fields, and what an RPC envelope says about the call.

use super::text;
use crate::cri::allow::{Allow, Leaf, NOTHING};
use crate::cri::{Field, Fields, Value, schema};

/// Most fields of one message; a list reply of a crowded node has a few thousand.
const MAX_FIELDS: usize = 32 * 1024;

/// How the payload of an RPC envelope is read.
#[derive(Clone, Copy)]
enum Payload {
    /// A request: as its service and method say.
    Named,
    /// A response: as its request said.
    Known(&'static Allow),
}

/// Values of one message.
pub(crate) struct Taken {
    /// Fields for the call's event.
    pub(crate) fields: Fields,
    /// Fields that found no room.
    pub(crate) dropped: u64,
    /// ttrpc service and method, where they were read.
    pub(crate) service: String,
    pub(crate) method: String,
    /// ttrpc `timeout_nano`.
    pub(crate) timeout_ns: Option<u64>,
    /// Status code.
    pub(crate) code: u32,
    /// Status message, scrubbed.
    pub(crate) message: String,
    type_url: String,
    payload: Payload,
}

impl Taken {
    /// For a gRPC message, or a ttrpc request.
    pub(crate) fn new() -> Taken {
        Taken {
            fields: Fields::default(),
            dropped: 0,
            service: String::new(),
            method: String::new(),
            timeout_ns: None,
            code: 0,
            message: String::new(),
            type_url: String::new(),
            payload: Payload::Named,
        }
    }

    /// For a ttrpc response whose payload is `allow`.
    pub(crate) fn reply(allow: &'static Allow) -> Taken {
        Taken { payload: Payload::Known(allow), ..Taken::new() }
    }

    /// How the envelope's payload is read.
    pub(crate) fn payload(&self) -> &'static Allow {
        match self.payload {
            Payload::Named if self.service.is_empty() || self.method.is_empty() => &NOTHING,
            Payload::Named => schema::request(&self.service, &self.method),
            Payload::Known(allow) => allow,
        }
    }

    /// How the value of the `Any` under way is read.
    pub(crate) fn any(&self) -> &'static Allow {
        schema::any(&self.type_url)
    }

    /// A message was entered: a type URL read before is not its own.
    pub(crate) fn entered(&mut self) {
        self.type_url.clear();
    }

    /// A string; `raw` holds more than `max` bytes when it was longer.
    pub(crate) fn text(&mut self, leaf: Leaf, raw: &[u8], max: usize) {
        match leaf {
            Leaf::Field(field) => self.push(field, Value::Text(text::bounded(raw, max))),
            Leaf::Service => self.service = text::bounded(raw, max),
            Leaf::Method => self.method = text::bounded(raw, max),
            Leaf::Message => self.message = text::message(raw),
            Leaf::TypeUrl => self.type_url = text::bounded(raw, max),
            Leaf::TimeoutNs | Leaf::Code => {}
        }
    }

    /// A varint.
    pub(crate) fn number(&mut self, leaf: Leaf, value: u64) {
        match leaf {
            Leaf::Field(field) => self.push(field, Value::Number(value)),
            // int64; 0 and less mean none.
            Leaf::TimeoutNs => self.timeout_ns = Some(value).filter(|v| v.cast_signed() > 0),
            Leaf::Code => self.code = u32::try_from(value).unwrap_or(u32::MAX),
            Leaf::Service | Leaf::Method | Leaf::Message | Leaf::TypeUrl => {}
        }
    }

    fn push(&mut self, field: Field, value: Value) {
        if self.fields.0.len() < MAX_FIELDS {
            self.fields.0.push((field, value));
        } else {
            self.dropped += 1;
        }
    }
}

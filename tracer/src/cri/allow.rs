//! The allow-list's own shape: which fields of a protobuf message are walked into, which are taken, all else denied.
//!
//! It must never say "everything": a field that no entry names is skipped by the reader and zeroed in recordings.

use super::call::Field;

/// What is read of one message type.
#[derive(Debug)]
pub struct Allow(pub &'static [(u32, Take)]);

/// A message of which nothing is read.
pub static NOTHING: Allow = Allow(&[]);

impl Allow {
    /// What to do with field `number`; none: skip it.
    pub fn get(&self, number: u32) -> Option<Take> {
        self.0.iter().find(|(n, _)| *n == number).map(|(_, take)| *take)
    }
}

/// What to do with one field.
#[derive(Clone, Copy, Debug)]
pub enum Take {
    /// Walk into the message.
    Enter(&'static Allow),
    /// Take a string.
    Text(Leaf),
    /// Take a varint.
    Number(Leaf),
    /// Take that there is such a field (as the number 1), and nothing of what it holds.
    Present(Leaf),
    /// Take how many bytes such a field holds, and nothing of what it holds.
    Size(Leaf),
    /// Walk into the message that an RPC envelope carries; which one its service and method (read before) say.
    Payload,
    /// Walk into the value of a `google.protobuf.Any`; which message it is its type URL (read before) says.
    AnyValue,
}

/// Where a taken value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// A field of the message.
    Field(Field),
    /// ttrpc `Request.service`.
    Service,
    /// ttrpc `Request.method`.
    Method,
    /// ttrpc `Request.timeout_nano`.
    TimeoutNs,
    /// `google.rpc.Status.code`.
    Code,
    /// `google.rpc.Status.message`.
    Message,
    /// `google.protobuf.Any.type_url`.
    TypeUrl,
}

/// Takes the string `number` as `field`.
pub const fn text(number: u32, field: Field) -> (u32, Take) {
    (number, Take::Text(Leaf::Field(field)))
}

/// Takes the varint `number` as `field`.
pub const fn number(number: u32, field: Field) -> (u32, Take) {
    (number, Take::Number(Leaf::Field(field)))
}

/// Takes as `field` that there is a message `number`.
pub const fn present(number: u32, field: Field) -> (u32, Take) {
    (number, Take::Present(Leaf::Field(field)))
}

/// Takes as `field` how many bytes the field `number` holds.
pub const fn size(number: u32, field: Field) -> (u32, Take) {
    (number, Take::Size(Leaf::Field(field)))
}

/// Walks into the message `number`.
pub const fn enter(number: u32, allow: &'static Allow) -> (u32, Take) {
    (number, Take::Enter(allow))
}

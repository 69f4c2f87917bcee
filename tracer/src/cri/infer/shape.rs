//! The form of a message: which field numbers it has, and what each may hold on the wire.
//!
//! A form is not an allow-list: nothing of it becomes a value by being here. Text that might be a secret under some
//! method is never looked at; identifiers are looked at, because only an identifier has their form.

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A varint.
    Number,
    /// Varints, in one run.
    Packed,
    /// Bytes that may be a secret, of any form: their length is all that is read.
    Secret,
    /// Text that is never kept, but is no message either.
    Text,
    /// Text that the allow-list may take: names of pods, containers, images.
    Plain,
    /// An identifier: 64 hex digits, where the client writes it out.
    Id,
    /// A message.
    Message(&'static Shape),
}

/// The fields of a message type.
#[derive(Debug)]
pub(super) struct Shape(pub(super) &'static [(u32, Kind)]);

impl Shape {
    /// What field `number` holds.
    pub(super) fn get(&self, number: u32) -> Option<Kind> {
        self.0.iter().find(|(n, _)| *n == number).map(|(_, kind)| *kind)
    }

    /// Field numbers above this one may come with a newer API; below it none will.
    pub(super) fn highest(&self) -> u32 {
        self.0.iter().map(|(n, _)| *n).max().unwrap_or_default()
    }
}

impl Kind {
    /// Whether a field of this kind may have the wire type.
    pub(super) fn allows(self, wire_type: u32) -> bool {
        match self {
            Kind::Number => wire_type == 0,
            Kind::Packed => matches!(wire_type, 0 | 2),
            Kind::Secret | Kind::Text | Kind::Plain | Kind::Id | Kind::Message(_) => wire_type == 2,
        }
    }
}

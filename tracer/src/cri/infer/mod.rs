//! Which method is a call whose name is a table entry from before the attach?
//!
//! Owned by the wire decoder, so that live, replay and the recording's redactor come to the same answer. It sees the
//! bodies of opaque calls, every event of the others, and the kernel's signs; it binds a table slot when one method is
//! left, and never otherwise. What it decides hangs only on bytes that it also keeps for a recording.

#![expect(
    unused_variables,
    dead_code,
    clippy::unused_self,
    clippy::ptr_arg,
    clippy::too_many_arguments,
    reason = "nothing binds yet"
)]

use std::ops::Range;

use super::call::{CallEvent, CallKey, CallStart};
use crate::ids::{ConnId, MonotonicNs};
use crate::record::Record;

/// Service and method.
pub(crate) type Name = (&'static str, &'static str);

/// Which message of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Request,
    Response,
}

/// What a recording keeps of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All bits.
    All,
    /// The bit that says whether a varint goes on.
    Continuation,
}

/// What is known of the slots.
#[derive(Debug, Default)]
pub(crate) struct Infer {}

impl Infer {
    /// A gRPC call begins. The name of an opaque one, when its slot is bound.
    pub(crate) fn start(&mut self, start: &CallStart) -> Option<Name> {
        None
    }

    /// The first bytes of an opaque call's first message of that side, as far as one record holds them; `complete`:
    /// that is the whole message. A name: the slot is bound now, and the message is to be read by that method's list.
    /// A [`CallEvent::Named`] without this message has been given to `out` then.
    pub(crate) fn message(
        &mut self,
        key: CallKey,
        part: Part,
        at: MonotonicNs,
        bytes: &[u8],
        complete: bool,
        keep: &mut dyn FnMut(Range<usize>, Keep),
        out: &mut Vec<CallEvent>,
    ) -> Option<Name> {
        None
    }

    /// An event of any call.
    pub(crate) fn event(&mut self, event: &CallEvent, out: &mut Vec<CallEvent>) {}

    /// Any other record.
    pub(crate) fn sign(&mut self, record: &Record, out: &mut Vec<CallEvent>) {}

    /// A connection is over: its slots mean nothing any more.
    pub(crate) fn closed(&mut self, conn: ConnId) {}
}

//! From socket bytes to calls: HTTP/2 and gRPC on the CRI socket, ttrpc on the shims. Pure.
//!
//! [`Decoder`] gives the calls' events, [`Redactor`] says which bytes a recording keeps; both run the same code, so a
//! recording gives the same events. Neither fails, whatever the bytes; neither lets a byte of a body become a value
//! that [`crate::cri::schema`] does not list.
//!
//! ```text
//!  record::Bytes ─► stream ─► http2::direction ─► frames ─► hpack ─► Start, End
//!                     │                             └─► grpc ─► proto ─► Request, Response
//!                     └────► ttrpc ───────────────────────────► proto ─► Start … End
//! ```
#![forbid(unsafe_code)]

mod connections;
mod context;
mod decoder;
mod http2;
mod piece;
mod proto;
mod resync;
mod session;
mod stream;
mod taken;
mod text;
mod ttrpc;

pub use context::{Counters, Limits};
pub use decoder::{Decoder, Redactor};

/// The parts one by one, for the fuzz targets: they compile this module into a crate of their own.
#[cfg(fuzzing)]
pub(crate) mod parts {
    pub(crate) use super::context::Context;
    pub(crate) use super::http2::parts::*;
    pub(crate) use super::piece::{Mask, Piece};
    pub(crate) use super::proto::Scanner;
    pub(crate) use super::taken::Taken;
}

//! HTTP/2 (RFC 9113) as gRPC uses it on a container runtime's socket, read from the side.
//!
//! Tolerant where a peer would close the connection: a loss costs frames, names or fields, and is counted; it must
//! never cost a wrong one.

mod connection;
mod direction;
mod frame;
mod grpc;
mod headers;
mod hpack;
mod huffman;
mod order;
mod table;

pub(super) use connection::Connection;
pub(super) use frame::Head;

/// What a client sends first (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Who sent a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// For the fuzz targets.
#[cfg(fuzzing)]
pub(super) mod parts {
    pub(crate) use super::direction::{Direction as Frames, Step as FrameStep};
    pub(crate) use super::frame::{Head, Kind};
    pub(crate) use super::grpc::{Messages, Step as MessageStep};
    pub(crate) use super::hpack::decode as decode_block;
    pub(crate) use super::table::Table;
}

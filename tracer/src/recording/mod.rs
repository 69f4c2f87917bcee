//! Recordings: the records of one run in a file, so that replay feeds the engine what the live run fed it.
//!
//! A file is two lines of text and then data: `podlapse-recording VERSION`, a JSON [`Header`], and zstd frames whose
//! content, joined, is the records in ABI layout, each with its own length ([`crate::record`]). A frame holds whole
//! records and is written at once, at least each second of record time; what a kill or a full disk leaves behind is
//! readable up to the last whole frame. A frame without records is the end: what has none is still being written, or was
//! cut off.
//!
//! Payloads are default-deny: bytes go through [`crate::wire::Redactor`] before they are kept. The file is the owner's alone.

mod header;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use self::header::{Header, Node, Selection};
pub use self::reader::{ReadError, Reader};
pub use self::writer::{WriteError, Writer};

/// First word of a recording.
const MAGIC: &str = "podlapse-recording";

/// Version that this podlapse writes and reads; the first.
const VERSION: u32 = 1;

/// Longest first line: a version may be any number.
const MAX_VERSION: u64 = 64;

/// Longest header line.
const MAX_HEADER: u64 = 64 * 1024;

/// Longest record: far above the programs' own, `/proc`'s command lines may be long.
const MAX_RECORD: usize = 4 * 1024 * 1024;

/// Raw size at which a frame is written before its second is over.
const FRAME: usize = 256 * 1024;

/// More than any frame holds: its last record may be the longest.
const MAX_FRAME: u64 = (FRAME + MAX_RECORD) as u64 + 1;

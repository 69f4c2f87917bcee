//! What one side of a connection has open: a frame, a header block, its header table.

use crate::ids::MonotonicNs;
use crate::wire::http2::direction::Direction;
use crate::wire::http2::frame::{Head, Kind, PADDED, PRIORITY};
use crate::wire::http2::table::Table;

pub(super) struct Half {
    pub(super) frames: Direction,
    pub(super) table: Table,
    pub(super) block: Option<Block>,
    pub(super) control: Vec<u8>,
    /// Where DATA's content ends and its padding begins; none while that is not known.
    pub(super) content_end: Option<u32>,
}

/// A header block under way.
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    /// When its first byte was moved.
    pub(super) at: MonotonicNs,
    /// When its END_STREAM flag was.
    pub(super) flags_at: MonotonicNs,
    pub(super) bytes: Vec<u8>,
    /// Where the current frame's payload starts in `bytes`.
    pub(super) frame: usize,
    pub(super) lost: bool,
}

impl Half {
    pub(super) fn new(frames: Direction) -> Half {
        Half { frames, table: Table::new(), block: None, control: Vec::new(), content_end: None }
    }

    /// Adds a frame's bytes to the block; at the frame's end takes its padding and priority out (6.2).
    pub(super) fn fragment(&mut self, head: Head, start: u32, bytes: &[u8], limit: usize) {
        let Some(block) = &mut self.block else { return };
        if block.bytes.len() + bytes.len() > limit {
            block.lost = true;
            block.bytes = Vec::new();
        }
        if block.lost {
            return;
        }
        block.bytes.extend_from_slice(bytes);
        if start as usize + bytes.len() < head.length as usize || head.kind == Kind::Continuation {
            return;
        }
        let frame = block.bytes.split_off(block.frame);
        match strip(&frame, head) {
            Some(fragment) => block.bytes.extend_from_slice(fragment),
            None => block.lost = true,
        }
    }
}

/// A HEADERS payload without padding and priority; none when they do not fit.
fn strip(payload: &[u8], head: Head) -> Option<&[u8]> {
    let (pad, rest) = match head.has(PADDED) {
        true => payload.split_first().map(|(pad, rest)| (usize::from(*pad), rest))?,
        false => (0, payload),
    };
    let rest = rest.get(if head.has(PRIORITY) { 5 } else { 0 }..)?;
    rest.get(..rest.len().checked_sub(pad)?)
}

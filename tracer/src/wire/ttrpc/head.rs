//! The message header (`channel.go`): length, stream, type, flags.

use crate::wire::resync;

/// Length of a message header.
pub(super) const HEAD_LEN: usize = 10;

/// Longest message (`messageLengthMax` in `channel.go`).
const MAX_LENGTH: u32 = 4 << 20;

/// Flags that are defined: remote closed, remote open, no data.
const FLAGS: u8 = 7;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Data,
}

/// A message header.
#[derive(Clone, Copy)]
pub(in crate::wire) struct Head {
    pub(super) length: u32,
    pub(super) stream: u32,
    pub(super) kind: Kind,
    pub(super) flags: u8,
}

impl Head {
    /// Reads a header; none when no peer could have sent it.
    pub(super) fn parse(bytes: [u8; HEAD_LEN]) -> Option<Head> {
        let [l3, l2, l1, l0, s3, s2, s1, s0, kind, flags] = bytes;
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::Data,
            _ => return None,
        };
        let head = Head {
            length: u32::from_be_bytes([l3, l2, l1, l0]),
            stream: u32::from_be_bytes([s3, s2, s1, s0]),
            kind,
            flags,
        };
        // Streams of clients are odd; servers open none.
        (head.length <= MAX_LENGTH && head.stream % 2 == 1 && flags & !FLAGS == 0).then_some(head)
    }
}

impl resync::Header for Head {
    const LEN: usize = HEAD_LEN;

    fn read(bytes: &[u8], _previous: Option<&Head>) -> Option<Head> {
        Head::parse(bytes.try_into().ok()?)
    }

    fn payload(&self) -> usize {
        self.length as usize
    }
}

//! The frame header (RFC 9113, 4.1) and what each frame type demands of it (6.1 to 6.10).

use crate::wire::resync;

/// Length of a frame header.
pub(crate) const HEAD_LEN: usize = 9;

/// `SETTINGS_MAX_FRAME_SIZE` that a peer has not raised; grpc-go sends no longer frame at all.
pub(crate) const MAX_FRAME: u32 = 16_384;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// Frame types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// To be ignored (RFC 9113, 4.1).
    Unknown,
}

impl Kind {
    fn from_code(code: u8) -> Kind {
        match code {
            0 => Kind::Data,
            1 => Kind::Headers,
            2 => Kind::Priority,
            3 => Kind::RstStream,
            4 => Kind::Settings,
            5 => Kind::PushPromise,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::WindowUpdate,
            9 => Kind::Continuation,
            _ => Kind::Unknown,
        }
    }

    /// Flags that the type defines.
    fn flags(self) -> u8 {
        match self {
            Kind::Data => END_STREAM | PADDED,
            Kind::Headers => END_STREAM | END_HEADERS | PADDED | PRIORITY,
            Kind::PushPromise => END_HEADERS | PADDED,
            Kind::Settings | Kind::Ping => ACK,
            Kind::Continuation => END_HEADERS,
            Kind::Priority | Kind::RstStream | Kind::GoAway | Kind::WindowUpdate => 0,
            Kind::Unknown => u8::MAX,
        }
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    /// Reads a header; none when no peer could have sent it, so that a lost boundary is noticed early.
    pub(crate) fn parse(bytes: [u8; HEAD_LEN], max_frame: u32) -> Option<Head> {
        let [l2, l1, l0, code, flags, stream @ ..] = bytes;
        let head = Head {
            length: u32::from_be_bytes([0, l2, l1, l0]),
            kind: Kind::from_code(code),
            flags,
            stream: u32::from_be_bytes(stream),
        };
        // A sender leaves the reserved bit unset (4.1).
        let sane = head.length <= max_frame && head.stream >> 31 == 0 && head.stream_fits() && head.length_fits();
        sane.then_some(head)
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Streams that a client opens are odd (5.1.1); gRPC servers open none.
    fn stream_fits(&self) -> bool {
        match self.kind {
            Kind::Data | Kind::Headers | Kind::Priority | Kind::RstStream | Kind::PushPromise | Kind::Continuation => {
                self.stream % 2 == 1
            }
            Kind::Settings | Kind::Ping | Kind::GoAway => self.stream == 0,
            Kind::WindowUpdate => self.stream == 0 || self.stream % 2 == 1,
            Kind::Unknown => true,
        }
    }

    fn length_fits(&self) -> bool {
        match self.kind {
            Kind::Priority => self.length == 5,
            Kind::RstStream | Kind::WindowUpdate => self.length == 4,
            Kind::Settings => self.length.is_multiple_of(6) && (!self.has(ACK) || self.length == 0),
            Kind::Ping => self.length == 8,
            Kind::GoAway => self.length >= 8,
            Kind::Data | Kind::Headers | Kind::PushPromise | Kind::Continuation | Kind::Unknown => true,
        }
    }
}

/// The strict reading for the search of a boundary: no unknown type or flag, nothing that gRPC does not send.
impl resync::Header for Head {
    const LEN: usize = HEAD_LEN;

    fn read(bytes: &[u8], previous: Option<&Head>) -> Option<Head> {
        let head = Head::parse(bytes.try_into().ok()?, MAX_FRAME)?;
        if head.flags & !head.kind.flags() != 0 {
            return None;
        }
        let in_block =
            previous.is_some_and(|p| matches!(p.kind, Kind::Headers | Kind::Continuation) && !p.has(END_HEADERS));
        let plausible = match head.kind {
            // The middle of a WINDOW_UPDATE reads as an empty DATA frame.
            Kind::Data => head.length > u32::from(head.has(PADDED)) || head.has(END_STREAM),
            Kind::Headers => head.length > 0,
            Kind::Continuation => in_block && previous.is_some_and(|p| p.stream == head.stream),
            Kind::PushPromise | Kind::Unknown => false,
            Kind::Priority | Kind::RstStream | Kind::Settings | Kind::Ping | Kind::GoAway | Kind::WindowUpdate => true,
        };
        (plausible && (!in_block || head.kind == Kind::Continuation)).then_some(head)
    }

    fn payload(&self) -> usize {
        self.length as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::resync::{self, Header};

    /// Bytes, what walking makes of them, and whether the search for a boundary takes them.
    type Sample = ([u8; HEAD_LEN], Option<(u32, Kind, u32)>, bool);

    const SAMPLES: &[Sample] = &[
        ([0, 0, 5, 0, 0, 0, 0, 0, 1], Some((5, Kind::Data, 1)), true),
        ([0, 0, 0, 0, 1, 0, 0, 0, 1], Some((0, Kind::Data, 1)), true),
        ([0, 0, 0, 0, 0, 0, 0, 0, 1], Some((0, Kind::Data, 1)), false),
        ([0, 0x40, 0, 1, 4, 0, 0, 0, 3], Some((16_384, Kind::Headers, 3)), true),
        ([0, 0x40, 1, 1, 4, 0, 0, 0, 3], None, false),
        ([0, 0, 5, 0, 0, 0, 0, 0, 2], None, false),
        ([0, 0, 5, 0, 0, 0, 0, 0, 0], None, false),
        ([0, 0, 5, 0, 0, 0x80, 0, 0, 1], None, false),
        ([0, 0, 5, 0, 0x40, 0, 0, 0, 1], Some((5, Kind::Data, 1)), false),
        ([0, 0, 4, 3, 0, 0, 0, 0, 1], Some((4, Kind::RstStream, 1)), true),
        ([0, 0, 5, 3, 0, 0, 0, 0, 1], None, false),
        ([0, 0, 12, 4, 0, 0, 0, 0, 0], Some((12, Kind::Settings, 0)), true),
        ([0, 0, 6, 4, 1, 0, 0, 0, 0], None, false),
        ([0, 0, 7, 4, 0, 0, 0, 0, 0], None, false),
        ([0, 0, 8, 6, 1, 0, 0, 0, 0], Some((8, Kind::Ping, 0)), true),
        ([0, 0, 8, 7, 0, 0, 0, 0, 0], Some((8, Kind::GoAway, 0)), true),
        ([0, 0, 4, 8, 0, 0, 0, 0, 0], Some((4, Kind::WindowUpdate, 0)), true),
        ([0, 0, 4, 9, 4, 0, 0, 0, 1], Some((4, Kind::Continuation, 1)), false),
        ([0, 0, 4, 10, 4, 0, 0, 0, 2], Some((4, Kind::Unknown, 2)), false),
        ([0; HEAD_LEN], None, false),
        ([0xff; HEAD_LEN], None, false),
    ];

    #[test]
    fn known_answers() {
        for (bytes, walked, strict) in SAMPLES {
            let head = Head::parse(*bytes, MAX_FRAME);
            assert_eq!(head.map(|h| (h.length, h.kind, h.stream)), *walked, "{bytes:x?}");
            assert_eq!(Head::read(bytes, None).is_some(), *strict, "{bytes:x?}");
            for end in 0..HEAD_LEN {
                assert_eq!(Head::read(&bytes[..end], None), None, "cut");
            }
            assert_eq!(Head::read(&[bytes.as_slice(), &[0]].concat(), None), None, "more than a header");
        }
    }

    #[test]
    fn a_header_block_is_not_interrupted() {
        let open = Head::read(&[0, 0, 1, 1, 0, 0, 0, 0, 3], None);
        assert!(Head::read(&[0, 0, 1, 9, 4, 0, 0, 0, 3], open.as_ref()).is_some());
        assert!(Head::read(&[0, 0, 1, 9, 4, 0, 0, 0, 5], open.as_ref()).is_none());
        assert!(Head::read(&[0, 0, 8, 6, 0, 0, 0, 0, 0], open.as_ref()).is_none());
    }

    #[test]
    fn a_boundary_is_found_by_what_follows() {
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"pingping"].concat();
        let update = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x28];
        let find = |parts: &[&[u8]], whole| resync::find::<Head>(&parts.concat(), whole);
        assert_eq!(find(&[b"tail", &ping], true), Some(4), "ends with the record");
        assert_eq!(find(&[b"tail", &ping], false), None, "the record goes on unseen");
        assert_eq!(find(&[b"tail", &ping, b"x"], true), None, "one header alone");
        assert_eq!(find(&[b"tail", &ping, &ping, &ping[..9]], false), Some(4), "enough headers");
        assert_eq!(find(&[b"tail", &ping, &ping, &ping[..8]], false), None);
        // Cut within a WINDOW_UPDATE, as grpc-go sends it before a PING.
        for cut in 1..update.len() {
            assert_eq!(find(&[&update[cut..], &ping], true), Some(update.len() - cut), "cut at {cut}");
        }
    }

    /// A recording has zeros before the boundary: they must not make an earlier one.
    #[test]
    fn a_boundary_that_zeros_would_hide_is_not_taken() {
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"pingping"].concat();
        // With a zero before it this header reads as that of a PING, which ends 7 bytes into the payload.
        let data = [&[0, 8, 6, 0, 0, 0, 0, 0, 1][..], &[9; 7], &ping, &ping, &[9; 2013]].concat();
        let recorded = [&[7; 20][..], &data].concat();
        assert!(resync::chain::<Head>(&recorded, 20, true));
        assert_eq!(resync::find::<Head>(&recorded, true), None);
        let redacted = [&[0; 20][..], &data].concat();
        assert_eq!(resync::find::<Head>(&redacted, true), Some(19), "what it would have been");
    }
}

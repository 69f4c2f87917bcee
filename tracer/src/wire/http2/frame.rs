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

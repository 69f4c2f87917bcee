//! The fields of one level of a protobuf message, as far as its bytes are there.
//!
//! Source: protobuf.dev/programming-guides/encoding.

use std::ops::Range;

/// Most fields of one level that are read; the rest is taken as cut off.
const MAX_FIELDS: usize = 4096;

/// Longest varint.
const MAX_VARINT: usize = 10;

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) wire_type: u32,
    /// Its tag, and its length where it has one.
    pub(super) head: Range<usize>,
    /// Its value; may reach beyond the bytes that are there.
    pub(super) content: Range<usize>,
    /// A varint's value.
    pub(super) value: u64,
}

/// Reads the fields in `range`, which may reach beyond `bytes`; none when they are no message. With them, the bytes of a
/// head that was cut off, which were looked at too.
pub(super) fn fields(bytes: &[u8], range: Range<usize>) -> Option<(Vec<Field>, Range<usize>)> {
    let mut out = Vec::new();
    let mut at = range.start;
    while at < range.end && at < bytes.len() && out.len() < MAX_FIELDS {
        match field(bytes.get(..range.end.min(bytes.len()))?, at) {
            Read::Whole(field) if field.content.end <= range.end => {
                at = field.content.end;
                out.push(field);
            }
            Read::Cut if range.end > bytes.len() => return Some((out, at..bytes.len())),
            Read::Whole(_) | Read::Cut | Read::Malformed => return None,
        }
    }
    Some((out, at..at))
}

enum Read {
    Whole(Field),
    /// The bytes end within its head.
    Cut,
    Malformed,
}

fn field(bytes: &[u8], start: usize) -> Read {
    let mut at = start;
    let tag = match varint(bytes, &mut at) {
        Ok(tag) => tag,
        Err(read) => return read,
    };
    let Ok(number) = u32::try_from(tag >> 3) else { return Read::Malformed };
    if number == 0 || number >= 1 << 29 {
        return Read::Malformed;
    }
    let wire_type = (tag & 7) as u32;
    let head = at;
    let (head, content, value) = match wire_type {
        0 => match varint(bytes, &mut at) {
            Ok(value) => (head, head..at, value),
            Err(read) => return read,
        },
        1 => (head, head..head.saturating_add(8), 0),
        5 => (head, head..head.saturating_add(4), 0),
        2 => match varint(bytes, &mut at) {
            Ok(len) => (at, at..at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)), 0),
            Err(read) => return read,
        },
        // Groups, which proto3 does not have; 6 and 7 are not defined.
        _ => return Read::Malformed,
    };
    Read::Whole(Field { number, wire_type, head: start..head, content, value })
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Read> {
    let mut value = 0_u64;
    for n in 0..MAX_VARINT {
        let byte = *bytes.get(*at).ok_or(Read::Cut)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(7 * n as u32).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Read::Malformed)
}

//! Header blocks (RFC 7541, 3 and 6).
//!
//! Fields come out one by one; a half that is not known is none. An error means that the rest of the block and the
//! table after it are not known: the caller must start a new epoch.

use std::borrow::Cow;

use super::huffman;
use super::table::{Entry, Table};

/// A header field.
pub(crate) struct Header<'a> {
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// The value stood in this block, not in a table.
    pub(crate) literal: bool,
    /// It was put into the table.
    pub(crate) inserted: bool,
    /// Which of the epoch's opaque entries it is, whole.
    pub(crate) opaque: Option<u32>,
}

/// The block breaks the RFC's rules, or the table is not what its sender believed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Decodes one complete header block and gives each of its fields to `each`.
pub(crate) fn decode(table: &mut Table, block: &[u8], each: &mut dyn FnMut(Header<'_>)) -> Result<(), Malformed> {
    let mut rest = block;
    let mut fields = false;
    while let Some(first) = rest.first().copied() {
        match first {
            // 6.1: indexed.
            0x80.. => {
                let index = integer(&mut rest, 7)?;
                let entry = table.get(index).ok_or(Malformed)?;
                let Entry { name, value, opaque } = entry;
                each(Header { name, value, literal: false, inserted: false, opaque });
            }
            // 6.2.1: literal with incremental indexing.
            0x40.. => {
                let name = name(table, integer(&mut rest, 6)?, &mut rest)?.map(|n| Box::from(&*n));
                let value = string(&mut rest)?;
                each(Header {
                    name: name.as_deref(),
                    value: Some(&value),
                    literal: true,
                    inserted: true,
                    opaque: None,
                });
                table.insert(name, Some(Box::from(&*value)));
            }
            // 6.3: size update; only before the first field (4.2).
            0x20.. => {
                let max = integer(&mut rest, 5)?;
                if fields {
                    return Err(Malformed);
                }
                table.resize(max);
                continue;
            }
            // 6.2.2, 6.2.3: literal without indexing, never indexed.
            _ => {
                let name = name(table, integer(&mut rest, 4)?, &mut rest)?;
                let value = string(&mut rest)?;
                each(Header {
                    name: name.as_deref(),
                    value: Some(&value),
                    literal: true,
                    inserted: false,
                    opaque: None,
                });
            }
        }
        fields = true;
    }
    Ok(())
}

/// A literal field's name: at `index`, or when that is 0 a string.
fn name<'t, 'b: 't>(table: &'t Table, index: usize, rest: &mut &'b [u8]) -> Result<Option<Cow<'t, [u8]>>, Malformed> {
    match index {
        0 => string(rest).map(Some),
        _ => Ok(table.get(index).ok_or(Malformed)?.name.map(Cow::Borrowed)),
    }
}

/// 5.1: an integer whose first byte has `prefix` bits of it.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    let limit = (1_usize << prefix) - 1;
    let mut value = usize::from(byte(rest)?) & limit;
    if value < limit {
        return Ok(value);
    }
    // Four more bytes reach 256 MiB, beyond every length and index that can be meant.
    for shift in [0, 7, 14, 21] {
        let next = byte(rest)?;
        value += usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// 5.2: a string.
fn string<'a>(rest: &mut &'a [u8]) -> Result<Cow<'a, [u8]>, Malformed> {
    let coded = rest.first().ok_or(Malformed)? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (raw, tail) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = tail;
    match coded {
        true => huffman::decode(raw).map(Cow::Owned).ok_or(Malformed),
        false => Ok(Cow::Borrowed(raw)),
    }
}

fn byte(rest: &mut &[u8]) -> Result<u8, Malformed> {
    let (first, tail) = rest.split_first().ok_or(Malformed)?;
    *rest = tail;
    Ok(*first)
}

#[cfg(test)]
mod tests;

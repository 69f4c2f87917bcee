//! Header blocks as Go's encoder writes them (x/net `hpack/encode.go`): a field of the tables is an index, every other
//! one is inserted, and nothing is ever written out twice while the table holds it.

use std::collections::VecDeque;

/// RFC 7541, Appendix A: the entries that gRPC meets; a name alone has an empty value.
const STATIC: [(usize, &str, &str); 9] = [
    (1, ":authority", ""),
    (3, ":method", "POST"),
    (4, ":path", "/"),
    (6, ":scheme", "http"),
    (8, ":status", "200"),
    (31, "content-type", ""),
    (58, "user-agent", ""),
    (57, "transfer-encoding", ""),
    (23, "authorization", ""),
];

/// Entries of the static table.
const STATIC_LEN: usize = 61;

/// `SETTINGS_HEADER_TABLE_SIZE` that nobody changed.
const MAX_SIZE: usize = 4096;

/// One direction's encoder.
#[derive(Debug, Default)]
pub struct Encoder {
    entries: VecDeque<(String, String)>,
    size: usize,
}

impl Encoder {
    /// Encodes one block.
    pub fn encode(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in fields {
            self.field(&mut out, name, value);
        }
        out
    }

    fn field(&mut self, out: &mut Vec<u8>, name: &str, value: &str) {
        let fixed = STATIC.iter().find(|(_, n, v)| *n == name && *v == value && !v.is_empty());
        let own = self.entries.iter().position(|(n, v)| n == name && v == value);
        if let Some(index) = fixed.map(|(index, ..)| *index).or(own.map(|at| STATIC_LEN + 1 + at)) {
            integer(out, 0x80, 7, index);
            return;
        }
        let fixed = STATIC.iter().find(|(_, n, _)| *n == name).map(|(index, ..)| *index);
        let own = self.entries.iter().position(|(n, _)| n == name).map(|at| STATIC_LEN + 1 + at);
        match fixed.or(own) {
            Some(index) => integer(out, 0x40, 6, index),
            None => {
                out.push(0x40);
                string(out, name);
            }
        }
        string(out, value);
        self.entries.push_front((name.to_owned(), value.to_owned()));
        self.size += name.len() + value.len() + 32;
        while self.size > MAX_SIZE
            && let Some((name, value)) = self.entries.pop_back()
        {
            self.size -= name.len() + value.len() + 32;
        }
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    integer(out, 0, 7, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let limit = (1 << prefix) - 1;
    if value < limit {
        out.push(first | value as u8);
        return;
    }
    out.push(first | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

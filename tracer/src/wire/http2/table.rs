//! HPACK's tables (RFC 7541, 2.3 and Appendix A), where not every entry has to be known.
//!
//! The dynamic table is kept newest first. After a late attach or a lost header block everything older is *opaque*: an
//! index that reaches it gives no name and no value, never a wrong one. What was inserted since then resolves exactly,
//! whatever lies below, because indices count from the newest entry.

use std::collections::VecDeque;

/// RFC 9113, 6.5.2: `SETTINGS_HEADER_TABLE_SIZE` that was not changed.
const DEFAULT_SIZE: usize = 4096;

/// No table is remembered beyond this size, whatever the peers agreed on; what lies beyond is opaque.
const MAX_SIZE: usize = 64 * 1024;

/// RFC 7541, 4.1.
const OVERHEAD: usize = 32;

/// A field's half that may be unknown.
pub(crate) type Part = Option<Box<[u8]>>;

/// A field of the table.
pub(crate) struct Entry<'a> {
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// Which of the epoch's opaque entries it is.
    pub(crate) opaque: Option<u32>,
}

/// One direction's dynamic table.
pub(crate) struct Table {
    entries: VecDeque<(Part, Part)>,
    /// Sum of the sizes of `entries`; a lower bound when one of them is not known.
    size: usize,
    max: usize,
    /// Entries older than ours may exist.
    opaque_below: bool,
    /// How often everything older became opaque.
    epoch: u32,
    /// Entries inserted since then.
    inserted: usize,
}

impl Table {
    /// A connection's table before its first block.
    pub(crate) fn new() -> Table {
        Table { entries: VecDeque::new(), size: 0, max: DEFAULT_SIZE, opaque_below: false, epoch: 0, inserted: 0 }
    }

    /// Starts a new epoch: from here on everything that was inserted so far is opaque.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.size = 0;
        self.opaque_below = true;
        self.epoch = self.epoch.wrapping_add(1);
        self.inserted = 0;
    }

    /// Which epoch it is.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The field at `index`; none when no peer could have meant it.
    pub(crate) fn get(&self, index: usize) -> Option<Entry<'_>> {
        if let Some(position) = index.checked_sub(STATIC.len() + 1) {
            return match self.entries.get(position) {
                Some((name, value)) => Some(Entry { name: name.as_deref(), value: value.as_deref(), opaque: None }),
                None if self.opaque_below && position < MAX_SIZE / OVERHEAD => {
                    // One that was inserted since is gone here and should be gone there: no entry of before.
                    let opaque = position.checked_sub(self.inserted).and_then(|n| u32::try_from(n).ok());
                    Some(Entry { name: None, value: None, opaque })
                }
                None => None,
            };
        }
        let (name, value) = STATIC.get(index.checked_sub(1)?)?;
        Some(Entry { name: Some(name.as_bytes()), value: Some(value.as_bytes()), opaque: None })
    }

    /// Inserts a field (RFC 7541, 4.4: one that is larger than the table empties it).
    pub(crate) fn insert(&mut self, name: Part, value: Part) {
        self.inserted += 1;
        self.size += size(&name, &value);
        self.entries.push_front((name, value));
        self.evict();
    }

    /// A size update of the encoder (RFC 7541, 6.3).
    pub(crate) fn resize(&mut self, max: usize) {
        self.opaque_below |= max > MAX_SIZE;
        self.max = max.min(MAX_SIZE);
        if self.max < OVERHEAD {
            // Not even an empty field has room: nothing is left, known or not.
            self.opaque_below = false;
        }
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.max
            && let Some((name, value)) = self.entries.pop_back()
        {
            self.size -= size(&name, &value);
            // A size that is a lower bound, or a bound that the peers changed unseen, may keep an entry alive that is
            // gone here: then an index to it is one that is not known.
        }
    }
}

fn size(name: &Part, value: &Part) -> usize {
    OVERHEAD + name.as_ref().map_or(0, |n| n.len()) + value.as_ref().map_or(0, |v| v.len())
}

/// RFC 7541, Appendix A.
static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

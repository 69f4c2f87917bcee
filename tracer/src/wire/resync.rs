//! Finding a frame boundary again after a loss, within one record and without a guess that could be a wrong one.
//!
//! A position is taken when a chain of strictly valid headers starts there that ends exactly at the record's end (one
//! read or write of a quiet connection), or that is [`ENOUGH`] headers long. Nothing is remembered from one record to
//! the next, so that a recording, in which skipped bytes are zeros, is found again at the same place: a position is
//! also refused when, with zeros before it, an earlier one would have been taken.

/// Headers in a chain that need no confirmation by the record's end.
pub(crate) const ENOUGH: usize = 3;

/// A protocol's frame header, for the search.
pub(crate) trait Header: Sized {
    /// Its length.
    const LEN: usize;

    /// Reads one strictly: a doubtful header is none. `previous` is the one before it in the chain.
    fn read(bytes: &[u8], previous: Option<&Self>) -> Option<Self>;

    /// Length of the payload that follows.
    fn payload(&self) -> usize;
}

/// Where in `bytes` frames begin again. `whole`: the bytes reach up to the end of what the syscall moved.
pub(crate) fn find<H: Header>(bytes: &[u8], whole: bool) -> Option<usize> {
    (0..bytes.len()).find(|p| chain::<H>(bytes, *p, whole) && !shadowed::<H>(bytes, *p, whole))
}

/// Whether a chain starts at `p`.
pub(crate) fn chain<H: Header>(bytes: &[u8], p: usize, whole: bool) -> bool {
    let Some(first) = bytes.get(p..p + H::LEN) else { return false };
    chain_from::<H>(bytes, first, p, whole)
}

/// Whether, with zeros before `p`, a chain would start shortly before it (further back a header would be all zeros,
/// which no protocol here allows).
pub(crate) fn shadowed<H: Header>(bytes: &[u8], p: usize, whole: bool) -> bool {
    (p.saturating_sub(H::LEN - 1)..p).any(|q| {
        let Some(window) = bytes.get(q..q + H::LEN) else { return false };
        let mut first = [0; 16];
        let (zeros, kept) = (p - q, &window[p - q..]);
        first[zeros..zeros + kept.len()].copy_from_slice(kept);
        chain_from::<H>(bytes, &first[..H::LEN], q, whole)
    })
}

fn chain_from<H: Header>(bytes: &[u8], first: &[u8], start: usize, whole: bool) -> bool {
    let Some(mut header) = H::read(first, None) else { return false };
    let mut end = start + H::LEN + header.payload();
    for _ in 1..ENOUGH {
        if end == bytes.len() {
            return whole;
        }
        let Some(next) = bytes.get(end..end + H::LEN) else { return false };
        let Some(next) = H::read(next, Some(&header)) else { return false };
        end += H::LEN + next.payload();
        header = next;
    }
    true
}

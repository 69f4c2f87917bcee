//! A run of a record's payload, and the mask that says which of its bytes a recording may keep.
//!
//! One code path decodes and redacts: what a decoder has to read to come to its result it also keeps, so decoding the
//! masked bytes comes to the same result. What nobody keeps is zeroed.

/// Bytes of one record that follow each other.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// The bytes.
    pub(crate) bytes: &'a [u8],
    /// Where they begin in the record's payload.
    pub(crate) at: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Piece<'a> {
        Piece { bytes, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Cuts the first `n` bytes off (all of them when there are fewer) and gives them.
    pub(crate) fn take(&mut self, n: usize) -> Piece<'a> {
        let (head, rest) = self.bytes.split_at(n.min(self.bytes.len()));
        let taken = Piece { bytes: head, at: self.at };
        self.bytes = rest;
        self.at += head.len();
        taken
    }

    /// [`Piece::take`] for a length that may not fit a `usize`.
    pub(crate) fn take_u64(&mut self, n: u64) -> Piece<'a> {
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }
}

/// Which bits of a record's payload are kept; none at all when nobody asks.
pub(crate) struct Mask<'a>(Option<&'a mut [u8]>);

impl<'a> Mask<'a> {
    /// A mask that is not wanted.
    pub(crate) fn off() -> Mask<'a> {
        Mask(None)
    }

    /// A mask to fill: zeros, as long as the record's payload.
    pub(crate) fn on(bits: &'a mut [u8]) -> Mask<'a> {
        Mask(Some(bits))
    }

    /// Keeps these bytes.
    pub(crate) fn keep(&mut self, piece: Piece<'_>) {
        if let Some(bits) = self.0.as_deref_mut()
            && let Some(range) = bits.get_mut(piece.at..piece.at + piece.len())
        {
            range.fill(0xff);
        }
    }

    /// Keeps the continuation bit of a varint's byte.
    pub(crate) fn keep_continuation(&mut self, piece: Piece<'_>) {
        if let Some(bits) = self.0.as_deref_mut()
            && let Some(range) = bits.get_mut(piece.at..piece.at + piece.len())
        {
            range.iter_mut().for_each(|bits| *bits |= 0x80);
        }
    }

    /// Keeps nothing of the record after all.
    pub(crate) fn clear(&mut self) {
        if let Some(bits) = self.0.as_deref_mut() {
            bits.fill(0);
        }
    }
}

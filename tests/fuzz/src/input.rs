//! A fuzz input as the choices that a target makes. Total: where the input is over, every choice is 0; so each prefix
//! of an input is one, and a seed is written as it is read.

pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Little-endian.
    pub(crate) fn number(&mut self) -> usize {
        let low = self.byte();
        usize::from(low) | usize::from(self.byte()) << 8
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.number() % n.max(1)
    }

    pub(crate) fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A length, and that many bytes.
    pub(crate) fn run(&mut self) -> &'a [u8] {
        let n = self.number();
        self.bytes(n)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Lengths of pieces that come in turn; 0 stands for all that is left.
    pub(crate) fn sizes(&mut self) -> Sizes {
        let n = usize::from(self.byte() % 8);
        Sizes { sizes: self.bytes(n).to_vec(), next: 0 }
    }
}

pub(crate) struct Sizes {
    sizes: Vec<u8>,
    next: usize,
}

impl Sizes {
    /// Cuts `bytes` up.
    pub(crate) fn cut<'b>(&mut self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let size = self.sizes.get(self.next).map_or(0, |n| usize::from(*n));
            self.next = (self.next + 1) % self.sizes.len().max(1);
            let n = if size == 0 { bytes.len() } else { size.min(bytes.len()) };
            let (piece, rest) = bytes.split_at(n);
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

//! Protobuf messages by hand: for those that k8s-cri does not have.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// An empty one.
    pub fn new() -> Message {
        Message::default()
    }

    /// Adds a string or bytes; proto3 leaves an empty one out.
    #[must_use]
    pub fn text(self, number: u8, text: impl AsRef<[u8]>) -> Message {
        match text.as_ref() {
            [] => self,
            text => self.bytes(number, text),
        }
    }

    /// Adds a number; proto3 leaves 0 out.
    #[must_use]
    pub fn number(mut self, number: u8, value: u64) -> Message {
        if value != 0 {
            varint(&mut self.0, u64::from(number) << 3);
            varint(&mut self.0, value);
        }
        self
    }

    /// Adds a message.
    #[must_use]
    pub fn message(self, number: u8, message: Message) -> Message {
        self.bytes(number, &message.0)
    }

    fn bytes(mut self, number: u8, bytes: &[u8]) -> Message {
        varint(&mut self.0, u64::from(number) << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

//! Header blocks as Go's encoder writes them (x/net `hpack/encode.go`): a field of the tables is an index, and every
//! other one is put into the table.

use anyhow::{Result, bail};

const FLAGS: u8 = httlib_hpack::Encoder::BEST_FORMAT
    | httlib_hpack::Encoder::WITH_INDEXING
    | httlib_hpack::Encoder::HUFFMAN_NAME
    | httlib_hpack::Encoder::HUFFMAN_VALUE;

/// One direction's encoder, with the table size that nobody changed.
#[derive(Debug, Default)]
pub struct Encoder(httlib_hpack::Encoder<'static>);

impl Encoder {
    /// Encodes one block.
    ///
    /// # Errors
    /// When a field does not encode.
    pub fn encode<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for (name, value) in fields {
            if let Err(error) = self.0.encode((name.as_ref().to_vec(), value.as_ref().to_vec(), FLAGS), &mut out) {
                bail!("a header field does not encode: {error:?}");
            }
        }
        Ok(out)
    }
}

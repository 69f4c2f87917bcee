//! Huffman-coded strings (RFC 7541, 5.2 and Appendix B); the code tables are httlib-huffman's.
//!
//! Never accepts what the RFC refuses: padding of 8 bits or more, padding that is not the EOS code's beginning, EOS
//! itself. Encoding what was decoded gives the one valid form, so comparing with it refuses every other.

use httlib_huffman::{DecoderSpeed, decode as table_decode, encode as table_encode};

/// Decodes; none when the string is not valid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has 5 bits.
    let mut out = Vec::with_capacity(bytes.len() * 8 / 5 + 1);
    table_decode(bytes, &mut out, DecoderSpeed::FourBits).ok()?;
    let mut again = Vec::with_capacity(bytes.len());
    table_encode(&out, &mut again).ok()?;
    (again == bytes).then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_rfcs_examples() {
        // RFC 7541, C.4.1 and C.6.1.
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&host).as_deref(), Some(b"www.example.com".as_slice()));
        assert_eq!(decode(&[0x64, 0x02]).as_deref(), Some(b"302".as_slice()));
        assert_eq!(decode(&[]).as_deref(), Some(b"".as_slice()));
    }

    #[test]
    fn padding_is_checked() {
        assert_eq!(decode(&[0x1f]).as_deref(), Some(b"a".as_slice()));
        assert_eq!(decode(&[0x1f, 0xff]), None, "8 bits of padding");
        assert_eq!(decode(&[0x18]), None, "padding of zeros");
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None, "EOS");
        assert_eq!(decode(&[0xff]), None, "padding alone");
    }

    proptest! {
        #[test]
        fn round_trip(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut coded = Vec::new();
            table_encode(&text, &mut coded).unwrap();
            prop_assert_eq!(decode(&coded), Some(text));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode(&bytes);
        }
    }
}

//! `record::decode` on any bytes: what it takes, `encode` gives back in a form that decodes to the same.

use crate::record::{decode, encode, len_of};

/// Any bytes.
pub fn run(data: &[u8]) {
    let mut rest = data;
    // As they stand, and each record of a stream of them.
    check(data);
    while let Some(len) = len_of(rest).filter(|len| (16..=rest.len()).contains(len)) {
        let (record, tail) = rest.split_at(len);
        check(record);
        rest = tail;
    }
}

fn check(bytes: &[u8]) {
    match decode(bytes) {
        Ok(record) => {
            let again = encode(&record);
            assert_eq!(len_of(&again), Some(again.len()), "the length that it says");
            assert_eq!(decode(&again).as_ref(), Ok(&record), "decoded, encoded, decoded");
            // A debug line is for people: it is made without a fault, too.
            assert!(!format!("{record:?}").is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

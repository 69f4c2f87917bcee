//! The decoder trio over one table of samples, and its random twin.

use proptest::prelude::*;

use super::samples::{any_record, samples};
use super::*;

#[test]
fn round_trip() {
    for record in samples() {
        assert_eq!(decode(&encode(&record)).as_ref(), Ok(&record));
    }
}

/// The kernel never sends one (found by fuzzing).
#[test]
fn a_comm_without_its_zero_can_be_encoded_again() {
    let exit = samples().into_iter().find(|record| matches!(record.event, Event::Exit(_))).unwrap();
    let mut bytes = encode(&exit);
    let end = bytes.len();
    bytes[end - abi::COMM_LEN..].fill(b'x');
    let record = decode(&bytes).unwrap();
    assert!(matches!(&record.event, Event::Exit(exit) if exit.comm == "x".repeat(abi::COMM_LEN - 1)));
    assert_eq!(decode(&encode(&record)).as_ref(), Ok(&record));
}

#[test]
fn every_truncated_prefix_is_an_error() {
    for record in samples() {
        let whole = encode(&record);
        for end in 0..whole.len() {
            assert!(decode(&whole[..end]).is_err(), "{record:?} cut at {end}");
            // The same cut, and a header that agrees with it.
            if end >= 24 && !matches!(record.event, Event::Node(_) | Event::Unknown(_)) {
                let mut cut = whole[..end].to_vec();
                cut[12..16].copy_from_slice(&u32::try_from(end).unwrap().to_le_bytes());
                // Recordings of before have signals without their sender's name.
                let older = matches!(record.event, Event::Signal { .. }) && end == whole.len() - abi::COMM_LEN;
                assert_eq!(decode(&cut).is_err(), !older, "{record:?} cut at {end}, header adjusted");
            }
        }
    }
}

#[test]
fn trailing_bytes_are_refused() {
    for record in samples() {
        let mut longer = encode(&record);
        longer.push(0);
        assert_eq!(decode(&longer), Err(DecodeError::Trailing(1)), "{record:?}");
        // The same byte, and a header that claims it. A node's text and an unknown kind own all that follows.
        if !matches!(record.event, Event::Node(_) | Event::Unknown(_)) {
            let len = u32::try_from(longer.len()).unwrap();
            longer[12..16].copy_from_slice(&len.to_le_bytes());
            assert_eq!(decode(&longer), Err(DecodeError::Trailing(1)), "{record:?}");
        }
    }
}

#[test]
fn impossible_values_name_their_field() {
    let samples = samples();
    let mut bytes = encode(&samples[0]);
    bytes[52] = 9;
    assert_eq!(decode(&bytes).unwrap_err().to_string(), "record field direction has an impossible value");
    let mut socket = encode(&samples[1]);
    socket[32] = 0;
    assert_eq!(decode(&socket).unwrap_err().to_string(), "record field op has an impossible value");
    let listed = samples.iter().find(|record| matches!(record.event, Event::Listed(_))).map(encode).unwrap();
    for (place, field) in [(40, "what"), (44, "source")] {
        let mut listed = listed.clone();
        listed[place] = 9;
        assert_eq!(decode(&listed), Err(DecodeError::Value(field)));
    }
}

/// No kernel gives such a result, but a recording may.
#[test]
fn an_impossible_result_has_an_errno() {
    let mut syscall = samples().into_iter().find_map(|record| match record.event {
        Event::Syscall(syscall) => Some(syscall),
        _ => None,
    });
    let mut errno = |ret| {
        let syscall = syscall.as_mut().unwrap();
        syscall.ret = ret;
        syscall.errno()
    };
    assert_eq!((errno(0), errno(3), errno(-2), errno(i64::MIN)), (None, None, Some(2), Some(i32::MAX)));
}

/// A `comm` that the kernel cut inside a character must not grow when it is read.
#[test]
fn comm_cut_inside_a_character() {
    let exit = Event::Exit(Exit { status: Some(0), signal: None, comm: "a".repeat(14) + "é" });
    let record = Record { at: MonotonicNs(1), tgid: Tgid(1), tid: Tid(1), event: exit };
    let read = decode(&encode(&record)).unwrap();
    let Event::Exit(exit) = &read.event else { panic!("not an exit") };
    assert_eq!(exit.comm, "aaaaaaaaaaaaaa?");
    assert_eq!(decode(&encode(&read)), Ok(read));
}

proptest! {
    #[test]
    fn any_round_trip(record in any_record()) {
        prop_assert_eq!(decode(&encode(&record)), Ok(record));
    }

    /// What decodes at all decodes to the same again: live and replay see equal records.
    #[test]
    fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 24..400), kind in 0u32..72) {
        let len = u32::try_from(bytes.len()).unwrap();
        bytes[8..12].copy_from_slice(&kind.to_le_bytes());
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        if let Ok(record) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }
}

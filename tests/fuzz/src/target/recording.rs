//! The recording's reader on damaged files, and the writer's file read again.

use std::io::Cursor;

use crate::input::Input;
use crate::record::{Record, decode, len_of};
use crate::recording::{ReadError, Reader, Writer};

const HEAD: &str = "podlapse-recording 1\n\
    {\"tool\":\"podlapse\",\"created\":\"2026-01-01T00:00:00.000000000Z\",\"arguments\":[],\"settle_ns\":2000000000}\n";

/// A small file may unpack to gigabytes.
const MOST: usize = 2000;

/// Whole records that stand one after another in `bytes`.
pub(crate) fn records(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(len) = len_of(bytes).filter(|len| (24..=bytes.len()).contains(len)) {
        let (record, rest) = bytes.split_at(len);
        records.extend(decode(record));
        bytes = rest;
    }
    records
}

fn read(file: &[u8]) -> Result<(Vec<Record>, Option<ReadError>), ReadError> {
    let mut reader = Reader::new(Box::new(Cursor::new(file.to_vec())))?;
    let mut records = Vec::new();
    while records.len() < MOST {
        match reader.read() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break,
            Err(error) => return Ok((records, Some(error))),
        }
        assert_eq!(reader.records(), records.len() as u64);
    }
    Ok((records, None))
}

/// How the rest is a file: as it is, as what its frames hold, or as records that the writer is given.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => match read(input.rest()) {
            Ok((_, error)) => assert!(error.is_none_or(|error| !error.to_string().is_empty())),
            Err(error) => assert!(!error.to_string().is_empty()),
        },
        1 => {
            let (mut sizes, cut) = (input.sizes(), input.number());
            let mut file = HEAD.as_bytes().to_vec();
            for frame in sizes.cut(input.rest()) {
                file.extend(zstd::bulk::compress(frame, 1).expect("zstd compresses anything"));
            }
            let (whole, _) = read(&file).expect("the head is good");
            file.truncate(file.len().saturating_sub(cut).max(HEAD.len()));
            let (shorter, _) = read(&file).expect("the head is good");
            assert!(whole.starts_with(&shorter), "a part of the file gives a part of the records");
        }
        _ => {
            let mut records = records(input.rest());
            records.truncate(MOST - 1);
            let (file, written) = write(records);
            let (again, error) = read(&file).expect("the writer's head");
            assert!(error.is_none() && again == written, "what was written is read");
        }
    }
}

/// The file of these records, and the records as the writer left them.
pub(crate) fn write(mut records: Vec<Record>) -> (Vec<u8>, Vec<Record>) {
    let json = HEAD.lines().nth(1).expect("two lines");
    let header = serde_json::from_str(json).expect("a header");
    let mut writer = Writer::new(Vec::new(), &header).expect("memory takes it");
    for record in &mut records {
        writer.write(record).expect("memory takes it");
    }
    (writer.finish().expect("memory takes it"), records)
}

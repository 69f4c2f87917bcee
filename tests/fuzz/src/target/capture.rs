//! Recorded traffic of kubelet and crictl, cut anywhere, with chunks lost and doubled, announced or not: never a method
//! that the call was not, as an independent decoder has it from the first byte.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::capture::{self, Call, NAMES};
use crate::check;
use crate::cri::{CallEvent, CallKey, CallStart, MethodSource};
use crate::ids::MonotonicNs;
use crate::input::Input;
use crate::record::{Event, Record};
use crate::wire::Limits;

struct Capture {
    records: Vec<Record>,
    truth: BTreeMap<CallKey, Call>,
}

fn captures() -> &'static [Capture] {
    static CAPTURES: OnceLock<Vec<Capture>> = OnceLock::new();
    CAPTURES.get_or_init(|| NAMES.iter().map(|name| load(name)).collect())
}

fn load(name: &str) -> Capture {
    Capture {
        records: capture::records(name),
        truth: capture::truth(name).into_iter().map(|call| (call.key, call)).collect(),
    }
}

/// What is done to a chunk.
#[derive(Clone, Copy)]
enum Change {
    /// It never came; the next one's offset says so.
    Lost,
    /// It never came, and nothing says so.
    Missed,
    /// It came twice, with its offset.
    Repeated,
    /// It came twice, as if it were two.
    Doubled,
    /// It came without its end.
    Short,
    /// It came as two.
    Split,
}

const CHANGES: [Change; 6] =
    [Change::Lost, Change::Missed, Change::Repeated, Change::Doubled, Change::Short, Change::Split];

/// Which capture, from which record and byte on, how many records; then how many stay as they are and what is done to
/// the next.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let capture = &captures()[input.below(NAMES.len())];
    let from = input.below(capture.records.len());
    let cut = input.number();
    let count = 1 + input.below(400);
    let mut records = Vec::new();
    // How far each direction's offsets are from the truth.
    let mut drift: BTreeMap<(u64, bool), i64> = BTreeMap::new();
    let mut next = (!input.is_over()).then(|| usize::from(input.byte()));
    for (index, record) in capture.records.iter().skip(from).take(count).enumerate() {
        let mut record = record.clone();
        let Event::Bytes(bytes) = &mut record.event else {
            records.push(record);
            continue;
        };
        if index == 0 {
            let n = cut % bytes.data.len();
            bytes.data.drain(..n);
            bytes.offset += n as u64;
            bytes.len -= u32::try_from(n).unwrap();
        }
        let drift = drift.entry((bytes.conn.0, bytes.direction == crate::record::Direction::In)).or_default();
        bytes.offset = bytes.offset.saturating_add_signed(*drift);
        let len = bytes.data.len();
        let change = match &mut next {
            Some(0) => {
                let change = CHANGES[input.below(CHANGES.len())];
                next = (!input.is_over()).then(|| usize::from(input.byte()));
                change
            }
            later => {
                *later = later.map(|n| n - 1);
                records.push(record);
                continue;
            }
        };
        match change {
            Change::Lost => {}
            Change::Missed => *drift -= i64::try_from(len).unwrap(),
            Change::Repeated => records.extend([record.clone(), record]),
            Change::Doubled => {
                records.push(record.clone());
                if let Event::Bytes(bytes) = &mut record.event {
                    bytes.offset += len as u64;
                }
                *drift += i64::try_from(len).unwrap();
                records.push(record);
            }
            Change::Short => {
                bytes.data.truncate(input.below(len));
                records.push(record);
            }
            Change::Split => {
                let tail = bytes.data.split_off(input.below(len));
                bytes.len = u32::try_from(bytes.data.len()).unwrap();
                let mut second = record.clone();
                if let Event::Bytes(second) = &mut second.event {
                    second.offset += (len - tail.len()) as u64;
                    second.len = u32::try_from(tail.len()).unwrap();
                    second.data = tail;
                }
                records.extend([record, second]);
            }
        }
    }
    for event in check::records_within(&records, Limits::default()) {
        match event {
            CallEvent::Start(start) => right(&capture.truth, &start),
            CallEvent::Named(named) => right(&capture.truth, &named.start),
            _ => {}
        }
    }
}

fn right(truth: &BTreeMap<CallKey, Call>, start: &CallStart) {
    if start.source == MethodSource::Opaque {
        return;
    }
    let path = format!("/{}/{}", start.service, start.method);
    let true_path = truth.get(&start.key).map(|call| &call.path);
    let right = true_path.is_some_and(|true_path| match start.source {
        // The version of the CRI may not have been seen.
        MethodSource::Inferred => {
            let short = |path: &str| path.rsplit('.').next().map(|tail| tail.trim_start_matches('/').to_owned());
            short(&path) == short(true_path)
        }
        _ => path == *true_path,
    });
    assert!(
        right,
        "{:?} of {:?} at {:?}: {path}, in truth {true_path:?}",
        start.source,
        start.key,
        MonotonicNs(start.at.0)
    );
}

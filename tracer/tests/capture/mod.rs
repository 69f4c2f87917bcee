//! The recorded CRI traffic (`tests/data`) as records, and what an independent decoder says of it.

#![allow(clippy::allow_attributes, dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

use podlapse::cri::{CallEvent, CallKey, Ending, MethodSource};
use podlapse::ids::{ConnId, MonotonicNs, Tgid, Tid};
use podlapse::record::{Bytes, Direction, Event, Record, Socket, SocketOp};
use podlapse::wire::{Counters, Decoder, Limits, Redactor};
use serde_json::Value;

/// The captures.
pub(crate) const NAMES: [&str; 3] =
    ["kubelet-1.32-containerd-1.7", "kubelet-1.20-containerd-1.6-v1alpha2", "crictl-1.36-containerd-1.6"];

/// The traced process.
pub(crate) const RUNTIME: Tgid = Tgid(100);

/// One call as the truth has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) key: CallKey,
    pub(crate) path: String,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
    pub(crate) status: Option<(u32, String)>,
}

macro_rules! capture {
    ($name:literal) => {
        (
            include_str!(concat!("../../../tests/data/", $name, ".jsonl")),
            include_str!(concat!("../../../tests/data/", $name, ".truth.jsonl")),
        )
    };
}

/// A capture's chunks, and its truth.
fn files(name: &str) -> (&'static str, &'static str) {
    match name {
        "kubelet-1.32-containerd-1.7" => capture!("kubelet-1.32-containerd-1.7"),
        "kubelet-1.20-containerd-1.6-v1alpha2" => capture!("kubelet-1.20-containerd-1.6-v1alpha2"),
        "crictl-1.36-containerd-1.6" => capture!("crictl-1.36-containerd-1.6"),
        _ => panic!("there is no capture {name}"),
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// A capture's chunks, as the records of a runtime that accepted the connections.
pub(crate) fn records(name: &str) -> Vec<Record> {
    let mut offsets: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    lines(files(name).0)
        .filter_map(|line| {
            let at = MonotonicNs(line["t"].as_u64().unwrap());
            let conn = line["conn"].as_u64().unwrap();
            let read = line["dir"] == "c2s";
            let op = match (line.get("data"), line.get("open").is_some(), read) {
                (Some(data), _, _) => {
                    let data = base64(data.as_str().unwrap());
                    let offset = offsets.entry((conn, read)).or_default();
                    let direction = if read { Direction::In } else { Direction::Out };
                    let bytes = chunk(conn, direction, *offset, data);
                    *offset += u64::from(bytes.len);
                    return Some(record(at, Event::Bytes(bytes)));
                }
                (None, true, _) => SocketOp::Accept,
                (None, false, true) => return None,
                (None, false, false) => SocketOp::Close,
            };
            Some(record(at, Event::Socket(socket(conn, op, "/run/containerd/containerd.sock"))))
        })
        .collect()
}

/// A record of the traced process.
pub(crate) fn record(at: MonotonicNs, event: Event) -> Record {
    Record { at, tgid: RUNTIME, tid: Tid(RUNTIME.0), event }
}

pub(crate) fn socket(conn: u64, op: SocketOp, path: &str) -> Socket {
    let fd = i32::try_from(conn).unwrap();
    Socket { op, conn: ConnId(conn), fd, other_fd: None, ret: fd, peer: Some(Tgid(200)), path: path.into() }
}

pub(crate) fn chunk(conn: u64, direction: Direction, offset: u64, data: Vec<u8>) -> Bytes {
    let len = u32::try_from(data.len()).unwrap();
    let fd = i32::try_from(conn).unwrap();
    Bytes { conn: ConnId(conn), offset, other_at: MonotonicNs(0), fd, direction, len, data }
}

/// What an independent decoder, from each connection's first byte, made of a capture.
pub(crate) fn truth(name: &str) -> Vec<Call> {
    let calls = lines(files(name).1).map(|line| Call {
        key: CallKey {
            conn: ConnId(line["conn"].as_u64().unwrap()),
            stream: u32::try_from(line["stream"].as_u64().unwrap()).unwrap(),
        },
        path: line["path"].as_str().unwrap().into(),
        timeout_ns: line["timeout"].as_str().map(|timeout| {
            let (digits, unit) = timeout.split_at(timeout.len() - 1);
            let unit = match unit {
                "n" => 1,
                "u" => 1_000,
                "m" => 1_000_000,
                "S" => 1_000_000_000,
                other => panic!("unit {other}"),
            };
            digits.parse::<u64>().unwrap() * unit
        }),
        start: line["start"].as_u64().unwrap(),
        end: line["end"].as_u64(),
        status: line["status"]
            .as_u64()
            .map(|code| (u32::try_from(code).unwrap(), line["message"].as_str().unwrap_or_default().to_owned())),
    });
    calls.collect()
}

/// Runs a decoder over `records`.
pub(crate) fn decode(records: &[Record]) -> (Vec<CallEvent>, Counters) {
    let (decoder, out) = decoded(records);
    (out, decoder.counters())
}

/// The same, to go on with.
pub(crate) fn decoded(records: &[Record]) -> (Decoder, Vec<CallEvent>) {
    let (mut decoder, mut out) = (Decoder::new(Limits::default()), Vec::new());
    records.iter().for_each(|record| decoder.record(record, &mut out));
    (decoder, out)
}

/// The records as a recording holds them.
pub(crate) fn redact(records: &[Record]) -> Vec<Record> {
    let mut redactor = Redactor::new(Limits::default());
    let mut records = records.to_vec();
    records.iter_mut().for_each(|record| redactor.record(record));
    records
}

/// The calls that `events` tell of, in the order of their starts, with the source of each name.
pub(crate) fn calls(events: &[CallEvent]) -> Vec<(Call, MethodSource)> {
    let mut calls: Vec<(Call, MethodSource)> = Vec::new();
    let mut index: BTreeMap<CallKey, usize> = BTreeMap::new();
    for event in events {
        match event {
            CallEvent::Start(start) => {
                index.insert(start.key, calls.len());
                let path = match start.source {
                    MethodSource::Opaque => String::new(),
                    MethodSource::Literal | MethodSource::Table | MethodSource::Inferred => {
                        format!("/{}/{}", start.service, start.method)
                    }
                };
                calls.push((
                    Call {
                        key: start.key,
                        path,
                        timeout_ns: start.timeout_ns,
                        start: start.at.0,
                        end: None,
                        status: None,
                    },
                    start.source,
                ));
            }
            CallEvent::End { key, at, ending } => {
                let (call, _) = &mut calls[index[key]];
                assert_eq!(call.end, None, "a call ends once: {key:?}");
                call.end = Some(at.0);
                if let Ending::Status { code, message } = ending {
                    call.status = Some((*code, message.clone()));
                }
            }
            CallEvent::Request { key, .. } | CallEvent::Response { key, .. } => {
                let (call, _) = &calls[index[key]];
                assert_eq!(call.end, None, "no message after the end: {key:?}");
            }
            CallEvent::Named(_) | CallEvent::Unnamed(_) | CallEvent::Unasked { .. } | CallEvent::Undecoded { .. } => {}
        }
    }
    calls
}

/// Cuts every chunk into pieces whose lengths `next` gives; a piece keeps its chunk's time.
pub(crate) fn split(records: &[Record], mut next: impl FnMut() -> usize) -> Vec<Record> {
    let mut out = Vec::new();
    for whole in records {
        let Event::Bytes(bytes) = &whole.event else {
            out.push(whole.clone());
            continue;
        };
        let mut done = 0;
        while done < bytes.data.len() {
            let n = next().clamp(1, bytes.data.len() - done);
            let piece =
                chunk(bytes.conn.0, bytes.direction, bytes.offset + done as u64, bytes.data[done..done + n].into());
            out.push(record(whole.at, Event::Bytes(piece)));
            done += n;
        }
    }
    out
}

/// A small random sequence (SplitMix64), the same for the same seed.
pub(crate) fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }
}

/// Standard base64 (RFC 4648, 4) of well-formed test data.
fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| -> u32 {
        u32::from(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        })
    };
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, c| bits << 6 | value(*c)) << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}

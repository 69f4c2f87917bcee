//! Seeds: what recorded traffic of kubelet and crictl, and recordings of real starts, are as inputs of the targets.

use std::collections::BTreeMap;
use std::io::Cursor;

use crate::capture::{self, NAMES};
use crate::check::Surroundings;
use crate::record::{Direction, Event, Record, encode};
use crate::recording::Reader;
use crate::target::proto::METHODS;
use crate::wire::parts::{FrameStep, Frames, Kind, Mask, Piece, Table, decode_block};

/// Recordings of real starts.
const RECORDINGS: [&[u8]; 2] = [
    include_bytes!("../../../tracer/tests/data/start-v1.plr"),
    include_bytes!("../../../tracer/tests/data/systemd-v1.plr"),
];

/// A call's messages.
#[derive(Default)]
struct Call {
    path: String,
    request: Vec<u8>,
    response: Vec<u8>,
}

/// Each target with its seeds.
pub fn all() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let (mut frames, mut bodies, mut scripts) = (Vec::new(), BTreeMap::new(), Vec::new());
    for name in NAMES {
        let streams = streams(name);
        for ((_, server), bytes) in &streams {
            let half = &bytes[bytes.len() / 2..];
            frames.push([&[u8::from(*server), 0], &bytes[..bytes.len().min(2000)]].concat());
            frames.push([&[2, 1, 100], &half[..half.len().min(2000)]].concat());
        }
        let calls = calls(&streams);
        scripts.extend(calls.chunks(12).step_by(4).map(script));
        for call in calls {
            bodies.entry(call.path.clone()).or_insert(call);
        }
    }
    let recordings: Vec<Vec<Record>> = RECORDINGS.iter().map(|file| records(file)).collect();
    let raw: Vec<Vec<u8>> = recordings.iter().flat_map(|records| windows(records)).collect();
    let with = |first: &[u8], rest: &[Vec<u8>]| rest.iter().map(|rest| [first, rest].concat()).collect::<Vec<_>>();
    let captures = (0..30_u8).map(|n| {
        // Capture, from where, cut, how many, and changes after so many.
        let changes = (0..12).flat_map(|change: u8| [n + change, (n + change) % 6, 0, 9, 0]);
        [n % 3, 0, n.wrapping_mul(37), n / 3, n, 0, 143, 1].into_iter().chain(changes).collect()
    });
    vec![
        ("capture", captures.collect()),
        ("engine", raw.clone()),
        ("frames", frames),
        ("grpc", grpc(&bodies)),
        ("infer", scripts),
        ("proto", proto(&bodies)),
        ("record", raw.clone()),
        ("recording", [with(&[1, 0, 0, 0], &raw), with(&[2], &raw)].concat()),
        ("ttrpc", recordings.iter().map(|records| ttrpc(records)).collect()),
    ]
}

/// A capture's bytes by connection and side.
fn streams(name: &str) -> BTreeMap<(u64, bool), Vec<u8>> {
    let mut streams: BTreeMap<(u64, bool), Vec<u8>> = BTreeMap::new();
    for record in capture::records(name) {
        if let Event::Bytes(bytes) = record.event {
            let server = bytes.direction == Direction::Out;
            streams.entry((bytes.conn.0, server)).or_default().extend(bytes.data);
        }
    }
    streams
}

/// The calls of whole connections, in the order of their connections.
fn calls(streams: &BTreeMap<(u64, bool), Vec<u8>>) -> Vec<Call> {
    let mut calls: BTreeMap<(u64, u32), Call> = BTreeMap::new();
    for ((conn, server), bytes) in streams {
        let mut frames = if *server { Frames::server() } else { Frames::client() };
        let (mut table, mut around, mut piece) = (Table::new(), Surroundings::default(), Piece::new(bytes));
        while let FrameStep::Payload { head, piece, .. } = frames.step(&mut piece, &mut around.context(Mask::off())) {
            let call = calls.entry((*conn, head.stream)).or_default();
            match head.kind {
                Kind::Headers => {
                    let _ = decode_block(&mut table, piece.bytes, &mut |header| {
                        if let (Some(b":path"), Some(value)) = (header.name, header.value) {
                            call.path = String::from_utf8_lossy(value).into_owned();
                        }
                    });
                }
                Kind::Data if *server => call.response.extend(piece.bytes),
                Kind::Data => call.request.extend(piece.bytes),
                _ => {}
            }
        }
    }
    calls.into_values().filter(|call| !call.path.is_empty()).collect()
}

fn number(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes()
}

/// Calls as the steps of `infer`: each method has a slot of before the attach.
fn script(calls: &[Call]) -> Vec<u8> {
    let (mut script, mut slots) = (vec![0], Vec::new());
    for call in calls {
        let slot = slots.iter().position(|path| *path == &call.path).unwrap_or_else(|| {
            slots.push(&call.path);
            slots.len() - 1
        });
        let slot = u8::try_from(slot).unwrap_or(31);
        script.push(slot & 7 | (slot & 0x18) << 2);
        for (step, message) in [(10, &call.request), (15, &call.response)] {
            if let Some(body) = message.get(5..) {
                script.extend([step, 0]);
                script.extend(number(body.len()));
                script.extend(body);
            }
        }
        script.extend([21, 0, 0]);
    }
    script
}

/// The messages of methods that `proto` knows, with the number that each has there.
fn messages(bodies: &BTreeMap<String, Call>) -> Vec<(u8, &[u8])> {
    let mut messages = Vec::new();
    for (number, (service, method)) in (0_u8..).zip(METHODS) {
        if let Some(call) = bodies.get(&format!("/{service}/{method}")) {
            messages.extend([(number * 2, &call.request[..]), (number * 2 + 1, &call.response[..])]);
        }
    }
    messages
}

fn proto(bodies: &BTreeMap<String, Call>) -> Vec<Vec<u8>> {
    let seed = |(number, message): (u8, &[u8])| Some([&[number, 0, 0, 0xff], message.get(5..)?].concat());
    messages(bodies).into_iter().filter_map(seed).collect()
}

fn grpc(bodies: &BTreeMap<String, Call>) -> Vec<Vec<u8>> {
    let seed = |(number, message): (u8, &[u8])| [&[number, number, 0, 1, 50, 20, 0, 10, 0], message, message].concat();
    messages(bodies).into_iter().map(seed).collect()
}

fn records(file: &'static [u8]) -> Vec<Record> {
    let mut reader = Reader::new(Box::new(Cursor::new(file))).expect("a recording");
    let mut records = Vec::new();
    while let Ok(Some(record)) = reader.read() {
        records.push(record);
    }
    records
}

/// A recording's records as bytes, some of its windows.
fn windows(records: &[Record]) -> Vec<Vec<u8>> {
    let window = |records: &[Record]| {
        let mut bytes: Vec<u8> = Vec::new();
        for record in records.iter().map(encode) {
            if bytes.len() + record.len() < 16_000 {
                bytes.extend(record);
            }
        }
        bytes
    };
    records.chunks(250).step_by(4).take(6).map(window).collect()
}

/// A recording's shim connections as the steps of `ttrpc`, one behind the other.
fn ttrpc(records: &[Record]) -> Vec<u8> {
    let mut script = vec![0, 0];
    let shims: Vec<u64> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Socket(socket) if socket.path.contains("/containerd/s/") => Some(socket.conn.0),
            _ => None,
        })
        .collect();
    for record in records {
        if let Event::Bytes(bytes) = &record.event
            && shims.contains(&bytes.conn.0)
            && script.len() < 8000
        {
            script.push(2 | u8::from(bytes.direction == Direction::Out));
            script.extend(number(bytes.data.len()));
            script.extend(&bytes.data);
        }
    }
    script
}

//! Calls whose names are table entries of before the attach, between calls with names, ttrpc and the kernel's signs:
//! whatever they carry, a slot never changes its name, and what was literal in the block is what was called.

use std::collections::BTreeMap;

use super::proto::METHODS;
use super::ttrpc::{bytes, message as ttrpc, record, socket};
use crate::check;
use crate::cri::{CallEvent, CallKey, MethodSource, Slot};
use crate::ids::{ConnId, MonotonicNs};
use crate::input::Input;
use crate::record::{Direction, Event, Record, SocketOp, decode};

/// A client on a connection that was open before, and its server.
struct Client {
    conn: u64,
    stream: u32,
    /// Paths inserted since the attach.
    inserted: Vec<String>,
    /// Paths in truth, where they were not opaque.
    paths: BTreeMap<CallKey, String>,
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// gRPC's prefix and a message.
fn grpc(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], &len[..], payload].concat()
}

/// RFC 7541, 6.1.
fn indexed(index: usize) -> Vec<u8> {
    match index {
        ..127 => vec![0x80 | u8::try_from(index).unwrap()],
        _ => vec![0xff, u8::try_from((index - 127) % 128).unwrap() | 0x80, u8::try_from((index - 127) / 128).unwrap()],
    }
}

impl Client {
    /// The block of a call, as grpc-go orders it: `:method`, `:scheme`, `:path`, `:authority`, and three more.
    fn headers(&mut self, path: Option<&str>, slot: usize) -> Vec<u8> {
        let authority = 62 + 3 + self.inserted.len();
        let path = match path {
            Some(path) => {
                let known = self.inserted.iter().rev().position(|p| p == path);
                self.paths.insert(CallKey { conn: ConnId(self.conn), stream: self.stream }, path.to_owned());
                match known {
                    Some(at) => indexed(62 + at),
                    None => {
                        self.inserted.push(path.to_owned());
                        let len = u8::try_from(path.len()).unwrap();
                        [&[0x44, len][..], path.as_bytes()].concat()
                    }
                }
            }
            None => indexed(authority + 1 + slot),
        };
        // After an insertion the entries of before are one further.
        let authority = 62 + 3 + self.inserted.len();
        let block = [
            vec![0x83, 0x86],
            path,
            indexed(authority),
            indexed(authority - 1),
            indexed(authority - 2),
            indexed(authority - 3),
        ];
        frame(1, 4, self.stream, &block.concat())
    }
}

/// Steps: what, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut sizes = input.sizes();
    let mut clients: Vec<Client> =
        [1, 2].map(|conn| Client { conn, stream: 1, inserted: vec![], paths: BTreeMap::new() }).into();
    let mut records: Vec<Record> = Vec::new();
    let mut offsets: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    let mut at = 0;
    let path = "/run/containerd/containerd.sock";
    for conn in [1, 2] {
        records.push(record(0, socket(conn, SocketOp::Found, path)));
    }
    records.push(record(0, socket(3, SocketOp::Connect, "/run/containerd/s/0")));
    while !input.is_over() && records.len() < 400 {
        at += 1;
        let op = input.byte();
        let client = &mut clients[usize::from(op >> 7)];
        let conn = client.conn;
        // Streams of calls of before, of the last ones, and of none.
        let mut stream = |client: &Client| client.stream.saturating_sub(u32::from(input.byte() % 16) * 2);
        let (conn, direction, data) = match op & 0x1f {
            0..=7 => {
                client.stream += 2;
                (conn, Direction::In, client.headers(None, usize::from(op & 7 | op >> 2 & 0x18)))
            }
            8 | 9 => {
                client.stream += 2;
                let (service, method) = METHODS[input.below(METHODS.len())];
                (conn, Direction::In, client.headers(Some(&format!("/{service}/{method}")), 0))
            }
            10..=14 => {
                let stream = stream(client);
                (conn, Direction::In, frame(0, op & 1, stream, &grpc(input.run())))
            }
            15..=19 => {
                let stream = stream(client);
                let headers = frame(1, 4, stream, &[0x88]);
                (conn, Direction::Out, [headers, frame(0, 0, stream, &grpc(input.run()))].concat())
            }
            // Its trailers: a status of before, or one that is literal; alone an error.
            20 => (conn, Direction::Out, frame(1, 5, stream(client), &[0xbe])),
            21 | 22 => {
                let stream = stream(client);
                let digit = b'0' + input.byte() % 10;
                let block = [&[0x00, 11][..], b"grpc-status", &[1, digit]].concat();
                (conn, Direction::Out, frame(1, 5, stream, &block))
            }
            23 => (conn, Direction::Out, frame(0, 0, stream(client), input.run())),
            24 => (conn, Direction::In, frame(3, 0, stream(client), &[0, 0, 0, 8])),
            25 => {
                client.stream += u32::from(input.byte()) * 2;
                continue;
            }
            26 => (3, Direction::Out, ttrpc(stream(client) | 1, 1, 0, input.run())),
            27 => (3, Direction::In, ttrpc(stream(client) | 1, 2, 0, input.run())),
            28 => {
                if let Ok(sign) = decode(input.run())
                    && !matches!(sign.event, Event::Bytes(_) | Event::Socket(_))
                {
                    records.push(Record { at: MonotonicNs(at), ..sign });
                }
                continue;
            }
            29 => (conn, [Direction::In, Direction::Out][usize::from(op >> 5 & 1)], input.run().to_vec()),
            30 => {
                // Lost, and the offset says so.
                *offsets.entry((conn, op >> 5 & 1 == 0)).or_default() += u64::from(input.byte());
                continue;
            }
            _ => {
                at += 1 << (input.byte() % 40);
                continue;
            }
        };
        for piece in sizes.cut(&data) {
            let offset = offsets.entry((conn, direction == Direction::In)).or_default();
            records.push(record(at, bytes(conn, direction, *offset, piece.to_vec(), 0)));
            *offset += piece.len() as u64;
        }
    }

    let mut slots: BTreeMap<(ConnId, Slot), (String, String)> = BTreeMap::new();
    for event in check::records(&records) {
        let start = match event {
            CallEvent::Start(start) => start,
            CallEvent::Named(named) => named.start,
            _ => continue,
        };
        match start.source {
            MethodSource::Inferred => {
                let slot = (start.key.conn, start.slot.expect("a slot was bound"));
                // Which version of the CRI it is may be found later than the method.
                let service = start.service.rsplit('.').next().unwrap_or_default().to_owned();
                let name = (service, start.method);
                let bound = slots.entry(slot).or_insert_with(|| name.clone());
                assert_eq!(*bound, name, "the slot had another name before");
            }
            MethodSource::Opaque | MethodSource::Literal | MethodSource::Table => {}
        }
    }
}

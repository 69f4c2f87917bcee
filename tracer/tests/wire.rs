//! The decoder on built traffic: frames of every kind, losses at every byte, descriptors that are reused, ttrpc, and
//! bytes that are nothing at all.

mod capture;

use capture::{RUNTIME, calls, chunk, decode, decoded, record, redact, socket, split};
use expect_test::{Expect, expect};
use podlapse::cri::{CallEvent, Ending, Field, MethodSource, Value};
use podlapse::ids::{ConnId, MonotonicNs, Tgid};
use podlapse::record::{Direction, Event, Record, SocketOp};
use podlapse::wire::{Counters, Decoder, Limits};
use proptest::prelude::*;

const CRI: &str = "/run/containerd/containerd.sock";
const EVENTS: &str = "/run/containerd/containerd.sock.ttrpc";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const RUN: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
const START: &str = "/runtime.v1.RuntimeService/StartContainer";

/// Traffic under construction; a record's time is its number.
#[derive(Default)]
struct Traffic {
    records: Vec<Record>,
    offsets: std::collections::BTreeMap<(u64, bool), u64>,
}

impl Traffic {
    fn new(op: SocketOp, path: &str) -> Traffic {
        let mut traffic = Traffic::default();
        traffic.socket(1, op, path);
        traffic
    }

    fn grpc() -> Traffic {
        let mut traffic = Traffic::new(SocketOp::Accept, CRI);
        traffic.read(&[PREFACE, &frame(4, 0, 0, &[])].concat());
        traffic.write(&frame(4, 0, 0, &[0, 5, 0, 0, 0x40, 0]));
        traffic
    }

    fn now(&self) -> MonotonicNs {
        MonotonicNs(self.records.len() as u64)
    }

    fn socket(&mut self, conn: u64, op: SocketOp, path: &str) {
        self.records.push(record(self.now(), Event::Socket(socket(conn, op, path))));
    }

    fn push(&mut self, conn: u64, direction: Direction, data: &[u8]) {
        let offset = self.offsets.entry((conn, direction == Direction::In)).or_default();
        let bytes = chunk(conn, direction, *offset, data.to_vec());
        *offset += data.len() as u64;
        self.records.push(record(self.now(), Event::Bytes(bytes)));
    }

    fn read(&mut self, data: &[u8]) {
        self.push(1, Direction::In, data);
    }

    fn write(&mut self, data: &[u8]) {
        self.push(1, Direction::Out, data);
    }

    /// Bytes that were moved and not captured.
    fn lose(&mut self, direction: Direction, bytes: u64) {
        *self.offsets.entry((1, direction == Direction::In)).or_default() += bytes;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Literals without indexing.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    literals(0x00, fields)
}

/// Literals with incremental indexing.
fn indexed(fields: &[(&str, &str)]) -> Vec<u8> {
    literals(0x40, fields)
}

fn literals(first: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![];
    for (name, value) in fields {
        out.push(first);
        for text in [name, value] {
            match u8::try_from(text.len()).unwrap() {
                short @ ..127 => out.push(short),
                long => out.extend([127, long - 127]),
            }
            out.extend(text.bytes());
        }
    }
    out
}

fn headers(stream: u32, path: &str) -> Vec<u8> {
    frame(1, 4, stream, &block(&[(":path", path), ("grpc-timeout", "2S")]))
}

fn message(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], &length[..], payload].concat()
}

fn trailers(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(1, 5, stream, &block(fields))
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], content].concat()
}

fn show(events: &[CallEvent]) -> String {
    let mut out = String::new();
    for event in events {
        let line = match event {
            CallEvent::Start(s) => format!(
                "{} {}/{} start {}/{} {:?} timeout {:?} client {:?}",
                s.at.0, s.key.conn, s.key.stream, s.service, s.method, s.source, s.timeout_ns, s.client
            ),
            CallEvent::Request { key, at, fields } => format!("{} {} request {:?}", at.0, key.stream, fields.0),
            CallEvent::Response { key, at, fields } => format!("{} {} response {:?}", at.0, key.stream, fields.0),
            CallEvent::End { key, at, ending } => format!("{} {} end {ending:?}", at.0, key.stream),
            CallEvent::Named(named) => format!("named {named:?}"),
            CallEvent::Unnamed(unnamed) => format!("unnamed {unnamed:?}"),
            CallEvent::Unasked { key, at, ending } => format!("{} {} unasked {ending:?}", at.0, key.stream),
            CallEvent::Undecoded { conn, at, bytes } => format!("{} {conn} undecoded {bytes}", at.0),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Decodes, also from what a recording holds, and split in any way; shows the events.
fn check(traffic: &Traffic, expected: Expect) -> Counters {
    let (events, counters) = decode(&traffic.records);
    expected.assert_eq(&show(&events));
    same_redacted(&traffic.records);
    counters
}

fn same_redacted(records: &[Record]) {
    let (events, _) = decode(records);
    let (again, _) = decode(&redact(records));
    assert_eq!(show(&events), show(&again), "the redacted records decode to the same");
}

fn kept(records: &[Record]) -> Vec<u8> {
    let data = |record: Record| match record.event {
        Event::Bytes(bytes) => bytes.data,
        _ => vec![],
    };
    redact(records).into_iter().flat_map(data).collect()
}

fn holds(records: &[Record], text: &str) -> bool {
    kept(records).windows(text.len()).any(|w| w == text.as_bytes())
}

#[test]
fn a_call_with_every_kind_of_frame_around_it() {
    let mut t = Traffic::grpc();
    let fields = block(&[(":path", START), ("user-agent", "grpc-go/1"), ("authorization", "S3CR3T")]);
    // Padding and priority, and a block in three frames.
    let first = [&[3][..], &[0, 0, 0, 0, 15], &fields[..9], &[0; 3]].concat();
    t.read(&frame(1, 0x28, 1, &first)[..4]);
    t.read(&frame(1, 0x28, 1, &first)[4..]);
    t.read(&frame(9, 0, 1, &fields[9..20]));
    t.read(&frame(9, 4, 1, &fields[20..]));
    t.read(&frame(8, 0, 0, &[0, 0, 1, 0]));
    t.read(&frame(6, 0, 0, b"pingping"));
    t.read(&frame(0x55, 0xff, 7, b"S3CR3T of a type that nobody knows"));
    let body = message(&[field(1, b"abc"), field(9, b"S3CR3T")].concat());
    t.read(&frame(0, 8, 1, &[&[6], &body[..7], b"S3CR3T"].concat()));
    t.read(&frame(0, 1, 1, &body[7..]));
    t.write(&frame(6, 1, 0, b"pingping"));
    t.write(&frame(2, 0, 1, &[0; 5]));
    t.write(&trailers(
        1,
        &[(":status", "200"), ("grpc-status", "2"), ("grpc-message", "pull https://u:S3CR3T@h/x?sig=S3CR3T:%20no")],
    ));
    t.write(&frame(7, 0, 0, b"\0\0\0\x01\0\0\0\0S3CR3T"));
    let counters = check(
        &t,
        expect![[r#"
        3 1/1 start runtime.v1.RuntimeService/StartContainer Literal timeout None client Some(Tgid(200))
        11 1 request [(ContainerId, Text("abc"))]
        14 1 end Status { code: 2, message: "pull https://h/x no" }
    "#]],
    );
    assert_eq!((counters.calls, counters.skipped_bytes, counters.header_blocks_lost), (1, 0, 0));
}

#[test]
fn how_calls_end() {
    let mut t = Traffic::grpc();
    for stream in [1, 3, 5, 7, 9, 11] {
        t.read(&headers(stream, RUN));
    }
    t.read(&frame(3, 0, 1, &[0, 0, 0, 8]));
    t.write(&frame(3, 0, 3, &[0, 0, 0, 0]));
    t.write(&frame(1, 4, 5, &block(&[(":status", "200")])));
    t.write(&frame(0, 0, 5, &message(&field(1, b"sandbox"))));
    t.write(&trailers(5, &[("grpc-status", "0"), ("grpc-message", "")]));
    t.write(&frame(0, 1, 7, &[]));
    t.write(&frame(7, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]));
    t.write(&trailers(5, &[("grpc-status", "13")]));
    t.socket(1, SocketOp::Close, CRI);
    check(
        &t,
        expect![[r#"
        3 1/1 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        4 1/3 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        5 1/5 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        6 1/7 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        7 1/9 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        8 1/11 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        9 1 end ResetByClient(8)
        10 3 end ResetByServer(0)
        12 5 response [(SandboxId, Text("sandbox"))]
        13 5 end Status { code: 0, message: "" }
        14 7 end NoStatus
        15 11 end ResetByServer(7)
        17 9 end ConnectionClosed
    "#]],
    );
}

#[test]
fn a_compressed_message_is_skipped_and_kept_nowhere() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, START));
    let compressed = [&[1, 0, 0, 0, 8][..], &field(1, b"S3CR3T")].concat();
    t.read(&frame(0, 0, 1, &[compressed, message(&field(1, b"abc"))].concat()));
    let counters = check(
        &t,
        expect![[r#"
        3 1/1 start runtime.v1.RuntimeService/StartContainer Literal timeout Some(2000000000) client Some(Tgid(200))
        4 1 request [(Compressed, Number(1))]
        4 1 request [(ContainerId, Text("abc"))]
    "#]],
    );
    assert_eq!(counters.compressed_messages, 1);
    assert!(!holds(&t.records, "S3CR3T") && holds(&t.records, "abc"));
}

/// The largest message that kubelet takes, in frames of the default size and records of 32 KiB, as containerd writes it.
#[test]
fn a_message_of_16_mib() {
    const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";
    let mut t = Traffic::grpc();
    t.read(&headers(1, LIST));
    // Items with an id and a long annotation each.
    let entry = |n: usize| {
        let annotation = [&[10, 1, b'k', 18, 0xf8, 0x07][..], &[b'S'; 1016]].concat();
        let item = [field(1, format!("{n:064x}").as_bytes()), [&[66, 0xfe, 0x07][..], &annotation].concat()].concat();
        [&[10, (item.len() & 0x7f) as u8 | 0x80, (item.len() >> 7) as u8][..], &item].concat()
    };
    let body = (0..15_000).flat_map(entry).collect::<Vec<u8>>();
    assert!((16_000_000..16 << 20).contains(&body.len()));
    t.write(&frame(1, 4, 1, &block(&[(":status", "200")])));
    let frames: Vec<u8> = message(&body).chunks(16_384).flat_map(|part| frame(0, 0, 1, part)).collect();
    frames.chunks(32_768).for_each(|record| t.write(record));
    t.write(&trailers(1, &[("grpc-status", "0")]));
    let (events, counters) = decode(&t.records);
    let response = events.iter().find_map(|event| match event {
        CallEvent::Response { fields, .. } => Some(fields),
        _ => None,
    });
    let fields = response.unwrap();
    assert_eq!(fields.number(Field::Length), Some(body.len() as u64));
    assert_eq!((fields.0.len(), counters.malformed_messages, counters.fields_dropped), (1 + 15_000, 0, 0));
    assert!(matches!(events.last(), Some(CallEvent::End { ending: Ending::Status { code: 0, .. }, .. })));
    assert!(!holds(&t.records, "SSS"));
}

/// Muted is a connection that moves much and nothing of the CRI; one that has begun with another API is still read.
#[test]
fn what_is_muted() {
    const CONTENT: &str = "/containerd.services.content.v1.Content/Write";
    let muted = |paths: &[&str], bytes: usize| {
        let mut t = Traffic::grpc();
        for (n, path) in paths.iter().enumerate() {
            t.read(&headers(2 * u32::try_from(n).unwrap() + 1, path));
        }
        for _ in 0..bytes / 16_384 {
            t.read(&frame(0, 0, 1, &[0; 16_384]));
        }
        decoded(&t.records).0.take_muted()
    };
    assert_eq!(muted(&[CONTENT], 1 << 20), [ConnId(1)]);
    assert_eq!(muted(&[CONTENT], 1 << 16), [], "little");
    assert_eq!(muted(&[CONTENT, START], 1 << 20), []);
    assert_eq!(
        muted(&["runtime.v1.RuntimeService/StartContainer"], 1 << 20),
        [],
        "a path without its slash is the CRI's"
    );
}

/// A stream of events that fails after some: none of them is taken for the end.
#[test]
fn a_server_stream() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, "/runtime.v1.RuntimeService/GetContainerEvents"));
    t.read(&frame(0, 1, 1, &message(&[])));
    t.write(&frame(1, 4, 1, &block(&[(":status", "200")])));
    for id in [&b"one"[..], b"two"] {
        t.write(&frame(0, 0, 1, &message(&field(1, id))));
    }
    t.write(&trailers(1, &[("grpc-status", "14"), ("grpc-message", "gone")]));
    check(
        &t,
        expect![[r#"
        3 1/1 start runtime.v1.RuntimeService/GetContainerEvents Literal timeout Some(2000000000) client Some(Tgid(200))
        4 1 request []
        6 1 response [(ContainerId, Text("one"))]
        7 1 response [(ContainerId, Text("two"))]
        8 1 end Status { code: 14, message: "gone" }
    "#]],
    );
}

#[test]
fn a_gap_within_a_message_costs_that_messages_fields_alone() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, START));
    let body = [message(&[field(1, b"abc"), field(9, &[7; 100])].concat()), message(&field(1, b"def"))].concat();
    let data = frame(0, 1, 1, &body);
    t.read(&data[..30]);
    t.lose(Direction::In, 50);
    t.read(&data[80..]);
    t.read(&headers(3, RUN));
    check(
        &t,
        expect![[r#"
        3 1/1 start runtime.v1.RuntimeService/StartContainer Literal timeout Some(2000000000) client Some(Tgid(200))
        5 1 request [(ContainerId, Text("abc"))]
        5 1 request [(ContainerId, Text("def"))]
        5 1 undecoded 50
        6 1/3 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
    "#]],
    );
}

#[test]
fn a_lost_header_block_makes_the_table_opaque() {
    let mut t = Traffic::grpc();
    t.read(&frame(1, 4, 1, &indexed(&[(":path", RUN)])));
    t.read(&frame(1, 4, 3, &[0xbe]));
    let lost = frame(1, 4, 5, &indexed(&[(":path", START)]));
    t.read(&lost[..20]);
    t.lose(Direction::In, lost.len() as u64 - 20);
    t.read(&frame(1, 4, 7, &[0xbe]));
    t.read(&frame(1, 4, 9, &indexed(&[(":path", START)])));
    t.read(&frame(1, 4, 11, &[0xbe]));
    t.read(&frame(1, 4, 13, &[0xbf]));
    // A stream id that jumps, and one that comes again: a loss that nobody announced.
    t.read(&frame(1, 4, 17, &[0xbe]));
    t.read(&frame(1, 4, 19, &indexed(&[(":path", RUN)])));
    t.read(&frame(1, 4, 3, &[0xbe]));
    let (events, counters) = decode(&t.records);
    let names: Vec<(String, MethodSource)> = calls(&events).into_iter().map(|(c, source)| (c.path, source)).collect();
    let (literal, table, opaque) = (MethodSource::Literal, MethodSource::Table, MethodSource::Opaque);
    let expected = [
        (RUN, literal),
        (RUN, table),
        ("", opaque),
        ("", opaque),
        (START, literal),
        (START, table),
        ("", opaque),
        ("", opaque),
        (RUN, literal),
    ];
    assert_eq!(names, expected.map(|(path, source)| (path.to_owned(), source)));
    assert_eq!(counters.header_blocks_lost, 1);
    same_redacted(&t.records);
}

#[test]
fn a_descriptor_that_is_reused_is_another_connection() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, START)[..20]);
    // The close was not seen: the same descriptor comes back from accept.
    let mut again = socket(2, SocketOp::Accept, CRI);
    again.fd = 1;
    t.records.push(record(t.now(), Event::Socket(again)));
    let mut bytes = chunk(2, Direction::In, 0, [PREFACE, &frame(4, 0, 0, &[]), &headers(1, RUN)].concat());
    bytes.fd = 1;
    t.records.push(record(t.now(), Event::Bytes(bytes)));
    // A copy keeps a connection open when the first descriptor is closed.
    let mut copy = socket(2, SocketOp::Dup, "");
    (copy.fd, copy.other_fd) = (7, Some(1));
    t.records.push(record(t.now(), Event::Socket(copy)));
    for fd in [1, 7] {
        let mut close = socket(2, SocketOp::Close, "");
        close.fd = fd;
        t.records.push(record(t.now(), Event::Socket(close)));
    }
    check(
        &t,
        expect![[r#"
        5 2/1 start runtime.v1.RuntimeService/RunPodSandbox Literal timeout Some(2000000000) client Some(Tgid(200))
        8 1 end ConnectionClosed
    "#]],
    );
}

#[test]
fn a_runtime_that_ends_ends_its_calls() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, START));
    let (mut decoder, mut out) = decoded(&t.records);
    decoder.runtime_exited(Tgid(101), MonotonicNs(8), &mut out);
    assert_eq!(out.len(), 1);
    decoder.runtime_exited(RUNTIME, MonotonicNs(9), &mut out);
    decoder.runtime_exited(RUNTIME, MonotonicNs(10), &mut out);
    assert!(matches!(&out[1..], [CallEvent::End { at: MonotonicNs(9), ending: Ending::RuntimeRestarted, .. }]));
}

#[test]
fn the_next_runtime_ends_the_calls_of_one_whose_end_was_not_seen() {
    let mut t = Traffic::grpc();
    t.read(&headers(1, START));
    let (mut decoder, mut out) = decoded(&t.records);
    decoder.runtime_found(RUNTIME, MonotonicNs(8), &mut out);
    assert_eq!(out.len(), 1);
    decoder.runtime_found(Tgid(101), MonotonicNs(9), &mut out);
    assert!(matches!(&out[1..], [CallEvent::End { at: MonotonicNs(9), ending: Ending::RuntimeRestarted, .. }]));
}

#[test]
fn tables_are_bounded_and_what_is_evicted_is_counted() {
    let limits = Limits { connections: 3, calls: 2, ..Limits::default() };
    let (mut decoder, mut out) = (Decoder::new(limits), vec![]);
    for conn in 1..=10 {
        decoder.socket(MonotonicNs(conn), RUNTIME, &socket(conn, SocketOp::Accept, CRI), &mut out);
        let calls = [headers(1, RUN), headers(3, RUN), headers(5, RUN)].concat();
        let bytes = chunk(conn, Direction::In, 0, [PREFACE, &calls].concat());
        decoder.bytes(MonotonicNs(conn), RUNTIME, &bytes, &mut out);
    }
    let counters = decoder.counters();
    assert_eq!((counters.connections_evicted, counters.calls_evicted), (7, 10));
    let ends = out.iter().filter(|e| matches!(e, CallEvent::End { ending: Ending::NoStatus, .. })).count();
    assert_eq!(ends, 10 + 7 * 2, "each evicted call ends");
}

/// Where the stdout of a unit of systemd goes.
const JOURNAL: &str = "/run/systemd/journal/stdout";

#[test]
fn what_is_neither_grpc_nor_ttrpc_is_not_kept() {
    for (op, path, direction, data) in [
        (SocketOp::Accept, CRI, Direction::In, &b"GET /S3CR3T HTTP/1.1\r\n\r\n"[..]),
        (SocketOp::Accept, EVENTS, Direction::In, b"PRI * S3CR3T"),
        (SocketOp::Connect, "/run/dbus/system_bus_socket", Direction::Out, b"\0AUTH EXTERNAL S3CR3T"),
        (SocketOp::Connect, "/run/proxy.sock", Direction::Out, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nS3CR3T"),
        (SocketOp::Found, "/run/any.sock", Direction::In, b"S3CR3T of a stranger, long enough for a header"),
        (SocketOp::Found, JOURNAL, Direction::Out, b"time=\"S3CR3T\" level=info"),
    ] {
        let mut t = Traffic::new(op, path);
        t.push(1, direction, data);
        t.push(1, direction, data);
        let kept = kept(&t.records);
        assert!(kept.iter().all(|b| *b == 0), "{path}: {kept:x?}");
        let (events, counters) = decode(&t.records);
        assert!(calls(&events).is_empty());
        let bytes = 2 * data.len() as u64;
        let expected = match (op, path) {
            // A unit's log is known not to be calls; of what else was open before, nothing is known.
            (SocketOp::Found, JOURNAL) => (0, bytes),
            (SocketOp::Found, _) => (0, 0),
            _ => (1, bytes),
        };
        let undecoded = events.iter().any(|event| matches!(event, CallEvent::Undecoded { .. }));
        assert_eq!(undecoded, expected == (0, 0), "{path}");
        assert_eq!((counters.unknown_connections, counters.unknown_bytes), expected, "{path}");
    }
}

fn ttrpc(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &stream.to_be_bytes(), &[kind, flags], payload].concat()
}

fn task(method: &str, request: &[u8]) -> Vec<u8> {
    let names = [field(1, b"containerd.task.v2.Task"), field(2, method.as_bytes())].concat();
    [names, field(3, request), vec![0x20, 0x80, 0x94, 0xeb, 0xdc, 0x03], field(5, &field(1, b"S3CR3T"))].concat()
}

fn shim() -> Traffic {
    let mut t = Traffic::new(SocketOp::Connect, "/run/containerd/s/0123");
    let create = ttrpc(1, 1, 0, &task("Create", &[field(1, b"task"), field(10, b"S3CR3T")].concat()));
    t.write(&create[..10]);
    t.write(&create[10..]);
    t.read(&ttrpc(1, 2, 0, &field(2, &[8, 42])));
    t.write(&ttrpc(3, 1, 0, &task("Exec", &[field(1, b"task"), field(2, b"exec"), field(7, b"S3CR3T")].concat())));
    t.read(&ttrpc(3, 2, 0, &field(1, &[vec![8, 5], field(2, b"no task")].concat())));
    t.write(&ttrpc(5, 1, 0, &task("Wait", &field(1, b"task"))));
    t
}

#[test]
fn ttrpc_to_a_shim() {
    let mut t = shim();
    t.socket(1, SocketOp::Close, "");
    check(
        &t,
        expect![[r#"
        1 1/1 start containerd.task.v2.Task/Create Literal timeout Some(1000000000) client Some(Tgid(100))
        2 1 request [(TaskId, Text("task"))]
        3 1 response [(Pid, Number(42))]
        3 1 end Status { code: 0, message: "" }
        4 1/3 start containerd.task.v2.Task/Exec Literal timeout Some(1000000000) client Some(Tgid(100))
        4 3 request [(TaskId, Text("task")), (ExecId, Text("exec"))]
        5 3 end Status { code: 5, message: "no task" }
        6 1/5 start containerd.task.v2.Task/Wait Literal timeout Some(1000000000) client Some(Tgid(100))
        6 5 request [(TaskId, Text("task"))]
        7 5 end ConnectionClosed
    "#]],
    );
    assert!(!holds(&t.records, "S3CR3T") && holds(&t.records, "task"));
}

#[test]
fn ttrpc_from_a_shim() {
    let mut t = Traffic::new(SocketOp::Accept, EVENTS);
    let start = field(
        4,
        &[field(1, b"containerd.events.TaskStart"), field(2, &[field(1, b"task"), vec![16, 42]].concat())].concat(),
    );
    let envelope = field(1, &[field(3, b"/tasks/start"), start].concat());
    let names = [field(1, b"containerd.services.events.ttrpc.v1.Events"), field(2, b"Forward")].concat();
    t.read(&ttrpc(1, 1, 0, &[names, field(3, &envelope)].concat()));
    t.write(&ttrpc(1, 2, 0, &[]));
    check(
        &t,
        expect![[r#"
        1 1/1 start containerd.services.events.ttrpc.v1.Events/Forward Literal timeout None client Some(Tgid(200))
        1 1 request [(Topic, Text("/tasks/start")), (TaskId, Text("task")), (Pid, Number(42))]
        2 1 response []
        2 1 end Status { code: 0, message: "" }
    "#]],
    );
}

#[test]
fn a_stream_of_ttrpc_data() {
    let mut t = Traffic::new(SocketOp::Connect, "/run/containerd/s/0123");
    let names = [field(1, b"containerd.task.v3.Task"), field(2, b"Events")].concat();
    t.write(&ttrpc(1, 1, 1, &names));
    t.read(&ttrpc(1, 3, 0, &field(3, b"/tasks/oom")));
    t.read(&ttrpc(1, 3, 5, &[]));
    check(
        &t,
        expect![[r#"
        1 1/1 start containerd.task.v3.Task/Events Literal timeout None client Some(Tgid(100))
        1 1 request []
        2 1 response [(Topic, Text("/tasks/oom"))]
        3 1 end Status { code: 0, message: "" }
    "#]],
    );
}

/// Whole, split at every size, cut anywhere, with any byte lost: no name and no value that the whole does not have.
#[test]
fn ttrpc_in_pieces_and_with_losses() {
    let whole = shim().records;
    let (events, _) = decode(&whole);
    let expected = calls(&events);
    for size in 1..40 {
        let pieces = split(&whole, || size);
        assert_eq!(calls(&decode(&pieces).0), expected, "pieces of {size}");
        same_redacted(&pieces);
        for lost in 0..pieces.len() {
            let mut lossy = pieces.clone();
            lossy.remove(lost);
            let (found, _) = decode(&lossy);
            for (call, _) in calls(&found) {
                let known =
                    expected.iter().any(|(e, _)| e.key == call.key && (call.path.is_empty() || e.path == call.path));
                assert!(known, "pieces of {size}, {lost} lost: {call:?}");
            }
            same_redacted(&lossy);
        }
    }
    for from in 1..whole.len() {
        let (found, _) = decode(&whole[from..]);
        assert!(calls(&found).iter().all(|(call, _)| expected.iter().any(|(e, _)| e == call)));
    }
}

#[test]
fn a_connection_that_is_found_is_read_from_the_next_boundary() {
    for path in ["/run/containerd/containerd.sock", ""] {
        let mut t = Traffic::new(SocketOp::Found, path);
        t.read(&[&[7; 40][..], &headers(9, RUN), &frame(0, 1, 9, &message(&[]))].concat());
        t.read(&frame(1, 4, 11, &[0xbe]));
        let (events, counters) = decode(&t.records);
        let sources: Vec<MethodSource> = calls(&events).into_iter().map(|(_, source)| source).collect();
        assert_eq!(sources, [MethodSource::Literal, MethodSource::Opaque]);
        assert_eq!(counters.skipped_bytes, 40);
        same_redacted(&t.records);
    }
    let mut t = Traffic::new(SocketOp::Found, "");
    t.write(&[&[7; 40][..], &ttrpc(1, 1, 0, &task("Wait", &field(1, b"task")))].concat());
    assert_eq!(calls(&decode(&t.records).0)[0].0.path, "/containerd.task.v2.Task/Wait");
    same_redacted(&t.records);
}

/// Header blocks of Python's grpcio (gRPC's C core, 1.85), which begin with path and authority: from the second method
/// on the connection's order is known.
#[test]
fn a_client_that_is_not_gos() {
    let mut traffic = Traffic::new(SocketOp::Found, CRI);
    // te, content-type, user-agent, grpc-accept-encoding, grpc-timeout.
    let rest = [0xc4, 0xc3, 0xc2, 0xbe, 0xc0];
    let call = |number: u32, path: u8| {
        let headers = frame(1, 4, 2 * number + 101, &[&[path, 0xc5, 0x83, 0x86][..], &rest].concat());
        [headers, frame(0, 1, 2 * number + 101, &message(b""))].concat()
    };
    let (version, status) = (0xc6, 0xc1);
    for (number, path) in [version, version, status, version].into_iter().enumerate() {
        traffic.read(&call(number as u32, path));
    }
    let starts = decode(&traffic.records).0.into_iter().filter_map(|event| match event {
        CallEvent::Start(start) => Some((start.slot.map(|slot| slot.entry), start.signs.placeless)),
        _ => None,
    });
    // Index 62 (0xbe) is the newest entry of the table.
    let [version, status] = [version, status].map(|path| (Some(u32::from(path - 0xbe)), false));
    assert_eq!(starts.collect::<Vec<_>>(), [(None, true), (None, true), status, version]);
}

#[test]
fn values_never_show_in_debug_lines() {
    let t = shim();
    let (mut decoder, mut out) = (Decoder::default(), vec![]);
    for record in &t.records {
        decoder.record(record, &mut out);
        assert!(!format!("{decoder:?} {record:?} {out:?}").contains("S3CR3T"));
    }
    let text = |event: &CallEvent| match event {
        CallEvent::Request { fields, .. } => fields.0.iter().any(|(_, v)| *v == Value::Text("task".into())),
        _ => false,
    };
    assert!(out.iter().any(text));
}

/// Bytes of traffic: frames, messages, headers, whole and spoilt, and noise.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |n| proptest::collection::vec(any::<u8>(), 0..n);
    let stream = prop_oneof![Just(0_u32), (0_u32..6).prop_map(|n| 2 * n + 1), any::<u32>()];
    let any_frame = (0_u8..12, prop_oneof![Just(0_u8), Just(4), Just(5), any::<u8>()], stream, bytes(40))
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload));
    let request =
        (0_u32..8).prop_map(|n| [headers(2 * n + 1, RUN), frame(0, 1, 2 * n + 1, &message(&field(1, b"x")))].concat());
    let any_ttrpc =
        (0_u32..8, 0_u8..5, 0_u8..9, bytes(40)).prop_map(|(s, kind, flags, payload)| ttrpc(s, kind, flags, &payload));
    let named = (0_u32..8).prop_map(|n| ttrpc(2 * n + 1, 1, 0, &task("Create", &field(1, b"x"))));
    let preface = Just(PREFACE.to_vec());
    let zeros = (0_usize..40).prop_map(|n| vec![0; n]);
    prop_oneof![3 => any_frame, 3 => request, 2 => any_ttrpc, 2 => named, 1 => preface, 1 => bytes(60), 1 => zeros]
}

fn any_records() -> impl Strategy<Value = Vec<Record>> {
    let ops = prop_oneof![
        Just((SocketOp::Accept, CRI)),
        Just((SocketOp::Accept, EVENTS)),
        Just((SocketOp::Connect, "/run/containerd/s/0")),
        Just((SocketOp::Found, "")),
        Just((SocketOp::Found, EVENTS)),
        Just((SocketOp::Close, "")),
        Just((SocketOp::Dup, "")),
        Just((SocketOp::Listen, CRI)),
    ];
    let socket = (0_u64..3, ops, -1_i32..3).prop_map(|(conn, (op, path), fd)| {
        let mut socket = socket(conn, op, path);
        (socket.fd, socket.ret) = (fd, fd);
        (conn, false, 0, 0, vec![], Some(socket))
    });
    let jump = prop_oneof![20 => Just(0_i64), 1 => -50_i64..50];
    let short = prop_oneof![20 => Just(0_u32), 1 => 1_u32..50];
    let data = proptest::collection::vec(noise(), 1..5).prop_map(|parts| parts.concat());
    let bytes = (0_u64..3, any::<bool>(), jump, short, data)
        .prop_map(|(conn, read, jump, short, data)| (conn, read, jump, short, data, None));
    proptest::collection::vec(prop_oneof![1 => socket, 8 => bytes], 1..40).prop_map(|inputs| {
        let mut offsets = std::collections::BTreeMap::<(u64, bool), u64>::new();
        let mut records = vec![];
        for (at, (conn, read, jump, short, data, socket)) in inputs.into_iter().enumerate() {
            let event = match socket {
                Some(socket) => Event::Socket(socket),
                None => {
                    let offset = offsets.entry((conn, read)).or_default();
                    *offset = offset.saturating_add_signed(jump);
                    let direction = if read { Direction::In } else { Direction::Out };
                    let mut bytes = chunk(conn, direction, *offset, data);
                    bytes.len += short;
                    *offset += u64::from(bytes.len);
                    Event::Bytes(bytes)
                }
            };
            records.push(record(MonotonicNs(at as u64), event));
        }
        records
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes: no panic, each call's events in order, and the same from what a recording holds.
    #[test]
    fn any_traffic(records in any_records()) {
        let (events, _) = decode(&records);
        let mut open = std::collections::BTreeSet::new();
        for event in &events {
            match event {
                CallEvent::Start(start) => prop_assert!(open.insert(start.key), "started twice: {:?}", start.key),
                CallEvent::Request { key, .. } | CallEvent::Response { key, .. } => prop_assert!(open.contains(key)),
                CallEvent::End { key, .. } => prop_assert!(open.remove(key), "ended twice: {key:?}"),
                CallEvent::Named(_)
                | CallEvent::Unnamed(_)
                | CallEvent::Unasked { .. }
                | CallEvent::Undecoded { .. } => {}
            }
        }
        let redacted = redact(&records);
        prop_assert_eq!(show(&events), show(&decode(&redacted).0));
        let twice = redact(&redacted);
        for (once, twice) in redacted.iter().zip(&twice) {
            if let (Event::Bytes(once), Event::Bytes(twice)) = (&once.event, &twice.event) {
                prop_assert!(once.data == twice.data, "redacting twice is redacting once");
            }
        }
    }

    #[test]
    fn any_offsets(offset in any::<u64>(), len in any::<u32>(), data in noise(), conn in 0_u64..2) {
        let mut decoder = Decoder::default();
        let mut out = vec![];
        for direction in [Direction::In, Direction::Out] {
            let mut bytes = chunk(conn, direction, offset, data.clone());
            bytes.len = len;
            decoder.bytes(MonotonicNs(0), RUNTIME, &bytes, &mut out);
            bytes.offset = offset.wrapping_add(u64::from(len));
            decoder.bytes(MonotonicNs(1), RUNTIME, &bytes, &mut out);
        }
        prop_assert!(out.iter().all(|event| !matches!(event, CallEvent::Start(s) if s.key.conn != ConnId(conn))));
    }
}

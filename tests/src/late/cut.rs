//! Attaching late to traffic: from some chunk on, perhaps from a byte within it, perhaps with chunks that nobody saw.

use std::collections::BTreeMap;

use podlapse::cri::CallEvent;
use podlapse::ids::{ConnId, MonotonicNs, Tgid, Tid};
use podlapse::record::{Bytes, Direction, Event, Process, Record, Role, Socket, SocketOp};
use podlapse::wire::{Decoder, Limits};

use super::capture::{Traffic, What, time};
use super::random::Random;

const RUNTIME: Tgid = Tgid(100);
const CLIENT: Tgid = Tgid(200);
const SOCKET: &str = "/run/containerd/containerd.sock";

/// Chunks that are lost, or come twice, and nobody says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Lost.
    Dropped,
    /// Twice.
    Doubled,
}

/// Where and how.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The first chunk that is seen.
    pub chunk: usize,
    /// Bytes of each direction's first chunk that are not.
    pub inside: Option<u64>,
    /// What happens to one chunk in a hundred, with a seed.
    pub damage: Option<(Damage, u64)>,
    /// The client is known to be kubelet.
    pub kubelet: bool,
}

/// Feeds what is seen to a decoder; `each` gets the events with the number of the chunk.
pub fn replay(traffic: &Traffic, cut: &Cut, each: &mut dyn FnMut(usize, &CallEvent)) {
    let mut decoder = Decoder::new(Limits::default());
    let mut out = Vec::new();
    for (n, record) in records(traffic, cut) {
        decoder.record(&record, &mut out);
        for event in out.drain(..) {
            each(n, &event);
        }
    }
}

/// The records of an attach, each with the number of its chunk.
pub fn records(traffic: &Traffic, cut: &Cut) -> Vec<(usize, Record)> {
    let mut out = Vec::new();
    let mut open: BTreeMap<u64, bool> = BTreeMap::new();
    let mut offsets: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    let mut random = Random(cut.inside.unwrap_or_default() ^ cut.damage.map_or(0, |(_, seed)| seed));
    let record = |at, tgid, event| Record { at, tgid, tid: Tid(tgid.0), event };
    if cut.kubelet {
        let at = traffic.chunks.first().map_or(MonotonicNs(0), time);
        out.push((0, record(at, CLIENT, kubelet())));
    }
    for (n, chunk) in traffic.chunks.iter().enumerate() {
        let at = time(chunk);
        let seen = n >= cut.chunk;
        let told = open.get(&chunk.conn).copied();
        match &chunk.what {
            What::Open => {
                open.insert(chunk.conn, seen);
                if seen {
                    out.push((n, record(at, RUNTIME, socket(chunk.conn, SocketOp::Accept))));
                }
            }
            What::Close => {
                open.remove(&chunk.conn);
                if told == Some(true) {
                    out.push((n, record(at, RUNTIME, socket(chunk.conn, SocketOp::Close))));
                }
            }
            What::Bytes(..) if !seen => {}
            What::Bytes(direction, data) => {
                if told == Some(false) {
                    open.insert(chunk.conn, true);
                    out.push((n, record(at, RUNTIME, socket(chunk.conn, SocketOp::Found))));
                }
                let place = (chunk.conn, *direction == Direction::In);
                let skipped = match (cut.inside, offsets.contains_key(&place)) {
                    (Some(_), false) if told == Some(false) || told == Some(true) => random.below(data.len()),
                    _ => 0,
                };
                let offset = offsets.entry(place).or_insert(1 << 20);
                let times = match cut.damage {
                    Some((Damage::Dropped, _)) if random.one_in(100) => 0,
                    Some((Damage::Doubled, _)) if random.one_in(100) => 2,
                    _ => 1,
                };
                for _ in 0..times {
                    let bytes = bytes(chunk.conn, *direction, *offset, &data[skipped..]);
                    *offset += u64::from(bytes.len);
                    out.push((n, record(at, RUNTIME, Event::Bytes(bytes))));
                }
            }
        }
    }
    out
}

fn socket(conn: u64, op: SocketOp) -> Event {
    let fd = i32::try_from(conn).unwrap_or_default();
    let peer = Some(CLIENT);
    Event::Socket(Socket { op, conn: ConnId(conn), fd, other_fd: None, ret: fd, peer, path: SOCKET.into() })
}

fn bytes(conn: u64, direction: Direction, offset: u64, data: &[u8]) -> Bytes {
    let fd = i32::try_from(conn).unwrap_or_default();
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Bytes { conn: ConnId(conn), offset, other_at: MonotonicNs(0), fd, direction, len, data: data.to_vec() }
}

fn kubelet() -> Event {
    Event::Process(Process {
        namespaces: podlapse::record::Namespaces::default(),
        parent: Tgid(1),
        role: Role::Other,
        exe: "/usr/bin/kubelet".into(),
        argv: vec!["kubelet".into()],
        cgroup: String::new(),
        helper: None,
    })
}

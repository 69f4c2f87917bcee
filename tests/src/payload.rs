//! What podlapse says of a socket's bytes against what was sent: this process is the runtime that it watches, and moves
//! known bytes by every call that can.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use ::podlapse::ids::ConnId;
use ::podlapse::probe::{Backend, Bootstrap, Choice, Options, Session};
use ::podlapse::record::{Direction, Event, Record, SocketOp};
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

/// Around the sizes of the ring's slots, and as long as a runtime's own reads get.
const SIZES: [usize; 12] = [1, 2, 191, 192, 193, 960, 961, 4_032, 4_033, 16_320, 16_321, 30_000];

/// A call that sends.
#[derive(Clone, Copy, Debug)]
enum Sending {
    Write,
    Writev,
    Sendto,
    Sendmsg,
}

/// A call that receives.
#[derive(Clone, Copy, Debug)]
enum Receiving {
    Read,
    Readv,
    Recvfrom,
    Recvmsg,
}

/// Tracepoints are at these calls alone.
const PLAIN: (&[Sending], &[Receiving]) = (&[Sending::Write, Sending::Writev], &[Receiving::Read]);
const ALL: (&[Sending], &[Receiving]) = (
    &[Sending::Write, Sending::Writev, Sending::Sendto, Sending::Sendmsg],
    &[Receiving::Read, Receiving::Readv, Receiving::Recvfrom, Receiving::Recvmsg],
);

/// One end of a connection, and all that went through it.
struct End {
    socket: OwnedFd,
    /// Descriptor by which it became known.
    fd: i32,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A connection, both of whose ends are this process's.
struct Pair {
    client: End,
    server: End,
}

/// Bytes of no pattern, so that no piece is taken for another.
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut word = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 as u8
        };
        (0..len).map(|_| word()).collect()
    }
}

impl End {
    fn new(stream: UnixStream) -> End {
        let socket = OwnedFd::from(stream);
        End { fd: socket.as_raw_fd(), socket, sent: Vec::new(), received: Vec::new() }
    }

    fn send(&mut self, how: Sending, data: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        // Three buffers, one of them empty.
        let (first, rest) = data.split_at(data.len() / 3);
        let vectors = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)];
        let mut control = SendAncillaryBuffer::default();
        let sent = match how {
            Sending::Write => rustix::io::write(&self.socket, data),
            Sending::Writev => rustix::io::writev(&self.socket, &vectors),
            Sending::Sendto => rustix::net::send(&self.socket, data, flags),
            Sending::Sendmsg => rustix::net::sendmsg(&self.socket, &vectors, &mut control, flags),
        }?;
        self.sent.extend(&data[..sent]);
        Ok(sent)
    }

    fn receive(&mut self, how: Receiving, len: usize, flags: RecvFlags) -> Result<usize, Errno> {
        let mut data = vec![0; len];
        let (first, rest) = data.split_at_mut(len / 2);
        let mut control = RecvAncillaryBuffer::default();
        let got = match how {
            Receiving::Read => rustix::io::read(&self.socket, &mut data),
            Receiving::Readv => rustix::io::readv(&self.socket, &mut [IoSliceMut::new(first), IoSliceMut::new(rest)]),
            Receiving::Recvfrom => rustix::net::recv(&self.socket, &mut data[..], flags).map(|(_, got)| got),
            Receiving::Recvmsg => {
                let mut vectors = [IoSliceMut::new(first), IoSliceMut::new(rest)];
                rustix::net::recvmsg(&self.socket, &mut vectors, &mut control, flags).map(|message| message.bytes)
            }
        }?;
        if !flags.contains(RecvFlags::PEEK) {
            self.received.extend(&data[..got]);
        }
        Ok(got)
    }
}

impl Pair {
    fn new(path: &Path, listener: &UnixListener) -> Result<Pair> {
        let client = UnixStream::connect(path)?;
        Ok(Pair { client: End::new(client), server: End::new(listener.accept()?.0) })
    }

    /// Every size by every call, in pieces, both ways.
    fn exchange(&mut self, (sends, receives): (&[Sending], &[Receiving]), noise: &mut Noise) -> Result<()> {
        let ways = sends.iter().flat_map(|send| receives.iter().map(move |receive| (*send, *receive)));
        for (number, (send, receive)) in ways.enumerate() {
            for (step, len) in SIZES.into_iter().enumerate() {
                let (from, to) = match (number + step) % 2 {
                    0 => (&mut self.client, &mut self.server),
                    _ => (&mut self.server, &mut self.client),
                };
                ensure!(from.send(send, &noise.bytes(len), SendFlags::NOSIGNAL)? == len, "a short {send:?}");
                let mut left = len;
                while left > 0 {
                    // Never all of a longer one at once.
                    let want = left.min(len / 3 + 1);
                    left -= to.receive(receive, want, RecvFlags::empty())?;
                }
            }
        }
        Ok(())
    }

    /// Looks that take nothing, calls that find nothing, and a buffer that is full.
    fn oddities(&mut self, noise: &mut Noise) -> Result<()> {
        let (client, server) = (&mut self.client, &mut self.server);
        for how in [Receiving::Recvfrom, Receiving::Recvmsg] {
            let empty = server.receive(how, 100, RecvFlags::DONTWAIT);
            ensure!(empty == Err(Errno::AGAIN), "{how:?} of nothing: {empty:?}");
            client.send(Sending::Sendto, &noise.bytes(500), SendFlags::NOSIGNAL)?;
            ensure!(server.receive(how, 400, RecvFlags::PEEK)? == 400, "a short look");
            ensure!(server.receive(how, 500, RecvFlags::empty())? == 500, "a short {how:?}");
        }
        let mut sent = 0;
        let full = loop {
            match client.send(Sending::Sendmsg, &noise.bytes(30_000), SendFlags::DONTWAIT) {
                Ok(more) => sent += more,
                Err(error) => break error,
            }
        };
        ensure!(full == Errno::AGAIN, "a full buffer: {full}");
        while sent > 0 {
            sent -= server.receive(Receiving::Recvmsg, 20_000, RecvFlags::DONTWAIT)?;
        }
        Ok(())
    }

    /// A copy of a descriptor is the same connection, the first one's end notwithstanding.
    fn copied(&mut self, noise: &mut Noise) -> Result<()> {
        self.server.socket = rustix::io::dup(&self.server.socket)?;
        self.client.send(Sending::Write, &noise.bytes(700), SendFlags::empty())?;
        self.server.receive(Receiving::Read, 700, RecvFlags::empty())?;
        Ok(())
    }
}

/// Attaches by this backend, moves bytes, and compares.
///
/// # Errors
/// What does not agree.
pub async fn check(backend: Backend) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("runtime.sock");
    // podlapse's own call gets no answer.
    let runtime = UnixListener::bind(&path)?;
    std::thread::spawn(move || runtime.incoming().for_each(drop));
    let (calls, listener) = match backend {
        Backend::Tracepoint => (PLAIN, dir.path().join("plain.sock")),
        Backend::Trampoline => (ALL, dir.path().join("all.sock")),
    };
    let server = UnixListener::bind(&listener)?;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut found = Pair::new(&listener, &server)?;

    let choice = Choice::Only(backend);
    let options = Options { socket: Some(path), bootstrap: Bootstrap::Off, backend: choice, ..Options::default() };
    let mut session = Session::attach(options, || ()).await?;
    found.exchange(calls, &mut noise)?;
    // The rings hold about two exchanges.
    let mut records = session.next().await?;
    let mut pairs = Vec::new();
    // Closed one after the other, so that numbers and addresses come again.
    for _ in 0..3 {
        let mut pair = Pair::new(&listener, &server)?;
        pair.exchange(calls, &mut noise)?;
        if backend == Backend::Trampoline {
            pair.oddities(&mut noise)?;
        }
        pair.copied(&mut noise)?;
        pairs.push(closed(pair));
        records.extend(session.next().await?);
    }
    let mut muted = Pair::new(&listener, &server)?;
    muted.exchange(calls, &mut noise)?;
    let heard = mute(&mut session, &muted, &listener, &mut records).await?;
    muted.exchange(calls, &mut noise)?;
    muted.copied(&mut noise)?;
    records.extend(session.finish().await);
    drop(session);

    ensure!(!records.iter().any(|record| matches!(record.event, Event::Lost { .. })), "records were lost");
    let seen = Seen::of(&records, &listener)?;
    let mut bytes = seen.agrees("found", &seen.found(found.client.fd)?, &found.client.sent, &found.client.received)?;
    bytes += seen.agrees("found", &seen.found(found.server.fd)?, &found.server.sent, &found.server.received)?;
    for (index, (client, server)) in pairs.iter().enumerate() {
        let (connected, accepted) = (seen.connected.get(index), seen.accepted.get(index));
        bytes += seen.agrees("client", connected.context("a connect was not seen")?, &client.0, &client.1)?;
        bytes += seen.agrees("server", accepted.context("an accept was not seen")?, &server.0, &server.1)?;
    }
    for (conn, truth) in heard {
        let (out, into) = seen.streams(&conn);
        ensure!((out, into) == (truth.0.as_slice(), truth.1.as_slice()), "a muted connection went on");
    }
    Ok(format!("{bytes} bytes agree"))
}

/// What went out of one end, and what came in.
type Streams = (Vec<u8>, Vec<u8>);

fn closed(pair: Pair) -> (Streams, Streams) {
    let streams = |end: End| (end.sent, end.received);
    (streams(pair.client), streams(pair.server))
}

/// Mutes both ends of the last pair once they are known; what was heard of each until then.
async fn mute(
    session: &mut Session,
    pair: &Pair,
    listener: &Path,
    records: &mut Vec<Record>,
) -> Result<Vec<(ConnId, Streams)>> {
    loop {
        let more = tokio::time::timeout(Duration::from_secs(60), session.next()).await;
        records.extend(more.context("the pair to be muted was not seen whole")??);
        let seen = Seen::of(records, listener)?;
        if let (Some(client), Some(server)) = (seen.connected.get(3), seen.accepted.get(3)) {
            let truth = |end: &End| (end.sent.clone(), end.received.clone());
            let whole = |conn: &ConnId, end: &End| seen.streams(conn) == (&end.sent[..], &end.received[..]);
            if whole(client, &pair.client) && whole(server, &pair.server) {
                [*client, *server].into_iter().for_each(|conn| session.mute(conn));
                return Ok(vec![(*client, truth(&pair.client)), (*server, truth(&pair.server))]);
            }
        }
    }
}

/// What the records say.
#[derive(Default)]
struct Seen {
    found: BTreeMap<i32, ConnId>,
    connected: Vec<ConnId>,
    accepted: Vec<ConnId>,
    streams: BTreeMap<ConnId, Streams>,
}

impl Seen {
    /// Each connection's bytes, without a gap.
    fn of(records: &[Record], listener: &Path) -> Result<Seen> {
        let mut seen = Seen::default();
        for record in records {
            match &record.event {
                Event::Socket(socket) if Path::new(&socket.path) == listener => match socket.op {
                    SocketOp::Found => drop(seen.found.insert(socket.fd, socket.conn)),
                    SocketOp::Connect => seen.connected.push(socket.conn),
                    SocketOp::Accept => seen.accepted.push(socket.conn),
                    _ => {}
                },
                Event::Bytes(bytes) => {
                    let streams = seen.streams.entry(bytes.conn).or_default();
                    let stream = if bytes.direction == Direction::Out { &mut streams.0 } else { &mut streams.1 };
                    ensure!(bytes.offset == stream.len() as u64, "{bytes:?} after {} bytes", stream.len());
                    ensure!(bytes.len as usize == bytes.data.len(), "{bytes:?} is not whole");
                    stream.extend(&bytes.data);
                }
                _ => {}
            }
        }
        Ok(seen)
    }

    fn found(&self, fd: i32) -> Result<ConnId> {
        self.found.get(&fd).copied().with_context(|| format!("descriptor {fd} was not found"))
    }

    fn streams(&self, conn: &ConnId) -> (&[u8], &[u8]) {
        self.streams.get(conn).map_or((&[], &[]), |(out, into)| (out, into))
    }

    fn agrees(&self, what: &str, conn: &ConnId, sent: &[u8], received: &[u8]) -> Result<usize> {
        let (out, into) = self.streams(conn);
        let at = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b);
        ensure!(out == sent, "{what}: sent {}, seen {}; differ at {:?}", sent.len(), out.len(), at(sent, out));
        let differ = at(received, into);
        ensure!(into == received, "{what}: received {}, seen {}; differ at {differ:?}", received.len(), into.len());
        Ok(sent.len() + received.len())
    }
}

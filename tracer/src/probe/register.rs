//! Tells the programs what to watch: the runtime, its descendants and shims, its sockets. Repeated when the runtime
//! comes back as another process.
//!
//! The programs know processes by the kernel's own pids. They are asked for (see `tracer-ebpf/src/finder.rs`) by a
//! pidfd, so this works from any pid namespace that sees the runtime.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::maps::MapError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::PidfdGetfdFlags;
use tracer_ebpf::role;
use tracer_ebpf::shared::{self, SUN_PATH, fd_key, fd_kind, map, tracked_flag};

use super::ProbeError;
use super::hooks::Backend;
use super::loader::{self, Loaded, Plain};
use super::proc::Proc;
use super::sockets::{self, Found, Kind, Listener};
use crate::ids::{ConnId, MonotonicNs, Tgid, Tid};
use crate::record::{Event, Helper, Process, Record, Role, Socket, SocketOp, socket_name};

/// Keeps an entry that the programs made meanwhile.
const NO_EXIST: u64 = 1;

/// A watched runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// Its pid.
    pub(crate) pid: u32,
    /// The kernel's own number for it.
    tgid: u32,
    /// Names it for good, whatever becomes of its number.
    pidfd: OwnedFd,
    /// What it calls its socket.
    pub(crate) name: PathBuf,
}

impl Runtime {
    /// Whether it has ended: its pidfd is readable then (pidfd_open(2)).
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Makes podlapse known to the programs: from then on pids can be translated.
///
/// # Errors
/// [`ProbeError`] when the kernel does not answer.
pub(crate) fn myself(loaded: &mut Loaded, proc: &Proc, at: MonotonicNs) -> Result<Record, ProbeError> {
    let pid = std::process::id();
    kernel_tgid(loaded, sockets::pidfd(pid)?.as_fd(), pid, role::SELF)?;
    manager(loaded)?;
    Ok(process(proc, at, pid, Role::Myself, false))
}

/// With the systemd driver PID 1 makes the cgroups of pods and containers and sets their limits.
fn manager(loaded: &mut Loaded) -> Result<(), ProbeError> {
    let tgid = kernel_tgid(loaded, sockets::pidfd(1)?.as_fd(), 1, role::OTHER)?;
    let mut manager = loader::array::<u32>(&mut loaded.ebpf, map::MANAGER)?;
    manager.set(0, tgid, 0).map_err(|source| ProbeError::Map { name: map::MANAGER, source })
}

/// Watches the process that listens on the socket. The records tell what there was already.
///
/// # Errors
/// [`ProbeError`] when it cannot be examined.
pub(crate) fn runtime(
    loaded: &mut Loaded,
    proc: &Proc,
    socket: &Path,
    at: MonotonicNs,
) -> Result<(Runtime, Vec<Record>), ProbeError> {
    let Listener { pid, name } = sockets::listener(socket)?;
    let pidfd = sockets::pidfd(pid)?;
    let tgid = kernel_tgid(loaded, pidfd.as_fd(), pid, role::RUNTIME)?;
    let mnt = proc.namespaces(pid).mnt;
    watch(loaded, &name, mnt)?;
    // From here on the programs follow its children, and see its sockets come and go.
    track(loaded, tgid, shared::Tracked { role: role::RUNTIME, flags: 0, pid, mnt })?;
    let mut watched = loader::array::<u32>(&mut loaded.ebpf, map::RUNTIME)?;
    watched.set(0, tgid, 0).map_err(|source| ProbeError::Map { name: map::RUNTIME, source })?;
    forget_others(loaded, tgid)?;
    let mut records = vec![process(proc, at, pid, Role::Runtime, false)];
    let mut followed = HashSet::from([pid]);
    // What one of them starts before it is followed is found by the next look.
    let mut again = true;
    while std::mem::take(&mut again) {
        for (pid, role) in others(proc, pid, mnt) {
            if !followed.insert(pid) {
                continue;
            }
            // One that has ended meanwhile is no loss.
            let Ok(pidfd) = sockets::pidfd(pid) else { continue };
            let Ok(tgid) = kernel_tgid(loaded, pidfd.as_fd(), pid, role::OTHER) else { continue };
            let container = proc.namespaces(pid).mnt != mnt;
            let entry = shared::Tracked {
                role: if role == Role::Shim { role::SHIM } else { role::OTHER },
                flags: if container { tracked_flag::CONTAINER } else { 0 },
                pid,
                mnt,
            };
            // One that the programs follow already has been told: at its clone, or beside a runtime before this one.
            if track(loaded, tgid, entry)? {
                records.push(process(proc, at, pid, role, !container));
                again = true;
            }
        }
    }
    let runtime = Runtime { pid, tgid, pidfd, name };
    let sockets = descriptors(loaded, proc, &runtime)?;
    // A connection to a shim has the shim's starter for a peer, which has ended.
    let clients = sockets.iter().filter(|socket| Path::new(&socket.path) == runtime.name);
    let mut peers: Vec<u32> = clients.filter_map(|socket| socket.peer).map(|peer| peer.0).collect();
    peers.sort_unstable();
    peers.dedup();
    for peer in peers.into_iter().filter(|peer| *peer != std::process::id() && !followed.contains(peer)) {
        client(loaded, peer);
        records.push(process(proc, at, peer, Role::Other, false));
    }
    records.extend(sockets.into_iter().map(|socket| record(at, pid, Event::Socket(socket))));
    Ok((runtime, records))
}

/// A client of the runtime may be kubelet, whose mounts are a part of a start. One that has ended is no loss.
pub(crate) fn client(loaded: &mut Loaded, pid: u32) {
    if pid == std::process::id() {
        return;
    }
    let Ok(pidfd) = sockets::pidfd(pid) else { return };
    let Ok(tgid) = kernel_tgid(loaded, pidfd.as_fd(), pid, role::OTHER) else { return };
    if let Ok(mut clients) = loader::hash::<u32, u32>(&mut loaded.ebpf, map::CLIENTS) {
        let _ = clients.insert(tgid, 1, 0);
    }
}

/// Forgets the descriptors of runtimes that have ended; their numbers may one day be others'.
fn forget_others(loaded: &mut Loaded, tgid: u32) -> Result<(), ProbeError> {
    let mut fds = loader::hash::<u64, Plain<shared::Fd>>(&mut loaded.ebpf, map::FDS)?;
    let keys: Vec<u64> = fds.keys().flatten().filter(|key| key >> 32 != u64::from(tgid)).collect();
    let mut ids = Vec::new();
    for key in keys {
        ids.extend(fds.get(&key, 0).map(|Plain(fd)| fd.id));
        let _ = fds.remove(&key);
    }
    for id in &ids {
        mute(loaded, ConnId(*id))?;
    }
    let mut paths = loader::hash::<u64, Plain<shared::Path>>(&mut loaded.ebpf, map::PATHS)?;
    for id in &ids {
        let _ = paths.remove(id);
    }
    Ok(())
}

/// Takes a connection out of the maps that lead the programs to it.
pub(crate) fn mute(loaded: &mut Loaded, conn: ConnId) -> Result<(), ProbeError> {
    let mut conns = loader::hash::<u64, Plain<shared::Conn>>(&mut loaded.ebpf, map::CONNS)?;
    let Ok(Plain(entry)) = conns.get(&conn.0, 0) else { return Ok(()) };
    let _ = conns.remove(&conn.0);
    let mut socks = loader::hash::<u64, u64>(&mut loaded.ebpf, map::SOCKS)?;
    // The address may be another connection's by now.
    if socks.get(&entry.sock, 0).is_ok_and(|known| known == conn.0) {
        let _ = socks.remove(&entry.sock);
    }
    Ok(())
}

/// What the runtime reads on that connection is wanted up to that offset.
pub(crate) fn allow(loaded: &mut Loaded, conn: ConnId, offset: u64) -> Result<(), ProbeError> {
    let mut allowed = loader::hash::<u64, u64>(&mut loaded.ebpf, map::ALLOWED)?;
    allowed.insert(conn.0, offset, 0).map_err(|source| ProbeError::Map { name: map::ALLOWED, source })
}

/// Asks the finder program to note which `struct sock` a connection is. Where the programs had it noted as a connection
/// of their own meanwhile, it stays that.
fn note_sock(loaded: &mut Loaded, pid: u32, socket: BorrowedFd<'_>, conn: u64) -> Result<(), ProbeError> {
    let left = ask(loaded, socket, shared::ASK_SOCKET, conn)?.0.conn;
    let what = || ProbeError::Runtime { pid, what: "a connection's socket was not found in the kernel".to_owned() };
    (left != conn).then_some(()).ok_or_else(what)
}

/// The kernel's own pid of a process.
fn kernel_tgid(loaded: &mut Loaded, pidfd: BorrowedFd<'_>, pid: u32, role: u32) -> Result<u32, ProbeError> {
    let (found, asked) = ask(loaded, pidfd, role, 0)?;
    if found.tgid != 0 && found.pid == pid {
        return Ok(found.tgid);
    }
    let asked = match asked {
        Ok(_) => "the kernel took a question for an order".to_owned(),
        Err(error) => error.to_string(),
    };
    let what = format!("its kernel pid was not found ({asked}; answer {}, {})", found.tgid, found.pid);
    Err(ProbeError::Runtime { pid, what })
}

type Asked = (shared::Found, Result<OwnedFd, Errno>);

/// Asks the finder program about a descriptor. The system call itself fails at once, for its flags must be 0.
fn ask(loaded: &mut Loaded, fd: BorrowedFd<'_>, what: u32, conn: u64) -> Result<Asked, ProbeError> {
    let flags = PidfdGetfdFlags::from_bits_retain(loaded.key);
    let mut answer = loader::array::<Plain<shared::Found>>(&mut loaded.ebpf, map::FOUND)?;
    let wrong = |source| ProbeError::Map { name: map::FOUND, source };
    answer.set(0, Plain(shared::Found { conn, ..Default::default() }), 0).map_err(wrong)?;
    let asked = rustix::process::pidfd_getfd(fd, what.cast_signed(), flags);
    let Plain(found) = answer.get(&0, 0).map_err(wrong)?;
    Ok((found, asked))
}

/// False: the programs followed it already.
fn track(loaded: &mut Loaded, tgid: u32, entry: shared::Tracked) -> Result<bool, ProbeError> {
    let mut tracked = loader::hash::<u32, Plain<shared::Tracked>>(&mut loaded.ebpf, map::TRACKED)?;
    let flags = if entry.role == role::RUNTIME { 0 } else { NO_EXIST };
    match tracked.insert(tgid, Plain(entry), flags) {
        Ok(()) => Ok(true),
        Err(MapError::SyscallError(error)) if is_exist(&error.io_error) => Ok(false),
        Err(source) => Err(ProbeError::Map { name: map::TRACKED, source }),
    }
}

/// A process that binds this path of that mount namespace is the runtime: at once, not at the next look.
///
/// # Errors
/// [`ProbeError::Map`].
pub(crate) fn watch(loaded: &mut Loaded, socket: &Path, mnt: u32) -> Result<(), ProbeError> {
    let Some(name) = sun_path(socket.as_os_str().as_encoded_bytes(), 0) else { return Ok(()) };
    let mut watched = loader::hash::<Plain<shared::Path>, u32>(&mut loaded.ebpf, map::WATCHED)?;
    watched.insert(Plain(name), mnt, 0).map_err(|source| ProbeError::Map { name: map::WATCHED, source })
}

fn sun_path(name: &[u8], len: u32) -> Option<shared::Path> {
    let mut path = shared::Path { len, name: [0; SUN_PATH] };
    path.name.get_mut(..name.len())?.copy_from_slice(name);
    Some(path)
}

/// Descendants of the runtime, shims of its mount namespace (their parent is gone), and what runs below them. A
/// container's first process is taken, its children are not. Parents come before their children.
fn others(proc: &Proc, runtime: u32, mnt: u32) -> Vec<(u32, Role)> {
    let parents = proc.parents();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, parent) in &parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let is_a_shim =
        |pid: u32| proc.argv(pid).first().is_some_and(|word| is_shim(word)) && proc.namespaces(pid).mnt == mnt;
    let mut queue: VecDeque<u32> = children.get(&runtime).into_iter().flatten().copied().collect();
    queue.extend(parents.keys().copied().filter(|pid| is_a_shim(*pid)));
    queue.make_contiguous().sort_unstable();
    let mut known = HashSet::from([runtime, std::process::id()]);
    let mut found = Vec::new();
    while let Some(pid) = queue.pop_front() {
        if !known.insert(pid) {
            continue;
        }
        found.push((pid, if is_a_shim(pid) { Role::Shim } else { Role::Other }));
        if proc.namespaces(pid).mnt == mnt {
            queue.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// Whether a process with this first argument is a shim.
pub(crate) fn is_shim(argv0: &str) -> bool {
    let name = argv0.rsplit('/').next().unwrap_or(argv0);
    name.starts_with("containerd-shim") || name == "conmon" || name == "conmonrs"
}

/// Puts the runtime's unix stream sockets under watch.
fn descriptors(loaded: &mut Loaded, proc: &Proc, runtime: &Runtime) -> Result<Vec<Socket>, ProbeError> {
    let pid = runtime.pid;
    let wrong = |what: String| ProbeError::Runtime { pid, what };
    let list = proc.sockets(pid).map_err(|error| wrong(format!("cannot list its descriptors: {error}")))?;
    let mut sockets = Vec::new();
    let mut ids: HashMap<u64, u64> = HashMap::new();
    for (fd, inode) in list {
        let found = match sockets::examine(&runtime.pidfd, fd) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(Errno::PERM) => return Err(wrong("pidfd_getfd is not permitted (CAP_SYS_PTRACE)".to_owned())),
            Err(_) => continue,
        };
        // podlapse's own questions are part of nothing.
        if found.peer == Some(std::process::id()) && pid != std::process::id() {
            continue;
        }
        // Two descriptors of one socket are one connection. The programs' own ids are times, and far larger.
        let id = *ids.entry(inode).or_insert_with(|| {
            loaded.last_id += 1;
            loaded.last_id
        });
        if !enter(loaded, runtime, &found, id)? {
            continue;
        }
        let (op, conn) = match found.kind {
            Kind::Listener => (SocketOp::Listen, ConnId(0)),
            Kind::Connection => (SocketOp::Found, ConnId(id)),
        };
        let path = socket_name(&found.name);
        sockets.push(Socket { op, conn, fd, other_fd: None, ret: 0, peer: found.peer.map(Tgid), path });
    }
    // A number that was closed, or given to another socket, between the look and the entry must not be watched.
    for socket in std::mem::take(&mut sockets) {
        let inode = ids.iter().find(|(_, id)| **id == socket.conn.0).map(|(inode, _)| *inode);
        if socket.op == SocketOp::Found && proc.socket(pid, socket.fd) != inode {
            let mut fds = loader::hash::<u64, Plain<shared::Fd>>(&mut loaded.ebpf, map::FDS)?;
            let key = fd_key(runtime.tgid, socket.fd.cast_unsigned());
            // Where the programs saw the close they have let it go already.
            if fds.get(&key, 0).is_ok_and(|Plain(fd)| fd.id == socket.conn.0) && fds.remove(&key).is_ok() {
                release(loaded, socket.conn)?;
            }
            continue;
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A connection of which nothing was seen.
const FRESH: shared::Conn = shared::Conn { offset: [0, 0], refs: 0, sock: 0, allowed: shared::AHEAD };

/// Enters one descriptor; false when the programs knew it already, and nothing is left of it here then.
fn enter(loaded: &mut Loaded, runtime: &Runtime, found: &Found, id: u64) -> Result<bool, ProbeError> {
    // What the descriptor leads to comes first: the programs may see it used, or closed, as soon as it is there.
    let kind = match found.kind {
        Kind::Listener => {
            if let Some(name) = sun_path(&found.name, found.name.len() as u32) {
                let mut paths = loader::hash::<u64, Plain<shared::Path>>(&mut loaded.ebpf, map::PATHS)?;
                paths.insert(id, Plain(name), 0).map_err(|source| ProbeError::Map { name: map::PATHS, source })?;
            }
            fd_kind::LISTENER
        }
        Kind::Connection => {
            let mut conns = loader::hash::<u64, Plain<shared::Conn>>(&mut loaded.ebpf, map::CONNS)?;
            let mut conn = conns.get(&id, 0).map(|Plain(conn)| conn).unwrap_or(FRESH);
            conn.refs += 1;
            conns.insert(id, Plain(conn), 0).map_err(|source| ProbeError::Map { name: map::CONNS, source })?;
            fd_kind::CONNECTION
        }
    };
    let mut fds = loader::hash::<u64, Plain<shared::Fd>>(&mut loaded.ebpf, map::FDS)?;
    let entry = shared::Fd { id, kind, reserved: 0 };
    match fds.insert(fd_key(runtime.tgid, found.fd.cast_unsigned()), Plain(entry), NO_EXIST) {
        Ok(()) => {}
        Err(MapError::SyscallError(error)) if is_exist(&error.io_error) => {
            match found.kind {
                Kind::Listener => forget_path(loaded, id)?,
                Kind::Connection => release(loaded, ConnId(id))?,
            }
            return Ok(false);
        }
        Err(source) => return Err(ProbeError::Map { name: map::FDS, source }),
    }
    if found.kind == Kind::Connection && loaded.payload == Backend::Trampoline {
        note_sock(loaded, runtime.pid, found.copy.as_fd(), id)?;
    }
    Ok(true)
}

/// One descriptor less leads to a connection; with the last one it goes.
fn release(loaded: &mut Loaded, conn: ConnId) -> Result<(), ProbeError> {
    let mut conns = loader::hash::<u64, Plain<shared::Conn>>(&mut loaded.ebpf, map::CONNS)?;
    let Ok(Plain(mut entry)) = conns.get(&conn.0, 0) else { return Ok(()) };
    if entry.refs <= 1 {
        return mute(loaded, conn);
    }
    entry.refs -= 1;
    conns.insert(conn.0, Plain(entry), 0).map_err(|source| ProbeError::Map { name: map::CONNS, source })
}

fn forget_path(loaded: &mut Loaded, listener: u64) -> Result<(), ProbeError> {
    let mut paths = loader::hash::<u64, Plain<shared::Path>>(&mut loaded.ebpf, map::PATHS)?;
    // One whose name did not fit has none.
    let _ = paths.remove(&listener);
    Ok(())
}

fn is_exist(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// `helper`: it is in the runtime's own mount namespace, and works for it.
fn process(proc: &Proc, at: MonotonicNs, pid: u32, role: Role, helper: bool) -> Record {
    let namespaces = proc.namespaces(pid);
    let mut argv = proc.argv(pid);
    // The OCI runtime's init is in the container already, and waits there for its start.
    let works = helper || (role == Role::Other && argv.get(1..) == Some(&["init".to_owned()]));
    if role == Role::Myself || (role == Role::Other && !works) {
        // A container's arguments may hold secrets, and podlapse's own say nothing about a start.
        argv.truncate(1);
    }
    let started = proc.started(pid).filter(|_| works && !argv.is_empty());
    let helper = started.map(|started| Helper {
        started: MonotonicNs(started.saturating_sub(super::session::suspended())),
        cni: if helper { proc.cni(pid) } else { Vec::new() },
    });
    let parent = Tgid(proc.parent(pid).unwrap_or(0));
    let event = Process { namespaces, parent, role, exe: proc.exe(pid), argv, cgroup: proc.cgroup(pid), helper };
    record(at, pid, Event::Process(event))
}

fn record(at: MonotonicNs, pid: u32, event: Event) -> Record {
    Record { at, tgid: Tgid(pid), tid: Tid(pid), event }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    /// Descriptors, connections with their descriptors, and listeners with a name, in the maps.
    fn entries(loaded: &mut Loaded) -> (usize, Vec<(u64, u64)>, Vec<u64>) {
        let fds = loader::hash::<u64, Plain<shared::Fd>>(&mut loaded.ebpf, map::FDS).unwrap();
        let fds = fds.keys().flatten().count();
        let conns = loader::hash::<u64, Plain<shared::Conn>>(&mut loaded.ebpf, map::CONNS).unwrap();
        let mut conns: Vec<_> = conns.iter().flatten().map(|(id, Plain(conn))| (id, conn.refs)).collect();
        let paths = loader::hash::<u64, Plain<shared::Path>>(&mut loaded.ebpf, map::PATHS).unwrap();
        let mut paths: Vec<_> = paths.keys().flatten().collect();
        conns.sort_unstable();
        paths.sort_unstable();
        (fds, conns, paths)
    }

    /// What the programs know already stays as they know it, and nothing that leads nowhere is left.
    #[test]
    fn a_descriptor_that_is_known() {
        let loaded = match loader::maps_alone() {
            Ok(loaded) => loaded,
            Err(error) => return eprintln!("skipped, BPF maps cannot be made here: {error}"),
        };
        // Nothing is attached, and what a drop does is for hooks.
        let mut loaded = ManuallyDrop::new(loaded);
        let pidfd = sockets::pidfd(std::process::id()).unwrap();
        let runtime = Runtime { pid: 1, tgid: 1, pidfd, name: PathBuf::new() };
        let mut add = |fd, kind, id| {
            let copy = std::fs::File::open("/dev/null").unwrap().into();
            let found = Found { copy, fd, kind, name: b"/run/x.sock".to_vec(), peer: None };
            (enter(&mut loaded, &runtime, &found, id).unwrap(), entries(&mut loaded))
        };
        assert_eq!(add(3, Kind::Connection, 1), (true, (1, vec![(1, 1)], vec![])));
        assert_eq!(add(4, Kind::Connection, 1), (true, (2, vec![(1, 2)], vec![])), "a copy");
        assert_eq!(add(5, Kind::Listener, 2), (true, (3, vec![(1, 2)], vec![2])));
        let known = (false, (3, vec![(1, 2)], vec![2]));
        assert_eq!(add(3, Kind::Connection, 3), known, "the number is another connection's");
        assert_eq!(add(4, Kind::Connection, 1), known, "a copy that the programs saw made");
        assert_eq!(add(5, Kind::Listener, 4), known);
        for refs in [1, 0] {
            release(&mut loaded, ConnId(1)).unwrap();
            assert_eq!(entries(&mut loaded).1.first().map_or(0, |(_, refs)| *refs), refs);
        }
    }
}

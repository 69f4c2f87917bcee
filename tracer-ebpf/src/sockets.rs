//! The runtime's unix sockets: accept, accept4, listen, connect, dup, bind, close (kernel: `net/socket.c`, `fs/file.c`).
//! A descriptor that is closed or reused must never be read as the connection it named before.

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_probe_read_kernel, bpf_probe_read_user};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::offset::SK_PEER_PID;
use tracer_ebpf::shared::{AHEAD, Conn, Fd, Path, SUN_PATH, Tracked, class, fd_key, fd_kind};
use tracer_ebpf::{Socket, counter, kind, role, socket_op};

use crate::kernel;
use crate::maps::{self, CONNS, Call, FDS, PATHS, SOCKS, SPECS, TRACKED, WATCHED};
use crate::ring::{self, Slot};

const AF_UNIX: u16 = 1;
const SLOT: usize = (size_of::<Socket>() + SUN_PATH).next_multiple_of(8);

/// What a socket record says.
struct Change {
    op: u32,
    conn: u64,
    fd: i32,
    other_fd: i32,
    ret: i32,
    peer: u32,
}

/// close. At the entry: at the exit another thread may already have the number again.
#[tracepoint]
pub(crate) fn close_enter(ctx: TracePointContext) -> u32 {
    let fd = kernel::arg::<0>(&ctx) as u32;
    let tgid = (kernel::pid_tgid() >> 32) as u32;
    if maps::is_runtime(tgid) {
        forget(tgid, fd);
    }
    0
}

/// Exits of accept, accept4, listen, dup, dup2, dup3, connect, bind.
#[tracepoint]
pub(crate) fn sock_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    let nr = kernel::nr(&ctx);
    let Some(spec) = SPECS.get(nr) else { return 0 };
    if spec.class != class::SOCKET || (spec.code != socket_op::BIND && !maps::is_runtime((id >> 32) as u32)) {
        return 0;
    }
    let Some(call) = maps::take_call(id, nr) else { return 0 };
    let (tgid, ret) = ((id >> 32) as u32, kernel::ret(&ctx));
    match spec.code {
        socket_op::ACCEPT => accepted(tgid, &call, ret),
        socket_op::DUP => copied(tgid, &call, ret),
        socket_op::CONNECT => addressed(tgid, &call, ret, false),
        socket_op::BIND => addressed(tgid, &call, ret, true),
        socket_op::LISTEN => listening(&call, ret),
        _ => {}
    }
    0
}

#[inline(always)]
fn accepted(tgid: u32, call: &Call, ret: i64) {
    if call.kind != fd_kind::LISTENER || ret < 0 {
        return;
    }
    let fd = ret as u32;
    let sock = kernel::sock_of(kernel::file(fd as u64));
    let peer = peer_of(sock);
    // podlapse's own calls are part of nothing. In a test it may be its own runtime.
    if kernel::is_myself(peer) && !kernel::is_myself(kernel::tgid_of(kernel::task())) {
        let _ = FDS.remove(fd_key(tgid, fd));
        return;
    }
    let conn = new_connection(tgid, fd, sock);
    let change =
        Change { op: socket_op::ACCEPT, conn, fd: fd as i32, other_fd: call.args[0] as i32, ret: fd as i32, peer };
    emit(&change, name_of(call.id));
}

#[inline(always)]
fn copied(tgid: u32, call: &Call, ret: i64) {
    if ret < 0 || ret as u32 == call.args[0] as u32 {
        return;
    }
    let fd = ret as u32;
    // dup2 and dup3 close what the number named before.
    forget(tgid, fd);
    let conn = if call.kind == fd_kind::CONNECTION {
        if let Some(conn) = CONNS.get_ptr_mut(call.id) {
            // SAFETY: a plain word; two threads that copy one connection at once may miscount, which costs an entry.
            unsafe { (*conn).refs += 1 };
        }
        call.id
    } else {
        0
    };
    if FDS.insert(fd_key(tgid, fd), Fd { id: call.id, kind: call.kind, reserved: 0 }, 0).is_err() {
        maps::count(counter::MAP_FULL);
    }
    let change =
        Change { op: socket_op::DUP, conn, fd: fd as i32, other_fd: call.args[0] as i32, ret: fd as i32, peer: 0 };
    emit(&change, 0);
}

/// A listener of the runtime is known since its bind; this is when clients can come.
#[inline(always)]
fn listening(call: &Call, ret: i64) {
    if call.kind == fd_kind::LISTENER {
        let fd = call.args[0] as i32;
        emit(&Change { op: socket_op::LISTEN, conn: 0, fd, other_fd: -1, ret: ret as i32, peer: 0 }, name_of(call.id));
    }
}

#[inline(always)]
fn addressed(tgid: u32, call: &Call, ret: i64, bind: bool) {
    if kernel::read_user::<u16>(call.args[1]) != AF_UNIX {
        return;
    }
    let mut path = Path { len: 0, name: [0; SUN_PATH] };
    let len = call.args[2];
    if len < 2 || len > 2 + SUN_PATH as u64 {
        return;
    }
    let len = len - 2;
    // SAFETY: at most SUN_PATH bytes, as just checked.
    unsafe { bpf_probe_read_user(path.name.as_mut_ptr().cast(), len as u32, (call.args[1] + 2) as *const _) };
    let fd = call.args[0] as u32;
    let mut change = Change { op: socket_op::CONNECT, conn: 0, fd: fd as i32, other_fd: -1, ret: ret as i32, peer: 0 };
    if bind {
        // A name counts without the zero that some callers include.
        if !maps::is_runtime(tgid) && (ret != 0 || !becomes_runtime(tgid, &path)) {
            return;
        }
        change.op = socket_op::BIND;
        path.len = len as u32;
        if ret == 0 {
            let id = unique();
            let full = PATHS.insert(id, path, 0).is_err()
                || FDS.insert(fd_key(tgid, fd), Fd { id, kind: fd_kind::LISTENER, reserved: 0 }, 0).is_err();
            if full {
                maps::count(counter::MAP_FULL);
            }
        }
    } else {
        path.len = len as u32;
        if ret == 0 {
            let sock = kernel::sock_of(kernel::file(fd as u64));
            change.conn = new_connection(tgid, fd, sock);
            change.peer = peer_of(sock);
        }
    }
    emit(&change, (&raw const path) as u64);
}

/// Whether the process becomes the runtime by binding a watched path, in the mount namespace it belongs to.
#[inline(always)]
fn becomes_runtime(tgid: u32, path: &Path) -> bool {
    // SAFETY: written by user space before any bind is looked at.
    let Some(mnt) = (unsafe { WATCHED.get(path) }) else { return false };
    let mnt = *mnt;
    let task = kernel::task();
    if kernel::mnt_of(task) != mnt {
        return false;
    }
    let new = Tracked { role: role::RUNTIME, flags: 0, pid: kernel::tgid_of(task), mnt };
    maps::set_runtime(tgid);
    TRACKED.insert(tgid, new, 0).is_ok()
}

/// Takes a descriptor out of watch, and says so.
#[inline(always)]
fn forget(tgid: u32, fd: u32) {
    let key = fd_key(tgid, fd);
    // SAFETY: entries are replaced, not changed in place.
    let Some(entry) = (unsafe { FDS.get(key) }) else { return };
    let entry = *entry;
    let _ = FDS.remove(key);
    let mut conn = 0;
    if entry.kind == fd_kind::CONNECTION {
        conn = entry.id;
        if let Some(state) = CONNS.get_ptr_mut(conn) {
            // SAFETY: as in `copied`.
            let (refs, sock) = unsafe {
                (*state).refs -= 1;
                ((*state).refs, (*state).sock)
            };
            if refs == 0 {
                let _ = CONNS.remove(conn);
                forget_sock(sock, conn);
            }
        }
    }
    emit(&Change { op: socket_op::CLOSE, conn, fd: fd as i32, other_fd: -1, ret: 0, peer: 0 }, 0);
}

#[inline(always)]
fn new_connection(tgid: u32, fd: u32, sock: u64) -> u64 {
    let id = unique();
    let full = CONNS.insert(id, Conn { offset: [0, 0], refs: 1, sock, allowed: AHEAD }, 0).is_err()
        || FDS.insert(fd_key(tgid, fd), Fd { id, kind: fd_kind::CONNECTION, reserved: 0 }, 0).is_err()
        || (sock != 0 && SOCKS.insert(sock, id, 0).is_err());
    if full {
        maps::count(counter::MAP_FULL);
    }
    id
}

/// Notes the `struct sock` of a connection that was found open. Gives the other connection that it is known as; 0 where
/// there is none, or the connection is closed already; `conn` where that cannot be noted.
#[inline(always)]
pub(crate) fn note_sock(conn: u64, sock: u64) -> u64 {
    let Some(state) = CONNS.get_ptr_mut(conn) else { return 0 };
    if sock == 0 {
        return conn;
    }
    // SAFETY: the word is read at once.
    if let Some(known) = unsafe { SOCKS.get(sock) } {
        return if *known == conn { 0 } else { *known };
    }
    if SOCKS.insert(sock, conn, 0).is_err() {
        return conn;
    }
    // SAFETY: a plain word, written once.
    unsafe { (*state).sock = sock };
    0
}

/// The address may be another connection's by now, where a close was missed.
#[inline(always)]
fn forget_sock(sock: u64, conn: u64) {
    // SAFETY: the word is read at once.
    if unsafe { SOCKS.get(sock) }.is_some_and(|known| *known == conn) {
        let _ = SOCKS.remove(sock);
    }
}

/// A socket ends, and with it its connection, whatever descriptor it had: `unix_release` takes the address away.
#[inline(always)]
pub(crate) fn released(sock: u64) {
    // SAFETY: the word is read at once.
    let Some(conn) = (unsafe { SOCKS.get(sock) }) else { return };
    let conn = *conn;
    let _ = SOCKS.remove(sock);
    let _ = CONNS.remove(conn);
    emit(&Change { op: socket_op::CLOSE, conn, fd: -1, other_fd: -1, ret: 0, peer: 0 }, 0);
}

/// Two events of one CPU are never in the same nanosecond; the loader's own ids are small numbers.
#[inline(always)]
fn unique() -> u64 {
    // SAFETY: takes no argument.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    ring::now() << 8 | (cpu & 255) as u64
}

/// Who connected, or who listens: `sk->sk_peer_pid` (kernel: `init_peercred`, `copy_peercred` in `net/unix/af_unix.c`).
#[inline(always)]
fn peer_of(sock: u64) -> u32 {
    if sock == 0 { 0 } else { kernel::number(kernel::member::<u64, SK_PEER_PID>(sock)) }
}

/// Address of a listener's name; 0: none.
#[inline(always)]
fn name_of(listener: u64) -> u64 {
    PATHS.get_ptr(listener).map_or(0, |path| path as u64)
}

/// Not inlined: five callers. `path` is the address of a [`Path`]; 0: none.
#[inline(never)]
fn emit(change: &Change, path: u64) {
    let Some(slot) = Slot::<SLOT>::sign() else { return };
    let record = slot.record::<Socket>();
    let mut len = 0;
    if path != 0 {
        len = kernel::read::<u32>(path) as u64;
        let from = path + core::mem::offset_of!(Path, name) as u64;
        // SAFETY: the slot has room for a whole name.
        unsafe { bpf_probe_read_kernel(slot.tail(size_of::<Socket>() as u64), SUN_PATH as u32, from as *const _) };
    }
    if len > SUN_PATH as u64 {
        len = SUN_PATH as u64;
    }
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::SOCKET, ring::now(), size_of::<Socket>() as u64 + len);
        (*record).conn = change.conn;
        (*record).op = change.op;
        (*record).fd = change.fd;
        (*record).other_fd = change.other_fd;
        (*record).ret = change.ret;
        (*record).peer = change.peer;
        (*record).path_len = len as u32;
    }
    slot.submit_sign();
}

//! Payload of watched sockets by trampolines: entry and exit of `unix_stream_sendmsg` and `unix_stream_recvmsg`, and the
//! end of a socket, `unix_release` (kernel: `net/unix/af_unix.c`). Every call that moves bytes comes through here (read,
//! recv, recvmsg, readv, and their like), and nobody else's calls do.
//!
//! The iterator over the caller's buffers is kept at the entry, for at the exit it is used up; the bytes are read at the
//! exit, when it is known how many they are.

use aya_ebpf::macros::{fentry, fexit};
use aya_ebpf::programs::{FEntryContext, FExitContext};
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::shared::{ARGS, fd_kind};
use tracer_ebpf::{counter, direction};

use crate::bytes::{self, Moved};
use crate::kernel;
use crate::maps::{self, CALLS, CONNS, Call, SOCKS};
use crate::ring;
use crate::sockets;

/// In place of a syscall's number: no syscall has one of these.
const RECV: u32 = u32::MAX;
const SEND: u32 = u32::MAX - 1;

/// include/linux/socket.h
const MSG_PEEK: u32 = 2;

/// include/uapi/linux/bpf.h
const BPF_NOEXIST: u64 = 1;

/// More than any frame: what comes behind an unknown number of bytes is not taken for the rest of one.
const UNKNOWN: u64 = 1 << 24;

/// `unix_stream_recvmsg(socket, message, size, flags)`
#[fentry(function = "unix_stream_recvmsg")]
pub(crate) fn recv_enter(ctx: FEntryContext) -> i32 {
    if ctx.arg::<u32>(3) & MSG_PEEK == 0 {
        begin(RECV, ctx.arg(0), ctx.arg(1));
    }
    0
}

#[fexit(function = "unix_stream_recvmsg")]
pub(crate) fn recv_exit(ctx: FExitContext) -> i32 {
    if ctx.arg::<u32>(3) & MSG_PEEK == 0 {
        end(RECV, ctx.arg(0), ctx.arg::<i32>(4));
    }
    0
}

/// `unix_stream_sendmsg(socket, message, size)`
#[fentry(function = "unix_stream_sendmsg")]
pub(crate) fn send_enter(ctx: FEntryContext) -> i32 {
    begin(SEND, ctx.arg(0), ctx.arg(1));
    0
}

#[fexit(function = "unix_stream_sendmsg")]
pub(crate) fn send_exit(ctx: FExitContext) -> i32 {
    end(SEND, ctx.arg(0), ctx.arg::<i32>(3));
    0
}

/// `unix_release(socket)`: the address of its `struct sock` may be another's from now on.
#[fentry(function = "unix_release")]
pub(crate) fn release_enter(ctx: FEntryContext) -> i32 {
    sockets::released(kernel::member::<u64, SOCKET_SK>(ctx.arg(0)));
    0
}

/// The watched connection behind a `struct socket`.
#[inline(always)]
fn conn_of(socket: u64) -> Option<u64> {
    let sock = kernel::member::<u64, SOCKET_SK>(socket);
    // SAFETY: the word is read at once.
    unsafe { SOCKS.get(sock) }.copied()
}

#[inline(always)]
fn begin(what: u32, socket: u64, message: u64) {
    let id = kernel::pid_tgid();
    if !maps::is_runtime((id >> 32) as u32) {
        return;
    }
    let Some(conn) = conn_of(socket) else { return };
    let iter = message + kernel::at::<MSG_ITER>();
    let kind = kernel::member::<u8, ITER_TYPE>(iter) as u64 & kernel::at::<ITER_TYPE_MASK>();
    let (from, vectors) = if kind == kernel::at::<TYPE_IOVEC>() {
        // The kernel's copy: it was checked to hold as many bytes as are moved.
        (kernel::member::<u64, ITER_IOV>(iter), bytes::VECTORS)
    } else if kind == kernel::at::<TYPE_UBUF>() {
        (kernel::member::<u64, ITER_UBUF>(iter), 0)
    } else {
        // Pages of a pipe or of the kernel: nothing can be read there, which makes a gap.
        (0, 0)
    };
    let mut call = Call { enter: ring::now(), id: conn, args: [0; ARGS], nr: what, kind: fd_kind::CONNECTION };
    (call.args[0], call.args[1], call.args[2]) = (from, vectors, kernel::member::<u64, ITER_OFFSET>(iter));
    if CALLS.insert(id, call, BPF_NOEXIST).is_err() {
        missed(id);
        if CALLS.insert(id, call, 0).is_err() {
            maps::count(counter::MAP_FULL);
        }
    }
}

/// The kernel leaves a program out that a CPU is already in, as it may be where programs are preempted. So the exit
/// of the call that this thread made before may have been missed: how many bytes it moved is unknown.
#[inline(always)]
fn missed(id: u64) {
    // SAFETY: only the current thread writes its own entry.
    let Some(call) = (unsafe { CALLS.get(id) }) else { return };
    let way = match call.nr {
        RECV => 0,
        SEND => 1,
        _ => return,
    };
    if let Some(conn) = CONNS.get_ptr_mut(call.id) {
        // SAFETY: plain words, see `bytes::moved`.
        unsafe { (*conn).offset[way] += UNKNOWN };
        maps::count(counter::BYTES_LOST);
    }
}

#[inline(always)]
fn end(what: u32, socket: u64, ret: i32) {
    let id = kernel::pid_tgid();
    if !maps::is_runtime((id >> 32) as u32) {
        return;
    }
    let mut it = Moved {
        conn: 0,
        direction: if what == SEND { direction::OUT } else { direction::IN },
        fd: -1,
        enter: 0,
        from: 0,
        vectors: 0,
        skip: 0,
        len: ret as u64,
    };
    if let Some(call) = maps::take_call(id, what) {
        (it.conn, it.enter) = (call.id, call.enter);
        (it.from, it.vectors, it.skip) = (call.args[0], call.args[1], call.args[2]);
    } else if let Some(conn) = conn_of(socket) {
        // The entry was missed, see above, or came before the connection was known: a gap of known length.
        (it.conn, it.enter) = (conn, ring::now());
    }
    if ret > 0 && it.conn != 0 {
        bytes::moved::<true>(&it);
    }
}

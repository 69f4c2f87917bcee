//! Payload of watched sockets: exits of read, write, writev (kernel: `fs/read_write.c`).
//!
//! One record a buffer, in a slot of the smallest size class that holds it.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::{class, fd_kind, shape};
use tracer_ebpf::{Bytes, MAX_PAYLOAD, counter, direction, kind};

use crate::cgroup_files;
use crate::kernel;
use crate::maps::{self, BYTES, CONNS, SPECS};
use crate::ring::{self, Slot};

/// Buffers of a vectored call that are read; what the others hold is a gap.
const VECTORS: u64 = 4;
/// One buffer on its way to the ring.
struct Piece {
    conn: u64,
    offset: u64,
    ktime: u64,
    other: u64,
    fd: i32,
    direction: u32,
    from: u64,
    len: u64,
    who: (u32, u32),
}

/// Exits of read and writev.
#[tracepoint]
pub(crate) fn io_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32) {
        moved(&ctx, id);
    }
    0
}

/// Exit of write.
#[tracepoint]
pub(crate) fn write_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32) {
        moved(&ctx, id);
        return 0;
    }
    let Some(call) = maps::take_call(id, kernel::nr(&ctx)) else { return 0 };
    if call.kind == fd_kind::CGROUP || call.kind == fd_kind::LABEL {
        cgroup_files::written(&call, kernel::ret(&ctx));
    }
    0
}

#[inline(always)]
fn moved(ctx: &TracePointContext, id: u64) {
    let nr = kernel::nr(ctx);
    let Some(call) = maps::take_call(id, nr) else { return };
    let Some(spec) = SPECS.get(nr) else { return };
    if spec.class != class::IO {
        return;
    }
    let (way, shape) = (spec.code & 1, spec.code >> 1);
    let ret = kernel::ret(ctx);
    if call.kind != fd_kind::CONNECTION || ret <= 0 {
        return;
    }
    let Some(conn) = CONNS.get_ptr_mut(call.id) else { return };
    let moved = ret as u64;
    let now = ring::now();
    let mut piece = Piece {
        conn: call.id,
        offset: 0,
        ktime: now,
        other: call.enter,
        fd: call.args[0] as i32,
        direction: way,
        from: call.args[1],
        len: moved,
        who: ring::whoami(),
    };
    // SAFETY: plain words; reads of one socket follow each other, and so do writes, so each direction has one writer.
    unsafe {
        if way == direction::OUT {
            (piece.ktime, piece.other) = (call.enter, now);
            piece.offset = (*conn).offset[1];
            (*conn).offset[1] = piece.offset + moved;
        } else {
            piece.offset = (*conn).offset[0];
            (*conn).offset[0] = piece.offset + moved;
        }
    }
    if shape == shape::BUFFER {
        emit(&piece);
        return;
    }
    let (mut vector, count) = (call.args[1], call.args[2]);
    let mut left = moved;
    for i in 0..VECTORS {
        if i >= count || left == 0 {
            break;
        }
        let [from, len]: [u64; 2] = kernel::read_user(vector);
        piece.from = from;
        piece.len = if len < left { len } else { left };
        if piece.len > 0 {
            emit(&piece);
        }
        piece.offset += piece.len;
        left -= piece.len;
        vector += 16;
    }
}

#[inline(never)]
fn emit(piece: &Piece) {
    let len = piece.len;
    if len <= room::<256>() {
        put::<256>(piece, len);
    } else if len <= room::<1024>() {
        put::<1024>(piece, len);
    } else if len <= room::<4096>() {
        put::<4096>(piece, len);
    } else if len <= room::<16384>() {
        put::<16384>(piece, len);
    } else {
        put::<{ MAX_PAYLOAD + size_of::<Bytes>() }>(piece, len);
    }
}

const fn room<const N: usize>() -> u64 {
    (N - size_of::<Bytes>()) as u64
}

#[inline(always)]
fn put<const N: usize>(piece: &Piece, len: u64) {
    let Some(slot) = Slot::<N>::reserve(&BYTES, counter::BYTES_LOST) else { return };
    let want = if len > room::<N>() { room::<N>() } else { len };
    // SAFETY: `want` fits behind the record, as just bounded.
    let failed =
        unsafe { bpf_probe_read_user(slot.tail(size_of::<Bytes>() as u64), want as u32, piece.from as *const _) };
    let mut captured = want;
    if failed != 0 {
        captured = 0;
        maps::count(counter::UNREADABLE);
    }
    let record = slot.record::<Bytes>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        let end = size_of::<Bytes>() as u64 + captured;
        ring::head_of(&raw mut (*record).header, kind::BYTES, piece.ktime, end, piece.who);
        (*record).conn = piece.conn;
        (*record).offset = piece.offset;
        (*record).other_ktime = piece.other;
        (*record).fd = piece.fd;
        (*record).direction = piece.direction;
        (*record).len = len as u32;
        (*record).captured = captured as u32;
    }
    slot.submit_bytes();
}

//! Payload of watched sockets: exits of read, write, writev (kernel: `fs/read_write.c`), and what they share with
//! `trampolines`.
//!
//! One record a buffer, in a slot of the smallest size class that holds it.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::{AHEAD, class, fd_kind, shape};
use tracer_ebpf::{Bytes, MAX_PAYLOAD, counter, direction, kind};

use crate::cgroup_files;
use crate::kernel;
use crate::maps::{self, ALLOWED, BYTES, CONNS, SPECS};
use crate::ring::{self, Slot};

/// Buffers of a vectored call that are read; what the others hold is a gap.
pub(crate) const VECTORS: u64 = 8;

/// A call on a watched connection that moved bytes.
pub(crate) struct Moved {
    pub(crate) conn: u64,
    /// See `direction`.
    pub(crate) direction: u32,
    /// -1: unknown.
    pub(crate) fd: i32,
    pub(crate) enter: u64,
    /// The buffer; with `vectors`, that many `struct iovec`s.
    pub(crate) from: u64,
    pub(crate) vectors: u64,
    /// Bytes of the buffer, or of the first one, that had been used before.
    pub(crate) skip: u64,
    /// How many bytes, more than 0.
    pub(crate) len: u64,
}

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
    /// What is sent of `len`: all bits, or none where only the length is. No condition: kernel 5.10 would look at each
    /// vector twice as often as at the one before.
    mask: u64,
    who: (u32, u32),
}

/// Exits of read and writev.
#[tracepoint]
pub(crate) fn io_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32) {
        returned(&ctx, id);
    }
    0
}

/// Exit of write.
#[tracepoint]
pub(crate) fn write_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32) {
        returned(&ctx, id);
    } else {
        cgroup_files::returned(&ctx, id);
    }
    0
}

#[inline(always)]
fn returned(ctx: &TracePointContext, id: u64) {
    let nr = kernel::nr(ctx);
    let Some(call) = maps::take_call(id, nr) else { return };
    let Some(spec) = SPECS.get(nr) else { return };
    let ret = kernel::ret(ctx);
    if spec.class != class::IO || call.kind != fd_kind::CONNECTION || ret <= 0 {
        return;
    }
    let (direction, shape) = (spec.code & 1, spec.code >> 1);
    moved::<false>(&Moved {
        conn: call.id,
        direction,
        fd: call.args[0] as i32,
        enter: call.enter,
        from: call.args[1],
        vectors: if shape == shape::BUFFER { 0 } else { call.args[2] },
        skip: 0,
        len: ret as u64,
    });
}

/// Sends what was moved, and counts it. `KERNEL`: that is where the `struct iovec`s are.
#[inline(always)]
pub(crate) fn moved<const KERNEL: bool>(it: &Moved) {
    let Some(conn) = CONNS.get_ptr_mut(it.conn) else { return };
    let now = ring::now();
    let mut piece = Piece {
        conn: it.conn,
        offset: 0,
        ktime: now,
        other: it.enter,
        fd: it.fd,
        direction: it.direction,
        from: it.from + it.skip,
        len: it.len,
        mask: u64::MAX,
        who: ring::whoami(),
    };
    // SAFETY: plain words; reads of one socket follow each other, and so do writes, so each direction has one writer.
    unsafe {
        if it.direction == direction::OUT {
            (piece.ktime, piece.other) = (it.enter, now);
            piece.offset = (*conn).offset[1];
            (*conn).offset[1] = piece.offset + it.len;
        } else {
            piece.offset = (*conn).offset[0];
            (*conn).offset[0] = piece.offset + it.len;
            if piece.offset > (*conn).allowed {
                (*conn).allowed = allowed(it.conn);
            }
            piece.mask = !((((*conn).allowed - piece.offset) as i64 >> 63) as u64);
        }
    }
    if it.vectors == 0 {
        emit(&piece);
        return;
    }
    let (mut vector, mut skip, mut left) = (it.from, it.skip, it.len);
    for i in 0..VECTORS {
        if i >= it.vectors || left == 0 {
            break;
        }
        let [from, len]: [u64; 2] = if KERNEL { kernel::read(vector) } else { kernel::read_user(vector) };
        let len = if len > skip { len - skip } else { 0 };
        piece.from = from + skip;
        piece.len = if len < left { len } else { left };
        if piece.len > 0 {
            emit(&piece);
        }
        piece.offset += piece.len;
        left -= piece.len;
        vector += 16;
        skip = 0;
    }
}

/// How far user space wants to read that connection by now.
#[inline(always)]
fn allowed(conn: u64) -> u64 {
    // SAFETY: the word is read at once.
    unsafe { ALLOWED.get(conn) }.map_or(AHEAD, |offset| *offset)
}

#[inline(never)]
fn emit(piece: &Piece) {
    let len = piece.len & piece.mask;
    if len <= room::<256>() {
        put::<256>(piece, len);
    } else if len <= room::<1024>() {
        put::<1024>(piece, len);
    } else if len <= room::<4096>() {
        put::<4096>(piece, len);
    } else if len <= room::<16384>() {
        put::<16384>(piece, len);
    } else if len <= room::<{ 33 * 1024 }>() {
        // Two whole DATA frames, which is most of a long list.
        put::<{ 33 * 1024 }>(piece, len);
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
        (*record).len = piece.len as u32;
        (*record).captured = captured as u32;
    }
    slot.submit_bytes();
}

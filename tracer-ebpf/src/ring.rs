//! Writing records: reserve a slot of constant size, write in place, submit. The slot may be longer than the record;
//! what lies behind `Header::len` was never written by this record.
//!
//! Nobody is woken for a record (that would be an interrupt each): user space looks into the rings on a timer. Only
//! when a ring is half full it is called.

use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_ringbuf_discard, bpf_ringbuf_submit};
use aya_ebpf::maps::RingBuf;
use tracer_ebpf::{Header, counter};

use crate::kernel;
use crate::maps::{self, BYTES, BYTES_SIZE, SIGNS, SIGNS_SIZE, TRACKED};

/// include/uapi/linux/bpf.h
const BPF_RB_NO_WAKEUP: u64 = 1;
const BPF_RB_FORCE_WAKEUP: u64 = 2;
const BPF_RB_AVAIL_DATA: u64 = 0;

/// A slot of `N` bytes, to be submitted on every path.
pub(crate) struct Slot<const N: usize>(*mut [u8; N]);

impl<const N: usize> Slot<N> {
    /// A slot in `ring`; none when it is full, which is counted.
    #[inline(always)]
    pub(crate) fn reserve(ring: &RingBuf, lost: u32) -> Option<Self> {
        match ring.reserve::<[u8; N]>(0) {
            // The entry has no drop glue: the slot takes over the duty to submit.
            Some(mut entry) => Some(Slot((*entry).as_mut_ptr())),
            None => {
                maps::count(lost);
                None
            }
        }
    }

    /// A slot in the signs ring.
    #[inline(always)]
    pub(crate) fn sign() -> Option<Self> {
        Self::reserve(&SIGNS, counter::SIGNS_LOST)
    }

    /// The record at the slot's start.
    #[inline(always)]
    pub(crate) fn record<T>(&self) -> *mut T {
        const { assert!(size_of::<T>() <= N && align_of::<T>() <= 8) };
        self.0.cast()
    }

    /// Address of the slot's byte `offset`.
    #[inline(always)]
    pub(crate) fn tail(&self, offset: u64) -> *mut core::ffi::c_void {
        // SAFETY: callers bound `offset` below N; the verifier refuses the program otherwise.
        unsafe { self.0.cast::<u8>().add(offset as usize).cast() }
    }

    /// Hands the record to user space.
    #[inline(always)]
    fn submit(self, ring: &RingBuf, half: u64, counter: u32) {
        let urgent = ring.query(BPF_RB_AVAIL_DATA) > half;
        let flags = if urgent { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
        // SAFETY: the pointer came from a reservation and is given up here, once.
        unsafe { bpf_ringbuf_submit(self.0.cast(), flags) };
        maps::count(counter);
    }

    /// Gives the slot up.
    #[inline(always)]
    pub(crate) fn discard(self) {
        // SAFETY: the pointer came from a reservation and is given up here, once.
        unsafe { bpf_ringbuf_discard(self.0.cast(), BPF_RB_NO_WAKEUP) };
    }

    /// Hands a sign to user space.
    #[inline(always)]
    pub(crate) fn submit_sign(self) {
        self.submit(&SIGNS, SIGNS_SIZE / 2, counter::SIGNS);
    }

    /// Hands payload to user space.
    #[inline(always)]
    pub(crate) fn submit_bytes(self) {
        self.submit(&BYTES, BYTES_SIZE / 2, counter::BYTES);
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: takes no argument.
    unsafe { bpf_ktime_get_ns() }
}

/// The current process, as podlapse names it: taken from the tracked entry where there is one.
#[inline(always)]
pub(crate) fn whoami() -> (u32, u32) {
    let task = kernel::task();
    let id = kernel::pid_tgid();
    let tgid = (id >> 32) as u32;
    if kernel::in_initial_namespace() {
        return (tgid, id as u32);
    }
    // SAFETY: the value is copied out at once; a concurrent change yields an older or a newer pid of the same process.
    let known = unsafe { TRACKED.get(tgid) }.map(|tracked| tracked.pid);
    let tgid = match known {
        Some(pid) if pid != 0 => pid,
        _ => kernel::tgid_of(task),
    };
    (tgid, kernel::tid_of(task))
}

/// Writes a header. `len` may be corrected later.
///
/// # Safety
/// `header` points into a slot.
#[inline(always)]
pub(crate) unsafe fn head(header: *mut Header, kind: u32, ktime: u64, len: u64) {
    // SAFETY: by contract.
    unsafe { head_of(header, kind, ktime, len, whoami()) }
}

/// Writes a header with the process as [`whoami`] told it before.
///
/// # Safety
/// `header` points into a slot.
#[inline(always)]
pub(crate) unsafe fn head_of(header: *mut Header, kind: u32, ktime: u64, len: u64, (tgid, tid): (u32, u32)) {
    // SAFETY: by contract; the slot is 8-byte aligned.
    unsafe {
        (*header).ktime = ktime;
        (*header).kind = kind;
        (*header).len = len as u32;
        (*header).tgid = tgid;
        (*header).tid = tid;
    }
}

/// A helper's string length as an unsigned number in `0..=max`, so that the verifier sees both bounds.
#[inline(always)]
pub(crate) fn bounded(len: i64, max: u64) -> u64 {
    if len <= 0 {
        return 0;
    }
    let len = len as u64;
    if len > max { max } else { len }
}

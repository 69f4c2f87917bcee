//! The maps, and the counters of what did not fit.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use tracer_ebpf::counter;
use tracer_ebpf::shared::{ARGS, Conn, Fd, Found, Myself, Path, Spec, Tracked};

pub(crate) const SIGNS_SIZE: u64 = 8 << 20;
pub(crate) const BYTES_SIZE: u64 = 16 << 20;

#[map]
pub(crate) static SIGNS: RingBuf = RingBuf::with_byte_size(SIGNS_SIZE as u32, 0);
#[map]
pub(crate) static BYTES: RingBuf = RingBuf::with_byte_size(BYTES_SIZE as u32, 0);
#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(counter::COUNT, 0);
#[map]
pub(crate) static MYSELF: Array<Myself> = Array::with_max_entries(1, 0);
#[map]
pub(crate) static FOUND: Array<Found> = Array::with_max_entries(1, 0);
/// Kept apart from `TRACKED`: a look at it costs next to nothing (the kernel inlines lookups in arrays), and all reads
/// and closes on the node come past it.
#[map]
static RUNTIME: Array<u32> = Array::with_max_entries(1, 0);
#[map]
static MANAGER: Array<u32> = Array::with_max_entries(1, 0);
#[map]
pub(crate) static TRACKED: HashMap<u32, Tracked> = HashMap::with_max_entries(16384, 0);
/// Clients of the runtime, kubelet among them, and their children: only their mounts and TCP connects are told. LRU: who ended is not
/// taken out, and a number that comes again costs a record of a mount that nobody asks for.
#[map]
pub(crate) static CLIENTS: LruHashMap<u32, u32> = LruHashMap::with_max_entries(1024, 0);
/// Their TCP connects under way, by the address of the socket. LRU: one whose end was missed is not taken out.
#[map]
pub(crate) static CONNECTS: LruHashMap<u64, Connecting> = LruHashMap::with_max_entries(1024, 0);
#[map]
pub(crate) static FDS: HashMap<u64, Fd> = HashMap::with_max_entries(16384, 0);
#[map]
pub(crate) static CONNS: HashMap<u64, Conn> = HashMap::with_max_entries(8192, 0);
/// LRU: an entry that is gone comes again with the next that user space has read.
#[map]
pub(crate) static ALLOWED: LruHashMap<u64, u64> = LruHashMap::with_max_entries(1024, 0);
/// Connections by the address of their `struct sock`, as trampolines see them.
#[map]
pub(crate) static SOCKS: HashMap<u64, u64> = HashMap::with_max_entries(8192, 0);
#[map]
pub(crate) static PATHS: HashMap<u64, Path> = HashMap::with_max_entries(256, 0);
#[map]
pub(crate) static WATCHED: HashMap<Path, u32> = HashMap::with_max_entries(16, 0);
#[map]
pub(crate) static SPECS: Array<Spec> = Array::with_max_entries(512, 0);
/// Syscalls under way, by `pid_tgid`. LRU: a thread that dies inside one leaves its entry behind.
#[map]
pub(crate) static CALLS: LruHashMap<u64, Call> = LruHashMap::with_max_entries(8192, 0);
/// One environment string at a time; see `exec`.
#[map]
pub(crate) static SCRATCH: PerCpuArray<[u8; SCRATCH_LEN]> = PerCpuArray::with_max_entries(1, 0);

pub(crate) const SCRATCH_LEN: usize = 4096;

/// A TCP connect between its first packet and its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Connecting {
    pub(crate) start: u64,
    pub(crate) address: [u8; 16],
    /// As podlapse names the process and thread that connect.
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) port: u32,
    pub(crate) reserved: u32,
}

/// A syscall between its entry and its exit.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) enter: u64,
    /// Connection or listener that argument 0 named at entry.
    pub(crate) id: u64,
    pub(crate) args: [u64; ARGS],
    pub(crate) nr: u32,
    /// See `fd_kind`; 0: argument 0 was not looked up.
    pub(crate) kind: u32,
}

/// Ends what the current thread, `id`, began: its syscall `nr`. Another number is left from a call whose exit was missed.
#[inline(always)]
pub(crate) fn take_call(id: u64, nr: u32) -> Option<Call> {
    // SAFETY: only the current thread writes its own entry.
    let call = *unsafe { CALLS.get(id) }?;
    let _ = CALLS.remove(id);
    (call.nr == nr).then_some(call)
}

/// Whether the sockets of that process are watched.
#[inline(always)]
pub(crate) fn is_runtime(tgid: u32) -> bool {
    RUNTIME.get(0).is_some_and(|runtime| *runtime == tgid)
}

/// Whether that process is PID 1, which makes the pods' cgroups on a node with the systemd driver.
#[inline(always)]
pub(crate) fn is_manager(tgid: u32) -> bool {
    MANAGER.get(0).is_some_and(|manager| *manager == tgid)
}

/// From now on that process's sockets are watched, and no other's.
#[inline(always)]
pub(crate) fn set_runtime(tgid: u32) {
    if let Some(runtime) = RUNTIME.get_ptr_mut(0) {
        // SAFETY: a word of a live map value; readers see the old or the new one.
        unsafe { *runtime = tgid };
    }
}

/// Adds one to a counter.
#[inline(always)]
pub(crate) fn count(counter: u32) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter) {
        // SAFETY: the value is this CPU's own; a tracing program that interrupts this one may cost a count.
        unsafe { *value += 1 };
    }
}

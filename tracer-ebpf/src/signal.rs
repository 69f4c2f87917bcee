//! Who was killed, and by whom: `signal_generate` (kernel: `kernel/signal.c`) for tracked processes, `oom:mark_victim`
//! (`mm/oom_kill.c`) for the whole node.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::macros::{raw_tracepoint, tracepoint};
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use tracer_ebpf::shared::offset::{self, *};
use tracer_ebpf::{COMM_LEN, Oom, Signal, kind};

use crate::kernel;
use crate::maps::{MYSELF, TRACKED};
use crate::ring::{self, Slot};

const SIGCHLD: u32 = 17;
const SIGURG: u32 = 23;
const SIGWINCH: u32 = 28;
/// `SEND_SIG_PRIV` (include/linux/signal_types.h): not an address; the kernel itself sent it.
const SEND_SIG_PRIV: u64 = 1;
const SI_KERNEL: i32 = 0x80;

/// `signal_generate(sig, info, task, group, result)`; the current task is the sender.
#[raw_tracepoint]
pub(crate) fn signal_generate(ctx: RawTracePointContext) -> i32 {
    let signal: u32 = ctx.arg(0);
    // Children's ends have their own sign; Go preempts its threads with SIGURG all the time.
    if signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH {
        return 0;
    }
    let task: u64 = ctx.arg(2);
    // SAFETY: one word is read from the value.
    let Some(target) = (unsafe { TRACKED.get(kernel::member::<u32, TASK_TGID>(task)) }) else { return 0 };
    let target = target.pid;
    let info: u64 = ctx.arg(1);
    let code = match info {
        0 => 0,
        SEND_SIG_PRIV => SI_KERNEL,
        info => kernel::member::<i32, SIGINFO_CODE>(info),
    };
    let Some(slot) = Slot::<{ size_of::<Signal>() }>::sign() else { return 0 };
    let record = slot.record::<Signal>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::SIGNAL, ring::now(), size_of::<Signal>() as u64);
        (*record).target = target;
        (*record).signal = signal;
        (*record).code = code;
        (*record).result = ctx.arg(4);
        bpf_get_current_comm((&raw mut (*record).comm).cast(), COMM_LEN as u32);
    }
    slot.submit_sign();
    0
}

/// `oom:mark_victim`: its `pid` is the kernel's own number of the victim's main thread.
#[tracepoint]
pub(crate) fn mark_victim(ctx: TracePointContext) -> u32 {
    let pid: u32 = kernel::read(ctx.as_ptr() as u64 + kernel::at::<VICTIM_PID>());
    // SAFETY: one word is read from the value.
    let victim = match unsafe { TRACKED.get(pid) } {
        Some(tracked) => tracked.pid,
        // The initial namespace's numbers are the kernel's own; elsewhere an unknown process has no number here.
        None => match MYSELF.get(0) {
            Some(me) if me.pid != 0 && me.level == 0 => pid,
            _ => 0,
        },
    };
    note!(&ctx, "oom: {} is the kernel's {}", victim, pid);
    let Some(slot) = Slot::<{ size_of::<Oom>() }>::sign() else { return 0 };
    let record = slot.record::<Oom>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::OOM, ring::now(), size_of::<Oom>() as u64);
        (*record).victim = victim;
        (*record).rss_kib = rss_kib(&ctx);
    }
    slot.submit_sign();
    0
}

/// What the victim had of memory, where the kernel tells (since 6.9).
#[inline(always)]
fn rss_kib(ctx: &TracePointContext) -> u32 {
    if kernel::at::<VICTIM_ANON>() == u64::from(offset::MISSING) {
        return 0;
    }
    let kib = |at: u64| kernel::read::<u64>(ctx.as_ptr() as u64 + at);
    let sum = kib(kernel::at::<VICTIM_ANON>()) + kib(kernel::at::<VICTIM_FILE>()) + kib(kernel::at::<VICTIM_SHMEM>());
    sum as u32
}

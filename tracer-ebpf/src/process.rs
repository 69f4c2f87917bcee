//! Births and deaths: `task_newtask` (kernel: `kernel/fork.c`), `sched_process_exit` (`kernel/exit.c`).
//!
//! A child of a tracked process is tracked. A container's process is kept for its own exec, exit and signals; its
//! children are the container's business.

use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::shared::{Tracked, tracked_flag};
use tracer_ebpf::{COMM_LEN, Exit, NewTask, counter, kind, role};

use crate::calls;
use crate::kernel;
use crate::maps::{self, CLIENTS, TRACKED};
use crate::ring::{self, Slot};

const CLONE_THREAD: u64 = 0x0001_0000;
/// include/linux/sched/signal.h
const SIGNAL_GROUP_EXIT: u32 = 4;

/// `task_newtask(task, clone_flags)`; the current task is the caller of clone.
#[raw_tracepoint]
pub(crate) fn task_newtask(ctx: RawTracePointContext) -> i32 {
    let clone_flags: u64 = ctx.arg(1);
    if clone_flags & CLONE_THREAD != 0 {
        return 0;
    }
    // SAFETY: the value is copied out at once.
    let Some(parent) = (unsafe { TRACKED.get((kernel::pid_tgid() >> 32) as u32) }) else {
        client_child(ctx.arg(0));
        return 0;
    };
    if parent.flags & tracked_flag::CONTAINER != 0 {
        return 0;
    }
    let child: u64 = ctx.arg(0);
    let pid = kernel::tid_of(child);
    let tracked = Tracked { role: role::OTHER, flags: 0, pid, mnt: parent.mnt };
    if TRACKED.insert(kernel::member::<u32, TASK_TGID>(child), tracked, 0).is_err() {
        maps::count(counter::MAP_FULL);
    }
    let Some(slot) = Slot::<{ size_of::<NewTask>() }>::sign() else { return 0 };
    let record = slot.record::<NewTask>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::NEW_TASK, ring::now(), size_of::<NewTask>() as u64);
        (*record).clone_flags = clone_flags;
        (*record).cgroup = kernel::cgroup_of(child);
        (*record).child = pid;
        (*record).parent = kernel::parent_of(child);
    }
    slot.submit_sign();
    0
}

/// kubelet has mount(8) mount its volumes.
#[inline(always)]
fn client_child(child: u64) {
    if calls::is_client((kernel::pid_tgid() >> 32) as u32) {
        let _ = CLIENTS.insert(kernel::member::<u32, TASK_TGID>(child), 1, 0);
    }
}

/// `sched_process_exit(task, …)`: once per thread. The process is over when none is alive; the leader may go first.
#[raw_tracepoint]
pub(crate) fn sched_process_exit(ctx: RawTracePointContext) -> i32 {
    let tgid = (kernel::pid_tgid() >> 32) as u32;
    if TRACKED.get_ptr(tgid).is_none() {
        return 0;
    }
    let task: u64 = ctx.arg(0);
    let signal = kernel::member::<u64, TASK_SIGNAL>(task);
    if kernel::member::<u32, SIGNAL_LIVE>(signal) != 0 {
        return 0;
    }
    let Some(slot) = Slot::<{ size_of::<Exit>() }>::sign() else {
        let _ = TRACKED.remove(tgid);
        return 0;
    };
    let code = if kernel::member::<u32, SIGNAL_FLAGS>(signal) & SIGNAL_GROUP_EXIT != 0 {
        kernel::member::<u32, SIGNAL_EXIT_CODE>(signal)
    } else {
        kernel::member::<u32, TASK_EXIT_CODE>(kernel::member::<u64, TASK_LEADER>(task))
    };
    let record = slot.record::<Exit>();
    // SAFETY: the slot holds a record at its start, and COMM_LEN bytes for the name.
    unsafe {
        ring::head(&raw mut (*record).header, kind::EXIT, ring::now(), size_of::<Exit>() as u64);
        (*record).code = code;
        (*record).reserved = 0;
        bpf_get_current_comm((&raw mut (*record).comm).cast(), COMM_LEN as u32);
    }
    // Two last threads may both find nobody alive: the one that takes the entry reports.
    if TRACKED.remove(tgid).is_ok() {
        slot.submit_sign();
    } else {
        slot.discard();
    }
    0
}

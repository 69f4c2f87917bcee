//! Successful execs: `sched_process_exec(task, old_pid, binprm)` (kernel: `fs/exec.c`, `exec_binprm`).
//!
//! Of the environment only variables whose name starts with `CNI_` are copied to the ring. Of a process in another
//! mount namespace than its runtime's, a container's, only the file name and argv\[0\].
//!
//! The loop must stay lean (two stores an iteration, the header written before it): the 5.10 verifier walks it all.

use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_probe_read_user_str,
};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::shared::tracked_flag;
use tracer_ebpf::{COMM_LEN, Exec, MAX_STR, counter, exec_flag, kind};

use crate::kernel;
use crate::maps::{self, SCRATCH, SCRATCH_LEN, TRACKED};
use crate::ring::{self, Slot};

const NAME: u64 = MAX_STR as u64 + 1;
const ARGV: u64 = 4096;
/// Longest single `CNI_*` variable, and the room for all but the last.
const ENV: u64 = 2048;
const SLOT: usize = size_of::<Exec>() + (NAME + ARGV + 2 * ENV) as usize;
/// Variables that are looked at; the largest environment seen on a node had 72.
const VARIABLES: u32 = 512;
const CNI: u32 = u32::from_le_bytes(*b"CNI_");

/// A tracked process executes a program.
#[raw_tracepoint]
pub(crate) fn sched_process_exec(ctx: RawTracePointContext) -> i32 {
    let tgid = (kernel::pid_tgid() >> 32) as u32;
    let Some(tracked) = TRACKED.get_ptr_mut(tgid) else { return 0 };
    let Some(slot) = Slot::<SLOT>::sign() else { return 0 };
    let task: u64 = ctx.arg(0);
    let record = slot.record::<Exec>();
    let namespaces = kernel::namespaces_of(task);
    // SAFETY: words of a live map value.
    let container = unsafe {
        if (*tracked).mnt != 0 && (*tracked).mnt != namespaces.mnt {
            (*tracked).flags |= tracked_flag::CONTAINER;
        }
        (*tracked).flags & tracked_flag::CONTAINER != 0
    };
    // SAFETY: the slot holds a record at its start, and COMM_LEN bytes for the name.
    unsafe {
        ring::head(&raw mut (*record).header, kind::EXEC, ring::now(), 0);
        (*record).cgroup = kernel::cgroup_of(task);
        (*record).namespaces = namespaces;
        (*record).parent = kernel::parent_of(task);
        bpf_get_current_comm((&raw mut (*record).comm).cast(), COMM_LEN as u32);
        let signal = kernel::member::<u64, TASK_SIGNAL>(task);
        (*record).oom_score_adj = kernel::member::<i16, SIGNAL_OOM_ADJ>(signal) as i32;
    }
    let mut flags = 0;
    let mut end = size_of::<Exec>() as u64;
    let filename = kernel::member::<u64, BPRM_FILENAME>(ctx.arg(2));
    // SAFETY: NAME bytes are free behind the record.
    let got = unsafe { bpf_probe_read_kernel_str(slot.tail(end), NAME as u32, filename as *const _) };
    let filename_len = ring::bounded(got, NAME);
    end += filename_len;

    let mm = kernel::member::<u64, TASK_MM>(task);
    let start = kernel::member::<u64, MM_ARG_START>(mm);
    let mut argv_len = kernel::member::<u64, MM_ARG_END>(mm) - start;
    if container {
        flags |= exec_flag::CONTAINER;
        // SAFETY: ARGV bytes are free behind the file name.
        let got = unsafe { bpf_probe_read_user_str(slot.tail(end), ARGV as u32, start as *const _) };
        argv_len = ring::bounded(got, ARGV);
    } else {
        if argv_len > ARGV {
            argv_len = ARGV;
            flags |= exec_flag::ARGV_TRUNCATED;
        }
        // SAFETY: as above.
        if unsafe { bpf_probe_read_user(slot.tail(end), argv_len as u32, start as *const _) } != 0 {
            argv_len = 0;
            flags |= exec_flag::UNREADABLE;
        }
    }
    end += argv_len;
    // SAFETY: the slot holds a record at its start.
    unsafe {
        (*record).filename_len = filename_len as u32;
        (*record).argv_len = argv_len as u32;
        (&raw mut (*record).flags).write_volatile(flags);
        (&raw mut (*record).env_len).write_volatile(0);
    }
    if !container {
        environment(mm, &slot, end);
    }
    // SAFETY: as above.
    unsafe {
        let env_len = (&raw const (*record).env_len).read_volatile();
        (*record).header.len = end as u32 + env_len;
        if (&raw const (*record).flags).read_volatile() & exec_flag::UNREADABLE != 0 {
            maps::count(counter::UNREADABLE);
        }
    }
    slot.submit_sign();
    0
}

/// Copies the `CNI_*` variables behind byte `end` of the slot. What changes from one variable to the next is kept in
/// the record (volatile): a number that the verifier cannot follow leaves it one state an iteration to look at.
#[inline(always)]
fn environment(mm: u64, slot: &Slot<SLOT>, end: u64) {
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else { return };
    let record = slot.record::<Exec>();
    // SAFETY: both point into the record at the slot's start.
    let (flags, env_len) = unsafe { (&raw mut (*record).flags, &raw mut (*record).env_len) };
    // SAFETY: as above. Until the end the length says whether `from` is inside a variable.
    let inside = unsafe { &raw mut (*record).header.len };
    let env_end = kernel::member::<u64, MM_ENV_END>(mm);
    let mut from = kernel::member::<u64, MM_ENV_START>(mm);
    for _ in 0..VARIABLES {
        if from >= env_end {
            return;
        }
        // SAFETY: the scratch is SCRATCH_LEN bytes long.
        let got = unsafe { bpf_probe_read_user_str(scratch.cast(), SCRATCH_LEN as u32, from as *const _) };
        if got <= 0 {
            // SAFETY: in the record.
            unsafe { flags.write_volatile(flags.read_volatile() | exec_flag::UNREADABLE) };
            return;
        }
        // SAFETY: four bytes of the scratch, which is 8-byte aligned.
        if unsafe { inside.read_volatile() == 0 && scratch.cast::<u32>().read_volatile() == CNI } {
            // SAFETY: in the record.
            let used = unsafe { env_len.read_volatile() } as u64;
            if used > ENV {
                break;
            }
            // SAFETY: behind at most ENV bytes another ENV bytes are free.
            let copied = unsafe { bpf_probe_read_user_str(slot.tail(end + used), ENV as u32, from as *const _) };
            // SAFETY: in the record.
            unsafe { env_len.write_volatile((used + ring::bounded(copied, ENV)) as u32) };
        }
        // A variable that fills the scratch goes on behind it; its rest may begin with anything.
        let full = got == SCRATCH_LEN as i64;
        from += got as u64;
        if full {
            from -= 1;
        }
        // SAFETY: in the record.
        unsafe { inside.write_volatile(full as u32) };
    }
    // SAFETY: in the record.
    unsafe { flags.write_volatile(flags.read_volatile() | exec_flag::ENV_TRUNCATED) };
}

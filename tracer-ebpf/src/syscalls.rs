//! Exits of the syscalls that are reported for tracked processes: namespaces and mounts always (kernel:
//! `kernel/nsproxy.c`, `kernel/fork.c`, `fs/namespace.c`, `fs/fsopen.c`), exec, clone and mkdir when they fail
//! (`fs/exec.c`, `kernel/fork.c`, `fs/namei.c`). Which argument is a string comes with the spec.

use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::{ARGS, Spec, class, spec_flag};
use tracer_ebpf::{MAX_STR, Namespaces, Syscall, counter, kind};

use crate::calls;
use crate::kernel;
use crate::maps::{self, Call, SPECS};
use crate::ring::{self, Slot};

const STR: u64 = MAX_STR as u64 + 1;
const SLOT: usize = size_of::<Syscall>() + 3 * (MAX_STR + 1);

/// Exit of a reported syscall.
#[tracepoint]
pub(crate) fn task_exit(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    let nr = kernel::nr(&ctx);
    let Some(call) = maps::take_call(id, nr) else { return 0 };
    let Some(spec) = SPECS.get(nr) else { return 0 };
    let ret = kernel::ret(&ctx);
    if spec.class == class::TASK && (ret < 0 || spec.flags & spec_flag::FAILED_ONLY == 0) {
        report(spec, &call, ret);
    }
    0
}

/// Exit of clone or clone3: reported when it failed, which hardly ever happens and takes no time. Threads are made all
/// the time, so there is no program at the entry; the arguments are not told.
#[tracepoint]
pub(crate) fn clone_exit(ctx: TracePointContext) -> u32 {
    let ret = kernel::ret(&ctx);
    if ret >= 0 || !calls::is_helper((kernel::pid_tgid() >> 32) as u32) {
        return 0;
    }
    let nr = kernel::nr(&ctx);
    if let Some(spec) = SPECS.get(nr) {
        report(spec, &Call { enter: ring::now(), id: 0, args: [0; ARGS], nr, kind: 0 }, ret);
    }
    0
}

/// Not inlined: two callers.
#[inline(never)]
fn report(spec: &Spec, call: &Call, ret: i64) {
    let Some(slot) = Slot::<SLOT>::sign() else { return };
    let record = slot.record::<Syscall>();
    let mut end = size_of::<Syscall>() as u64;
    let mut lens = [0u32; 3];
    for (index, len) in spec.strings.iter().zip(&mut lens) {
        let index = *index as usize;
        if index >= ARGS || call.args[index] == 0 {
            continue;
        }
        // SAFETY: `end` grew by less than STR for each string before, so STR bytes are free behind it.
        let got = unsafe { bpf_probe_read_user_str(slot.tail(end), STR as u32, call.args[index] as *const _) };
        if got < 0 {
            maps::count(counter::UNREADABLE);
            continue;
        }
        let got = ring::bounded(got, STR);
        if got > 1 {
            *len = (got - 1) as u32;
            end += got - 1;
        }
    }
    let namespaces = if spec.flags & spec_flag::NAMESPACES != 0 {
        kernel::namespaces_of(kernel::task())
    } else {
        Namespaces { mnt: 0, net: 0, ipc: 0, uts: 0, pid: 0, user: 0 }
    };
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::SYSCALL, ring::now(), end);
        (*record).enter = call.enter;
        (*record).ret = ret;
        (*record).args = [call.args[0], call.args[1], call.args[2], call.args[3], call.args[4]];
        (*record).namespaces = namespaces;
        (*record).sys = spec.code;
        (*record).str_len = lens;
    }
    slot.submit_sign();
}

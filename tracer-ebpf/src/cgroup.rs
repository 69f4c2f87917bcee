//! cgroups made, removed and joined, on the whole node: `cgroup_mkdir`, `cgroup_rmdir`, `cgroup_attach_task`
//! (kernel: `kernel/cgroup/cgroup.c`). The raw tracepoints carry the path as a string.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::{Cgroup, MAX_STR, cgroup_op, kind};

use crate::kernel;
use crate::ring::{self, Slot};

const PATH: u64 = MAX_STR as u64 + 1;
const SLOT: usize = size_of::<Cgroup>() + PATH as usize;

/// `cgroup_mkdir(cgrp, path)`
#[raw_tracepoint]
pub(crate) fn cgroup_mkdir(ctx: RawTracePointContext) -> i32 {
    emit(&ctx, cgroup_op::MKDIR, 0, 0);
    0
}

/// `cgroup_rmdir(cgrp, path)`
#[raw_tracepoint]
pub(crate) fn cgroup_rmdir(ctx: RawTracePointContext) -> i32 {
    emit(&ctx, cgroup_op::RMDIR, 0, 0);
    0
}

/// `cgroup_attach_task(dst_cgrp, path, task, threadgroup)`
#[raw_tracepoint]
pub(crate) fn cgroup_attach_task(ctx: RawTracePointContext) -> i32 {
    let threadgroup: u64 = ctx.arg(3);
    emit(&ctx, cgroup_op::ATTACH, kernel::tgid_of(ctx.arg(2)), (threadgroup & 1) as u32);
    0
}

#[inline(always)]
fn emit(ctx: &RawTracePointContext, op: u32, task: u32, threadgroup: u32) {
    let Some(slot) = Slot::<SLOT>::sign() else { return };
    let (cgroup, path): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let record = slot.record::<Cgroup>();
    let end = size_of::<Cgroup>() as u64;
    // SAFETY: PATH bytes are free behind the record.
    let got = unsafe { bpf_probe_read_kernel_str(slot.tail(end), PATH as u32, path as *const _) };
    let len = match ring::bounded(got, PATH) {
        0 => 0,
        got => got - 1,
    };
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::CGROUP, ring::now(), end + len);
        (*record).id = kernel::member::<u64, KN_ID>(kernel::member::<u64, CGROUP_KN>(cgroup));
        (*record).op = op;
        (*record).hierarchy = kernel::member::<u32, ROOT_HIERARCHY>(kernel::member::<u64, CGROUP_ROOT>(cgroup));
        (*record).task = task;
        (*record).threadgroup = threadgroup;
        (*record).path_len = len as u32;
        (*record).reserved = 0;
    }
    slot.submit_sign();
}

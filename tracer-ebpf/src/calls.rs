//! Syscall entries (kernel: `kernel/trace/trace_syscalls.c`, `perf_syscall_enter`). Each first asks the cheapest question
//! that keeps out most of the node's calls, and only then keeps the arguments for the exit. User memory is read at the
//! exit: at the entry pages that nobody touched yet are absent.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::{ARGS, Spec, class, fd_key, fd_kind, offset, spec_flag, tracked_flag};
use tracer_ebpf::{counter, socket_op};

use crate::cgroup_files;
use crate::kernel;
use crate::maps::{self, CALLS, CLIENTS, CONNS, Call, FDS, SPECS, TRACKED};
use crate::ring;

/// read, writev, accept, accept4, listen, dup, dup2, dup3: of the runtime.
#[tracepoint]
pub(crate) fn fd_enter(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32) {
        watched(&ctx, id);
    }
    0
}

/// write: of the runtime, to cgroup files and security attributes by the processes that work for it, and to the cgroup
/// files of pods by PID 1.
#[tracepoint]
pub(crate) fn write_enter(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    let tgid = (id >> 32) as u32;
    if maps::is_runtime(tgid) {
        watched(&ctx, id);
    } else {
        file_written(&ctx, id);
    }
    0
}

/// write, where the runtime's own bytes are told by trampolines.
#[tracepoint]
pub(crate) fn file_write_enter(ctx: TracePointContext) -> u32 {
    file_written(&ctx, kernel::pid_tgid());
    0
}

#[inline(always)]
fn file_written(ctx: &TracePointContext, id: u64) {
    let tgid = (id >> 32) as u32;
    let kind = if maps::is_manager(tgid) {
        if cgroup_files::is_of_pod(kernel::arg::<0>(ctx)) { fd_kind::CGROUP } else { 0 }
    } else if is_helper(tgid) {
        cgroup_files::kind_of(kernel::arg::<0>(ctx))
    } else {
        0
    };
    if kind != 0
        && let Some(spec) = SPECS.get(kernel::nr(ctx))
    {
        begin(ctx, id, 0, kind, spec);
    }
}

/// connect, of the runtime; bind, of anybody, for a new runtime shows itself by the path that it binds.
#[tracepoint]
pub(crate) fn addr_enter(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    let Some(spec) = SPECS.get(kernel::nr(&ctx)) else { return 0 };
    if spec.code == socket_op::BIND || maps::is_runtime((id >> 32) as u32) {
        begin(&ctx, id, 0, 0, spec);
    }
    0
}

/// The syscalls that are reported for tracked processes; mounts also for the runtime's clients.
#[tracepoint]
pub(crate) fn task_enter(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    let tgid = (id >> 32) as u32;
    let Some(spec) = SPECS.get(kernel::nr(&ctx)) else { return 0 };
    if is_helper(tgid) || (spec.flags & spec_flag::CLIENTS != 0 && is_client(tgid)) {
        begin(&ctx, id, 0, 0, spec);
    }
    0
}

/// The syscalls that are reported for the runtime alone.
#[tracepoint]
pub(crate) fn runtime_enter(ctx: TracePointContext) -> u32 {
    let id = kernel::pid_tgid();
    if maps::is_runtime((id >> 32) as u32)
        && let Some(spec) = SPECS.get(kernel::nr(&ctx))
    {
        begin(&ctx, id, 0, 0, spec);
    }
    0
}

/// Whether that process is a client of the runtime, or a child of one.
#[inline(always)]
pub(crate) fn is_client(tgid: u32) -> bool {
    CLIENTS.get_ptr(tgid).is_some()
}

/// Whether that process is tracked and not a container's.
#[inline(always)]
pub(crate) fn is_helper(tgid: u32) -> bool {
    // SAFETY: one word is read from the value.
    unsafe { TRACKED.get(tgid) }.is_some_and(|tracked| tracked.flags & tracked_flag::CONTAINER == 0)
}

#[inline(always)]
fn watched(ctx: &TracePointContext, id: u64) {
    let key = fd_key((id >> 32) as u32, kernel::arg::<0>(ctx) as u32);
    // SAFETY: entries are replaced, not changed in place.
    let Some(fd) = (unsafe { FDS.get(key) }) else { return };
    let (conn, kind) = (fd.id, fd.kind);
    let Some(spec) = SPECS.get(kernel::nr(ctx)) else { return };
    // No payload is wanted of a muted connection.
    if spec.class == class::IO && CONNS.get_ptr(conn).is_none() {
        return;
    }
    begin(ctx, id, conn, kind, spec);
}

#[inline(always)]
fn begin(ctx: &TracePointContext, key: u64, id: u64, kind: u32, spec: &Spec) {
    let mut call = Call { enter: 0, id, args: [0; ARGS], nr: kernel::nr(ctx), kind };
    let args = spec.args as u64;
    if spec.class < class::IO || args > ARGS as u64 {
        return;
    }
    // SAFETY: at most ARGS words, as just checked; only as many as the event has, for the rest is not written.
    unsafe {
        let from = ctx.as_ptr() as u64 + kernel::at::<{ offset::SYS_ARGS }>();
        bpf_probe_read_kernel(call.args.as_mut_ptr().cast(), (args * 8) as u32, from as *const _);
    }
    if spec.only != 0 && (call.args[0] > 63 || spec.only >> (call.args[0] & 63) & 1 == 0) {
        return;
    }
    call.enter = ring::now();
    if CALLS.insert(key, call, 0).is_err() {
        maps::count(counter::MAP_FULL);
    }
}

//! Reading the kernel: members at the offsets that the loader resolved, and what is derived from a task.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_probe_read_kernel, bpf_probe_read_user,
};
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::Namespaces;
use tracer_ebpf::shared::offset::{self, *};

use crate::maps::MYSELF;

/// The offsets, in read-only data that the loader fills: the verifier folds each load to a constant.
#[repr(transparent)]
pub(crate) struct Offsets(MaybeUninit<[u32; offset::COUNT]>);

#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets(MaybeUninit::new([offset::MISSING; offset::COUNT]));

/// The offset with that index.
#[inline(always)]
pub(crate) fn at<const INDEX: usize>() -> u64 {
    const { assert!(INDEX < offset::COUNT) };
    // SAFETY: in bounds by the assertion; volatile, for the loader changes the value after compilation.
    unsafe { core::ptr::read_volatile((&raw const OFFSETS).cast::<u32>().add(INDEX)) as u64 }
}

/// Reads kernel memory; zeros where it cannot be read.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper fills all of `value`, with zeros on failure; T is plain data at each call.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        value.assume_init()
    }
}

/// Reads the member with that index of the object at `base`.
#[inline(always)]
pub(crate) fn member<T: Copy, const INDEX: usize>(base: u64) -> T {
    read(base + at::<INDEX>())
}

/// Reads user memory of the current process; zeros where it cannot be read.
#[inline(always)]
pub(crate) fn read_user<T: Copy>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper fills all of `value`, with zeros on failure; T is plain data at each call.
    unsafe {
        bpf_probe_read_user(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const _);
        value.assume_init()
    }
}

/// The current task.
#[inline(always)]
pub(crate) fn task() -> u64 {
    // SAFETY: takes no argument.
    unsafe { bpf_get_current_task() }
}

/// Kernel tgid (high half) and tid of the current task.
#[inline(always)]
pub(crate) fn pid_tgid() -> u64 {
    // SAFETY: takes no argument.
    unsafe { bpf_get_current_pid_tgid() }
}

/// Argument `N` of a syscall entry. The verifier wants a constant offset into a context: the usual one is read
/// directly, any other through a helper; it drops the branch that is not taken.
#[inline(always)]
pub(crate) fn arg<const N: usize>(ctx: &TracePointContext) -> u64 {
    if at::<SYS_ARGS>() == 16 {
        // SAFETY: the format file says that the arguments start here; the verifier checks the rest.
        unsafe { core::ptr::read_volatile(ctx.as_ptr().cast::<u64>().add(2 + N)) }
    } else {
        read(ctx.as_ptr() as u64 + at::<SYS_ARGS>() + 8 * N as u64)
    }
}

/// Result of a syscall, at its exit.
#[inline(always)]
pub(crate) fn ret(ctx: &TracePointContext) -> i64 {
    if at::<SYS_RET>() == 16 {
        // SAFETY: as in `arg`.
        unsafe { core::ptr::read_volatile(ctx.as_ptr().cast::<i64>().add(2)) }
    } else {
        read(ctx.as_ptr() as u64 + at::<SYS_RET>())
    }
}

/// Number of the syscall.
#[inline(always)]
pub(crate) fn nr(ctx: &TracePointContext) -> u32 {
    read(ctx.as_ptr() as u64 + at::<SYS_NR>())
}

/// Whether podlapse lives in the initial pid namespace: its pids are then the kernel's own.
#[inline(always)]
pub(crate) fn in_initial_namespace() -> bool {
    MYSELF.get(0).is_some_and(|me| me.pid != 0 && me.level == 0)
}

/// Whether a pid of podlapse's namespace is podlapse's own.
#[inline(always)]
pub(crate) fn is_myself(pid: u32) -> bool {
    pid != 0 && MYSELF.get(0).is_some_and(|me| me.pid == pid)
}

/// A `struct pid`'s number in podlapse's pid namespace; 0: not visible there.
#[inline(always)]
pub(crate) fn number(pid: u64) -> u32 {
    let Some(me) = MYSELF.get(0) else { return 0 };
    if pid == 0 || me.pid == 0 || member::<u32, PID_LEVEL>(pid) < me.level {
        return 0;
    }
    let upid = pid + at::<PID_NUMBERS>() + (me.level & 31) as u64 * at::<UPID_SIZE>();
    if member::<u64, UPID_NS>(upid) != me.ns {
        return 0;
    }
    member::<u32, UPID_NR>(upid)
}

/// A task's thread id in podlapse's pid namespace.
#[inline(always)]
pub(crate) fn tid_of(task: u64) -> u32 {
    number(member::<u64, TASK_THREAD_PID>(task))
}

/// A task's thread group id in podlapse's pid namespace.
#[inline(always)]
pub(crate) fn tgid_of(task: u64) -> u32 {
    tid_of(member::<u64, TASK_LEADER>(task))
}

/// Thread group of a task's real parent, in podlapse's pid namespace.
#[inline(always)]
pub(crate) fn parent_of(task: u64) -> u32 {
    tgid_of(member::<u64, TASK_PARENT>(task))
}

/// Inode number of a task's mount namespace.
#[inline(always)]
pub(crate) fn mnt_of(task: u64) -> u32 {
    let nsproxy = member::<u64, TASK_NSPROXY>(task);
    member::<u32, MNT_INUM>(member::<u64, NSPROXY_MNT>(nsproxy))
}

/// Inode numbers of a task's namespaces.
#[inline(always)]
pub(crate) fn namespaces_of(task: u64) -> Namespaces {
    let nsproxy = member::<u64, TASK_NSPROXY>(task);
    let user = member::<u64, CRED_USER>(member::<u64, TASK_CRED>(task));
    Namespaces {
        mnt: member::<u32, MNT_INUM>(member::<u64, NSPROXY_MNT>(nsproxy)),
        net: member::<u32, NET_INUM>(member::<u64, NSPROXY_NET>(nsproxy)),
        ipc: member::<u32, IPC_INUM>(member::<u64, NSPROXY_IPC>(nsproxy)),
        uts: member::<u32, UTS_INUM>(member::<u64, NSPROXY_UTS>(nsproxy)),
        pid: member::<u32, PID_INUM>(member::<u64, NSPROXY_PID>(nsproxy)),
        user: member::<u32, USER_INUM>(user),
    }
}

/// Id of a task's cgroup in the default hierarchy.
#[inline(always)]
pub(crate) fn cgroup_of(task: u64) -> u64 {
    let cgroup = member::<u64, CSS_SET_DFL>(member::<u64, TASK_CGROUPS>(task));
    member::<u64, KN_ID>(member::<u64, CGROUP_KN>(cgroup))
}

/// The current process's `struct file` behind a descriptor; 0: none.
#[inline(always)]
pub(crate) fn file(fd: u64) -> u64 {
    let table = member::<u64, FILES_FDT>(member::<u64, TASK_FILES>(task()));
    if table == 0 || fd >= member::<u32, FDT_MAX>(table) as u64 {
        return 0;
    }
    read(member::<u64, FDT_FD>(table) + fd * 8)
}

/// The `struct sock` of a socket's `struct file`; 0: none.
#[inline(always)]
pub(crate) fn sock_of(file: u64) -> u64 {
    if file == 0 {
        return 0;
    }
    member::<u64, SOCKET_SK>(member::<u64, FILE_PRIVATE>(file))
}

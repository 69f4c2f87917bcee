//! Writes to files of a cgroup file system by the processes that work for the runtime, and by PID 1 where it makes the
//! pods' cgroups (kernel: `kernel/cgroup/cgroup.c`, `cgroup_file_write`). The file is recognised at the write, by its
//! file system: they write seldom, and opens need no hook then.
//!
//! And writes of those processes to security attributes, by which init takes its AppArmor or SELinux label
//! (`fs/proc/base.c`, `proc_pid_attr_write`): without the value.

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel_str, bpf_probe_read_user};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::fd_kind;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::{CgroupWrite, MAX_VALUE, counter, kind};

use crate::kernel;
use crate::maps::{self, Call};
use crate::ring::{self, Slot};

/// include/uapi/linux/magic.h
const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
const ATTR: u64 = u64::from_le_bytes(*b"attr\0\0\0\0");
const APPARMOR: u64 = u64::from_le_bytes(*b"apparmor");
const KUBEPODS: u64 = u64::from_le_bytes(*b"kubepods");
const CRI_CONTAINERD: u64 = u64::from_le_bytes(*b"cri-cont");
const CRIO: u64 = u64::from_le_bytes(*b"crio-\0\0\0");
/// `NAME_MAX` and the terminating zero.
const NAME: u64 = 256;
const SLOT: usize = size_of::<CgroupWrite>() + 2 * NAME as usize + MAX_VALUE;

/// What a descriptor of the current process names: a file of a cgroup file system, a security attribute, or neither (0).
#[inline(always)]
pub(crate) fn kind_of(fd: u64) -> u32 {
    let file = kernel::file(fd & 0xffff_ffff);
    match magic(file) {
        CGROUP_SUPER_MAGIC | CGROUP2_SUPER_MAGIC => fd_kind::CGROUP,
        // `attr/exec`, `attr/apparmor/exec`; all of the other name is read.
        PROC_SUPER_MAGIC => match start_of_name(directory(file)) {
            APPARMOR => fd_kind::LABEL,
            name if name & 0xff_ffff_ffff == ATTR => fd_kind::LABEL,
            _ => 0,
        },
        _ => 0,
    }
}

/// Whether it is a cgroup's of a pod or container, by the first letters of its directory's name or of the one above.
#[inline(always)]
pub(crate) fn is_of_pod(fd: u64) -> bool {
    let file = kernel::file(fd & 0xffff_ffff);
    if !matches!(magic(file), CGROUP_SUPER_MAGIC | CGROUP2_SUPER_MAGIC) {
        return false;
    }
    let dir = directory(file);
    let name = start_of_name(dir);
    // Without a pod's cgroup above it, as crictl's, a container's has the runtime's prefix.
    name == KUBEPODS
        || name == CRI_CONTAINERD
        || name & 0xff_ffff_ffff == CRIO
        || start_of_name(kernel::member::<u64, DENTRY_PARENT>(dir)) == KUBEPODS
}

/// Of a file's file system.
#[inline(always)]
fn magic(file: u64) -> u64 {
    kernel::member::<u64, SB_MAGIC>(kernel::member::<u64, INODE_SB>(kernel::member::<u64, FILE_INODE>(file)))
}

#[inline(always)]
fn directory(file: u64) -> u64 {
    kernel::member::<u64, DENTRY_PARENT>(kernel::member::<u64, FILE_DENTRY>(file))
}

#[inline(always)]
fn start_of_name(dentry: u64) -> u64 {
    kernel::read(kernel::member::<u64, DENTRY_NAME>(dentry))
}

/// Exit of write where the runtime's own bytes are told by trampolines.
#[tracepoint]
pub(crate) fn file_write_exit(ctx: TracePointContext) -> u32 {
    returned(&ctx, kernel::pid_tgid());
    0
}

/// A cgroup file or a security attribute was written, or not: the exit of the write.
#[inline(always)]
pub(crate) fn returned(ctx: &TracePointContext, id: u64) {
    let Some(call) = maps::take_call(id, kernel::nr(ctx)) else { return };
    if call.kind == fd_kind::CGROUP || call.kind == fd_kind::LABEL {
        written(&call, kernel::ret(ctx));
    }
}

#[inline(always)]
fn written(call: &Call, ret: i64) {
    let file = kernel::file(call.args[0] & 0xffff_ffff);
    if file == 0 {
        return;
    }
    let Some(slot) = Slot::<SLOT>::sign() else { return };
    let record = slot.record::<CgroupWrite>();
    let dentry = kernel::member::<u64, FILE_DENTRY>(file);
    let parent = kernel::member::<u64, DENTRY_PARENT>(dentry);
    let is_label = call.kind == fd_kind::LABEL;
    let inode = kernel::member::<u64, INODE_INO>(kernel::member::<u64, DENTRY_INODE>(parent));
    let cgroup = if is_label { 0 } else { inode };
    let mut end = size_of::<CgroupWrite>() as u64;
    let dir_len = name(&slot, end, parent);
    end += dir_len;
    let file_len = name(&slot, end, dentry);
    end += file_len;
    let mut value_len = if is_label { 0 } else { call.args[2] };
    if value_len > MAX_VALUE as u64 {
        value_len = MAX_VALUE as u64;
    }
    // SAFETY: both names are below NAME bytes, so MAX_VALUE bytes are free behind them.
    if unsafe { bpf_probe_read_user(slot.tail(end), value_len as u32, call.args[1] as *const _) } != 0 {
        maps::count(counter::UNREADABLE);
        value_len = 0;
    }
    end += value_len;
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::CGROUP_WRITE, call.enter, end);
        (*record).exit = ring::now();
        (*record).ret = ret;
        (*record).cgroup = cgroup;
        (*record).dir_len = dir_len as u32;
        (*record).file_len = file_len as u32;
        (*record).value_len = value_len as u32;
        (*record).reserved = 0;
    }
    slot.submit_sign();
}

/// Writes a directory entry's name into the slot; its length without the terminating zero.
#[inline(always)]
fn name(slot: &Slot<SLOT>, offset: u64, dentry: u64) -> u64 {
    let from = kernel::member::<u64, DENTRY_NAME>(dentry);
    // SAFETY: callers leave NAME bytes behind `offset`.
    let got = unsafe { bpf_probe_read_kernel_str(slot.tail(offset), NAME as u32, from as *const _) };
    match ring::bounded(got, NAME) {
        0 => 0,
        got => got - 1,
    }
}

//! Writes to files of a cgroup file system by tracked processes (kernel: `fs/open.c`, `kernel/cgroup/cgroup.c`,
//! `cgroup_file_write`). A file is recognised when it is opened for writing, by its file system; the write then finds
//! its descriptor among the watched ones.

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel_str, bpf_probe_read_user};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::shared::{CGROUP_FDS, Fd, fd_key, fd_kind, tracked_flag};
use tracer_ebpf::{CgroupWrite, MAX_VALUE, counter, kind};

use crate::kernel;
use crate::maps::{self, Call, FDS, TRACKED};
use crate::ring::{self, Slot};

/// include/uapi/linux/magic.h
const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
/// include/linux/fs.h: `FMODE_WRITE`
const FMODE_WRITE: u32 = 2;
/// `NAME_MAX` and the terminating zero.
const NAME: u64 = 256;
const SLOT: usize = size_of::<CgroupWrite>() + 2 * NAME as usize + MAX_VALUE;

/// Exits of open, openat, openat2.
#[tracepoint]
pub(crate) fn open_exit(ctx: TracePointContext) -> u32 {
    let tgid = (kernel::pid_tgid() >> 32) as u32;
    let Some(tracked) = TRACKED.get_ptr_mut(tgid) else { return 0 };
    let fd = kernel::ret(&ctx);
    // SAFETY: a word of a live map value.
    if fd < 0 || unsafe { (*tracked).flags } & tracked_flag::CONTAINER != 0 {
        return 0;
    }
    let fd = fd as u32;
    let file = kernel::file(fd as u64);
    if file == 0 || kernel::member::<u32, FILE_MODE>(file) & FMODE_WRITE == 0 {
        return 0;
    }
    let inode = kernel::member::<u64, FILE_INODE>(file);
    let magic = kernel::member::<u64, SB_MAGIC>(kernel::member::<u64, INODE_SB>(inode));
    if magic != CGROUP_SUPER_MAGIC && magic != CGROUP2_SUPER_MAGIC {
        return 0;
    }
    // SAFETY: words of a live map value; two threads that open at once may take one place, and the loser's descriptor
    // is then only forgotten when it is closed.
    let old = unsafe {
        let place = ((*tracked).next & (CGROUP_FDS as u32 - 1)) as usize;
        (*tracked).next = (*tracked).next.wrapping_add(1);
        let old = (*tracked).cgroup_fds[place];
        (*tracked).cgroup_fds[place] = fd + 1;
        old
    };
    if old != 0 && old != fd + 1 {
        let _ = FDS.remove(fd_key(tgid, old - 1));
    }
    if FDS.insert(fd_key(tgid, fd), Fd { id: 0, kind: fd_kind::CGROUP, reserved: 0 }, 0).is_err() {
        maps::count(counter::MAP_FULL);
    }
    0
}

/// A cgroup file's descriptor was closed.
#[inline(always)]
pub(crate) fn closed(tgid: u32, fd: u32) {
    let Some(tracked) = TRACKED.get_ptr_mut(tgid) else { return };
    for i in 0..CGROUP_FDS {
        // SAFETY: words of a live map value.
        unsafe {
            if (*tracked).cgroup_fds[i] == fd + 1 {
                (*tracked).cgroup_fds[i] = 0;
            }
        }
    }
}

/// A cgroup file was written, or not: the exit of the write.
#[inline(always)]
pub(crate) fn written(call: &Call, ret: i64) {
    let file = kernel::file(call.args[0] & 0xffff_ffff);
    if file == 0 {
        return;
    }
    let Some(slot) = Slot::<SLOT>::sign() else { return };
    let record = slot.record::<CgroupWrite>();
    let dentry = kernel::member::<u64, FILE_DENTRY>(file);
    let parent = kernel::member::<u64, DENTRY_PARENT>(dentry);
    let cgroup = kernel::member::<u64, INODE_INO>(kernel::member::<u64, DENTRY_INODE>(parent));
    let mut end = size_of::<CgroupWrite>() as u64;
    let dir_len = name(&slot, end, parent);
    end += dir_len;
    let file_len = name(&slot, end, dentry);
    end += file_len;
    let mut value_len = call.args[2];
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

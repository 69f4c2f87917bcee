//! Tells the loader the kernel's own tgid of a process that it holds a pidfd of, and its own pid namespace; and notes which
//! `struct sock` is the connection whose socket it holds a copy of.
//!
//! `pidfd_getfd(pidfd, what, KEY)` fails in the kernel at once (`kernel/pid.c`: flags must be 0), so the question has
//! no effect but this program's answer. The key is random for each load.

use core::mem::MaybeUninit;

use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::role;
use tracer_ebpf::shared::ASK_SOCKET;
use tracer_ebpf::shared::offset::*;

use crate::kernel;
use crate::maps::{FOUND, MYSELF};
use crate::sockets;

#[repr(transparent)]
pub(crate) struct Key(MaybeUninit<u32>);

#[unsafe(no_mangle)]
static FINDER_KEY: Key = Key(MaybeUninit::new(0));

/// Entry of pidfd_getfd.
#[tracepoint]
pub(crate) fn pid_finder(ctx: TracePointContext) -> u32 {
    // SAFETY: volatile, for the loader changes the value after compilation.
    let key = unsafe { core::ptr::read_volatile((&raw const FINDER_KEY).cast::<u32>()) };
    if key == 0 || kernel::arg::<2>(&ctx) as u32 != key {
        return 0;
    }
    let Some(found) = FOUND.get_ptr_mut(0) else { return 0 };
    let file = kernel::file(kernel::arg::<0>(&ctx) & 0xffff_ffff);
    if kernel::arg::<1>(&ctx) as u32 == ASK_SOCKET {
        // SAFETY: a word of a live map value.
        let conn = unsafe { (*found).conn };
        let known = sockets::note_sock(conn, kernel::sock_of(file));
        // SAFETY: likewise.
        unsafe { (*found).conn = known };
        return 0;
    }
    // Up to 6.8 the file itself holds the pid (`kernel/fork.c`), later its inode does (`fs/pidfs.c`).
    let mut pid = kernel::member::<u64, FILE_PRIVATE>(file);
    if pid == 0 {
        pid = kernel::member::<u64, INODE_PRIVATE>(kernel::member::<u64, FILE_INODE>(file));
    }
    if kernel::arg::<1>(&ctx) as u32 == role::SELF
        && let Some(me) = MYSELF.get_ptr_mut(0)
    {
        let level = kernel::member::<u32, PID_LEVEL>(pid);
        let upid = pid + kernel::at::<PID_NUMBERS>() + (level & 31) as u64 * kernel::at::<UPID_SIZE>();
        // SAFETY: words of a live map value.
        unsafe {
            (*me).ns = kernel::member::<u64, UPID_NS>(upid);
            (*me).level = level;
            (*me).pid = kernel::member::<u32, UPID_NR>(upid);
        }
    }
    // SAFETY: words of a live map value.
    unsafe {
        (*found).tgid = kernel::member::<u32, UPID_NR>(pid + kernel::at::<PID_NUMBERS>());
        (*found).pid = kernel::number(pid);
        note!(&ctx, "finder: pid {} is the kernel's {}", (*found).pid, (*found).tgid);
    }
    0
}

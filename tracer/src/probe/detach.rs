//! Detaching, without keeping anybody waiting.
//!
//! The kernel takes a tracepoint's last perf event apart under one lock and waits for two grace periods meanwhile
//! (`kernel/trace/trace_event_perf.c`, `perf_trace_event_unreg`): some 50 ms each, one after the other, whether one
//! thread closes them or many; seconds for all hooks. It happens in the process that closes the last descriptor. So a
//! short-lived child takes copies of the descriptors along: closing them here costs nothing then, and the child's own
//! end, which nothing can hold up, takes the hooks away. Where it cannot be made, detaching takes its time here.

use std::io::PipeReader;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

/// What the child is called; at most 15 bytes.
const NAME: &std::ffi::CStr = c"podlapse-detach";

/// Sockets are looked for below this descriptor; the agent's were its first.
const DESCRIPTORS: RawFd = 1024;

/// As long as this is held, the child holds copies of this process's descriptors.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "closing it is what counts")] OwnedFd);

/// Makes the child. Drop what it is returned after the descriptors were closed. None: there is no child.
pub(crate) fn in_background() -> Option<Held> {
    let (wait, held) = std::io::pipe().ok()?;
    // SAFETY: the child calls nothing but async-signal-safe functions before it ends.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => child(&wait, held.as_raw_fd()),
        between => {
            let mut status = 0;
            // SAFETY: waits for the process just made, which ends at once; `status` is a place to write to.
            unsafe { libc::waitpid(between, &raw mut status, 0) };
            Some(Held(held.into()))
        }
    }
}

/// A child of the child is nobody's to wait for.
fn child(wait: &PipeReader, held: RawFd) -> ! {
    // SAFETY: all async-signal-safe; no memory is touched but this frame's. The standard streams are closed so that
    // whoever reads them sees their end, and sockets so that the next agent finds its port free; a session of its own
    // keeps the terminal's signals away.
    unsafe {
        for fd in 3..DESCRIPTORS {
            let (mut kind, mut size) = (0_i32, 4);
            let kind = (&raw mut kind).cast();
            if libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, kind, &raw mut size) == 0 {
                libc::close(fd);
            }
        }
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        for fd in [held, 0, 1, 2] {
            libc::close(fd);
        }
        let mut byte = 0_u8;
        libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_holds_no_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = in_background();
        assert!(held.is_some());
        drop(listener);
        std::net::TcpListener::bind(address).unwrap();
    }
}

//! The program that holds a sandbox's namespaces: sleeps, and ends when it is asked to.

use std::ffi::c_int;

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;

unsafe extern "C" {
    fn signal(signum: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn pause() -> c_int;
    fn _exit(status: c_int) -> !;
}

extern "C" fn end(_signal: c_int) {
    // SAFETY: _exit is async-signal-safe.
    unsafe { _exit(0) }
}

fn main() {
    // SAFETY: the handler calls nothing but _exit; these are the libc functions' own prototypes.
    unsafe {
        signal(SIGINT, end);
        signal(SIGTERM, end);
        loop {
            pause();
        }
    }
}

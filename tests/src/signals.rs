//! Which signals reach whom. A blocked signal stays blocked in children, across exec too.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Blocks the signals in this thread and those it makes, and returns their set.
pub fn block(signals: &[libc::c_int]) -> libc::sigset_t {
    let set = set(signals);
    mask(libc::SIG_BLOCK, &set);
    set
}

/// Lets all signals through again.
pub fn clear() {
    mask(libc::SIG_SETMASK, &set(&[]));
}

/// Starts the command with all signals let through.
pub fn clear_in(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(|| {
            clear();
            Ok(())
        })
    }
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set that the other calls use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

fn mask(how: libc::c_int, set: &libc::sigset_t) {
    // SAFETY: changes this thread's mask alone; the set is initialised.
    unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
}

//! The BPF programs: one file per group of hooks, each hook with the kernel source that fires it.
//!
//! They filter and copy; they decide nothing. What leaves the kernel is laid out in the library of this crate.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

/// A line for the developer, in programs built with the `log` feature; nothing otherwise. Only in programs that run
/// rarely: each costs the verifier some hundred instructions.
#[cfg(all(target_arch = "bpf", feature = "log"))]
macro_rules! note {
    ($ctx:expr, $($text:tt)*) => { aya_log_ebpf::info!($ctx, $($text)*) };
}
#[cfg(all(target_arch = "bpf", not(feature = "log")))]
macro_rules! note {
    ($ctx:expr, $format:literal $(, $value:expr)*) => {{ let _ = ($ctx, $(&$value),*); }};
}

#[cfg(target_arch = "bpf")]
mod bytes;
#[cfg(target_arch = "bpf")]
mod calls;
#[cfg(target_arch = "bpf")]
mod cgroup;
#[cfg(target_arch = "bpf")]
mod cgroup_files;
#[cfg(target_arch = "bpf")]
mod exec;
#[cfg(target_arch = "bpf")]
mod finder;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod process;
#[cfg(target_arch = "bpf")]
mod ring;
#[cfg(target_arch = "bpf")]
mod signal;
#[cfg(target_arch = "bpf")]
mod sockets;
#[cfg(target_arch = "bpf")]
mod syscalls;
#[cfg(target_arch = "bpf")]
mod tcp;
#[cfg(target_arch = "bpf")]
mod trampolines;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel gives its GPL-only helpers (`bpf_probe_read_*`, `bpf_ktime_get_ns`) to programs that say so.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}

//! Who listens: `sock:inet_sock_set_state` (kernel: `net/ipv4/af_inet.c`, `inet_sk_state_store`; since 4.16).
//!
//! Each change of each TCP socket comes here, most in softirq; all but the rare `listen` are left after one comparison.
//! A socket begins to listen in the caller's own context. Any process counts: a container's children are not tracked,
//! their cgroup and network namespace tell whose they are.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::{Listen, kind};

use crate::kernel;
use crate::ring::{self, Slot};

/// `TCP_LISTEN` (include/net/tcp_states.h).
const TCP_LISTEN: u32 = 10;

#[tracepoint]
pub(crate) fn inet_sock_set_state(ctx: TracePointContext) -> u32 {
    let event = ctx.as_ptr() as u64;
    if kernel::read::<u32>(event + kernel::at::<TCP_STATE>()) != TCP_LISTEN {
        return 0;
    }
    let sk: u64 = kernel::read(event + kernel::at::<TCP_SOCK>());
    let port: u16 = kernel::read(event + kernel::at::<TCP_PORT>());
    let Some(slot) = Slot::<{ size_of::<Listen>() }>::sign() else { return 0 };
    let record = slot.record::<Listen>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::LISTEN, ring::now(), size_of::<Listen>() as u64);
        (*record).cgroup = kernel::cgroup_of(kernel::task());
        (*record).netns = kernel::member::<u32, NET_INUM>(kernel::member::<u64, SK_NET>(sk));
        (*record).port = port as u32;
    }
    slot.submit_sign();
    0
}

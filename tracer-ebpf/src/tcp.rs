//! Who listens, and where the runtime's clients connect to: `sock:inet_sock_set_state` (kernel: `net/ipv4/af_inet.c`,
//! `inet_sk_state_store`; since 4.16).
//!
//! Each change of each TCP socket comes here, most in softirq; all but a few are left after a comparison or two. A
//! socket begins to listen in the caller's own context. Any process counts: a container's children are not tracked,
//! their cgroup and network namespace tell whose they are. A socket begins to connect in the caller's context too, with
//! its destination set (`tcp_v4_connect`, `tcp_v6_connect`); the answer comes in softirq, whoever is current.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use tracer_ebpf::shared::offset::*;
use tracer_ebpf::{Connect, Listen, kind};

use crate::calls;
use crate::kernel;
use crate::maps::{CONNECTS, Connecting};
use crate::ring::{self, Slot};

/// include/net/tcp_states.h
const TCP_ESTABLISHED: u32 = 1;
const TCP_SYN_SENT: u32 = 2;
const TCP_CLOSE: u32 = 7;
const TCP_LISTEN: u32 = 10;

#[tracepoint]
pub(crate) fn inet_sock_set_state(ctx: TracePointContext) -> u32 {
    let event = ctx.as_ptr() as u64;
    match kernel::read::<u32>(event + kernel::at::<TCP_STATE>()) {
        TCP_LISTEN => listen(event),
        TCP_SYN_SENT => begin(event),
        state @ (TCP_ESTABLISHED | TCP_CLOSE)
            if kernel::read::<u32>(event + kernel::at::<TCP_OLD_STATE>()) == TCP_SYN_SENT =>
        {
            end(event, state == TCP_ESTABLISHED);
        }
        _ => {}
    }
    0
}

#[inline(always)]
fn listen(event: u64) {
    let sk: u64 = kernel::read(event + kernel::at::<TCP_SOCK>());
    let port: u16 = kernel::read(event + kernel::at::<TCP_PORT>());
    let Some(slot) = Slot::<{ size_of::<Listen>() }>::sign() else { return };
    let record = slot.record::<Listen>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        ring::head(&raw mut (*record).header, kind::LISTEN, ring::now(), size_of::<Listen>() as u64);
        (*record).cgroup = kernel::cgroup_of(kernel::task());
        (*record).netns = kernel::member::<u32, NET_INUM>(kernel::member::<u64, SK_NET>(sk));
        (*record).port = port as u32;
    }
    slot.submit_sign();
}

/// Another's connect takes out what a missed end left at the same address.
#[inline(always)]
fn begin(event: u64) {
    let sk: u64 = kernel::read(event + kernel::at::<TCP_SOCK>());
    if !calls::is_client((kernel::pid_tgid() >> 32) as u32) {
        let _ = CONNECTS.remove(sk);
        return;
    }
    let (tgid, tid) = ring::whoami();
    let connecting = Connecting {
        start: ring::now(),
        address: kernel::read(event + kernel::at::<TCP_TO_ADDRESS>()),
        tgid,
        tid,
        port: kernel::read::<u16>(event + kernel::at::<TCP_TO_PORT>()) as u32,
        reserved: 0,
    };
    let _ = CONNECTS.insert(sk, connecting, 0);
}

#[inline(always)]
fn end(event: u64, accepted: bool) {
    let sk: u64 = kernel::read(event + kernel::at::<TCP_SOCK>());
    // SAFETY: copied out at once; a socket has one connect at a time.
    let Some(it) = (unsafe { CONNECTS.get(sk) }).copied() else { return };
    let _ = CONNECTS.remove(sk);
    let Some(slot) = Slot::<{ size_of::<Connect>() }>::sign() else { return };
    let record = slot.record::<Connect>();
    // SAFETY: the slot holds a record at its start.
    unsafe {
        let len = size_of::<Connect>() as u64;
        ring::head_of(&raw mut (*record).header, kind::CONNECT, ring::now(), len, (it.tgid, it.tid));
        (*record).start = it.start;
        (*record).address = it.address;
        (*record).port = it.port;
        (*record).accepted = accepted as u32;
    }
    slot.submit_sign();
}

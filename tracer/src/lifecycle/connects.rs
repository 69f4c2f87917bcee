//! kubelet's TCP connects to a pod (its TCP and HTTP probes): known by the pod's address, which PodSandboxStatus tells.

use std::collections::BTreeSet;

use super::start::Start;
use super::{Lifecycle, StartKey};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::Connect;
use crate::trace::StartKind;

/// Clients and ports that a start remembers.
const MAX_PORTS: usize = 32;
/// Connects to addresses that may yet become a pod's.
const MAX_EARLY: usize = 256;

/// The connects of one client to one port of a pod, up to the first that was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probed {
    pub(super) tgid: Tgid,
    pub(super) port: u32,
    /// When the first began.
    pub(super) first: MonotonicNs,
    pub(super) refused: u64,
    pub(super) accepted: Option<MonotonicNs>,
}

/// One connect to an address of no known pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    at: MonotonicNs,
    tgid: Tgid,
    connect: Connect,
}

impl Lifecycle {
    /// A client's connect came to its end.
    pub(super) fn connect(&mut self, at: MonotonicNs, tgid: Tgid, connect: Connect) {
        let early = Early { at, tgid, connect };
        let address = connect.address.to_string();
        if self.starts.values().any(|start| has_address(start, &address)) {
            self.probed(&address, early);
        } else if self.starts.values().any(|start| start.pod.ip.is_none() && self.is_waited_for(start, connect)) {
            if self.early_connects.len() >= MAX_EARLY {
                self.early_connects.pop_front();
                self.losses.evicted += 1;
            }
            self.early_connects.push_back(early);
        }
    }

    /// An address became known: what connected to it before is its pod's.
    pub(super) fn address_known(&mut self, address: &str) {
        for early in std::mem::take(&mut self.early_connects) {
            if early.connect.address.to_string() == address {
                self.probed(address, early);
            } else {
                self.early_connects.push_back(early);
            }
        }
    }

    /// Where several pods have the address, nothing is said.
    fn probed(&mut self, address: &str, Early { at, tgid, connect }: Early) {
        let here = || self.starts.iter().filter(|(_, start)| has_address(start, address));
        let sandboxes: BTreeSet<_> = here().map(|(_, start)| &start.sandbox).collect();
        if sandboxes.len() != 1 {
            return;
        }
        let pod = here().find(|(_, start)| start.kind == StartKind::Pod).map(|(key, _)| *key);
        let waited = |(key, start): (&StartKey, &Start)| self.is_waited_for(start, connect).then_some(*key);
        let waited = here().find_map(waited);
        pod.into_iter().for_each(|key| self.port_probed(at, key, connect));
        let Some(start) = waited.and_then(|key| self.starts.get_mut(&key)) else { return };
        let known = start.probed.iter().position(|it| (it.tgid, it.port) == (tgid, connect.port));
        if known.is_none() && start.probed.len() >= MAX_PORTS {
            start.notes.insert("more_probed_ports".to_owned());
            return;
        }
        let index = known.unwrap_or(start.probed.len());
        if known.is_none() {
            let first = connect.start;
            start.probed.push(Probed { tgid, port: connect.port, first, refused: 0, accepted: None });
        }
        let it = &mut start.probed[index];
        if it.accepted.is_some() {
            return;
        }
        it.first = it.first.min(connect.start);
        if connect.accepted {
            it.accepted = Some(at);
        } else {
            it.refused += 1;
        }
    }

    /// The pod's start is not over, one of its containers ran when the connect began, and its network is its own. A
    /// later attempt of a container does not count: the connect may be for one that has run all along.
    fn is_waited_for(&self, start: &Start, connect: Connect) -> bool {
        let sandbox = start.sandbox.as_ref().and_then(|id| self.units.find(id)).and_then(|key| self.units.get(key));
        let mut entries = start.containers.iter().filter_map(|c| start.unit(c, &self.units)?.entered());
        start.kind == StartKind::Pod
            && start.takes(connect.start)
            && sandbox.is_some_and(|unit| unit.netns_path.is_some())
            && entries.any(|entry| entry.at <= connect.start)
    }
}

/// Whether a pod has that address now; one that was stopped has given it back.
fn has_address(start: &Start, address: &str) -> bool {
    start.stopped.is_none() && start.pod.ip.as_deref() == Some(address)
}

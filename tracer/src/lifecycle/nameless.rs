//! Calls that will never have a name: their clients were connected before podlapse, and do not write the path where
//! Go's gRPC does (`wire/http2/order.rs`).

use std::collections::BTreeMap;

use super::{Lifecycle, MAX_SMALL};
use crate::cri::CallStart;
use crate::ids::Tgid;

/// How many, by client.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    by_client: BTreeMap<Option<Tgid>, u64>,
}

impl Lifecycle {
    /// Counts a call that begins without a name and without the hope of one.
    pub(super) fn nameless_call(&mut self, start: &CallStart) {
        // The containerd API: nobody asks for its names.
        if !start.signs.placeless || start.signs.namespace {
            return;
        }
        self.losses.nameless += 1;
        let clients = &mut self.nameless.by_client;
        if clients.len() < MAX_SMALL || clients.contains_key(&start.client) {
            *clients.entry(start.client).or_default() += 1;
        }
    }

    /// A line for each client whose calls could not be named.
    pub fn nameless(&self) -> Vec<String> {
        let line = |(client, calls): (&Option<Tgid>, &u64)| {
            let name = |pid: &Tgid| self.processes.get(*pid).and_then(|process| process.name.as_deref());
            let who = match client.as_ref().filter(|pid| pid.0 != 0) {
                Some(pid) => format!("process {pid} ({})", name(pid).unwrap_or("?")),
                None => "an unknown process".to_owned(),
            };
            let calls = format!("{calls} call{} on a connection of {who}", if *calls == 1 { "" } else { "s" });
            format!("{calls} could not be named: it was connected before podlapse, and is not Go's gRPC")
        };
        self.nameless.by_client.iter().map(line).collect()
    }
}

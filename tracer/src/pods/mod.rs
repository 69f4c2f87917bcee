//! The identity chain of what runs now: pod → sandbox → container → process → namespaces and cgroup, and back.
//!
//! [`gather`] asks the runtimes over the CRI ([`inventory`], or [`inventories`] where nobody is to be asked), reads
//! `/proc` and the cgroup files, and joins them. Nothing is attached, nothing changed. Reading is apart from joining and
//! finding, which do no I/O.

#![forbid(unsafe_code)]

mod cgroups;
mod cri;
mod existing;
mod find;
mod info;
mod init;
mod join;
mod model;
mod place;
mod proc;
mod processes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use self::cgroups::Hierarchies;
pub use self::cri::{CriError, inventory};
pub(crate) use self::existing::{About, Part, list_existing};
pub use self::find::{Kind, Match, NotFound, Query, find};
pub use self::join::join;
pub use self::model::{
    Cgroup, Container, ContainerState, Init, Inventory, Membership, Names, Pod, Runtime, Sandbox, SandboxState,
};
pub use self::proc::inventories;
pub use self::processes::{Process, Processes, Shim};
pub use crate::probe::Node;
use crate::probe::{self, ProbeError};
use crate::record::Namespaces;

/// All that was found.
#[derive(Debug, Default)]
pub struct Listing {
    /// Where it was found.
    pub node: Node,
    /// Who was asked and answered.
    pub runtimes: Vec<Runtime>,
    /// Their pods.
    pub pods: Vec<Pod>,
    /// What a reader should know besides.
    pub notes: Vec<String>,
    /// The processes at that time.
    pub processes: Processes,
    /// How cgroups are mounted here.
    pub hierarchies: Hierarchies,
}

/// Where the names and states come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    /// From the runtimes behind these sockets; None looks where runtimes have theirs and takes all that answer.
    Cri(Vec<Option<PathBuf>>),
    /// From `/proc` alone; only what belongs to these sockets, if there are any.
    Proc(Vec<PathBuf>),
}

/// Lists what runs. The second part is what failed: runtimes that were named, or all that were looked for.
pub async fn gather(bootstrap: &Bootstrap) -> (Listing, Vec<CriError>) {
    let mut notes = Vec::new();
    let (inventories, failed, processes) = match bootstrap {
        Bootstrap::Cri(sockets) => {
            let (inventories, failed) = ask(sockets, &mut notes).await;
            // After the answers: what they name was there before.
            (inventories, failed, Processes::read())
        }
        Bootstrap::Proc(sockets) => {
            let processes = Processes::read();
            let mut inventories = inventories(&processes);
            if !sockets.is_empty() {
                let named = |socket: &String| sockets.iter().any(|path| path == Path::new(socket));
                inventories.retain(|one| one.runtime.socket.as_ref().is_some_and(named));
            }
            (inventories, Vec::new(), processes)
        }
    };
    let hierarchies = Hierarchies::read();
    let mut listing = Listing { node: Node::read(), notes, processes, hierarchies, ..Listing::default() };
    for inventory in &inventories {
        if inventory.runtime != Runtime::default() && !listing.runtimes.contains(&inventory.runtime) {
            listing.runtimes.push(inventory.runtime.clone());
        }
        listing.notes.extend(inventory.notes.iter().cloned());
    }
    listing.pods = join(inventories, &listing.processes);
    let mut unread = false;
    for pod in &mut listing.pods {
        let inits =
            pod.sandboxes.iter_mut().flat_map(inits).inspect(|init| unread |= init.namespaces == Namespaces::default());
        for cgroup in pod.cgroup.iter_mut().chain(inits.filter_map(|init| init.cgroup.as_mut())) {
            cgroup.limits = listing.hierarchies.limits(&cgroup.memberships);
        }
    }
    if listing.processes.iter().next().is_none() {
        listing.notes.push("no process is visible, so no pid is known: is /proc mounted here?".to_owned());
    }
    if unread {
        listing.notes.push("namespaces of other users' processes cannot be read: run podlapse as root".to_owned());
    }
    (listing, failed)
}

async fn ask(sockets: &[Option<PathBuf>], notes: &mut Vec<String>) -> (Vec<Inventory>, Vec<CriError>) {
    let (mut inventories, mut failed) = (Vec::new(), Vec::new());
    let named: BTreeSet<&PathBuf> = sockets.iter().flatten().collect();
    for socket in named {
        match inventory(socket).await {
            Ok(one) => add(&mut inventories, one),
            Err(error) => failed.push(error),
        }
    }
    if sockets.contains(&None) {
        let (mut answered, mut silent) = (false, Vec::new());
        for socket in probe::candidates().into_iter().filter(|socket| socket.exists()) {
            match inventory(&socket).await {
                Ok(one) => {
                    answered = true;
                    add(&mut inventories, one);
                }
                Err(error) => silent.push(error),
            }
        }
        if !answered && silent.is_empty() {
            let looked: Vec<String> = probe::candidates().iter().map(|path| path.display().to_string()).collect();
            silent.push(CriError::Socket(ProbeError::NoSocket(looked.join(", "))));
        }
        match answered {
            // What a runtime left behind when it ended.
            true => notes.extend(silent.iter().map(ToString::to_string)),
            false => failed.append(&mut silent),
        }
    }
    (inventories, failed)
}

/// One runtime may have two paths.
fn add(inventories: &mut Vec<Inventory>, one: Inventory) {
    let same = |other: &Inventory| other.runtime.pid.is_some() && other.runtime.pid == one.runtime.pid;
    if !inventories.iter().any(same) {
        inventories.push(one);
    }
}

fn inits(sandbox: &mut Sandbox) -> impl Iterator<Item = &mut Init> {
    let containers = sandbox.containers.iter_mut().filter_map(|container| container.init.as_mut());
    sandbox.init.iter_mut().chain(containers)
}

//! What `/proc` alone says of the pods that run: those that cgroup paths and the shims' arguments name. No name, no
//! image and no container that has ended is known this way.
//!
//! Pure: works on the processes that were read.

use std::collections::{BTreeMap, BTreeSet};

use super::init::cgroup;
use super::model::{Container, ContainerState, Inventory, Names, Runtime, Sandbox, SandboxState};
use super::place::{Named, place};
use super::processes::{Processes, Shim};
use crate::ids::{ContainerId, PodUid, SandboxId, Tgid};

/// One runtime's containers that are below one pod's cgroup and have one shim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The shim's address.
    socket: Option<String>,
    /// The pod's cgroup: a node in a container may have a pod of the same UID.
    pod: String,
    uid: PodUid,
    /// The shim's id.
    sandbox: Option<String>,
}

/// What the processes show, by the runtime's socket that their shims name.
pub fn inventories(processes: &Processes) -> Vec<Inventory> {
    let mut sandboxes: BTreeMap<Key, Vec<ContainerId>> = BTreeMap::new();
    for (id, pod) in containers(processes) {
        let Shim { id: sandbox, address: socket } = shim(&id, processes).cloned().unwrap_or_default();
        sandboxes.entry(Key { socket, pod: pod.path, uid: pod.id, sandbox }).or_default().push(id);
    }
    let mut inventories: Vec<Inventory> = Vec::new();
    for (key, containers) in sandboxes {
        let runtime = Runtime { socket: key.socket.clone(), ..Runtime::default() };
        // A pod of the same UID below another cgroup is another pod.
        let twin =
            |own: &Sandbox| own.pod.uid.as_ref() == Some(&key.uid) && own.cgroup_parent.as_ref() != Some(&key.pod);
        let fits = |one: &&mut Inventory| one.runtime == runtime && !one.sandboxes.iter().any(twin);
        let sandbox = |key| self::sandbox(key, containers);
        match inventories.iter_mut().find(fits) {
            Some(one) => one.sandboxes.push(sandbox(key)),
            None => inventories.push(Inventory { runtime, sandboxes: vec![sandbox(key)], notes: Vec::new() }),
        }
    }
    inventories
}

/// Each container that is in a pod's cgroup, with the pod.
fn containers(processes: &Processes) -> BTreeMap<ContainerId, Named<PodUid>> {
    let mut found = BTreeMap::new();
    for (_, process) in processes.iter() {
        let own = cgroup(process, |path| place(path).container().map(|container| container.path.clone()));
        let place = own.map(|own| place(&own.path)).unwrap_or_default();
        if let (Some(container), Some(pod)) = (place.container(), &place.pod) {
            found.insert(container.id.clone(), pod.clone());
        }
    }
    found
}

/// The one shim whose children are in a container's cgroup.
fn shim<'a>(id: &ContainerId, processes: &'a Processes) -> Option<&'a Shim> {
    let parents = processes.members(id).iter().filter_map(|pid| Some(processes.get(*pid)?.parent));
    let shims: BTreeSet<Tgid> =
        parents.filter(|pid| processes.get(*pid).is_some_and(|own| own.shim.is_some())).collect();
    let only = shims.first().filter(|_| shims.len() == 1)?;
    processes.get(*only)?.shim.as_ref()
}

fn sandbox(key: Key, containers: Vec<ContainerId>) -> Sandbox {
    let id = key.sandbox.map(SandboxId);
    let is_sandbox = |container: &ContainerId| id.as_ref().is_some_and(|id| id.0 == container.0);
    let container = |id| Container { id, state: Some(ContainerState::Running), ..Container::default() };
    let state = containers.iter().any(is_sandbox).then_some(SandboxState::Ready);
    let containers = containers.into_iter().filter(|id| !is_sandbox(id)).map(container).collect();
    Sandbox {
        id,
        pod: Names { uid: Some(key.uid), ..Names::default() },
        state,
        cgroup_parent: Some(key.pod),
        containers,
        ..Sandbox::default()
    }
}

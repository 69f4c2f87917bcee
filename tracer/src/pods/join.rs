//! Joins what the runtimes say with the processes: the identity chain. UIDs and ids decide, names never do.
//!
//! Pure: no I/O. What does not fit together is said in a note and left unknown.

use super::init::{Missing, cgroup, init};
use super::model::{Container, ContainerState, Inventory, Pod, Runtime, Sandbox, SandboxState};
use super::place::place;
use super::processes::Processes;
use crate::ids::{ContainerId, Tgid};
use crate::lifecycle::cgroup::qos;

/// The pods of all runtimes, in the order of their namespaces, names and UIDs.
pub fn join(inventories: Vec<Inventory>, processes: &Processes) -> Vec<Pod> {
    let mut pods = Vec::new();
    for Inventory { runtime, sandboxes, .. } in inventories {
        let mut own: Vec<Pod> = Vec::new();
        for mut sandbox in sandboxes {
            let notes = fill(&mut sandbox, &runtime, processes);
            // Without a UID nothing says that two sandboxes are one pod's.
            let same = |pod: &&mut Pod| pod.uid.is_some() && pod.uid == sandbox.pod.uid;
            match own.iter_mut().find(same) {
                Some(pod) => {
                    pod.notes.extend(notes);
                    pod.sandboxes.push(sandbox);
                }
                None => own.push(pod(sandbox, &runtime, notes)),
            }
        }
        for pod in &mut own {
            pod.sandboxes.sort_by(|a, b| (a.attempt, a.created, &a.id).cmp(&(b.attempt, b.created, &b.id)));
            place_pod(pod, processes);
        }
        pods.append(&mut own);
    }
    let key = |pod: &Pod| {
        (
            pod.namespace.clone(),
            pod.name.clone(),
            pod.uid.clone(),
            pod.runtime.socket.clone(),
            pod.sandboxes[0].id.clone(),
        )
    };
    pods.sort_by_cached_key(key);
    pods
}

fn pod(sandbox: Sandbox, runtime: &Runtime, notes: Vec<String>) -> Pod {
    let names = sandbox.pod.clone();
    Pod {
        runtime: runtime.clone(),
        uid: names.uid,
        namespace: names.namespace,
        name: names.name,
        qos: None,
        cgroup: None,
        sandboxes: vec![sandbox],
        notes,
    }
}

/// Finds the processes of a sandbox and its containers; says what does not fit.
fn fill(sandbox: &mut Sandbox, runtime: &Runtime, processes: &Processes) -> Vec<String> {
    let depth = runtime.pid.and_then(|pid| processes.get(pid)?.ns_pids.len().checked_sub(1));
    let mut notes = Vec::new();
    let mut find = |what: &str, id: &ContainerId, claimed| match init(id, claimed, depth, processes) {
        Ok(init) => {
            notes.extend(foreign_shim(what, id, init.shim, sandbox.id.as_ref().map(|id| id.as_str()), processes));
            Some(init)
        }
        Err(missing) => {
            notes.extend(say(what, id, claimed, &missing));
            None
        }
    };
    if let (Some(id), Some(SandboxState::Ready)) = (&sandbox.id, sandbox.state) {
        sandbox.init = find("sandbox", &ContainerId(id.0.clone()), sandbox.claimed);
    }
    for container in &mut sandbox.containers {
        if container.state == Some(ContainerState::Running) {
            container.init = find("container", &container.id, container.claimed);
        }
    }
    notes
}

fn say(what: &str, id: &ContainerId, claimed: Option<u32>, missing: &Missing) -> Option<String> {
    Some(match (missing, claimed) {
        // A runtime may have no pause process.
        (Missing::Empty, None) if what == "sandbox" => return None,
        (Missing::Empty, _) => format!("{what} {id} runs, but no process that is visible here is in its cgroup"),
        (Missing::Elsewhere(pid), _) => {
            format!("the runtime says that {what} {id} has pid {pid}, but the cgroup of that process does not")
        }
        (Missing::Several(pids), _) => {
            let pids: Vec<String> = pids.iter().map(Tgid::to_string).collect();
            format!("which process of {what} {id} is the first is not known: {}", pids.join(", "))
        }
    })
}

/// A shim that was started for another sandbox.
fn foreign_shim(
    what: &str,
    id: &ContainerId,
    shim: Option<Tgid>,
    sandbox: Option<&str>,
    processes: &Processes,
) -> Option<String> {
    let shim = shim?;
    let of = processes.get(shim)?.shim.as_ref()?.id.as_deref()?;
    let own = of == id.as_str() || sandbox.is_none_or(|sandbox| sandbox == of);
    (!own).then(|| format!("{what} {id} is a child of shim {shim}, which was started for {of}"))
}

/// The pod's own cgroup and QoS class, from where its processes are.
fn place_pod(pod: &mut Pod, processes: &Processes) {
    let above = |path: &str| place(path).pod;
    // The newest sandbox first: it is the one that lasts.
    for process in pod.sandboxes.iter().rev().flat_map(inits).filter_map(|pid| processes.get(pid)) {
        let Some(found) = cgroup(process, |path| above(path).map(|named| named.path)) else { continue };
        let names = above(&found.path).map(|named| named.id);
        if pod.uid.is_some() && names != pod.uid {
            let (names, path) = (names.unwrap_or_default(), &found.path);
            let note = format!("the cgroup {path} is of the pod with UID {names}");
            if !pod.notes.contains(&note) {
                pod.notes.push(note);
            }
        } else if pod.cgroup.is_none() {
            pod.cgroup = Some(found);
        }
    }
    let asked = pod.sandboxes.iter().rev().find_map(|sandbox| sandbox.cgroup_parent.as_deref());
    pod.qos = pod.cgroup.as_ref().map(|cgroup| cgroup.path.as_str()).or(asked).and_then(qos);
}

/// The first processes of a sandbox.
fn inits(sandbox: &Sandbox) -> impl Iterator<Item = Tgid> {
    let of = |container: &Container| container.init.as_ref().map(|init| init.pid);
    sandbox.init.iter().map(|init| init.pid).chain(sandbox.containers.iter().filter_map(of))
}

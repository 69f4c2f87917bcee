//! Which process is a container's first one. The cgroup has to say so, whatever else does; else there is none.

use super::model::{Cgroup, Init, Membership};
use super::place::place;
use super::processes::{Process, Processes};
use crate::ids::{ContainerId, Tgid};

/// Why a container that runs has no process here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// No process is in its cgroup.
    Empty,
    /// The runtime names another process than those in its cgroup.
    Elsewhere(u32),
    /// Several processes could be the first.
    Several(Vec<Tgid>),
}

/// The first process of a container. `claimed` is its pid as the runtime numbers it, `depth` the runtime's pid
/// namespace, counted from podlapse's own; without both of them the cgroup alone decides.
pub(super) fn init(
    id: &ContainerId,
    claimed: Option<u32>,
    depth: Option<usize>,
    processes: &Processes,
) -> Result<Init, Missing> {
    let members = processes.members(id);
    if members.is_empty() {
        return Err(Missing::Empty);
    }
    let get = |pid: &Tgid| Some((*pid, processes.get(*pid)?));
    let members = members.iter().filter_map(get);
    let found = match (claimed, depth) {
        (Some(claimed), Some(depth)) => {
            let named: Vec<_> = members.filter(|(_, process)| process.ns_pids.get(depth) == Some(&claimed)).collect();
            one(&named).ok_or(Missing::Elsewhere(claimed))?
        }
        _ => {
            // A process that was started beside the first, by an exec, has the same parent.
            let inside = |pid: Tgid| processes.members(id).binary_search(&pid).is_ok();
            let roots: Vec<_> = members.filter(|(_, process)| !inside(process.parent)).collect();
            let firsts: Vec<_> = roots.iter().copied().filter(|(_, process)| is_first(process)).collect();
            one(&firsts)
                .or_else(|| one(&roots))
                .ok_or_else(|| Missing::Several(roots.iter().map(|(pid, _)| *pid).collect()))?
        }
    };
    Ok(of(id, found, processes))
}

/// In a pid namespace below podlapse's own it has pid 1.
fn is_first(process: &Process) -> bool {
    process.ns_pids.len() > 1 && process.ns_pids.last() == Some(&1)
}

fn one<'a>(found: &[(Tgid, &'a Process)]) -> Option<(Tgid, &'a Process)> {
    match found {
        [one] => Some(*one),
        _ => None,
    }
}

fn of(id: &ContainerId, (pid, process): (Tgid, &Process), processes: &Processes) -> Init {
    let parent = processes.get(process.parent).filter(|parent| parent.shim.is_some());
    Init {
        pid,
        shim: parent.map(|_| process.parent),
        namespaces: process.namespaces,
        node: parent.map(|parent| parent.namespaces),
        oom_score_adj: process.oom_score_adj,
        cgroup: cgroup(process, |path| place(path).of(id).map(str::to_owned)),
    }
}

/// The cgroup that `cut` finds in the paths of a process: in the default hierarchy, or else in the pids or memory one,
/// or else in any.
pub(super) fn cgroup(process: &Process, cut: impl Fn(&str) -> Option<String>) -> Option<Cgroup> {
    let cut = |own: &Membership| Some(Membership { controllers: own.controllers.clone(), path: cut(&own.path)? });
    let memberships: Vec<Membership> = process.cgroups.iter().filter_map(cut).collect();
    let with = |name: &str| memberships.iter().find(|own| own.controllers.split(',').any(|own| own == name));
    let path = with("").or_else(|| with("pids")).or_else(|| with("memory")).or(memberships.first())?.path.clone();
    Some(Cgroup { path, memberships, ..Cgroup::default() })
}

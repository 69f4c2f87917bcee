//! From one end of the chain to the pod: by name, UID, pid, container id or cgroup.
//!
//! Pure: works on what was gathered.

use super::model::{Container, Pod, Sandbox};
use super::place::place;
use super::processes::Processes;
use crate::ids::{ContainerId, Tgid};

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The pods of this name in this namespace.
    Name(String, String),
    /// The pods of this name in any namespace, or with this UID.
    NameOrUid(String),
    /// The pod of a process.
    Pid(Tgid),
    /// The pod of the container or sandbox whose id is this or begins so.
    Id(String),
    /// The pod of a cgroup, or of the container whose it is.
    Cgroup(String),
}

/// What a query points at, within the pods that answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// What it is.
    pub kind: Kind,
    /// The process that was asked for.
    pub pid: Option<Tgid>,
}

/// What a query points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pod as a whole.
    Pod,
    /// A sandbox, or its process.
    Sandbox,
    /// A container.
    Container,
    /// A container's first process.
    Init,
    /// Another process of a container.
    Process,
    /// A shim.
    Shim,
    /// A child of a shim that is in no container, as the OCI runtime is.
    Helper,
}

impl Kind {
    /// In JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pod => "pod",
            Kind::Sandbox => "sandbox",
            Kind::Container => "container",
            Kind::Init => "init",
            Kind::Process => "process",
            Kind::Shim => "shim",
            Kind::Helper => "helper",
        }
    }
}

/// Why nothing answers a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No pod.
    #[error("no pod {0} runs here: `podlapse pods` lists all; check the namespace and --socket")]
    Pod(String),
    /// No process.
    #[error("there is no process {0} in podlapse's pid namespace: it has ended, or the number is another namespace's")]
    Process(Tgid),
    /// A process of no pod.
    #[error("process {0} belongs to no pod: its cgroups are {1}")]
    NoPod(Tgid, String),
    /// A process of a pod that the runtimes that were asked do not have.
    #[error(
        "process {0} is in {1}, which the runtime does not list: name its socket with --socket, or use --bootstrap proc"
    )]
    Foreign(Tgid, String),
    /// No container.
    #[error("no container or sandbox has an id that begins with {0}: `podlapse pods` lists all")]
    Id(String),
    /// Several containers.
    #[error("{0} is the beginning of several ids, give more of it: {list}", list = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// No cgroup.
    #[error(
        "the cgroup {0} is no pod's and no container's that runs here: `podlapse pods -o json` has all of their paths"
    )]
    Cgroup(String),
}

/// The pods that answer a query, each cut down to what it points at.
///
/// # Errors
/// When nothing does, or when it is not clear what does.
pub fn find(pods: &[Pod], processes: &Processes, query: &Query) -> Result<(Vec<Pod>, Match), NotFound> {
    let whole = |found: Vec<Pod>, name: String| match found.is_empty() {
        true => Err(NotFound::Pod(name)),
        false => Ok((found, Match { kind: Kind::Pod, pid: None })),
    };
    match query {
        Query::Name(namespace, name) => {
            let is = |pod: &&Pod| pod.namespace.as_ref() == Some(namespace) && pod.name.as_ref() == Some(name);
            whole(pods.iter().filter(is).cloned().collect(), format!("{namespace}/{name}"))
        }
        Query::NameOrUid(text) => {
            let uid = |pod: &&Pod| pod.uid.as_ref().is_some_and(|uid| uid.0 == *text);
            let mut found: Vec<Pod> = pods.iter().filter(uid).cloned().collect();
            if found.is_empty() {
                found = pods.iter().filter(|pod| pod.name.as_ref() == Some(text)).cloned().collect();
            }
            whole(found, text.clone())
        }
        Query::Id(prefix) => by_id(pods, prefix),
        Query::Pid(pid) => by_pid(pods, processes, *pid),
        Query::Cgroup(path) => by_cgroup(pods, path).ok_or_else(|| NotFound::Cgroup(path.clone())),
    }
}

fn by_id(pods: &[Pod], prefix: &str) -> Result<(Vec<Pod>, Match), NotFound> {
    let all = spots(pods);
    let is = |spot: &&Spot<'_>| spot.id().is_some_and(|id| id.starts_with(prefix));
    let found: Vec<&Spot<'_>> = all.iter().filter(is).collect();
    match found[..] {
        [] => Err(NotFound::Id(prefix.to_owned())),
        [one] => Ok(one.found(one.kind(), None)),
        _ => match found.iter().find(|spot| spot.id() == Some(prefix)) {
            Some(one) => Ok(one.found(one.kind(), None)),
            None => Err(NotFound::Ambiguous(prefix.to_owned(), found.iter().map(|spot| spot.describe()).collect())),
        },
    }
}

fn by_pid(pods: &[Pod], processes: &Processes, pid: Tgid) -> Result<(Vec<Pod>, Match), NotFound> {
    let process = processes.get(pid).ok_or(NotFound::Process(pid))?;
    let all = spots(pods);
    let of_shim = |shim: Tgid| all.iter().find(|spot| spot.shim() == Some(shim));
    let shim = |spot: &Spot<'_>, kind| Spot { container: None, ..*spot }.found(kind, Some(pid));
    if let Some(spot) = of_shim(pid) {
        return Ok(shim(spot, Kind::Shim));
    }
    if let Some(spot) = all.iter().find(|spot| spot.pid() == Some(pid)) {
        let kind = if spot.container.is_some() { Kind::Init } else { Kind::Sandbox };
        return Ok(spot.found(kind, Some(pid)));
    }
    // The innermost container that is listed; its cgroup decides, not its ancestors.
    let mut named = Vec::new();
    for group in &process.cgroups {
        for container in place(&group.path).containers.into_iter().rev() {
            if let Some(spot) = all.iter().find(|spot| spot.id() == Some(container.id.as_str())) {
                return Ok(spot.found(Kind::Process, Some(pid)));
            }
            named.push(container.id);
        }
    }
    if let Some(id) = named.first() {
        return Err(NotFound::Foreign(pid, format!("container {id}")));
    }
    if let Some(spot) = of_shim(process.parent) {
        return Ok(shim(spot, Kind::Helper));
    }
    let mut paths: Vec<&str> = process.cgroups.iter().map(|group| group.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    Err(NotFound::NoPod(pid, paths.join(", ")))
}

fn by_cgroup(pods: &[Pod], path: &str) -> Option<(Vec<Pod>, Match)> {
    let path = match path.trim_end_matches('/') {
        "" => return None,
        path => path,
    };
    let all = spots(pods);
    let containers = place(path).containers;
    let inner = containers.iter().rev().find_map(|named| all.iter().find(|spot| spot.is(&named.id)));
    if let Some(spot) = inner {
        return Some(spot.found(spot.kind(), None));
    }
    if !containers.is_empty() {
        return None;
    }
    let own = |pod: &&Pod| pod.cgroup.as_ref().is_some_and(|own| own.memberships.iter().any(|own| own.path == path));
    let pod = pods.iter().find(own)?;
    Some((vec![pod.clone()], Match { kind: Kind::Pod, pid: None }))
}

/// A sandbox, or a container in it.
#[derive(Clone, Copy, Debug)]
struct Spot<'a> {
    pod: &'a Pod,
    sandbox: &'a Sandbox,
    container: Option<&'a Container>,
}

fn spots(pods: &[Pod]) -> Vec<Spot<'_>> {
    let sandboxes = pods.iter().flat_map(|pod| pod.sandboxes.iter().map(move |sandbox| (pod, sandbox)));
    sandboxes
        .flat_map(|(pod, sandbox)| {
            let containers = sandbox.containers.iter().map(Some);
            [None].into_iter().chain(containers).map(move |container| Spot { pod, sandbox, container })
        })
        .collect()
}

impl Spot<'_> {
    fn id(&self) -> Option<&str> {
        match self.container {
            Some(container) => Some(container.id.as_str()),
            None => self.sandbox.id.as_ref().map(|id| id.as_str()),
        }
    }

    fn is(&self, id: &ContainerId) -> bool {
        self.id() == Some(id.as_str())
    }

    fn pid(&self) -> Option<Tgid> {
        self.container.map_or(&self.sandbox.init, |container| &container.init).as_ref().map(|init| init.pid)
    }

    fn shim(&self) -> Option<Tgid> {
        self.container.map_or(&self.sandbox.init, |container| &container.init).as_ref()?.shim
    }

    fn kind(&self) -> Kind {
        if self.container.is_some() { Kind::Container } else { Kind::Sandbox }
    }

    /// For a list of candidates.
    fn describe(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
        let what = self.container.map_or_else(|| "sandbox".to_owned(), |container| text(&container.name));
        format!("{} ({} of {}/{})", self.id().unwrap_or("?"), what, text(&self.pod.namespace), text(&self.pod.name))
    }

    /// The pod with this sandbox alone, and with this container alone when it is one.
    fn found(&self, kind: Kind, pid: Option<Tgid>) -> (Vec<Pod>, Match) {
        let containers = self.container.map_or_else(|| self.sandbox.containers.clone(), |own| vec![own.clone()]);
        let sandbox = Sandbox { containers, ..self.sandbox.clone() };
        (vec![Pod { sandboxes: vec![sandbox], ..self.pod.clone() }], Match { kind, pid })
    }
}

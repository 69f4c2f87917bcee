//! What is known of the pods that run now: pod → sandbox → container → process. Absent means unknown.

use std::collections::BTreeMap;

use crate::ids::{ContainerId, PodUid, SandboxId, Tgid};
use crate::record::Namespaces;

/// A container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Path of its CRI socket.
    pub socket: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The process that listens on the socket, when it is visible.
    pub pid: Option<Tgid>,
}

/// What one runtime, or `/proc` in its place, says that it has: names, ids and states, no process yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Whose it is.
    pub runtime: Runtime,
    /// Its sandboxes, each with its containers.
    pub sandboxes: Vec<Sandbox>,
    /// What a reader should know besides.
    pub notes: Vec<String>,
}

/// A pod, by its UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The runtime that has it. Two runtimes may have a pod of the same UID each; those are two pods.
    pub runtime: Runtime,
    /// `metadata.uid`.
    pub uid: Option<PodUid>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// Quality-of-service class, as the cgroup's path names it.
    pub qos: Option<&'static str>,
    /// The pod's own cgroup, above its containers'.
    pub cgroup: Option<Cgroup>,
    /// In the order of their attempts: a pod whose sandbox was replaced has the old one for a while.
    pub sandboxes: Vec<Sandbox>,
    /// Where the runtime and the kernel disagree.
    pub notes: Vec<String>,
}

/// A pod sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: Option<SandboxId>,
    /// The pod's UID, namespace and name.
    pub pod: Names,
    /// Counts the sandboxes of one pod.
    pub attempt: Option<u32>,
    /// Whether it runs.
    pub state: Option<SandboxState>,
    /// When it was made, in ns since the epoch.
    pub created: Option<u64>,
    /// Runtime handler; absent for the default one.
    pub handler: Option<String>,
    /// Addresses in the pod's own network namespace.
    pub ips: Vec<String>,
    /// Reference of the pause image.
    pub image: Option<String>,
    /// Cgroup parent that kubelet asked for.
    pub cgroup_parent: Option<String>,
    /// Pid of its process as the runtime numbers it.
    pub claimed: Option<u32>,
    /// Its process: pause.
    pub init: Option<Init>,
    /// In the order in which they were made.
    pub containers: Vec<Container>,
}

/// UID and names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Names {
    /// `metadata.uid`.
    pub uid: Option<PodUid>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// `metadata.name`.
    pub name: Option<String>,
    /// Counts the containers of one name in one pod.
    pub attempt: Option<u32>,
    /// How far it is.
    pub state: Option<ContainerState>,
    /// When it was made, in ns since the epoch.
    pub created: Option<u64>,
    /// When it was started.
    pub started: Option<u64>,
    /// When it ended.
    pub finished: Option<u64>,
    /// How it ended.
    pub exit_code: Option<i32>,
    /// Image reference.
    pub image: Option<String>,
    /// The image's id on this node.
    pub image_id: Option<String>,
    /// Digest of the image's manifest.
    pub image_digest: Option<String>,
    /// Pid of its init as the runtime numbers it.
    pub claimed: Option<u32>,
    /// Its first process.
    pub init: Option<Init>,
}

/// The first process of a container or sandbox, and where the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Its pid in podlapse's own pid namespace.
    pub pid: Tgid,
    /// Its shim's.
    pub shim: Option<Tgid>,
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// The shim's namespaces, which are the node's.
    pub node: Option<Namespaces>,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// The container's own cgroup, wherever in it the process is.
    pub cgroup: Option<Cgroup>,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Its path, from the root of its hierarchy.
    pub path: String,
    /// Its path in each hierarchy.
    pub memberships: Vec<Membership>,
    /// Limits by file name, as the kernel prints them.
    pub limits: BTreeMap<String, String>,
}

/// A path in one hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership {
    /// The hierarchy's controllers; empty for cgroup v2.
    pub controllers: String,
    /// The path.
    pub path: String,
}

/// `PodSandboxState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// It runs.
    Ready,
    /// It does not.
    NotReady,
}

impl SandboxState {
    /// In JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            SandboxState::Ready => "ready",
            SandboxState::NotReady => "notready",
        }
    }
}

/// `ContainerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Started.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

impl ContainerState {
    /// In JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            ContainerState::Created => "created",
            ContainerState::Running => "running",
            ContainerState::Exited => "exited",
            ContainerState::Unknown => "unknown",
        }
    }
}

//! `podlapse.pods/v1`: what runs now, see `docs/pods-v1.schema.json`. Absent means unknown.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::{namespaces, shared};
use crate::export::rfc3339;
use crate::pods;
use crate::record::Namespaces;

/// Writes a listing as one line: all of it, or the pods that a query found.
///
/// # Errors
/// What `out` gives.
pub fn write_pods_json(
    out: &mut dyn Write,
    listing: &pods::Listing,
    found: Option<&(Vec<pods::Pod>, pods::Match)>,
) -> io::Result<()> {
    let pods = found.map_or(&listing.pods, |(pods, _)| pods);
    let document = Document {
        schema: "podlapse.pods/v1",
        node: Node { name: &listing.node.name, boot_id: &listing.node.boot_id, kernel: &listing.node.kernel },
        runtimes: listing.runtimes.iter().map(runtime).collect(),
        query: found.map(|(_, found)| Match { kind: found.kind.name(), pid: found.pid.map(|pid| pid.0) }),
        pods: pods.iter().map(pod).collect(),
        notes: &listing.notes,
    };
    let mut line = serde_json::to_vec(&document)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Serializable structs; of the fields between the semicolons the absent ones are left out.
macro_rules! objects {
    ($($name:ident {
        $($head:ident: $head_type:ty,)*; $($optional:ident: $optional_type:ty,)*; $($tail:ident: $tail_type:ty,)*
    })*) => {$(
        #[derive(Serialize)]
        struct $name<'a> {
            $($head: $head_type,)*
            $(#[serde(skip_serializing_if = "Option::is_none")] $optional: Option<$optional_type>,)*
            $($tail: $tail_type,)*
        }
    )*};
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    node: Node<'a>,
    runtimes: Vec<Runtime<'a>>,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    query: Option<Match>,
    pods: Vec<Pod<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Match {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

type Inodes = BTreeMap<&'static str, u32>;

objects! {
    Node { name: &'a str, boot_id: &'a str, kernel: &'a str,;; }
    Runtime { ; socket: &'a str, name: &'a str, version: &'a str, pid: u32,; }
    Pod {
        ;
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
        qos: &'static str,
        cgroup: Cgroup<'a>,
        ;
        runtime: Runtime<'a>,
        sandboxes: Vec<Sandbox<'a>>,
        notes: &'a [String],
    }
    Sandbox {
        ;
        id: &'a str,
        attempt: u32,
        state: &'static str,
        created_at: String,
        runtime_handler: &'a str,
        ips: &'a [String],
        image: &'a str,
        pid: u32,
        shim_pid: u32,
        oom_score_adj: i32,
        namespaces: Inodes,
        shared_with_node: Vec<&'static str>,
        cgroup: Cgroup<'a>,
        ;
        containers: Vec<Container<'a>>,
    }
    Container {
        id: &'a str,
        ;
        name: &'a str,
        attempt: u32,
        state: &'static str,
        created_at: String,
        started_at: String,
        finished_at: String,
        exit_code: i32,
        image: &'a str,
        image_id: &'a str,
        image_digest: &'a str,
        pid: u32,
        shim_pid: u32,
        oom_score_adj: i32,
        namespaces: Inodes,
        shared_with_sandbox: Vec<&'static str>,
        shared_with_node: Vec<&'static str>,
        cgroup: Cgroup<'a>,
        ;
    }
    Cgroup {
        path: &'a str,
        ;
        hierarchies: BTreeMap<&'a str, &'a str>,
        ;
        limits: &'a BTreeMap<String, String>,
    }
}

fn runtime(r: &pods::Runtime) -> Runtime<'_> {
    Runtime {
        socket: r.socket.as_deref(),
        name: r.name.as_deref(),
        version: r.version.as_deref(),
        pid: r.pid.map(|pid| pid.0),
    }
}

fn pod(p: &pods::Pod) -> Pod<'_> {
    Pod {
        runtime: runtime(&p.runtime),
        namespace: p.namespace.as_deref(),
        name: p.name.as_deref(),
        uid: p.uid.as_ref().map(|uid| uid.as_str()),
        qos: p.qos,
        cgroup: p.cgroup.as_ref().map(cgroup),
        sandboxes: p.sandboxes.iter().map(sandbox).collect(),
        notes: &p.notes,
    }
}

fn sandbox(s: &pods::Sandbox) -> Sandbox<'_> {
    let init = s.init.as_ref();
    Sandbox {
        id: s.id.as_ref().map(|id| id.as_str()),
        attempt: s.attempt,
        state: s.state.map(pods::SandboxState::name),
        created_at: s.created.map(rfc3339),
        runtime_handler: s.handler.as_deref(),
        ips: Some(s.ips.as_slice()).filter(|ips| !ips.is_empty()),
        image: s.image.as_deref(),
        pid: init.map(|init| init.pid.0),
        shim_pid: init.and_then(|init| init.shim).map(|pid| pid.0),
        oom_score_adj: init.and_then(|init| init.oom_score_adj),
        namespaces: init.and_then(inodes),
        shared_with_node: init.and_then(with_node),
        cgroup: init.and_then(|init| init.cgroup.as_ref()).map(cgroup),
        containers: s.containers.iter().map(|own| container(own, s.init.as_ref())).collect(),
    }
}

fn container<'a>(c: &'a pods::Container, sandbox: Option<&pods::Init>) -> Container<'a> {
    let init = c.init.as_ref();
    Container {
        id: c.id.as_str(),
        name: c.name.as_deref(),
        attempt: c.attempt,
        state: c.state.map(pods::ContainerState::name),
        created_at: c.created.map(rfc3339),
        started_at: c.started.map(rfc3339),
        finished_at: c.finished.map(rfc3339),
        exit_code: c.exit_code,
        image: c.image.as_deref(),
        image_id: c.image_id.as_deref(),
        image_digest: c.image_digest.as_deref(),
        pid: init.map(|init| init.pid.0),
        shim_pid: init.and_then(|init| init.shim).map(|pid| pid.0),
        oom_score_adj: init.and_then(|init| init.oom_score_adj),
        namespaces: init.and_then(inodes),
        shared_with_sandbox: init.and_then(|init| both(&init.namespaces, sandbox.map(|own| &own.namespaces))),
        shared_with_node: init.and_then(with_node),
        cgroup: init.and_then(|init| init.cgroup.as_ref()).map(cgroup),
    }
}

fn inodes(init: &pods::Init) -> Option<Inodes> {
    Some(namespaces(&init.namespaces).collect()).filter(|known: &Inodes| !known.is_empty())
}

fn with_node(init: &pods::Init) -> Option<Vec<&'static str>> {
    both(&init.namespaces, init.node.as_ref())
}

/// None where one side is not known: then nothing is known to be shared, and nothing not to be.
fn both(own: &Namespaces, other: Option<&Namespaces>) -> Option<Vec<&'static str>> {
    let known = |of: &Namespaces| namespaces(of).next().is_some();
    other.filter(|other| known(own) && known(other)).map(|other| shared(own, other))
}

fn cgroup(c: &pods::Cgroup) -> Cgroup<'_> {
    let apart = c.memberships.iter().filter(|own| own.path != c.path);
    let hierarchies: BTreeMap<_, _> = apart.map(|own| (own.controllers.as_str(), own.path.as_str())).collect();
    Cgroup { path: &c.path, limits: &c.limits, hierarchies: Some(hierarchies).filter(|own| !own.is_empty()) }
}

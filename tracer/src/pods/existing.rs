//! What exists when podlapse attaches, and again when the runtime came back, as records for the engine: two lists over
//! the CRI, the status of those for which it says more, and the processes. Asked beside the run, which never waits for it.
//!
//! A runtime that does not answer is asked again for a while; meanwhile `/proc` says what it knows.

mod client;

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_cri::v1;
use tokio::sync::mpsc::Sender;
use tonic::Code;

use self::client::Client;
use super::cri::{container_state, sandbox_state};
use super::init::init;
use super::model::{ContainerState, SandboxState};
use super::proc::inventories;
use super::processes::Processes;
use crate::ids::{ContainerId, MonotonicNs, PodUid, SandboxId, Tgid};
use crate::probe::{Bootstrap, now};
use crate::record::{self, ListSource, Listed, ListedContainer, ListedSandbox, Listing};

/// Pauses before a runtime that did not answer is asked again: a minute in all.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// One part of a list, with the time at which it was known.
pub(crate) type Part = (MonotonicNs, Listed);

/// Whose lists are wanted, and who is asked.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Where the runtime is asked.
    pub(crate) socket: PathBuf,
    /// What the runtime itself calls that socket.
    pub(crate) name: PathBuf,
    /// Its process.
    pub(crate) runtime: Tgid,
    /// Who is asked.
    pub(crate) bootstrap: Bootstrap,
}

/// Asks, and gives what is said to `out`; ends when that is closed.
pub(crate) async fn list_existing(about: About, out: Sender<Part>) {
    if about.bootstrap == Bootstrap::Off {
        return;
    }
    let asked = now();
    // Before the lists: what is in a container's cgroup now stays that container's.
    let processes = Processes::read_gently().await;
    let by_proc = about.bootstrap == Bootstrap::Proc;
    let out = Out { about, out, processes };
    // Where nobody listens any more, there is nobody to tell.
    let _ = if by_proc { out.proc(asked).await } else { out.cri_or_proc(asked).await };
}

/// Nobody wants to know any more.
struct Closed;

/// Why a list is not complete.
enum Trouble {
    Closed,
    Said(String),
}

struct Out {
    about: About,
    out: Sender<Part>,
    processes: Processes,
}

impl Out {
    async fn cri_or_proc(&self, asked: MonotonicNs) -> Result<(), Closed> {
        let mut pauses = PAUSES.into_iter();
        let mut first = true;
        loop {
            let asked_now = now();
            let trouble = match self.cri().await {
                Ok(()) => None,
                Err(Trouble::Closed) => return Err(Closed),
                Err(Trouble::Said(trouble)) => Some(trouble),
            };
            let done = trouble.is_none();
            self.send(asked_now, ListSource::Cri, Listing::End { trouble }).await?;
            if done {
                return Ok(());
            }
            if std::mem::take(&mut first) {
                self.proc(asked).await?;
            }
            let Some(pause) = pauses.next() else { return Ok(()) };
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
    }

    async fn cri(&self) -> Result<(), Trouble> {
        let mut client = Client::connect(&self.about.socket).await?;
        let asked = now();
        let sandboxes = client.sandboxes().await?;
        let replied = now();
        for listed in &sandboxes {
            self.sandbox(&mut client, listed, (asked, replied)).await?;
        }
        let asked = now();
        let containers = client.containers().await?;
        let replied = now();
        for listed in &containers {
            self.container(&mut client, listed, (asked, replied)).await?;
        }
        Ok(())
    }

    /// The status of a sandbox that is ready says its address besides.
    async fn sandbox(
        &self,
        client: &mut Client,
        listed: &v1::PodSandbox,
        mut times: (MonotonicNs, MonotonicNs),
    ) -> Result<(), Trouble> {
        let (mut state, mut ip) = (listed.state, String::new());
        if sandbox_state(state) == Some(SandboxState::Ready) {
            let asked = now();
            match client.sandbox(&listed.id).await? {
                Ok(status) => {
                    times = (asked, now());
                    state = status.state;
                    ip = status.network.unwrap_or_default().ip;
                }
                Err(Code::NotFound) => return Ok(()),
                Err(_) => {}
            }
        }
        let ready = sandbox_state(state).map(|state| state == SandboxState::Ready);
        let (pid, cgroup) = self.process(&listed.id, ready == Some(true));
        let meta = listed.metadata.clone();
        let attempt = meta.as_ref().map(|meta| meta.attempt);
        let v1::PodSandboxMetadata { name, namespace, uid, .. } = meta.unwrap_or_default();
        let (id, uid, handler) = (SandboxId(listed.id.clone()), PodUid(uid), listed.runtime_handler.clone());
        let created = u64::try_from(listed.created_at).ok().filter(|ns| *ns > 0);
        let what = ListedSandbox { id, name, namespace, uid, attempt, ready, handler, created, pid, cgroup, ip };
        Ok(self.send_at(times, ListSource::Cri, Listing::Sandbox(what)).await?)
    }

    /// The status of a container that has ended says its exit code besides.
    async fn container(
        &self,
        client: &mut Client,
        listed: &v1::Container,
        mut times: (MonotonicNs, MonotonicNs),
    ) -> Result<(), Trouble> {
        let state = container_state(listed.state);
        let mut exit_code = None;
        if state == Some(ContainerState::Exited) {
            let asked = now();
            match client.container(&listed.id).await? {
                Ok(status) => {
                    times = (asked, now());
                    exit_code = (status.finished_at > 0).then_some(status.exit_code);
                }
                Err(Code::NotFound) => return Ok(()),
                Err(_) => {}
            }
        }
        let (pid, cgroup) = self.process(&listed.id, state == Some(ContainerState::Running));
        let what = ListedContainer {
            id: ContainerId(listed.id.clone()),
            sandbox: SandboxId(listed.pod_sandbox_id.clone()),
            name: listed.metadata.as_ref().map(|meta| meta.name.clone()).unwrap_or_default(),
            attempt: listed.metadata.as_ref().map(|meta| meta.attempt),
            image: listed.image.clone().unwrap_or_default().image,
            state: state.and_then(recorded),
            created: u64::try_from(listed.created_at).ok().filter(|ns| *ns > 0),
            pid,
            cgroup,
            exit_code,
        };
        Ok(self.send_at(times, ListSource::Cri, Listing::Container(what)).await?)
    }

    /// What cgroup paths and shims' arguments say. A node in a container has shims that name the same socket, in
    /// another mount namespace.
    async fn proc(&self, asked: MonotonicNs) -> Result<(), Closed> {
        let mnt = self.processes.get(self.about.runtime).map(|process| process.namespaces.mnt);
        let own = |named: &Option<String>| named.as_ref().is_none_or(|named| Path::new(named) == self.about.name);
        let replied = now();
        for sandbox in inventories(&self.processes)
            .into_iter()
            .filter(|one| own(&one.runtime.socket))
            .flat_map(|one| one.sandboxes)
        {
            let of = |id: &ContainerId| {
                init(id, None, None, &self.processes).ok().filter(|it| it.node.map(|node| node.mnt) == mnt)
            };
            let containers: Vec<_> = sandbox.containers.iter().filter_map(|it| Some((&it.id, of(&it.id)?))).collect();
            let pause = sandbox.id.as_ref().and_then(|id| of(&ContainerId(id.0.clone())));
            if containers.is_empty() && pause.is_none() {
                continue;
            }
            if let Some(id) = &sandbox.id {
                let what = ListedSandbox {
                    id: id.clone(),
                    uid: sandbox.pod.uid.clone().unwrap_or_default(),
                    ready: pause.as_ref().map(|_| true),
                    pid: pause.as_ref().map(|it| it.pid),
                    cgroup: pause.and_then(|it| it.cgroup).unwrap_or_default().path,
                    ..ListedSandbox::default()
                };
                self.send_at((asked, replied), ListSource::Proc, Listing::Sandbox(what)).await?;
            }
            for (id, it) in containers {
                let what = ListedContainer {
                    id: id.clone(),
                    sandbox: sandbox.id.clone().unwrap_or_default(),
                    state: Some(record::ContainerState::Running),
                    pid: Some(it.pid),
                    cgroup: it.cgroup.unwrap_or_default().path,
                    ..ListedContainer::default()
                };
                self.send_at((asked, replied), ListSource::Proc, Listing::Container(what)).await?;
            }
        }
        self.send(asked, ListSource::Proc, Listing::End { trouble: None }).await
    }

    /// The first process of a container that runs, and its cgroup.
    fn process(&self, id: &str, runs: bool) -> (Option<Tgid>, String) {
        let found = runs.then(|| init(&ContainerId(id.to_owned()), None, None, &self.processes).ok()).flatten();
        found.map_or((None, String::new()), |it| (Some(it.pid), it.cgroup.unwrap_or_default().path))
    }

    async fn send(&self, asked: MonotonicNs, source: ListSource, what: Listing) -> Result<(), Closed> {
        self.send_at((asked, now()), source, what).await
    }

    async fn send_at(
        &self,
        (asked, at): (MonotonicNs, MonotonicNs),
        source: ListSource,
        what: Listing,
    ) -> Result<(), Closed> {
        self.out.send((at, Listed { asked, source, what })).await.map_err(|_| Closed)
    }
}

fn recorded(state: ContainerState) -> Option<record::ContainerState> {
    match state {
        ContainerState::Created => Some(record::ContainerState::Created),
        ContainerState::Running => Some(record::ContainerState::Running),
        ContainerState::Exited => Some(record::ContainerState::Exited),
        ContainerState::Unknown => None,
    }
}

impl From<Closed> for Trouble {
    fn from(Closed: Closed) -> Trouble {
        Trouble::Closed
    }
}

//! What a runtime says over the CRI that it has. Two lists, then one verbose status each: nothing is changed there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_cri::v1;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::info::Info;
use super::model::{Container, ContainerState, Inventory, Names, Runtime, Sandbox, SandboxState};
use crate::ids::{ContainerId, PodUid, SandboxId, Tgid};
use crate::probe::{self, ProbeError, VersionError};

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest message; kubelet's and containerd's own limit.
const MAX_MESSAGE: usize = 16 << 20;

/// Why a runtime did not say what it has.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// Nobody can be asked.
    #[error(transparent)]
    Socket(#[from] ProbeError),
    /// It does not say who it is.
    #[error(
        "no container runtime answers on {path}: {source}; check its log and --socket PATH, or see what /proc knows: --bootstrap proc"
    )]
    Version {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: VersionError,
    },
    /// It is too old.
    #[error(
        "{name} {version} on {path} speaks CRI {api}, podlapse lists pods over v1 (containerd 1.6 or later): use --bootstrap proc"
    )]
    OldApi {
        /// The socket.
        path: PathBuf,
        /// The runtime.
        name: String,
        /// Its version.
        version: String,
        /// What it speaks.
        api: String,
    },
    /// A call failed.
    #[error("CRI {method} on {path} failed: {:?}: {}; check the runtime's log", .status.code(), .status.message())]
    Call {
        /// The socket.
        path: PathBuf,
        /// The call.
        method: &'static str,
        /// The answer.
        status: Box<Status>,
    },
    /// No answer came.
    #[error("no answer to CRI {method} on {path} in {} s; check the runtime's log", PATIENCE.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The call.
        method: &'static str,
    },
}

/// Asks the runtime behind a socket for its sandboxes and containers.
///
/// # Errors
/// When it is not there, does not answer, or refuses a list.
pub async fn inventory(socket: &Path) -> Result<Inventory, CriError> {
    let path = socket.to_path_buf();
    let pid = match probe::listener(socket) {
        Ok(listener) => Some(Tgid(listener.pid)),
        // It is asked all the same; its pids then mean nothing here.
        Err(ProbeError::Invisible { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let version = probe::version(socket).await.map_err(|source| CriError::Version { path: path.clone(), source })?;
    if version.api.starts_with("v1alpha") {
        return Err(CriError::OldApi { path, name: version.name, version: version.version, api: version.api });
    }
    let mut client = Client::connect(path).await?;
    // Containers first: the sandbox of each is then in the later list, unless it was removed meanwhile.
    let containers = client.containers().await?;
    let sandboxes = client.sandboxes().await?;
    let mut found = Found::default();
    for listed in &containers {
        let status = client.container(&listed.id).await?;
        found.container(listed, status);
    }
    for listed in &sandboxes {
        let status = client.sandbox(&listed.id).await?;
        found.sandbox(listed, status);
    }
    let socket = socket.to_string_lossy().into_owned();
    let runtime = Runtime { socket: Some(socket), name: known(&version.name), version: known(&version.version), pid };
    Ok(found.inventory(runtime))
}

struct Client {
    path: PathBuf,
    runtime: RuntimeServiceClient<Channel>,
}

impl Client {
    async fn connect(path: PathBuf) -> Result<Client, CriError> {
        let failed = |error| CriError::Version { path: path.clone(), source: VersionError::Connect(error) };
        let channel = probe::connect(&path).await.map_err(failed)?;
        Ok(Client { path, runtime: RuntimeServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE) })
    }

    async fn containers(&mut self) -> Result<Vec<v1::Container>, CriError> {
        const METHOD: &str = "ListContainers";
        let list = self.runtime.list_containers(v1::ListContainersRequest::default());
        Ok(answer(&self.path, METHOD, list).await?.map_err(|status| refused(&self.path, METHOD, status))?.containers)
    }

    async fn sandboxes(&mut self) -> Result<Vec<v1::PodSandbox>, CriError> {
        const METHOD: &str = "ListPodSandbox";
        let list = self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default());
        Ok(answer(&self.path, METHOD, list).await?.map_err(|status| refused(&self.path, METHOD, status))?.items)
    }

    async fn container(&mut self, id: &str) -> Result<Result<v1::ContainerStatusResponse, Code>, CriError> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let status = answer(&self.path, "ContainerStatus", self.runtime.container_status(request)).await?;
        Ok(status.map_err(|status| status.code()))
    }

    async fn sandbox(&mut self, id: &str) -> Result<Result<v1::PodSandboxStatusResponse, Code>, CriError> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let status = answer(&self.path, "PodSandboxStatus", self.runtime.pod_sandbox_status(request)).await?;
        Ok(status.map_err(|status| status.code()))
    }
}

/// An answer of the runtime, be it a refusal.
async fn answer<T>(
    path: &Path,
    method: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Result<T, Status>, CriError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Err(_) => Err(CriError::Silent { path: path.to_owned(), method }),
        // The connection broke: there is nobody any more to ask for the rest.
        Ok(Err(status)) if status.code() == Code::Unavailable => Err(refused(path, method, status)),
        Ok(answer) => Ok(answer.map(Response::into_inner)),
    }
}

fn refused(path: &Path, method: &'static str, status: Status) -> CriError {
    CriError::Call { path: path.to_owned(), method, status: Box::new(status) }
}

/// What was listed, put together.
#[derive(Debug, Default)]
struct Found {
    sandboxes: Vec<Sandbox>,
    containers: Vec<(String, Container)>,
    notes: Vec<String>,
}

impl Found {
    fn container(&mut self, listed: &v1::Container, status: Result<v1::ContainerStatusResponse, Code>) {
        let (status, info) = match status {
            Ok(reply) => (reply.status.unwrap_or_default(), Info::of(&reply.info.into_iter().collect())),
            Err(Code::NotFound) => return self.gone("container", &listed.id),
            Err(code) => {
                self.notes.push(format!("ContainerStatus of container {} failed: {code:?}", listed.id));
                let id = String::new();
                (v1::ContainerStatus { id, state: listed.state, ..Default::default() }, Info::default())
            }
        };
        let (name, attempt) =
            listed.metadata.as_ref().map_or((None, None), |meta| (known(&meta.name), Some(meta.attempt)));
        let state = container_state(status.state);
        let image = status.image.as_ref().or(listed.image.as_ref());
        let container = Container {
            id: ContainerId(listed.id.clone()),
            name,
            attempt,
            state,
            created: time(listed.created_at),
            started: time(status.started_at),
            finished: time(status.finished_at),
            exit_code: (state == Some(ContainerState::Exited) && status.finished_at > 0).then_some(status.exit_code),
            image: image.and_then(|image| known(&image.image)),
            image_id: image_id(listed, &status),
            image_digest: status.image_ref.split_once('@').and_then(|(_, digest)| known(digest)),
            claimed: info.pid(),
            init: None,
        };
        self.containers.push((listed.pod_sandbox_id.clone(), container));
    }

    fn sandbox(&mut self, listed: &v1::PodSandbox, status: Result<v1::PodSandboxStatusResponse, Code>) {
        let (status, info) = match status {
            Ok(reply) => (reply.status.unwrap_or_default(), Info::of(&reply.info.into_iter().collect())),
            Err(Code::NotFound) => return self.gone("sandbox", &listed.id),
            Err(code) => {
                self.notes.push(format!("PodSandboxStatus of sandbox {} failed: {code:?}", listed.id));
                (v1::PodSandboxStatus { state: listed.state, ..Default::default() }, Info::default())
            }
        };
        let meta = listed.metadata.clone();
        let attempt = meta.as_ref().map(|meta| meta.attempt);
        let meta = meta.unwrap_or_default();
        let network = status.network.unwrap_or_default();
        let more = network.additional_ips.iter().map(|ip| ip.ip.as_str());
        self.sandboxes.push(Sandbox {
            id: Some(SandboxId(listed.id.clone())),
            pod: Names {
                uid: known(&meta.uid).map(PodUid),
                namespace: known(&meta.namespace),
                name: known(&meta.name),
            },
            attempt,
            state: sandbox_state(status.state),
            created: time(listed.created_at),
            handler: known(&listed.runtime_handler),
            ips: [network.ip.as_str()].into_iter().chain(more).filter_map(known).collect(),
            image: info.image.as_deref().and_then(known),
            claimed: info.pid(),
            cgroup_parent: info.cgroup_parent(),
            init: None,
            containers: Vec::new(),
        });
    }

    fn gone(&mut self, what: &str, id: &str) {
        self.notes.push(format!("{what} {id} was removed while the runtime was asked"));
    }

    fn inventory(mut self, runtime: Runtime) -> Inventory {
        self.containers.sort_by(|(_, a), (_, b)| (a.created, &a.id).cmp(&(b.created, &b.id)));
        for (sandbox, container) in self.containers {
            match self.sandboxes.iter_mut().find(|own| own.id.as_ref().is_some_and(|id| *id.0 == *sandbox)) {
                Some(own) => own.containers.push(container),
                None => {
                    self.notes.push(format!("container {} is of sandbox {sandbox}, which is not there", container.id))
                }
            }
        }
        Inventory { runtime, sandboxes: self.sandboxes, notes: self.notes }
    }
}

/// `image_id` came with CRI 1.29; before, containerd's list has it as `image_ref`, and CRI-O's a digest.
fn image_id(listed: &v1::Container, status: &v1::ContainerStatus) -> Option<String> {
    let older = Some(listed.image_ref.as_str()).filter(|image| !image.contains('@'));
    known(&status.image_id).or_else(|| known(&listed.image_id)).or_else(|| older.and_then(known))
}

pub(super) fn container_state(state: i32) -> Option<ContainerState> {
    Some(match v1::ContainerState::try_from(state).ok()? {
        v1::ContainerState::ContainerCreated => ContainerState::Created,
        v1::ContainerState::ContainerRunning => ContainerState::Running,
        v1::ContainerState::ContainerExited => ContainerState::Exited,
        v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
    })
}

pub(super) fn sandbox_state(state: i32) -> Option<SandboxState> {
    Some(match v1::PodSandboxState::try_from(state).ok()? {
        v1::PodSandboxState::SandboxReady => SandboxState::Ready,
        v1::PodSandboxState::SandboxNotready => SandboxState::NotReady,
    })
}

/// The CRI leaves out what is not known, which protobuf reads as empty or 0.
fn known(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn time(ns: i64) -> Option<u64> {
    u64::try_from(ns).ok().filter(|ns| *ns > 0)
}

#[cfg(test)]
mod tests;

//! The kubelet's side of the CRI, version 1.
//!
//! Each call carries the client's own times, for a test that compares them with podlapse's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper_util::rt::TokioIo;
use k8s_cri::v1;
use k8s_cri::v1::image_service_client::ImageServiceClient;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use serde::Serialize;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

mod kubelet;
mod pod;

pub use kubelet::Paths;
pub use pod::{Container, Limits, Pod, StartedContainer, StartedPod};

/// Nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MonotonicNs(pub u64);

impl MonotonicNs {
    /// The clock's reading.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // The clock starts at boot and is never negative.
        Self(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }
}

/// A call that came back.
#[derive(Debug, Clone)]
pub struct Call<T> {
    /// Just before the request was handed to the client library.
    pub start: MonotonicNs,
    /// Just after the reply came from it.
    pub end: MonotonicNs,
    /// The reply, or the gRPC status.
    pub result: Result<T, Status>,
}

impl<T> Call<T> {
    /// The reply; an error says which call failed.
    pub fn ok(self, method: &str) -> Result<(T, Times)> {
        let times = Times { start: self.start, end: self.end };
        match self.result {
            Ok(reply) => Ok((reply, times)),
            Err(status) => anyhow::bail!("{method}: {:?}: {}", status.code(), status.message()),
        }
    }

    fn map<U>(self, f: impl FnOnce(T) -> U) -> Call<U> {
        Call { start: self.start, end: self.end, result: self.result.map(f) }
    }
}

/// When a call was made and when it came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Before the request.
    #[serde(rename = "start_ns")]
    pub start: MonotonicNs,
    /// After the reply.
    #[serde(rename = "end_ns")]
    pub end: MonotonicNs,
}

/// A connection to a CRI socket.
#[derive(Debug, Clone)]
pub struct Cri {
    channel: Channel,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    deadline: Option<Duration>,
}

/// Times one call.
macro_rules! call {
    ($cri:ident.$client:ident, $method:ident, $request:expr) => {{
        let request = $cri.request($request);
        let start = MonotonicNs::now();
        let result = $cri.$client.$method(request).await;
        let end = MonotonicNs::now();
        Call { start, end, result: result.map(tonic::Response::into_inner) }
    }};
}

impl Cri {
    /// Connects; the error names the socket.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let path: PathBuf = socket.to_path_buf();
        // The URI is of no use on a Unix socket, but has to be one.
        let channel = Endpoint::try_from("http://localhost")?
            .connect_with_connector(service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            }))
            .await
            .with_context(|| format!("cannot connect to the CRI socket {}", socket.display()))?;
        Ok(Self::over(channel))
    }

    /// Connects as kubelet does, whose method names are indices from their second use on. The paths of the calls are
    /// what a passive reader should find.
    pub async fn connect_like_kubelet(socket: &Path) -> Result<(Self, Paths)> {
        let (path, paths) = (socket.to_path_buf(), Paths::default());
        let written = paths.clone();
        let channel = Endpoint::try_from("http://localhost")?
            .connect_with_connector(service_fn(move |_: Uri| {
                let (path, paths) = (path.clone(), written.clone());
                async move { kubelet::connect(&path, paths).await.map(TokioIo::new) }
            }))
            .await
            .with_context(|| format!("cannot connect to the CRI socket {}", socket.display()))?;
        Ok((Self::over(channel), paths))
    }

    fn over(channel: Channel) -> Self {
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel.clone()),
            channel,
            deadline: None,
        }
    }

    /// The same connection, with calls that are given up after so long, as kubelet's are.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline);
        }
        request
    }

    /// `Version`.
    pub async fn version(&mut self) -> Call<v1::VersionResponse> {
        call!(self.runtime, version, v1::VersionRequest { version: "v1".into() })
    }

    /// `Status`.
    pub async fn status(&mut self, verbose: bool) -> Call<v1::StatusResponse> {
        call!(self.runtime, status, v1::StatusRequest { verbose })
    }

    /// `RunPodSandbox`: the sandbox's id.
    pub async fn run_pod_sandbox(&mut self, pod: &Pod) -> Call<String> {
        let request =
            v1::RunPodSandboxRequest { config: Some(pod.config()), runtime_handler: pod.runtime_handler.clone() };
        call!(self.runtime, run_pod_sandbox, request).map(|reply| reply.pod_sandbox_id)
    }

    /// `CreateContainer`: the container's id.
    pub async fn create_container(&mut self, sandbox: &str, pod: &Pod, container: &Container) -> Call<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(container.config(pod)),
            sandbox_config: Some(pod.config()),
        };
        call!(self.runtime, create_container, request).map(|reply| reply.container_id)
    }

    /// `StartContainer`.
    pub async fn start_container(&mut self, id: &str) -> Call<()> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        call!(self.runtime, start_container, request).map(drop)
    }

    /// `StopContainer`; `timeout` in seconds between SIGTERM and SIGKILL.
    pub async fn stop_container(&mut self, id: &str, timeout: i64) -> Call<()> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        call!(self.runtime, stop_container, request).map(drop)
    }

    /// `RemoveContainer`.
    pub async fn remove_container(&mut self, id: &str) -> Call<()> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        call!(self.runtime, remove_container, request).map(drop)
    }

    /// `StopPodSandbox`.
    pub async fn stop_pod_sandbox(&mut self, id: &str) -> Call<()> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call!(self.runtime, stop_pod_sandbox, request).map(drop)
    }

    /// `RemovePodSandbox`.
    pub async fn remove_pod_sandbox(&mut self, id: &str) -> Call<()> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        call!(self.runtime, remove_pod_sandbox, request).map(drop)
    }

    /// `PodSandboxStatus`.
    pub async fn pod_sandbox_status(&mut self, id: &str, verbose: bool) -> Call<v1::PodSandboxStatusResponse> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose };
        call!(self.runtime, pod_sandbox_status, request)
    }

    /// `ContainerStatus`.
    pub async fn container_status(&mut self, id: &str, verbose: bool) -> Call<v1::ContainerStatusResponse> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose };
        call!(self.runtime, container_status, request)
    }

    /// `ListPodSandbox`.
    pub async fn list_pod_sandboxes(&mut self) -> Call<Vec<v1::PodSandbox>> {
        call!(self.runtime, list_pod_sandbox, v1::ListPodSandboxRequest::default()).map(|reply| reply.items)
    }

    /// `ListContainers`.
    pub async fn list_containers(&mut self) -> Call<Vec<v1::Container>> {
        call!(self.runtime, list_containers, v1::ListContainersRequest::default()).map(|reply| reply.containers)
    }

    /// `ExecSync`; `timeout` in seconds, 0 for none.
    pub async fn exec_sync(&mut self, id: &str, command: &[&str], timeout: i64) -> Call<v1::ExecSyncResponse> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout,
        };
        call!(self.runtime, exec_sync, request)
    }

    /// `Exec`: the address of a stream into a container.
    pub async fn exec(&mut self, id: &str, command: &[&str]) -> Call<String> {
        let request = v1::ExecRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            stdout: true,
            ..Default::default()
        };
        call!(self.runtime, exec, request).map(|reply| reply.url)
    }

    /// `Attach`: the address of a stream to a container's output.
    pub async fn attach(&mut self, id: &str) -> Call<String> {
        let request = v1::AttachRequest { container_id: id.to_owned(), stdout: true, ..Default::default() };
        call!(self.runtime, attach, request).map(|reply| reply.url)
    }

    /// `PortForward`: the address of a stream to a pod's port.
    pub async fn port_forward(&mut self, sandbox: &str, port: i32) -> Call<String> {
        let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![port] };
        call!(self.runtime, port_forward, request).map(|reply| reply.url)
    }

    /// `PullImage`, with the registry's credentials when there are any.
    pub async fn pull_image(&mut self, image: &str, auth: Option<v1::AuthConfig>) -> Call<v1::PullImageResponse> {
        let image = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        call!(self.images, pull_image, v1::PullImageRequest { image: Some(image), auth, sandbox_config: None })
    }

    /// `PullImage` for a pod, as kubelet's.
    pub async fn pull_image_for(&mut self, image: &str, pod: &Pod) -> Call<v1::PullImageResponse> {
        let image = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::PullImageRequest { image: Some(image), auth: None, sandbox_config: Some(pod.config()) };
        call!(self.images, pull_image, request)
    }

    /// A method that no runtime knows, with a body.
    pub async fn unknown_method(&mut self) -> Call<v1::VersionResponse> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/NoSuchMethod");
        let request = v1::VersionRequest { version: "x".repeat(1000) };
        let codec = tonic_prost::ProstCodec::<v1::VersionRequest, v1::VersionResponse>::default();
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        let start = MonotonicNs::now();
        let result = match client.ready().await {
            Ok(()) => client.unary(tonic::Request::new(request), path, codec).await,
            Err(error) => Err(Status::from_error(Box::new(error))),
        };
        Call { start, end: MonotonicNs::now(), result: result.map(tonic::Response::into_inner) }
    }

    /// Whether the runtime has an image (`ImageStatus`).
    pub async fn has_image(&mut self, image: &str) -> Result<bool> {
        let image = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        let (reply, _) = call!(self.images, image_status, request).ok("ImageStatus")?;
        Ok(reply.image.is_some())
    }

    /// The id of an image that the runtime has, as kubelet gives it to CreateContainer.
    pub async fn image_id(&mut self, image: &str) -> Result<String> {
        let image = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        let (reply, _) = call!(self.images, image_status, request).ok("ImageStatus")?;
        Ok(reply.image.context("the runtime does not have the image")?.id)
    }

    /// Does what kubelet does to start a pod: its cgroup, the sandbox, then one container after
    /// another; the next only when one that completes has ended.
    pub async fn start_pod(&mut self, pod: &Pod, containers: &[Container]) -> Result<StartedPod> {
        if !pod.cgroup_parent.is_empty() {
            crate::cgroup::create(&pod.cgroup_parent)?;
        }
        let (id, run) = self.run_pod_sandbox(pod).await.ok("RunPodSandbox")?;
        let (status, _) = self.pod_sandbox_status(&id, true).await.ok("PodSandboxStatus")?;
        let mut started = StartedPod {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
            pid: pid_of(status.info.into_iter().collect())?,
            id,
            run,
            containers: Vec::new(),
        };
        for container in containers {
            let container = self.start_container_in(pod, &started.id, container).await?;
            started.containers.push(container);
        }
        Ok(started)
    }

    /// Creates and starts a container in a pod's sandbox.
    pub async fn start_container_in(
        &mut self,
        pod: &Pod,
        sandbox: &str,
        container: &Container,
    ) -> Result<StartedContainer> {
        let (id, create) = self.create_container(sandbox, pod, container).await.ok("CreateContainer")?;
        let ((), start) = self.start_container(&id).await.ok("StartContainer")?;
        let (status, _) = self.container_status(&id, true).await.ok("ContainerStatus")?;
        let pid = pid_of(status.info.into_iter().collect())?;
        if container.completes {
            let code = self.ended(&id).await?;
            ensure!(code == 0, "container {} exited with {code}", container.name);
        }
        Ok(StartedContainer { name: container.name.clone(), id, pid, create, start })
    }

    /// Kills a container's process and starts the container's next attempt, as kubelet does when one has ended.
    pub async fn restart_container(
        &mut self,
        pod: &Pod,
        sandbox: &str,
        container: &Container,
        running: &StartedContainer,
    ) -> Result<StartedContainer> {
        let pid = i32::try_from(running.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .context("the container has ended")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            .context("cannot kill the container's process")?;
        self.ended(&running.id).await?;
        let mut next = container.clone();
        next.attempt += 1;
        self.start_container_in(pod, sandbox, &next).await
    }

    /// Waits until a container has ended: its exit code.
    pub async fn ended(&mut self, id: &str) -> Result<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let (status, _) = self.container_status(id, false).await.ok("ContainerStatus")?;
            let status = status.status.context("ContainerStatus says nothing")?;
            if status.state() == v1::ContainerState::ContainerExited {
                return Ok(status.exit_code);
            }
            ensure!(Instant::now() < deadline, "container {id} does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops and removes a pod and its cgroup.
    pub async fn remove_pod(&mut self, sandbox: &str, cgroup_parent: &str) -> Result<()> {
        self.stop_pod_sandbox(sandbox).await.ok("StopPodSandbox")?;
        self.remove_pod_sandbox(sandbox).await.ok("RemovePodSandbox")?;
        if !cgroup_parent.is_empty() {
            crate::cgroup::remove(cgroup_parent)?;
        }
        Ok(())
    }
}

/// containerd's verbose status: `info` holds a JSON object with the pid.
pub fn pid_of(info: BTreeMap<String, String>) -> Result<u32> {
    let info = info.get("info").context("the verbose status has no info")?;
    let info: serde_json::Value = serde_json::from_str(info)?;
    let pid = info.get("pid").and_then(serde_json::Value::as_u64);
    u32::try_from(pid.context("the verbose status has no pid")?).context("the pid is too large")
}

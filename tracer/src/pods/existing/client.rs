//! Asking the runtime: two lists, one status at a time, each with a limit. Nothing is changed there.

use std::path::Path;
use std::time::Duration;

use k8s_cri::v1;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tower::util::MapRequest;

use super::Trouble;
use crate::probe;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest message; kubelet's and containerd's own limit.
const MAX_MESSAGE: usize = 16 << 20;

type Request = http::Request<Body>;
type Rename = fn(Request) -> Request;

/// The runtime, asked in the version of the CRI that it speaks: v1alpha2 has the same messages under another name.
pub(super) struct Client(RuntimeServiceClient<MapRequest<Channel, Rename>>);

impl Client {
    pub(super) async fn connect(socket: &Path) -> Result<Client, Trouble> {
        let version = probe::version(socket).await.map_err(|error| Trouble::Said(error.to_string()))?;
        let name: Rename = if version.api.starts_with("v1alpha") { older } else { |request| request };
        let channel = probe::connect(socket).await.map_err(|error| Trouble::Said(error.to_string()))?;
        Ok(Client(RuntimeServiceClient::new(MapRequest::new(channel, name)).max_decoding_message_size(MAX_MESSAGE)))
    }

    pub(super) async fn sandboxes(&mut self) -> Result<Vec<v1::PodSandbox>, Trouble> {
        const METHOD: &str = "ListPodSandbox";
        let reply = answer(METHOD, self.0.list_pod_sandbox(v1::ListPodSandboxRequest::default())).await?;
        reply.map(|reply| reply.items).map_err(|code| failed(METHOD, code))
    }

    pub(super) async fn containers(&mut self) -> Result<Vec<v1::Container>, Trouble> {
        const METHOD: &str = "ListContainers";
        let reply = answer(METHOD, self.0.list_containers(v1::ListContainersRequest::default())).await?;
        reply.map(|reply| reply.containers).map_err(|code| failed(METHOD, code))
    }

    pub(super) async fn sandbox(&mut self, id: &str) -> Result<Result<v1::PodSandboxStatus, Code>, Trouble> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let reply = answer("PodSandboxStatus", self.0.pod_sandbox_status(request)).await?;
        Ok(reply.map(|reply| reply.status.unwrap_or_default()))
    }

    pub(super) async fn container(&mut self, id: &str) -> Result<Result<v1::ContainerStatus, Code>, Trouble> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let reply = answer("ContainerStatus", self.0.container_status(request)).await?;
        Ok(reply.map(|reply| reply.status.unwrap_or_default()))
    }
}

fn older(mut request: Request) -> Request {
    let method = request.uri().path().strip_prefix("/runtime.v1.");
    if let Some(Ok(uri)) = method.map(|method| format!("/runtime.v1alpha2.{method}").parse()) {
        *request.uri_mut() = uri;
    }
    request
}

/// An answer of the runtime, be it a refusal; its words are its own and stay out.
async fn answer<T>(
    method: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Result<T, Code>, Trouble> {
    match tokio::time::timeout(PATIENCE, call).await {
        Err(_) => Err(Trouble::Said(format!("no answer to CRI {method} in {} s", PATIENCE.as_secs()))),
        // The connection broke, or the runtime is not up yet: there is nobody to ask for the rest.
        Ok(Err(status)) if status.code() == Code::Unavailable => Err(failed(method, Code::Unavailable)),
        Ok(answer) => Ok(answer.map(Response::into_inner).map_err(|status| status.code())),
    }
}

fn failed(method: &str, code: Code) -> Trouble {
    Trouble::Said(format!("CRI {method} failed: {code:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1alpha2_has_the_same_methods() {
        let name = |path: &str| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            older(request).uri().to_string()
        };
        assert_eq!(
            name("/runtime.v1.RuntimeService/ListContainers"),
            "/runtime.v1alpha2.RuntimeService/ListContainers"
        );
        assert_eq!(name("/other.v1.Service/runtime.v1.x"), "/other.v1.Service/runtime.v1.x");
    }
}

//! podlapse's own CRI call: the runtime's name and version, once a registration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_cri::{v1, v1alpha2};
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest wait for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the runtime calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// Asks for the version over CRI v1, then v1alpha2.
///
/// # Errors
/// Why there is no answer, in words.
pub(crate) async fn version(socket: &Path) -> Result<Version, String> {
    match tokio::time::timeout(PATIENCE, ask(socket)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer to a CRI Version call within {} s", PATIENCE.as_secs())),
    }
}

async fn ask(socket: &Path) -> Result<Version, String> {
    let channel = connect(socket.to_owned()).await?;
    let mut client = v1::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    match client.version(v1::VersionRequest { version: String::new() }).await {
        Ok(reply) => {
            let reply = reply.into_inner();
            return Ok(Version { name: reply.runtime_name, version: reply.runtime_version });
        }
        Err(status) if status.code() != Code::Unimplemented => return Err(words(&status)),
        Err(_) => {}
    }
    let mut client = v1alpha2::runtime_service_client::RuntimeServiceClient::new(channel);
    let reply = client.version(v1alpha2::VersionRequest { version: String::new() }).await;
    let reply = reply.map_err(|status| words(&status))?.into_inner();
    Ok(Version { name: reply.runtime_name, version: reply.runtime_version })
}

async fn connect(path: PathBuf) -> Result<Channel, String> {
    // The address only fills the request's :authority.
    let endpoint = Endpoint::from_static("http://localhost");
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| format!("cannot connect: {error}"))
}

fn words(status: &tonic::Status) -> String {
    format!("the CRI Version call failed: {:?}: {}", status.code(), status.message())
}

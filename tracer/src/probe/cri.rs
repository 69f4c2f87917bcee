//! podlapse's own CRI call: the runtime's name and version.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_cri::{v1, v1alpha2};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

/// Longest wait for the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a runtime that is coming up is asked again, and after what pause.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);

/// What the runtime calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the CRI that it speaks.
    pub api: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (CRI {})", self.name, self.version, self.api)
    }
}

/// Why a runtime did not tell its version.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// Its socket cannot be connected to.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// It answered with an error, or with something else than gRPC.
    #[error("CRI Version failed: {:?}: {}", .0.code(), .0.message())]
    Call(#[source] Box<Status>),
    /// It did not answer.
    #[error("no answer to CRI Version in {} s", PATIENCE.as_secs())]
    Silent,
}

/// Asks a runtime for its version over CRI v1, then v1alpha2, all that runtimes before containerd 1.6 speak.
///
/// # Errors
/// Why there is no answer.
pub async fn version(socket: &Path) -> Result<Version, VersionError> {
    tokio::time::timeout(PATIENCE, ask(socket)).await.unwrap_or(Err(VersionError::Silent))
}

/// Asks a runtime that has just begun to listen: it may need a moment more.
///
/// # Errors
/// As [`version`].
pub(crate) async fn version_of_new(socket: &Path) -> Result<Version, VersionError> {
    for _ in 0..TRIES {
        if let Ok(version) = version(socket).await {
            return Ok(version);
        }
        tokio::time::sleep(PAUSE).await;
    }
    version(socket).await
}

async fn ask(socket: &Path) -> Result<Version, VersionError> {
    let channel = connect(socket).await.map_err(VersionError::Connect)?;
    let failed = |status| VersionError::Call(Box::new(status));
    let mut client = v1::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    match client.version(v1::VersionRequest { version: String::new() }).await {
        Ok(reply) => {
            let reply = reply.into_inner();
            Ok(Version { name: reply.runtime_name, version: reply.runtime_version, api: reply.runtime_api_version })
        }
        Err(status) if status.code() == Code::Unimplemented => {
            let mut client = v1alpha2::runtime_service_client::RuntimeServiceClient::new(channel);
            let reply = client.version(v1alpha2::VersionRequest { version: String::new() }).await;
            let reply = reply.map_err(failed)?.into_inner();
            Ok(Version { name: reply.runtime_name, version: reply.runtime_version, api: reply.runtime_api_version })
        }
        Err(status) => Err(failed(status)),
    }
}

/// Connects beforehand, so that the operating system's error is told and not tonic's; a call needs no second connection.
pub(crate) async fn connect(path: &Path) -> io::Result<Channel> {
    let mut stream = Some(UnixStream::connect(path).await?);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset));
        async move { stream.map(TokioIo::new) }
    });
    // The address only fills the request's :authority.
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.map_err(io::Error::other)
}

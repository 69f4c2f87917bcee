//! Whether a container runtime answers: one CRI `Version` call, as kubelet makes it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_cri::{v1, v1alpha2};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::report::Check;
use crate::probe;

const NAME: &str = "runtime";

/// How long a runtime may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks the named socket, or the first of the known ones that is there.
pub(super) async fn check(socket: Option<&Path>) -> Check {
    let found = socket.map(Path::to_path_buf).or_else(|| probe::candidates().into_iter().find(|path| path.exists()));
    match found {
        Some(path) => ask(path).await,
        None => {
            let known: Vec<String> = probe::candidates().iter().map(|path| path.display().to_string()).collect();
            let looked = format!("no CRI socket at {}", known.join(", "));
            Check::bad(NAME, looked, "start the runtime, or name its socket with --socket PATH")
        }
    }
}

async fn ask(path: PathBuf) -> Check {
    let place = path.display().to_string();
    let bad = |what: &dyn std::fmt::Display, advice: &str| Check::bad(NAME, format!("{place}: {what}"), advice);
    let channel = match tokio::time::timeout(PATIENCE, connect(path.clone())).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => "start the runtime, or name its socket with --socket PATH",
                io::ErrorKind::PermissionDenied => "run podlapse as root",
                io::ErrorKind::ConnectionRefused => "nobody listens there, or it is no socket: start the runtime",
                _ => "check the runtime's log, and --socket PATH",
            };
            return bad(&error, advice);
        }
        Err(_) => return bad(&"connecting took too long", "check the runtime's log"),
    };
    match tokio::time::timeout(PATIENCE, version(channel)).await {
        Ok(Ok(version)) => Check::ok(NAME, format!("{version} at {place}")),
        Ok(Err(status)) => bad(
            &format_args!("CRI Version failed: {:?}: {}", status.code(), status.message()),
            "check that the socket is the runtime's CRI, and that its CRI plugin is enabled",
        ),
        Err(_) => bad(&"no answer to CRI Version in 5 s", "check the runtime's log"),
    }
}

/// Connects once beforehand, so that the operating system's error is told and not tonic's.
async fn connect(path: PathBuf) -> io::Result<Channel> {
    let stream = UnixStream::connect(&path).await?;
    let mut stream = Some(stream);
    let connector = service_fn(move |_: tonic::transport::Uri| {
        let first = stream.take();
        let path = path.clone();
        async move {
            let stream = match first {
                Some(stream) => stream,
                None => UnixStream::connect(path).await?,
            };
            io::Result::Ok(TokioIo::new(stream))
        }
    });
    // The name is never resolved; it only has to be a URI.
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.map_err(io::Error::other)
}

/// Name, version and CRI version; runtimes before containerd 1.6 speak v1alpha2 only.
async fn version(channel: Channel) -> Result<String, tonic::Status> {
    let mut current = v1::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    let ask = v1::VersionRequest { version: String::new() };
    match current.version(ask).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            Ok(format!("{} {} (CRI {})", answer.runtime_name, answer.runtime_version, answer.runtime_api_version))
        }
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            let mut older = v1alpha2::runtime_service_client::RuntimeServiceClient::new(channel);
            let answer = older.version(v1alpha2::VersionRequest { version: String::new() }).await?.into_inner();
            Ok(format!("{} {} (CRI {})", answer.runtime_name, answer.runtime_version, answer.runtime_api_version))
        }
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    async fn advice(path: &Path) -> String {
        let check = check(Some(path)).await;
        assert_eq!(check.level, Level::Bad);
        assert!(check.found.contains(path.to_str().unwrap()));
        check.advice.unwrap()
    }

    #[tokio::test]
    async fn what_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent.sock");
        assert_eq!(advice(&absent).await, "start the runtime, or name its socket with --socket PATH");
        let nobody = dir.path().join("nobody.sock");
        drop(std::os::unix::net::UnixListener::bind(&nobody).unwrap());
        assert!(advice(&nobody).await.starts_with("nobody listens there"));
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        assert!(advice(&plain).await.starts_with("nobody listens there"));
    }

    #[tokio::test]
    async fn what_speaks_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // Whatever becomes of the bytes is the client's to find out.
                let _ = stream.and_then(|mut stream| io::Write::write_all(&mut stream, b"HTTP/1.1 400 no\r\n\r\n"));
            }
        });
        advice(&path).await;
    }
}

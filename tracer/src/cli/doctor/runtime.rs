//! Whether a container runtime answers: one CRI `Version` call, as kubelet makes it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::report::Check;
use crate::probe::{self, VersionError};

const NAME: &str = "runtime";

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

/// Whether connections from before podlapse can be read: their descriptors are looked at in the runtime's process.
pub(super) fn late_attach(socket: Option<&Path>) -> Option<Check> {
    const NAME: &str = "late attach";
    let known = || probe::candidates().into_iter().find_map(|path| UnixStream::connect(path).ok());
    let stream = socket.map_or_else(known, |path| UnixStream::connect(path).ok())?;
    let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
    // Any number: whether it is permitted is asked before whether it is open (kernel/pid.c, __pidfd_fget).
    let look = || pidfd_getfd(pidfd_open(pid, PidfdFlags::empty())?, 0, PidfdGetfdFlags::empty());
    Some(match look() {
        Ok(_) | Err(Errno::BADF) => Check::ok(
            NAME,
            format!("connections to process {pid} that are open already are read; Go clients' calls get their names"),
        ),
        Err(error) => Check::bad(
            NAME,
            format!("the descriptors of process {pid} cannot be looked at (pidfd_getfd: {error})"),
            "run podlapse as root on the host, or with CAP_SYS_PTRACE",
        ),
    })
}

async fn ask(path: PathBuf) -> Check {
    let place = path.display();
    let error = match probe::version(&path).await {
        Ok(version) => return Check::ok(NAME, format!("{version} at {place}")),
        Err(error) => error,
    };
    let advice = match &error {
        VersionError::Connect(error) => match error.kind() {
            io::ErrorKind::NotFound => "start the runtime, or name its socket with --socket PATH",
            io::ErrorKind::PermissionDenied => "run podlapse as root",
            io::ErrorKind::ConnectionRefused => "nobody listens there, or it is no socket: start the runtime",
            _ => "check the runtime's log, and --socket PATH",
        },
        VersionError::Call(_) => "check that the socket is the runtime's CRI, and that its CRI plugin is enabled",
        VersionError::Silent => "check the runtime's log",
    };
    Check::bad(NAME, format!("{place}: {error}"), advice)
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

    #[test]
    fn what_is_open_already() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.sock");
        assert_eq!(late_attach(Some(&path)), None, "nobody listens");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // A process may look at its own descriptors.
        assert_eq!(late_attach(Some(&path)).map(|check| check.level), Some(Level::Ok));
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

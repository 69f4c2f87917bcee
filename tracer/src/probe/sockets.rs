//! The runtime's CRI socket: where to look, who listens, and which of its descriptors are unix sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::ProbeError;

/// Where runtimes put their CRI socket: containerd, k3s and rke2, microk8s, k0s, CRI-O.
pub fn candidates() -> Vec<PathBuf> {
    [
        "/run/containerd/containerd.sock",
        "/run/k3s/containerd/containerd.sock",
        "/var/snap/microk8s/common/run/containerd.sock",
        "/run/k0s/containerd.sock",
        "/run/crio/crio.sock",
    ]
    .into_iter()
    .map(PathBuf::from)
    .collect()
}

/// Who listens on a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The process.
    pub(crate) pid: u32,
    /// What that process calls the socket: its path in the runtime's mount namespace, by the links that it took.
    pub(crate) name: PathBuf,
}

/// Asks who listens on a socket, by a connection that is closed at once.
///
/// # Errors
/// [`ProbeError::Socket`], [`ProbeError::Invisible`].
pub(crate) fn listener(path: &Path) -> Result<Listener, ProbeError> {
    let stream = UnixStream::connect(path)
        .map_err(|error| ProbeError::Socket { path: path.to_owned(), what: trouble(path, &error) })?;
    let invisible = || ProbeError::Invisible { path: path.to_owned() };
    // The kernel translates the pid; 0 stands for a process outside this namespace, which rustix cannot express.
    let peer = peer_of(&stream).ok_or_else(invisible)?;
    let pid = (peer != 0).then_some(peer).ok_or_else(invisible)?;
    let bound = stream.peer_addr().ok().and_then(|address| address.as_pathname().map(Path::to_owned));
    Ok(Listener { pid, name: bound.unwrap_or_else(|| path.to_owned()) })
}

fn trouble(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            "it does not exist; is the runtime running, and is this its CRI socket (--socket PATH)?".to_owned()
        }
        Some(libc::ECONNREFUSED) => {
            let is_socket =
                std::fs::metadata(path).is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()));
            if is_socket {
                "nobody listens on it; start the runtime, or name another socket with --socket PATH".to_owned()
            } else {
                "it is not a socket; name the runtime's CRI socket with --socket PATH".to_owned()
            }
        }
        Some(libc::EACCES | libc::EPERM) => "permission denied; run podlapse as root".to_owned(),
        Some(libc::EPROTOTYPE) => "it is not a stream socket; name the runtime's CRI socket".to_owned(),
        _ => error.to_string(),
    }
}

/// A unix stream socket of another process.
#[derive(Debug)]
pub(crate) struct Found {
    /// A copy of its descriptor.
    pub(crate) copy: OwnedFd,
    /// Its descriptor there.
    pub(crate) fd: i32,
    /// What it is.
    pub(crate) kind: Kind,
    /// The name: of the listener, or of the end of the connection that has one.
    pub(crate) name: Vec<u8>,
    /// Process at the other end.
    pub(crate) peer: Option<u32>,
}

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It listens.
    Listener,
    /// It is connected.
    Connection,
}

/// A pidfd of a process.
///
/// # Errors
/// [`ProbeError::Runtime`].
pub(crate) fn pidfd(pid: u32) -> Result<OwnedFd, ProbeError> {
    let gone = || ProbeError::Runtime { pid, what: "it has ended".to_owned() };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    rustix::process::pidfd_open(raw, PidfdFlags::empty())
        .map_err(|error| ProbeError::Runtime { pid, what: format!("pidfd_open: {error}") })
}

/// Looks at one descriptor of a process, through a copy. None: no unix stream socket, or one
/// that is neither listening nor connected.
///
/// # Errors
/// When the copy is refused.
pub(crate) fn examine(pidfd: impl AsFd, fd: i32) -> Result<Option<Found>, Errno> {
    let copy = match rustix::process::pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty()) {
        Err(Errno::BADF) => return Ok(None),
        copy => copy?,
    };
    if sockopt::socket_domain(&copy)? != AddressFamily::UNIX || sockopt::socket_type(&copy)? != SocketType::STREAM {
        return Ok(None);
    }
    let own = rustix::net::getsockname(&copy).ok().and_then(name).unwrap_or_default();
    if sockopt::socket_acceptconn(&copy)? {
        return Ok(Some(Found { copy, fd, kind: Kind::Listener, name: own, peer: None }));
    }
    let Ok(other) = rustix::net::getpeername(&copy) else { return Ok(None) };
    let other = other.and_then(name).unwrap_or_default();
    let name = if own.is_empty() { other } else { own };
    let peer = peer_of(&copy).filter(|pid| *pid != 0);
    Ok(Some(Found { copy, fd, kind: Kind::Connection, name, peer }))
}

fn name(address: SocketAddrAny) -> Option<Vec<u8>> {
    let address = SocketAddrUnix::try_from(address).ok()?;
    if let Some(name) = address.abstract_name().filter(|name| !name.is_empty()) {
        return Some([&[0], name].concat());
    }
    address.path().map(|path| path.to_bytes().to_vec())
}

/// `SO_PEERCRED`'s pid; 0: outside this pid namespace.
fn peer_of(socket: impl AsFd) -> Option<u32> {
    use std::os::fd::AsRawFd as _;
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes into a structure of that size.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut credentials).cast(), &raw mut len)
    };
    (result == 0).then(|| u32::try_from(credentials.pid).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::{Kind, Listener, examine, listener, pidfd};

    #[test]
    fn own_sockets_are_examined() {
        use std::os::fd::AsRawFd as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = server.accept().unwrap();
        let me = std::process::id();
        assert_eq!(listener(&path).unwrap(), Listener { pid: me, name: path.clone() });
        // Who bound it does not know of the link.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(listener(&link).unwrap().name, path);
        let process = pidfd(me).unwrap();
        let look = |fd: i32| examine(&process, fd);
        let found = match look(server.as_raw_fd()) {
            Err(rustix::io::Errno::PERM) => return println!("skipped: pidfd_getfd is not permitted here"),
            found => found.unwrap().unwrap(),
        };
        assert_eq!((found.kind, found.name.as_slice()), (Kind::Listener, path.as_os_str().as_encoded_bytes()));
        for socket in [client.as_raw_fd(), accepted.as_raw_fd()] {
            let found = look(socket).unwrap().unwrap();
            assert_eq!((found.kind, found.peer), (Kind::Connection, Some(me)));
            assert_eq!(found.name, path.as_os_str().as_encoded_bytes());
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(look(file.as_raw_fd()).is_err() || look(file.as_raw_fd()).unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_with_a_socket_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let absent = listener(&dir.path().join("absent")).unwrap_err().to_string();
        assert!(absent.contains("does not exist"), "{absent}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let not_a_socket = listener(&file).unwrap_err().to_string();
        assert!(not_a_socket.contains("is not a socket"), "{not_a_socket}");
        let dead = dir.path().join("dead");
        drop(UnixListener::bind(&dead).unwrap());
        let refused = listener(&dead).unwrap_err().to_string();
        assert!(refused.contains("nobody listens"), "{refused}");
    }
}

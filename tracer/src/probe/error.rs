//! What can go wrong before the first record: what is wrong, where it was looked for, what to do.

use std::io;
use std::path::PathBuf;

/// Why podlapse cannot watch this node.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Not root.
    #[error(
        "not root (effective uid {user}) and without {missing}: run podlapse with sudo, or give it these capabilities"
    )]
    NotRoot {
        /// The effective uid.
        user: u32,
        /// What is not there.
        missing: String,
    },
    /// A capability is not there.
    #[error("missing {0}: run podlapse as root on the host, or give the container these capabilities (privileged)")]
    Capabilities(String),
    /// Built without programs.
    #[error("this podlapse was built with AYA_BUILD_SKIP=1 and holds no BPF programs; build it without that variable")]
    NoPrograms,
    /// No type information.
    #[error(
        "cannot read the kernel's type information {path}: {source}; podlapse needs a kernel built with CONFIG_DEBUG_INFO_BTF=y (5.10 or later)"
    )]
    NoBtf {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Unusable type information.
    #[error("the kernel's type information {path} is not understood: {what}")]
    BadBtf {
        /// Where it was looked for.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No tracefs.
    #[error(
        "tracefs is not mounted on {path} and cannot be mounted in a private mount namespace ({source}); mount it with `mount -t tracefs tracefs {path}`"
    )]
    NoTracefs {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// A `format` file is missing or says something else than expected.
    #[error("cannot use tracepoint format {path}: {what}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Maps could not be created.
    #[error(
        "the kernel refused the BPF maps: {0}; before 5.11 they count against RLIMIT_MEMLOCK: raise it (`ulimit -l unlimited`) or give podlapse CAP_SYS_RESOURCE"
    )]
    Maps(String),
    /// Too few descriptors.
    #[error("too many open files: a run holds some 120; raise the limit (`ulimit -n 256`)")]
    Files,
    /// Something else about the object.
    #[error("the BPF object could not be loaded: {0}")]
    Object(String),
    /// A hook without which no start can be told.
    #[error("hook {name} is required and was refused: {reason}; `podlapse doctor` shows all hooks")]
    Required {
        /// The hook.
        name: String,
        /// Why.
        reason: String,
    },
    /// Trampolines were asked for.
    #[error(
        "the kernel does not take the trampolines that --backend trampoline asks for: {0}; leave the option out, and tracepoints do their work"
    )]
    Trampolines(String),
    /// No runtime answers anywhere.
    #[error("no container runtime found: nobody answers on {0}; name its CRI socket with --socket PATH")]
    NoSocket(String),
    /// The named socket cannot be used.
    #[error("cannot use the runtime's socket {path}: {what}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// The runtime lives outside podlapse's pid namespace.
    #[error(
        "the process that listens on {path} is not visible from podlapse's pid namespace; run podlapse in the host's (hostPID: true), or where the runtime runs"
    )]
    Invisible {
        /// The socket.
        path: PathBuf,
    },
    /// The runtime's process cannot be examined.
    #[error("cannot examine the runtime's process {pid}: {what}")]
    Runtime {
        /// Its pid.
        pid: u32,
        /// What is wrong.
        what: String,
    },
    /// Reading the rings failed.
    #[error("reading the kernel's rings failed: {0}")]
    Rings(#[source] io::Error),
    /// A BPF map could not be read or written.
    #[error("BPF map {name}: {source}")]
    Map {
        /// Its name.
        name: &'static str,
        /// Why.
        source: aya::maps::MapError,
    },
}

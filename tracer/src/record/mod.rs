//! Records: everything the engine learns, decoded from the ABI bytes that the programs, user space and recordings
//! share. Pure: no I/O, no clock, no `unsafe`; bad bytes are an error that names the field, never a panic.

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod listed;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod waiting;

use core::net::IpAddr;
use std::fmt;

use tracer_ebpf as abi;
pub use tracer_ebpf::Namespaces;

pub(crate) use self::decode::socket_name;
pub use self::decode::{DecodeError, decode, len_of};
pub use self::encode::{encode, encode_into};
pub use self::listed::{ContainerState, ListSource, Listed, ListedContainer, ListedSandbox, Listing};
pub use self::waiting::Waiting;

use crate::ids::{CgroupId, ConnId, MonotonicNs, Tgid, Tid};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, see [`tracer_ebpf::Header::ktime`].
    pub at: MonotonicNs,
    /// Process that was current.
    pub tgid: Tgid,
    /// Thread that was current.
    pub tid: Tid,
    /// What happened.
    pub event: Event,
}

/// What a record says; one variant for each [`tracer_ebpf::kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Payload on a watched socket.
    Bytes(Bytes),
    /// A change of a watched process's sockets.
    Socket(Socket),
    /// A process was created.
    NewTask(NewTask),
    /// A program was executed.
    Exec(Exec),
    /// A process ended.
    Exit(Exit),
    /// A syscall of a tracked process ended.
    Syscall(Syscall),
    /// A cgroup was made, removed or joined.
    Cgroup(Cgroup),
    /// A cgroup file was written.
    CgroupWrite(CgroupWrite),
    /// A process was chosen by the OOM killer.
    Oom {
        /// The victim.
        victim: Tgid,
        /// Memory that it had, KiB; 0: the kernel does not tell.
        rss_kib: u32,
    },
    /// A signal was sent.
    Signal {
        /// The receiver.
        target: Tgid,
        /// Signal number.
        signal: u32,
        /// `si_code`.
        code: i32,
        /// `TRACE_SIGNAL_*`; 0 is delivered.
        result: u32,
        /// `comm` of the sender, which is the record's process.
        comm: String,
    },
    /// A process began to listen on a TCP socket.
    Listen(Listen),
    /// A TCP connect of the runtime's client came to its end; the record's process is the client.
    Connect(Connect),
    /// One instant on the realtime clock.
    Clock {
        /// Nanoseconds since the epoch.
        realtime: u64,
    },
    /// Time has come this far.
    Tick,
    /// Records that never came.
    Lost {
        /// See [`tracer_ebpf::counter`].
        counter: u32,
        /// How many.
        count: u64,
    },
    /// `key=value` pairs about the node and the hooks.
    Node(Vec<(String, String)>),
    /// A process that ran at attach.
    Process(Process),
    /// Something podlapse itself did, see [`tracer_ebpf::mark`].
    Mark(u32),
    /// A sandbox or container that exists, or the end of a list of them.
    Listed(Listed),
    /// What the record's process, which a start waits for, was seen to do.
    Waiting(Waiting),
    /// A kind that this version does not know.
    Unknown(u32),
}

/// Which way payload went, seen from the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Read by it.
    In,
    /// Written by it.
    Out,
}

/// Payload on a watched socket.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes {
    /// Connection.
    pub conn: ConnId,
    /// Offset of the first byte in this direction.
    pub offset: u64,
    /// Entry of a read, exit of a write.
    pub other_at: MonotonicNs,
    /// Descriptor.
    pub fd: i32,
    /// Direction.
    pub direction: Direction,
    /// Bytes that the syscall moved; those past `data` are a gap.
    pub len: u32,
    /// Captured bytes.
    pub data: Vec<u8>,
}

/// Payload never shows in a debug line or a panic message.
impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes")
            .field("conn", &self.conn)
            .field("offset", &self.offset)
            .field("fd", &self.fd)
            .field("direction", &self.direction)
            .field("len", &self.len)
            .field("captured", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// What happened to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOp {
    /// Accepted.
    Accept,
    /// Connected.
    Connect,
    /// Closed.
    Close,
    /// Copied.
    Dup,
    /// Bound to a path.
    Bind,
    /// Listening.
    Listen,
    /// Was open at attach.
    Found,
}

/// A change of a watched process's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// What happened.
    pub op: SocketOp,
    /// Connection, where the operation has one.
    pub conn: ConnId,
    /// Descriptor.
    pub fd: i32,
    /// Listening descriptor of an accept, source of a dup.
    pub other_fd: Option<i32>,
    /// Result: a negated errno on failure.
    pub ret: i32,
    /// Process at the other end.
    pub peer: Option<Tgid>,
    /// Path; a leading `@` marks an abstract name.
    pub path: String,
}

/// A process was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The child.
    pub child: Tgid,
    /// The child's real parent.
    pub parent: Tgid,
    /// `clone_flags`.
    pub clone_flags: u64,
    /// The child's cgroup in the default hierarchy.
    pub cgroup: CgroupId,
}

/// A program was executed by the record's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// Real parent.
    pub parent: Tgid,
    /// Cgroup in the default hierarchy.
    pub cgroup: CgroupId,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// In a container's mount namespace; `argv` then holds only its first word.
    pub container: bool,
    /// argv, environment or a page of them is incomplete.
    pub incomplete: bool,
    /// `comm` after the exec.
    pub comm: String,
    /// `oom_score_adj`.
    pub oom_score_adj: i32,
    /// File name as given to exec.
    pub filename: String,
    /// Arguments.
    pub argv: Vec<String>,
    /// `CNI_*` variables.
    pub cni: Vec<(String, String)>,
}

impl Exec {
    /// The value of a `CNI_*` variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.cni.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The record's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit status, when it ended by itself.
    pub status: Option<u8>,
    /// Signal, when one ended it.
    pub signal: Option<u8>,
    /// `comm`.
    pub comm: String,
}

/// A syscall of the record's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syscall {
    /// Which.
    pub sys: Sys,
    /// Its entry; the record's time is its exit.
    pub enter: MonotonicNs,
    /// Result.
    pub ret: i64,
    /// Arguments.
    pub args: [u64; 5],
    /// After `setns` and `unshare`.
    pub namespaces: Namespaces,
    /// String arguments, see [`tracer_ebpf::sys`].
    pub strings: [String; 3],
}

impl Syscall {
    /// The errno of a failure.
    pub fn errno(&self) -> Option<i32> {
        errno_of(self.ret)
    }
}

macro_rules! syscalls {
    ($($variant:ident = $code:ident, $name:literal;)*) => {
        /// Syscalls that are watched, see [`tracer_ebpf::sys`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant is the syscall of that name")]
        pub enum Sys { $($variant,)* Unknown(u32) }

        impl Sys {
            fn from_code(code: u32) -> Sys {
                match code { $(abi::sys::$code => Sys::$variant,)* other => Sys::Unknown(other) }
            }

            fn code(self) -> u32 {
                match self { $(Sys::$variant => abi::sys::$code,)* Sys::Unknown(code) => code }
            }

            /// The syscall's name.
            pub fn name(self) -> &'static str {
                match self { $(Sys::$variant => $name,)* Sys::Unknown(_) => "unknown" }
            }
        }
    };
}

syscalls! {
    Setns = SETNS, "setns";
    Unshare = UNSHARE, "unshare";
    PivotRoot = PIVOT_ROOT, "pivot_root";
    Mount = MOUNT, "mount";
    Umount2 = UMOUNT2, "umount2";
    Fsopen = FSOPEN, "fsopen";
    Fsconfig = FSCONFIG, "fsconfig";
    Fsmount = FSMOUNT, "fsmount";
    MoveMount = MOVE_MOUNT, "move_mount";
    OpenTree = OPEN_TREE, "open_tree";
    MountSetattr = MOUNT_SETATTR, "mount_setattr";
    Execve = EXECVE, "execve";
    Execveat = EXECVEAT, "execveat";
    Clone = CLONE, "clone";
    Clone3 = CLONE3, "clone3";
    Mkdir = MKDIR, "mkdir";
    Mkdirat = MKDIRAT, "mkdirat";
    Prctl = PRCTL, "prctl";
    Seccomp = SECCOMP, "seccomp";
    Capset = CAPSET, "capset";
    Mknod = MKNOD, "mknod";
    Mknodat = MKNODAT, "mknodat";
    Renameat = RENAMEAT, "renameat";
    Fsync = FSYNC, "fsync";
    Fdatasync = FDATASYNC, "fdatasync";
    Syncfs = SYNCFS, "syncfs";
    Fchownat = FCHOWNAT, "fchownat";
    Lchown = LCHOWN, "lchown";
    Setxattr = SETXATTR, "setxattr";
    Lsetxattr = LSETXATTR, "lsetxattr";
}

/// What happened to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupOp {
    /// Made.
    Mkdir,
    /// Removed.
    Rmdir,
    /// A task moved into it.
    Attach,
}

/// A cgroup was made, removed or joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// What happened.
    pub op: CgroupOp,
    /// Hierarchy; 0 is the default (v2) one.
    pub hierarchy: u32,
    /// The cgroup.
    pub id: CgroupId,
    /// The task that moved.
    pub task: Option<Tgid>,
    /// The whole thread group moved.
    pub threadgroup: bool,
    /// Path below the hierarchy's root.
    pub path: String,
}

/// A cgroup file was written, or a security attribute (directory `attr` or `apparmor`), whose value is not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupWrite {
    /// Exit of the write; the record's time is its entry.
    pub exit: MonotonicNs,
    /// Result.
    pub ret: i64,
    /// The directory's cgroup.
    pub cgroup: CgroupId,
    /// Name of the cgroup's own directory.
    pub dir: String,
    /// Name of the file.
    pub file: String,
    /// Value.
    pub value: String,
}

/// The errno in the result of a syscall that failed.
fn errno_of(ret: i64) -> Option<i32> {
    (ret < 0).then(|| i32::try_from(ret.unsigned_abs()).unwrap_or(i32::MAX))
}

impl CgroupWrite {
    /// The errno of a failure.
    pub fn errno(&self) -> Option<i32> {
        errno_of(self.ret)
    }

    /// Whether it was a security attribute.
    pub fn is_label(&self) -> bool {
        self.cgroup.0 == 0 && matches!(self.dir.as_str(), "attr" | "apparmor")
    }
}

/// A process began to listen on a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Its cgroup in the default hierarchy.
    pub cgroup: CgroupId,
    /// Network namespace of the socket.
    pub netns: u32,
    /// Port.
    pub port: u32,
}

/// A TCP connect that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// When the first packet was sent.
    pub start: MonotonicNs,
    /// The other end; never IPv4 in IPv6.
    pub address: IpAddr,
    /// Its port.
    pub port: u32,
    /// Accepted; else refused, timed out or given up.
    pub accepted: bool,
}

/// What podlapse knows of a process it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Only tracked.
    Other,
    /// The container runtime.
    Runtime,
    /// A shim.
    Shim,
    /// podlapse itself.
    Myself,
}

/// A process that ran at attach (the record's process).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Parent.
    pub parent: Tgid,
    /// Role.
    pub role: Role,
    /// Executable.
    pub exe: String,
    /// Arguments.
    pub argv: Vec<String>,
    /// Cgroup path.
    pub cgroup: String,
    /// What is known besides of one that works for the runtime, in the runtime's mount namespace.
    pub helper: Option<Helper>,
}

/// A process that works for the runtime: a CNI plugin, a shim's starter, the OCI runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// When it was created, to a hundredth of a second (proc_pid_stat(5), field 22).
    pub started: MonotonicNs,
    /// `CNI_*` variables.
    pub cni: Vec<(String, String)>,
}

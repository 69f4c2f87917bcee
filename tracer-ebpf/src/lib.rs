//! The record ABI: what crosses from the BPF programs to user space, and the names of the maps it crosses in.
//!
//! Every record starts with a [`Header`]. Its `len` counts the bytes in use, header and trailing variable part
//! included; the ring's slot may be longer (the programs reserve in size classes). Integers are little-endian,
//! times are `CLOCK_MONOTONIC` nanoseconds, pids are those of podlapse's own pid namespace (0: not visible there).
//! User space never transmutes: `podlapse::record` reads these layouts field by field, in the order written here.
//! Kinds from [`kind::CLOCK`] on are written by user space alone, so that a recording holds all that the engine saw.
#![no_std]

pub mod shared;

/// Length of the kernel's `task_struct.comm`, terminating zero included.
pub const COMM_LEN: usize = 16;

/// Longest payload that one [`Bytes`] record carries; a longer read or write leaves a gap behind it. grpc-go writes when
/// it has 32 KiB together, and then up to a whole DATA frame more (`internal/transport/http_util.go`, `bufWriter`).
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Longest string argument (path, mount source, file name) that a record carries, terminating zero excluded.
pub const MAX_STR: usize = 511;

/// Longest value written to a cgroup file that a record carries.
pub const MAX_VALUE: usize = 128;

/// Names of the maps and globals that both sides use.
pub mod name {
    /// Ring buffer of small records; never starved by payload.
    pub const SIGNS: &str = "SIGNS";
    /// Ring buffer of [`super::Bytes`] records.
    pub const BYTES: &str = "BYTES";
    /// Per-CPU array of counters, indexed by [`super::counter`].
    pub const COUNTERS: &str = "COUNTERS";
}

/// Indices into the `COUNTERS` map.
pub mod counter {
    /// Records that found the signs ring full.
    pub const SIGNS_LOST: u32 = 0;
    /// Records that found the bytes ring full.
    pub const BYTES_LOST: u32 = 1;
    /// User pages (paths, argv, payload) that could not be read.
    pub const UNREADABLE: u32 = 2;
    /// Entries that found a hash map full (processes, descriptors, calls under way).
    pub const MAP_FULL: u32 = 3;
    /// Records written to the signs ring.
    pub const SIGNS: u32 = 4;
    /// Records written to the bytes ring.
    pub const BYTES: u32 = 5;
    /// Number of counters.
    pub const COUNT: u32 = 6;
}

/// Values of [`Header::kind`].
pub mod kind {
    /// [`super::Bytes`]
    pub const BYTES: u32 = 1;
    /// [`super::Socket`]
    pub const SOCKET: u32 = 2;
    /// [`super::NewTask`]
    pub const NEW_TASK: u32 = 3;
    /// [`super::Exec`]
    pub const EXEC: u32 = 4;
    /// [`super::Exit`]
    pub const EXIT: u32 = 5;
    /// [`super::Syscall`]
    pub const SYSCALL: u32 = 6;
    /// [`super::Cgroup`]
    pub const CGROUP: u32 = 7;
    /// [`super::CgroupWrite`]
    pub const CGROUP_WRITE: u32 = 8;
    /// [`super::Oom`]
    pub const OOM: u32 = 9;
    /// [`super::Signal`]
    pub const SIGNAL: u32 = 10;
    /// [`super::Listen`]
    pub const LISTEN: u32 = 11;
    /// [`super::Connect`]
    pub const CONNECT: u32 = 12;
    /// User space: [`super::Clock`]
    pub const CLOCK: u32 = 64;
    /// User space: a bare [`super::Header`]; time has come this far.
    pub const TICK: u32 = 65;
    /// User space: [`super::Lost`]
    pub const LOST: u32 = 66;
    /// User space: a [`super::Header`] and zero-terminated `key=value` strings about the node and the hooks.
    pub const NODE: u32 = 67;
    /// User space: [`super::Process`]
    pub const PROCESS: u32 = 68;
    /// User space: [`super::Mark`]
    pub const MARK: u32 = 69;
    /// User space: [`super::Listed`]
    pub const LISTED: u32 = 70;
    /// User space: [`super::Waiting`]
    pub const WAITING: u32 = 71;
}

/// The head of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// When: the exit of a read or of a syscall that has an `enter` field; the entry of a write.
    pub ktime: u64,
    /// See [`kind`].
    pub kind: u32,
    /// Bytes in use, header included.
    pub len: u32,
    /// Thread group of the current task.
    pub tgid: u32,
    /// Current thread.
    pub tid: u32,
}
const _: () = assert!(size_of::<Header>() == 24);

/// Payload of one read or write on a watched socket; the captured bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// Head.
    pub header: Header,
    /// Identity of the connection: unique for the life of the programs.
    pub conn: u64,
    /// Offset of the first byte in this direction of the connection.
    pub offset: u64,
    /// Entry of a read, exit of a write.
    pub other_ktime: u64,
    /// Descriptor in the traced process.
    pub fd: i32,
    /// See [`direction`].
    pub direction: u32,
    /// Bytes that the syscall moved.
    pub len: u32,
    /// Bytes that follow; fewer than `len` where the record was full or the page unreadable.
    pub captured: u32,
}
const _: () = assert!(size_of::<Bytes>() == 64);

/// Values of [`Bytes::direction`].
pub mod direction {
    /// Read by the traced process.
    pub const IN: u32 = 0;
    /// Written by the traced process.
    pub const OUT: u32 = 1;
}

/// A change of a watched process's sockets; the path, where there is one, follows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    /// Head.
    pub header: Header,
    /// Connection that the descriptor names after the operation (close: named before it); 0 for none.
    pub conn: u64,
    /// See [`socket_op`].
    pub op: u32,
    /// Descriptor that the operation made or was about.
    pub fd: i32,
    /// Accept: the listening descriptor. Dup: the descriptor copied. Else -1.
    pub other_fd: i32,
    /// Result: 0 or more on success, a negated errno on failure.
    pub ret: i32,
    /// Thread group at the other end, where known; else 0.
    pub peer: u32,
    /// Length of the path that follows (`sun_path`; a leading zero byte marks an abstract name).
    pub path_len: u32,
}
const _: () = assert!(size_of::<Socket>() == 56);

/// Values of [`Socket::op`].
pub mod socket_op {
    /// A connection was accepted on a watched listening socket; the path is the listener's.
    pub const ACCEPT: u32 = 1;
    /// A watched process connected to a path.
    pub const CONNECT: u32 = 2;
    /// A watched descriptor was closed.
    pub const CLOSE: u32 = 3;
    /// A watched descriptor was copied.
    pub const DUP: u32 = 4;
    /// A watched process bound a socket to a path.
    pub const BIND: u32 = 5;
    /// A watched process listens.
    pub const LISTEN: u32 = 6;
    /// User space: a connection that was open at attach; its bytes begin in the middle.
    pub const FOUND: u32 = 7;
}

/// A process (not a thread) was created by a tracked process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NewTask {
    /// Head; the current task is the caller of clone.
    pub header: Header,
    /// `clone_flags`.
    pub clone_flags: u64,
    /// Id of the child's cgroup in the default (v2) hierarchy.
    pub cgroup: u64,
    /// Thread group of the child.
    pub child: u32,
    /// Thread group of the child's real parent (differs from the caller under `CLONE_PARENT`).
    pub parent: u32,
}
const _: () = assert!(size_of::<NewTask>() == 48);

/// Inode numbers of a task's namespaces; 0: unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Mount.
    pub mnt: u32,
    /// Network.
    pub net: u32,
    /// IPC.
    pub ipc: u32,
    /// UTS.
    pub uts: u32,
    /// Pid namespace for the task's children (its own, once it has children or is an init).
    pub pid: u32,
    /// User, of the task's credentials.
    pub user: u32,
}
const _: () = assert!(size_of::<Namespaces>() == 24);

/// A successful exec; filename, argv and the `CNI_*` variables follow, each string with its terminating zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exec {
    /// Head.
    pub header: Header,
    /// Id of the cgroup in the default (v2) hierarchy.
    pub cgroup: u64,
    /// Namespaces at the exec.
    pub namespaces: Namespaces,
    /// Thread group of the real parent.
    pub parent: u32,
    /// See [`exec_flag`].
    pub flags: u32,
    /// `comm` after the exec.
    pub comm: [u8; COMM_LEN],
    /// `oom_score_adj`.
    pub oom_score_adj: i32,
    /// Length of the file name (one string).
    pub filename_len: u32,
    /// Length of the argument strings; only argv\[0\] for a process in a container's mount namespace.
    pub argv_len: u32,
    /// Length of the `CNI_*` strings; empty for a process in a container's mount namespace.
    pub env_len: u32,
}
const _: () = assert!(size_of::<Exec>() == 96);

/// Bits of [`Exec::flags`].
pub mod exec_flag {
    /// The task's mount namespace is not its runtime's: a container process.
    pub const CONTAINER: u32 = 1;
    /// argv did not fit.
    pub const ARGV_TRUNCATED: u32 = 2;
    /// `CNI_*` did not fit.
    pub const ENV_TRUNCATED: u32 = 4;
    /// A user page could not be read.
    pub const UNREADABLE: u32 = 8;
}

/// A tracked process ended (its last thread).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// Head.
    pub header: Header,
    /// The kernel's `exit_code`: exit status << 8, or the signal (bit 7: core dumped).
    pub code: u32,
    /// Reserved, 0.
    pub reserved: u32,
    /// `comm` at the exit.
    pub comm: [u8; COMM_LEN],
}
const _: () = assert!(size_of::<Exit>() == 48);

/// A syscall of a tracked process; its string arguments follow, without terminating zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    /// Head; its time is the syscall's exit.
    pub header: Header,
    /// Entry of the syscall.
    pub enter: u64,
    /// Result.
    pub ret: i64,
    /// Arguments as passed.
    pub args: [u64; 5],
    /// After the syscall; only for `setns`, `unshare`.
    pub namespaces: Namespaces,
    /// See [`sys`].
    pub sys: u32,
    /// Lengths of the strings that follow, in the order of the arguments they come from.
    pub str_len: [u32; 3],
}
const _: () = assert!(size_of::<Syscall>() == 120);

/// Values of [`Syscall::sys`]. In brackets: the strings that follow.
pub mod sys {
    /// `setns(fd, nstype)`
    pub const SETNS: u32 = 1;
    /// `unshare(flags)`
    pub const UNSHARE: u32 = 2;
    /// `pivot_root` \[new root, put old\]
    pub const PIVOT_ROOT: u32 = 3;
    /// `mount` \[source, target, type\]; flags in `args[3]`
    pub const MOUNT: u32 = 4;
    /// `umount2` \[target\]
    pub const UMOUNT2: u32 = 5;
    /// `fsopen` \[type\]
    pub const FSOPEN: u32 = 6;
    /// `fsconfig` \[key\]; never the value
    pub const FSCONFIG: u32 = 7;
    /// `fsmount`
    pub const FSMOUNT: u32 = 8;
    /// `move_mount` \[from, to\]
    pub const MOVE_MOUNT: u32 = 9;
    /// `open_tree` \[path\]
    pub const OPEN_TREE: u32 = 10;
    /// `mount_setattr` \[path\]
    pub const MOUNT_SETATTR: u32 = 11;
    /// `execve`, failed \[filename\]
    pub const EXECVE: u32 = 12;
    /// `execveat`, failed \[filename\]
    pub const EXECVEAT: u32 = 13;
    /// `clone`, failed
    pub const CLONE: u32 = 14;
    /// `clone3`, failed
    pub const CLONE3: u32 = 15;
    /// `mkdir`, failed \[path\]
    pub const MKDIR: u32 = 16;
    /// `mkdirat`, failed \[path\]
    pub const MKDIRAT: u32 = 17;
    /// `prctl`, of a few options: `args[0]`
    pub const PRCTL: u32 = 18;
    /// `seccomp`, of the modes: `args[0]`
    pub const SECCOMP: u32 = 19;
    /// `capset`
    pub const CAPSET: u32 = 20;
    /// `mknod` \[path\]
    pub const MKNOD: u32 = 21;
    /// `mknodat` \[path\]
    pub const MKNODAT: u32 = 22;
    /// `renameat` \[from, to\]
    pub const RENAMEAT: u32 = 30;
    /// `fsync(fd)`, of the runtime
    pub const FSYNC: u32 = 23;
    /// `fdatasync(fd)`, of the runtime
    pub const FDATASYNC: u32 = 24;
    /// `syncfs(fd)`, of the runtime
    pub const SYNCFS: u32 = 25;
    /// `fchownat`, of the runtime \[path\]
    pub const FCHOWNAT: u32 = 26;
    /// `lchown`, of the runtime \[path\]
    pub const LCHOWN: u32 = 27;
    /// `setxattr`, of the runtime \[path, name\]; never the value
    pub const SETXATTR: u32 = 28;
    /// `lsetxattr`, of the runtime \[path, name\]; never the value
    pub const LSETXATTR: u32 = 29;
}

/// A cgroup was made or removed, or a task moved; the path below the hierarchy's root follows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cgroup {
    /// Head; the current task is the one that did it.
    pub header: Header,
    /// `cgrp->kn->id`; unique within its hierarchy.
    pub id: u64,
    /// See [`cgroup_op`].
    pub op: u32,
    /// `hierarchy_id`; 0 is the default (v2) hierarchy.
    pub hierarchy: u32,
    /// Attach: thread group of the task that moved; else 0.
    pub task: u32,
    /// Attach: 1 for the whole thread group, 0 for one thread.
    pub threadgroup: u32,
    /// Length of the path that follows.
    pub path_len: u32,
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Cgroup>() == 56);

/// Values of [`Cgroup::op`].
pub mod cgroup_op {
    /// `cgroup_mkdir`
    pub const MKDIR: u32 = 1;
    /// `cgroup_rmdir`
    pub const RMDIR: u32 = 2;
    /// `cgroup_attach_task`
    pub const ATTACH: u32 = 3;
}

/// A tracked runtime process wrote to a file of a cgroup file system; directory name, file name and value follow. Or to
/// a security attribute below `/proc/PID/attr`; then there is no cgroup and no value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupWrite {
    /// Head; its time is the write's entry.
    pub header: Header,
    /// Exit of the write.
    pub exit: u64,
    /// Result of the write.
    pub ret: i64,
    /// Inode of the directory's cgroup (`kernfs` id); 0: unknown.
    pub cgroup: u64,
    /// Length of the name of the cgroup's own directory (its last path component).
    pub dir_len: u32,
    /// Length of the file's name, as `memory.max`.
    pub file_len: u32,
    /// Length of the value.
    pub value_len: u32,
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<CgroupWrite>() == 64);

/// The kernel chose a process to kill for memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Oom {
    /// Head; the current task is the one whose allocation failed.
    pub header: Header,
    /// Thread group of the victim.
    pub victim: u32,
    /// Memory that it had, KiB (pages of its own, of files and shared); 0: this kernel does not tell (before 6.9).
    pub rss_kib: u32,
}
const _: () = assert!(size_of::<Oom>() == 32);

/// A signal was sent to a tracked process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Head; the current task is the sender.
    pub header: Header,
    /// Thread group of the receiver.
    pub target: u32,
    /// Signal number.
    pub signal: u32,
    /// `si_code`.
    pub code: i32,
    /// `TRACE_SIGNAL_*` result; 0 is delivered.
    pub result: u32,
    /// `comm` of the sender.
    pub comm: [u8; COMM_LEN],
}
const _: () = assert!(size_of::<Signal>() == 56);

/// A process began to listen on a TCP socket.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// Head; the current task is the one that listens.
    pub header: Header,
    /// Id of its cgroup in the default (v2) hierarchy.
    pub cgroup: u64,
    /// Inode number of the socket's network namespace.
    pub netns: u32,
    /// Port.
    pub port: u32,
}
const _: () = assert!(size_of::<Listen>() == 40);

/// A TCP connect by a client of the runtime, or a child of one, came to its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// Head: the process and thread that connected, which need not be current at the end.
    pub header: Header,
    /// When the first packet was sent.
    pub start: u64,
    /// The other end; an IPv4 address as `::ffff:a.b.c.d`, in network order.
    pub address: [u8; 16],
    /// Its port.
    pub port: u32,
    /// 1: accepted; 0: refused, timed out or given up.
    pub accepted: u32,
}
const _: () = assert!(size_of::<Connect>() == 56);

/// User space: one instant on both clocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Head; `CLOCK_MONOTONIC`.
    pub header: Header,
    /// `CLOCK_REALTIME`, ns since the epoch.
    pub realtime: u64,
}
const _: () = assert!(size_of::<Clock>() == 32);

/// User space: records that never came.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Head; the loss was noticed now.
    pub header: Header,
    /// How many since the last such record.
    pub count: u64,
    /// See [`counter`].
    pub counter: u32,
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Lost>() == 40);

/// User space: a process that ran at attach, from `/proc`; executable, argv (terminating zeros) and cgroup path follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Head; `tgid` is the process.
    pub header: Header,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Parent's thread group.
    pub parent: u32,
    /// See [`role`].
    pub role: u32,
    /// Length of the executable's path.
    pub exe_len: u32,
    /// Length of the argument strings.
    pub argv_len: u32,
    /// Length of the cgroup path.
    pub cgroup_len: u32,
    /// Length of what follows of a helper of the runtime: its start (u64) and its `CNI_*` variables; 0 for others.
    pub helper_len: u32,
}
const _: () = assert!(size_of::<Process>() == 72);

/// Values of [`Process::role`], also what the programs are told of a process to track.
pub mod role {
    /// Only tracked.
    pub const OTHER: u32 = 0;
    /// The container runtime: its sockets are watched.
    pub const RUNTIME: u32 = 1;
    /// A shim that ran at attach.
    pub const SHIM: u32 = 2;
    /// podlapse itself: its calls are not part of any start.
    pub const SELF: u32 = 3;
}

/// User space: something that podlapse itself did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Head.
    pub header: Header,
    /// See [`mark`].
    pub what: u32,
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Mark>() == 32);

/// Values of [`Mark::what`].
pub mod mark {
    /// All hooks are attached.
    pub const ATTACHED: u32 = 1;
    /// `-- COMMAND` was started.
    pub const COMMAND_STARTED: u32 = 2;
    /// `-- COMMAND` ended.
    pub const COMMAND_ENDED: u32 = 3;
}

/// User space: a sandbox or a container that exists, or the end of the list of them; its strings follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Head; its time is when the answer was there.
    pub header: Header,
    /// When the question was asked: the state is that of some instant from here to the head's time.
    pub asked: u64,
    /// When it was made, ns since the epoch; 0: unknown.
    pub created: u64,
    /// See [`listed`].
    pub what: u32,
    /// See [`list_source`].
    pub source: u32,
    /// See [`listed_state`].
    pub state: u32,
    /// Which of the numbers below are known, see [`listed_flag`].
    pub flags: u32,
    /// `metadata.attempt`.
    pub attempt: u32,
    /// Pid of its first process; 0: unknown, or none.
    pub pid: u32,
    /// Exit code of a container that has ended.
    pub exit_code: i32,
    /// Lengths of the strings that follow, in the order that [`listed`] gives; 0: unknown.
    pub str_len: [u32; 7],
}
const _: () = assert!(size_of::<Listed>() == 96);

/// Values of [`Listed::what`]. In brackets: the strings that follow.
pub mod listed {
    /// A pod sandbox \[id, name, namespace, uid, runtime handler, cgroup, address\]
    pub const SANDBOX: u32 = 1;
    /// A container \[id, sandbox id, name, image, cgroup\]
    pub const CONTAINER: u32 = 2;
    /// Nothing more of this list will come \[why it is incomplete\]
    pub const END: u32 = 3;
}

/// Values of [`Listed::source`].
pub mod list_source {
    /// The runtime, over the CRI.
    pub const CRI: u32 = 1;
    /// `/proc` and the cgroups alone.
    pub const PROC: u32 = 2;
}

/// Values of [`Listed::state`].
pub mod listed_state {
    /// Not known.
    pub const UNKNOWN: u32 = 0;
    /// Sandbox: ready.
    pub const READY: u32 = 1;
    /// Sandbox: not ready.
    pub const NOT_READY: u32 = 2;
    /// Container: made, not started.
    pub const CREATED: u32 = 3;
    /// Container: runs.
    pub const RUNNING: u32 = 4;
    /// Container: has ended.
    pub const EXITED: u32 = 5;
}

/// Bits of [`Listed::flags`].
pub mod listed_flag {
    /// [`Listed::attempt`](super::Listed::attempt) is known.
    pub const ATTEMPT: u32 = 1;
    /// [`Listed::exit_code`](super::Listed::exit_code) is known.
    pub const EXIT_CODE: u32 = 2;
}

/// User space: what a process that a start waits for was seen to do (the head's process; of its threads, the head's);
/// its strings follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Head.
    pub header: Header,
    /// When the process was created, to a hundredth of a second.
    pub started: u64,
    /// Letter of the thread's state, proc_pid_stat(5), field 3; 0: unknown.
    pub state: u32,
    /// Number of the syscall that the thread is in; `u32::MAX`: in none, or unknown.
    pub syscall: u32,
    /// Lengths of the strings that follow: the process's `comm`, the syscall's name, the function of the kernel that the
    /// thread waits in, its kernel stack (a line a frame); 0: unknown.
    pub str_len: [u32; 4],
}
const _: () = assert!(size_of::<Waiting>() == 56);

//! What the loader and the programs agree on besides records: kernel members to resolve, map values, roles of maps.
//!
//! Nothing here leaves the machine or reaches a recording. rustc emits no CO-RE relocations, so the loader looks each
//! member up in the running kernel's BTF and hands the offsets over in the `OFFSETS` global, indexed as here.

/// Names of maps and globals that only the loader touches.
pub mod map {
    /// Global `[u32; offset::COUNT]`, see [`super::offset`].
    pub const OFFSETS: &str = "OFFSETS";
    /// Global `u32`: the flags value that marks a `pidfd_getfd` as the loader's question.
    pub const FINDER_KEY: &str = "FINDER_KEY";
    /// Array with one [`super::Myself`].
    pub const MYSELF: &str = "MYSELF";
    /// Array with one [`super::Found`]: the answer to the last question; before [`super::ASK_SOCKET`], the connection.
    pub const FOUND: &str = "FOUND";
    /// Array with one `u32`: kernel tgid of the runtime whose sockets are watched; 0: none.
    pub const RUNTIME: &str = "RUNTIME";
    /// Array with one `u32`: kernel tgid of podlapse's PID 1, whose writes to the pods' cgroup files are wanted.
    pub const MANAGER: &str = "MANAGER";
    /// Hash: kernel tgid to [`super::Tracked`].
    pub const TRACKED: &str = "TRACKED";
    /// LRU hash: kernel tgid of a client of the runtime, or of its child, to 1.
    pub const CLIENTS: &str = "CLIENTS";
    /// Hash: [`super::fd_key`] to [`super::Fd`].
    pub const FDS: &str = "FDS";
    /// Hash: connection to [`super::Conn`]; of a connection without an entry (a muted one) no payload is sent.
    pub const CONNS: &str = "CONNS";
    /// LRU hash: connection to the offset up to which user space wants what the runtime reads; see [`super::AHEAD`].
    pub const ALLOWED: &str = "ALLOWED";
    /// Hash: address of a connection's `struct sock` to the connection; stays in the kernel.
    pub const SOCKS: &str = "SOCKS";
    /// Hash: listener to [`super::Path`].
    pub const PATHS: &str = "PATHS";
    /// Hash: [`super::Path`] whose bind makes a process the runtime, to the mount namespace it must be in.
    pub const WATCHED: &str = "WATCHED";
    /// Array: syscall number to [`super::Spec`].
    pub const SPECS: &str = "SPECS";
}

/// Key of the `FDS` map.
pub const fn fd_key(tgid: u32, fd: u32) -> u64 {
    (tgid as u64) << 32 | fd as u64
}

/// podlapse's own place among the pid namespaces.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Myself {
    /// Address of its `pid_namespace`; stays in the kernel.
    pub ns: u64,
    /// Level of that namespace; 0 is the initial one.
    pub level: u32,
    /// Its pid there; 0: not known yet.
    pub pid: u32,
}
const _: () = assert!(size_of::<Myself>() == 16);

/// What the loader asks for instead of a process's [`crate::role`]: that the socket which it holds as a descriptor be
/// known as the connection [`Found::conn`].
pub const ASK_SOCKET: u32 = 16;

/// What a descriptor of podlapse names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The kernel's own tgid of a pidfd's process; 0: nothing was found.
    pub tgid: u32,
    /// The pid in podlapse's namespace.
    pub pid: u32,
    /// The connection that a socket is; 0 once that is noted, another where it was known as that.
    pub conn: u64,
}
const _: () = assert!(size_of::<Found>() == 16);

/// A process whose signs are wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracked {
    /// See [`crate::role`].
    pub role: u32,
    /// See [`tracked_flag`].
    pub flags: u32,
    /// Its pid in podlapse's namespace.
    pub pid: u32,
    /// Mount namespace of its runtime; 0: unknown.
    pub mnt: u32,
}
const _: () = assert!(size_of::<Tracked>() == 16);

/// Bits of [`Tracked::flags`].
pub mod tracked_flag {
    /// Runs in a container: kept for its exec, exit and signals, its children are not followed.
    pub const CONTAINER: u32 = 1;
}

/// A watched descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fd {
    /// Connection, or listener.
    pub id: u64,
    /// See [`fd_kind`].
    pub kind: u32,
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Fd>() == 16);

/// Values of [`Fd::kind`].
pub mod fd_kind {
    /// A connected unix stream socket.
    pub const CONNECTION: u32 = 1;
    /// A unix socket bound to a path, listening or about to.
    pub const LISTENER: u32 = 2;
    /// A file of a cgroup file system; never in the `FDS` map, only in a call under way.
    pub const CGROUP: u32 = 3;
    /// A security attribute below `/proc/PID/attr`; likewise.
    pub const LABEL: u32 = 4;
}

/// A connection's running offsets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Conn {
    /// Bytes so far, by [`crate::direction`].
    pub offset: [u64; 2],
    /// Watched descriptors that name it.
    pub refs: u64,
    /// Its key in `SOCKS`; 0: none.
    pub sock: u64,
    /// Where `ALLOWED` was when it was last looked at.
    pub allowed: u64,
}
const _: () = assert!(size_of::<Conn>() == 40);

/// Bytes that the runtime may read on one connection ahead of user space; of more, only the length is sent. A client
/// of the CRI sends some hundred bytes a call; an image import sends a gigabyte before anybody has looked at its
/// first call.
pub const AHEAD: u64 = 1 << 20;

/// Bytes of `sockaddr_un.sun_path`.
pub const SUN_PATH: usize = 108;

/// A unix socket's name, zero-filled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Length in use.
    pub len: u32,
    /// The name; an abstract one starts with a zero byte.
    pub name: [u8; SUN_PATH],
}
const _: () = assert!(size_of::<Path>() == 112);

/// How a syscall is to be read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Values of argument 0 that are of interest, a bit each; 0: all.
    pub only: u64,
    /// Meaning of `code`, see [`class`].
    pub class: u32,
    /// By class: [`shape`] and direction, [`crate::socket_op`] or [`crate::sys`].
    pub code: u32,
    /// Number of arguments to keep, at most [`ARGS`].
    pub args: u32,
    /// See [`spec_flag`].
    pub flags: u32,
    /// Indices of the string arguments; [`NO_ARG`]: none.
    pub strings: [u32; 3],
    /// Reserved, 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Spec>() == 40);

/// Arguments that are kept of a syscall under way.
pub const ARGS: usize = 6;

/// No such argument.
pub const NO_ARG: u32 = 99;

/// Values of [`Spec::class`].
pub mod class {
    /// Moves bytes; `code` is `direction | shape << 1`.
    pub const IO: u32 = 1;
    /// Changes sockets; `code` is a `socket_op`.
    pub const SOCKET: u32 = 2;
    /// A syscall of a tracked process; `code` is a `sys`.
    pub const TASK: u32 = 3;
}

/// Where a syscall keeps its buffers.
pub mod shape {
    /// One buffer: argument 1.
    pub const BUFFER: u32 = 0;
    /// `struct iovec`s: argument 1, their number: argument 2.
    pub const IOVEC: u32 = 1;
}

/// Bits of [`Spec::flags`].
pub mod spec_flag {
    /// Reported only when it failed.
    pub const FAILED_ONLY: u32 = 1;
    /// The record tells the namespaces after the call.
    pub const NAMESPACES: u32 = 2;
    /// Also of the runtime's clients and their children.
    pub const CLIENTS: u32 = 4;
}

/// Indices into the `OFFSETS` global.
pub mod offset {
    macro_rules! members {
        ($($name:ident = $of:literal $path:literal;)*) => {
            #[derive(Clone, Copy)]
            #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "only the numbers are used, as constants")]
            enum Index { $($name,)* COUNT }
            $(#[doc = concat!("`", $of, ".", $path, "`")] pub const $name: usize = Index::$name as usize;)*
            const MEMBER_COUNT: usize = Index::COUNT as usize;
            /// Type and member path of each BTF offset, in order; an empty path stands for the type's size.
            pub const MEMBERS: [(&str, &str); MEMBER_COUNT] = [$(($of, $path),)*];
        };
    }

    members! {
        TASK_TGID = "task_struct" "tgid";
        TASK_LEADER = "task_struct" "group_leader";
        TASK_PARENT = "task_struct" "real_parent";
        TASK_THREAD_PID = "task_struct" "thread_pid";
        TASK_MM = "task_struct" "mm";
        TASK_FILES = "task_struct" "files";
        TASK_NSPROXY = "task_struct" "nsproxy";
        TASK_CRED = "task_struct" "cred";
        TASK_CGROUPS = "task_struct" "cgroups";
        TASK_SIGNAL = "task_struct" "signal";
        TASK_EXIT_CODE = "task_struct" "exit_code";
        MM_ARG_START = "mm_struct" "arg_start";
        MM_ARG_END = "mm_struct" "arg_end";
        MM_ENV_START = "mm_struct" "env_start";
        MM_ENV_END = "mm_struct" "env_end";
        PID_LEVEL = "pid" "level";
        PID_NUMBERS = "pid" "numbers";
        UPID_NR = "upid" "nr";
        UPID_NS = "upid" "ns";
        UPID_SIZE = "upid" "";
        NSPROXY_MNT = "nsproxy" "mnt_ns";
        NSPROXY_NET = "nsproxy" "net_ns";
        NSPROXY_IPC = "nsproxy" "ipc_ns";
        NSPROXY_UTS = "nsproxy" "uts_ns";
        NSPROXY_PID = "nsproxy" "pid_ns_for_children";
        CRED_USER = "cred" "user_ns";
        MNT_INUM = "mnt_namespace" "ns.inum";
        NET_INUM = "net" "ns.inum";
        IPC_INUM = "ipc_namespace" "ns.inum";
        UTS_INUM = "uts_namespace" "ns.inum";
        PID_INUM = "pid_namespace" "ns.inum";
        USER_INUM = "user_namespace" "ns.inum";
        CSS_SET_DFL = "css_set" "dfl_cgrp";
        CGROUP_KN = "cgroup" "kn";
        CGROUP_ROOT = "cgroup" "root";
        KN_ID = "kernfs_node" "id";
        ROOT_HIERARCHY = "cgroup_root" "hierarchy_id";
        SIGNAL_LIVE = "signal_struct" "live.counter";
        SIGNAL_FLAGS = "signal_struct" "flags";
        SIGNAL_EXIT_CODE = "signal_struct" "group_exit_code";
        SIGNAL_OOM_ADJ = "signal_struct" "oom_score_adj";
        FILES_FDT = "files_struct" "fdt";
        FDT_FD = "fdtable" "fd";
        FDT_MAX = "fdtable" "max_fds";
        FILE_PRIVATE = "file" "private_data";
        FILE_INODE = "file" "f_inode";
        FILE_DENTRY = "file" "f_path.dentry";
        INODE_SB = "inode" "i_sb";
        INODE_INO = "inode" "i_ino";
        INODE_PRIVATE = "inode" "i_private";
        SB_MAGIC = "super_block" "s_magic";
        DENTRY_PARENT = "dentry" "d_parent";
        DENTRY_NAME = "dentry" "d_name.name";
        DENTRY_INODE = "dentry" "d_inode";
        SOCKET_SK = "socket" "sk";
        SK_NET = "sock" "__sk_common.skc_net.net";
        SK_PEER_PID = "sock" "sk_peer_pid";
        BPRM_FILENAME = "linux_binprm" "filename";
        SIGINFO_CODE = "kernel_siginfo" "si_code";
        MSG_ITER = "msghdr" "msg_iter";
        ITER_OFFSET = "iov_iter" "iov_offset";
    }

    /// `__syscall_nr` of the syscall tracepoints, from their `format`.
    pub const SYS_NR: usize = MEMBER_COUNT;
    /// First argument of `sys_enter_*`; each of the others is 8 bytes on.
    pub const SYS_ARGS: usize = MEMBER_COUNT + 1;
    /// `ret` of `sys_exit_*`.
    pub const SYS_RET: usize = MEMBER_COUNT + 2;
    /// `pid` of `oom:mark_victim`.
    pub const VICTIM_PID: usize = MEMBER_COUNT + 3;
    /// `skaddr` of `sock:inet_sock_set_state`.
    pub const TCP_SOCK: usize = MEMBER_COUNT + 4;
    /// `newstate` of `sock:inet_sock_set_state`.
    pub const TCP_STATE: usize = MEMBER_COUNT + 5;
    /// `sport` of `sock:inet_sock_set_state`.
    pub const TCP_PORT: usize = MEMBER_COUNT + 6;
    /// `oldstate` of `sock:inet_sock_set_state`.
    pub const TCP_OLD_STATE: usize = MEMBER_COUNT + 7;
    /// `dport` of `sock:inet_sock_set_state`.
    pub const TCP_TO_PORT: usize = MEMBER_COUNT + 8;
    /// `daddr_v6` of `sock:inet_sock_set_state`.
    pub const TCP_TO_ADDRESS: usize = MEMBER_COUNT + 9;
    /// `iov_iter.iter_type`; up to 5.13 `iov_iter.type`.
    pub const ITER_TYPE: usize = MEMBER_COUNT + 10;
    /// Bits of it that tell the type; up to 5.13 the lowest is the direction.
    pub const ITER_TYPE_MASK: usize = MEMBER_COUNT + 11;
    /// `iov_iter.__iov`; up to 6.3 `iov_iter.iov`.
    pub const ITER_IOV: usize = MEMBER_COUNT + 12;
    /// `iov_iter.ubuf`, since 6.0.
    pub const ITER_UBUF: usize = MEMBER_COUNT + 13;
    /// Value of `enum iter_type`: `struct iovec`s.
    pub const TYPE_IOVEC: usize = MEMBER_COUNT + 14;
    /// Value of `enum iter_type`: one buffer, since 6.0.
    pub const TYPE_UBUF: usize = MEMBER_COUNT + 15;
    /// `anon_rss` of `oom:mark_victim`, since 6.9.
    pub const VICTIM_ANON: usize = MEMBER_COUNT + 16;
    /// `file_rss` of `oom:mark_victim`, since 6.9.
    pub const VICTIM_FILE: usize = MEMBER_COUNT + 17;
    /// `shmem_rss` of `oom:mark_victim`, since 6.9.
    pub const VICTIM_SHMEM: usize = MEMBER_COUNT + 18;
    /// Number of offsets.
    pub const COUNT: usize = MEMBER_COUNT + 19;
    /// An offset that this kernel does not have.
    pub const MISSING: u32 = u32::MAX;
}

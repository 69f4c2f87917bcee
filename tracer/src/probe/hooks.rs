//! The hooks: what is attached where, what it needs of the kernel, and whether it worked.

use std::fmt;

use tracer_ebpf::shared::offset as o;

use super::specs;

/// What a hook tells of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Bytes and life of the runtime's sockets.
    Socket,
    /// Processes born and gone.
    Process,
    /// Programs executed.
    Exec,
    /// Namespaces joined and left.
    Namespaces,
    /// Mounts and the root's pivot.
    Mounts,
    /// Privileges given up, seccomp filters.
    Privileges,
    /// The runtime's waits for the disk, owners and labels of files.
    Disk,
    /// cgroups and their files.
    Cgroup,
    /// The OOM killer.
    Oom,
    /// Signals.
    Signal,
    /// Sockets that begin to listen.
    Listen,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 11] = [
        Group::Socket,
        Group::Process,
        Group::Exec,
        Group::Namespaces,
        Group::Mounts,
        Group::Privileges,
        Group::Disk,
        Group::Cgroup,
        Group::Oom,
        Group::Signal,
        Group::Listen,
    ];

    /// Name, as in `node.probes`.
    pub fn name(self) -> &'static str {
        match self {
            Group::Socket => "socket",
            Group::Process => "process",
            Group::Exec => "exec",
            Group::Namespaces => "namespaces",
            Group::Mounts => "mounts",
            Group::Privileges => "privileges",
            Group::Disk => "disk",
            Group::Cgroup => "cgroup",
            Group::Oom => "oom",
            Group::Signal => "signal",
            Group::Listen => "listen",
        }
    }
}

/// How a hook is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A tracepoint or raw tracepoint.
    Tracepoint,
    /// `fentry` or `fexit`.
    Trampoline,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Tracepoint => "tracepoint",
            Backend::Trampoline => "trampoline",
        })
    }
}

/// Which backend the payload of sockets is to come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Trampolines, or tracepoints where the kernel refuses them.
    #[default]
    Auto,
    /// This one.
    Only(Backend),
}

/// Whether a hook works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Attached.
    Attached,
    /// Not attached, and why.
    Refused(String),
}

/// A hook, after an attempt to attach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `category:event`.
    pub name: String,
    /// What it tells.
    pub group: Group,
    /// Without it no start can be told.
    pub required: bool,
    /// How it is attached.
    pub backend: Backend,
    /// Whether it works.
    pub status: Status,
}

/// Where a program goes.
#[derive(Clone, Debug)]
pub(crate) enum Point {
    /// A tracepoint, by category and event.
    Trace(&'static str, String),
    /// A raw tracepoint, and the structs that its leading arguments must point to (empty: no struct).
    Raw(&'static str, &'static [&'static str]),
    /// The entry of a kernel function, and the structs that its arguments must point to, all of them.
    Entry(&'static str, &'static [&'static str]),
    /// The exit of one.
    Exit(&'static str, &'static [&'static str]),
}

impl Point {
    fn backend(&self) -> Backend {
        match self {
            Point::Trace(..) | Point::Raw(..) => Backend::Tracepoint,
            Point::Entry(..) | Point::Exit(..) => Backend::Trampoline,
        }
    }
}

/// A hook to attach: all its points, or none.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) group: Group,
    pub(crate) required: bool,
    /// Program and place.
    pub(crate) points: Vec<(&'static str, Point)>,
}

impl Plan {
    pub(crate) fn backend(&self) -> Backend {
        self.points.first().map_or(Backend::Tracepoint, |(_, point)| point.backend())
    }
}

/// Members without which no program works.
const BASE: &[usize] = &[
    o::TASK_TGID,
    o::TASK_LEADER,
    o::TASK_PARENT,
    o::TASK_THREAD_PID,
    o::PID_LEVEL,
    o::PID_NUMBERS,
    o::UPID_NR,
    o::UPID_NS,
    o::UPID_SIZE,
];
const FILES: &[usize] = &[o::TASK_FILES, o::FILES_FDT, o::FDT_FD, o::FDT_MAX, o::FILE_PRIVATE, o::FILE_INODE];
const NAMESPACES: &[usize] = &[
    o::TASK_NSPROXY,
    o::TASK_CRED,
    o::NSPROXY_MNT,
    o::NSPROXY_NET,
    o::NSPROXY_IPC,
    o::NSPROXY_UTS,
    o::NSPROXY_PID,
    o::CRED_USER,
    o::MNT_INUM,
    o::NET_INUM,
    o::IPC_INUM,
    o::UTS_INUM,
    o::PID_INUM,
    o::USER_INUM,
];
/// The rest of an iterator's is looked for by more than one name: `ubuf` and its type are younger than podlapse's oldest kernel.
const ITER: &[usize] = &[o::SOCKET_SK, o::MSG_ITER, o::ITER_OFFSET, o::ITER_TYPE, o::ITER_IOV, o::TYPE_IOVEC];
const CGROUP_ID: &[usize] = &[o::TASK_CGROUPS, o::CSS_SET_DFL, o::CGROUP_KN, o::KN_ID];

/// The kernel members that a program reads. What it can do without reads as zero and is not listed: a peer's pid, the
/// members behind a cgroup file's name.
pub(crate) fn members(program: &str) -> Vec<usize> {
    let lists: &[&[usize]] = match program {
        "task_exit" | "clone_exit" => &[BASE, NAMESPACES],
        "sched_process_exec" => &[
            BASE,
            NAMESPACES,
            CGROUP_ID,
            &[
                o::TASK_MM,
                o::TASK_SIGNAL,
                o::SIGNAL_OOM_ADJ,
                o::MM_ARG_START,
                o::MM_ARG_END,
                o::MM_ENV_START,
                o::MM_ENV_END,
                o::BPRM_FILENAME,
            ],
        ],
        "task_newtask" => &[BASE, CGROUP_ID],
        "sched_process_exit" => {
            &[BASE, &[o::TASK_SIGNAL, o::TASK_EXIT_CODE, o::SIGNAL_LIVE, o::SIGNAL_FLAGS, o::SIGNAL_EXIT_CODE]]
        }
        "signal_generate" => &[BASE, &[o::SIGINFO_CODE]],
        "cgroup_mkdir" | "cgroup_rmdir" | "cgroup_attach_task" => {
            &[BASE, &[o::CGROUP_KN, o::KN_ID, o::CGROUP_ROOT, o::ROOT_HIERARCHY]]
        }
        "inet_sock_set_state" => &[BASE, CGROUP_ID, &[o::SK_NET, o::NET_INUM]],
        "pid_finder" => &[BASE, FILES],
        "recv_enter" | "send_enter" => &[BASE, FILES, ITER],
        "recv_exit" | "send_exit" | "release_enter" => &[BASE, FILES, &[o::SOCKET_SK]],
        _ => &[BASE],
    };
    lists.concat()
}

/// What an offset is of, for a message.
pub(crate) fn describe(offset: usize) -> String {
    match offset {
        o::ITER_TYPE => "member iov_iter.iter_type, nor iov_iter.type".to_owned(),
        o::ITER_IOV => "member iov_iter.__iov, nor iov_iter.iov".to_owned(),
        o::TYPE_IOVEC => "ITER_IOVEC in enum iter_type".to_owned(),
        member => o::MEMBERS
            .get(member)
            .map_or_else(|| format!("offset {member}"), |(of, path)| format!("member {of}.{path}")),
    }
}

/// The payload of sockets by trampolines: all of these, or none.
pub(crate) fn trampolines() -> Vec<Plan> {
    const RECV: &[&str] = &["socket", "msghdr", "", ""];
    const SEND: &[&str] = &["socket", "msghdr", ""];
    let plan = |function: &str, points| Plan {
        name: format!("trampoline:{function}"),
        group: Group::Socket,
        required: true,
        points,
    };
    let (recv, send, release) = ("unix_stream_recvmsg", "unix_stream_sendmsg", "unix_release");
    // The exit first: an entry that is kept always meets it.
    vec![
        plan(release, vec![("release_enter", Point::Entry(release, &["socket"]))]),
        plan(recv, vec![("recv_exit", Point::Exit(recv, RECV)), ("recv_enter", Point::Entry(recv, RECV))]),
        plan(send, vec![("send_exit", Point::Exit(send, SEND)), ("send_enter", Point::Entry(send, SEND))]),
    ]
}

/// Every other hook, where the payload of sockets comes by `payload`. Syscalls come from the table in [`specs`].
pub(crate) fn plans(payload: Backend) -> Vec<Plan> {
    let raw = |category: &str, event, group, required, args| Plan {
        name: format!("{category}:{event}"),
        group,
        required,
        points: vec![(event, Point::Raw(event, args))],
    };
    let trace = |category, event: &str, program, group, required| Plan {
        name: format!("{category}:{event}"),
        group,
        required,
        points: vec![(program, Point::Trace(category, event.to_owned()))],
    };
    let mut plans = vec![
        trace("syscalls", "sys_enter_pidfd_getfd", "pid_finder", Group::Process, true),
        raw("task", "task_newtask", Group::Process, true, &["task_struct", ""]),
        raw("sched", "sched_process_exit", Group::Process, true, &["task_struct"]),
        raw("sched", "sched_process_exec", Group::Exec, true, &["task_struct", "", "linux_binprm"]),
        raw("cgroup", "cgroup_mkdir", Group::Cgroup, false, &["cgroup", ""]),
        raw("cgroup", "cgroup_rmdir", Group::Cgroup, false, &["cgroup", ""]),
        raw("cgroup", "cgroup_attach_task", Group::Cgroup, false, &["cgroup", "", "task_struct", ""]),
        raw("signal", "signal_generate", Group::Signal, false, &["", "kernel_siginfo", "task_struct"]),
        trace("oom", "mark_victim", "mark_victim", Group::Oom, false),
        trace("sock", "inet_sock_set_state", "inet_sock_set_state", Group::Listen, false),
    ];
    for it in specs::all().into_iter().filter_map(|it| it.beside(payload)) {
        let at = |way, program| (program, Point::Trace("syscalls", format!("sys_{way}_{}", it.event)));
        // The exit first: an entry that is kept always meets it.
        let points = it.exit.map(|program| at("exit", program)).into_iter();
        let points = points.chain(it.enter.map(|program| at("enter", program))).collect();
        plans.push(Plan { name: format!("syscalls:{}", it.name), group: it.group, required: it.required, points });
    }
    plans
}

//! From records to ABI bytes: what user space contributes to the stream, and what a recording stores.
//!
//! `decode(&encode(r)) == r` for every record that [`decode`](super::decode()) can give.

use core::net::IpAddr;

use tracer_ebpf as abi;

use super::{
    Bytes, Cgroup, CgroupOp, CgroupWrite, Direction, Event, Exec, Exit, Namespaces, NewTask, Process, Record, Role,
    Socket, SocketOp, Syscall,
};

/// Encodes one record.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    encode_into(record, &mut out);
    out
}

/// Appends one record's bytes to `out`.
pub fn encode_into(record: &Record, out: &mut Vec<u8>) {
    let begin = out.len();
    let mut w = Writer(out);
    w.u64(record.at.0);
    w.u32(kind(&record.event));
    w.u32(0); // the length, set below
    w.u32(record.tgid.0);
    w.u32(record.tid.0);
    event(&record.event, &mut w);
    let len = length(out.len() - begin);
    out[begin + 12..begin + 16].copy_from_slice(&len.to_le_bytes());
}

fn kind(event: &Event) -> u32 {
    match event {
        Event::Bytes(_) => abi::kind::BYTES,
        Event::Socket(_) => abi::kind::SOCKET,
        Event::NewTask(_) => abi::kind::NEW_TASK,
        Event::Exec(_) => abi::kind::EXEC,
        Event::Exit(_) => abi::kind::EXIT,
        Event::Syscall(_) => abi::kind::SYSCALL,
        Event::Cgroup(_) => abi::kind::CGROUP,
        Event::CgroupWrite(_) => abi::kind::CGROUP_WRITE,
        Event::Oom { .. } => abi::kind::OOM,
        Event::Signal { .. } => abi::kind::SIGNAL,
        Event::Listen(_) => abi::kind::LISTEN,
        Event::Connect(_) => abi::kind::CONNECT,
        Event::Clock { .. } => abi::kind::CLOCK,
        Event::Tick => abi::kind::TICK,
        Event::Lost { .. } => abi::kind::LOST,
        Event::Node(_) => abi::kind::NODE,
        Event::Process(_) => abi::kind::PROCESS,
        Event::Mark(_) => abi::kind::MARK,
        Event::Listed(_) => abi::kind::LISTED,
        Event::Waiting(_) => abi::kind::WAITING,
        Event::Unknown(kind) => *kind,
    }
}

fn event(event: &Event, w: &mut Writer<'_>) {
    match event {
        Event::Bytes(e) => bytes(e, w),
        Event::Socket(e) => socket(e, w),
        Event::NewTask(NewTask { child, parent, clone_flags, cgroup }) => {
            w.u64(*clone_flags);
            w.u64(cgroup.0);
            w.u32(child.0);
            w.u32(parent.0);
        }
        Event::Exec(e) => exec(e, w),
        Event::Exit(Exit { status, signal, comm }) => {
            let code = match (signal, status) {
                (Some(signal), _) => u32::from(*signal),
                (None, status) => u32::from(status.unwrap_or(0)) << 8,
            };
            w.u32(code);
            w.u32(0);
            w.comm(comm);
        }
        Event::Syscall(e) => syscall(e, w),
        Event::Cgroup(e) => cgroup(e, w),
        Event::CgroupWrite(e) => cgroup_write(e, w),
        Event::Oom { victim, rss_kib } => {
            w.u32(victim.0);
            w.u32(*rss_kib);
        }
        Event::Signal { target, signal, code, result, comm } => {
            w.u32(target.0);
            w.u32(*signal);
            w.i32(*code);
            w.u32(*result);
            w.comm(comm);
        }
        Event::Listen(e) => {
            w.u64(e.cgroup.0);
            w.u32(e.netns);
            w.u32(e.port);
        }
        Event::Connect(e) => {
            w.u64(e.start.0);
            let address = match e.address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            w.bytes(&address.octets());
            w.u32(e.port);
            w.u32(u32::from(e.accepted));
        }
        Event::Clock { realtime } => w.u64(*realtime),
        Event::Lost { counter, count } => {
            w.u64(*count);
            w.u32(*counter);
            w.u32(0);
        }
        Event::Node(pairs) => w.bytes(&joined_pairs(pairs)),
        Event::Process(e) => process(e, w),
        Event::Mark(what) => {
            w.u32(*what);
            w.u32(0);
        }
        Event::Listed(e) => e.encode(w),
        Event::Waiting(e) => e.encode(w),
        Event::Tick | Event::Unknown(_) => {}
    }
}

fn bytes(e: &Bytes, w: &mut Writer<'_>) {
    w.u64(e.conn.0);
    w.u64(e.offset);
    w.u64(e.other_at.0);
    w.i32(e.fd);
    w.u32(match e.direction {
        Direction::In => abi::direction::IN,
        Direction::Out => abi::direction::OUT,
    });
    w.u32(e.len);
    w.u32(length(e.data.len()));
    w.bytes(&e.data);
}

fn socket(e: &Socket, w: &mut Writer<'_>) {
    w.u64(e.conn.0);
    w.u32(match e.op {
        SocketOp::Accept => abi::socket_op::ACCEPT,
        SocketOp::Connect => abi::socket_op::CONNECT,
        SocketOp::Close => abi::socket_op::CLOSE,
        SocketOp::Dup => abi::socket_op::DUP,
        SocketOp::Bind => abi::socket_op::BIND,
        SocketOp::Listen => abi::socket_op::LISTEN,
        SocketOp::Found => abi::socket_op::FOUND,
    });
    w.i32(e.fd);
    w.i32(e.other_fd.unwrap_or(-1));
    w.i32(e.ret);
    w.u32(e.peer.map_or(0, |t| t.0));
    let path = match e.path.strip_prefix('@') {
        Some(name) => [b"\0", name.as_bytes()].concat(),
        None => e.path.as_bytes().to_vec(),
    };
    w.u32(length(path.len()));
    w.bytes(&path);
}

fn exec(e: &Exec, w: &mut Writer<'_>) {
    w.u64(e.cgroup.0);
    w.namespaces(&e.namespaces);
    w.u32(e.parent.0);
    let container = if e.container { abi::exec_flag::CONTAINER } else { 0 };
    let incomplete = if e.incomplete { abi::exec_flag::ARGV_TRUNCATED } else { 0 };
    w.u32(container | incomplete);
    w.comm(&e.comm);
    w.i32(e.oom_score_adj);
    let filename = terminated([e.filename.as_str()]);
    let argv = terminated(e.argv.iter().map(String::as_str));
    let env = joined_pairs(&e.cni);
    w.u32(length(filename.len()));
    w.u32(length(argv.len()));
    w.u32(length(env.len()));
    w.bytes(&filename);
    w.bytes(&argv);
    w.bytes(&env);
}

fn syscall(e: &Syscall, w: &mut Writer<'_>) {
    w.u64(e.enter.0);
    w.u64(e.ret.cast_unsigned());
    for arg in e.args {
        w.u64(arg);
    }
    w.namespaces(&e.namespaces);
    w.u32(e.sys.code());
    for string in &e.strings {
        w.u32(length(string.len()));
    }
    for string in &e.strings {
        w.bytes(string.as_bytes());
    }
}

fn cgroup(e: &Cgroup, w: &mut Writer<'_>) {
    w.u64(e.id.0);
    w.u32(match e.op {
        CgroupOp::Mkdir => abi::cgroup_op::MKDIR,
        CgroupOp::Rmdir => abi::cgroup_op::RMDIR,
        CgroupOp::Attach => abi::cgroup_op::ATTACH,
    });
    w.u32(e.hierarchy);
    w.u32(e.task.map_or(0, |t| t.0));
    w.u32(u32::from(e.threadgroup));
    w.u32(length(e.path.len()));
    w.u32(0);
    w.bytes(e.path.as_bytes());
}

fn cgroup_write(e: &CgroupWrite, w: &mut Writer<'_>) {
    w.u64(e.exit.0);
    w.u64(e.ret.cast_unsigned());
    w.u64(e.cgroup.0);
    for part in [&e.dir, &e.file, &e.value] {
        w.u32(length(part.len()));
    }
    w.u32(0);
    for part in [&e.dir, &e.file, &e.value] {
        w.bytes(part.as_bytes());
    }
}

fn process(e: &Process, w: &mut Writer<'_>) {
    w.namespaces(&e.namespaces);
    w.u32(e.parent.0);
    w.u32(match e.role {
        Role::Other => abi::role::OTHER,
        Role::Runtime => abi::role::RUNTIME,
        Role::Shim => abi::role::SHIM,
        Role::Myself => abi::role::SELF,
    });
    let argv = terminated(e.argv.iter().map(String::as_str));
    let helper = e.helper.as_ref().map(|it| [&it.started.0.to_le_bytes()[..], &joined_pairs(&it.cni)].concat());
    let helper = helper.unwrap_or_default();
    for len in [e.exe.len(), argv.len(), e.cgroup.len(), helper.len()] {
        w.u32(length(len));
    }
    w.bytes(e.exe.as_bytes());
    w.bytes(&argv);
    w.bytes(e.cgroup.as_bytes());
    w.bytes(&helper);
}

fn terminated<'a>(strings: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut out = Vec::new();
    for string in strings {
        out.extend_from_slice(string.as_bytes());
        out.push(0);
    }
    out
}

fn joined_pairs(pairs: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value.as_bytes());
        out.push(0);
    }
    out
}

/// A record is at most some hundred KiB; its lengths fit by far.
pub(super) fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

pub(super) struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Cut to 15 bytes as the kernel does.
    fn comm(&mut self, comm: &str) {
        let mut raw = [0; abi::COMM_LEN];
        let len = comm.len().min(abi::COMM_LEN - 1);
        raw[..len].copy_from_slice(&comm.as_bytes()[..len]);
        self.bytes(&raw);
    }

    fn namespaces(&mut self, n: &Namespaces) {
        for inode in [n.mnt, n.net, n.ipc, n.uts, n.pid, n.user] {
            self.u32(inode);
        }
    }
}

//! From ABI bytes to records. Bad bytes are an error that names the field, never a panic.

use core::net::Ipv6Addr;

use tracer_ebpf as abi;

use super::{
    Bytes, Cgroup, CgroupOp, CgroupWrite, Connect, Direction, Event, Exec, Exit, Helper, Listed, Listen, Namespaces,
    NewTask, Process, Record, Role, Socket, SocketOp, Sys, Syscall, Waiting,
};
use crate::ids::{CgroupId, ConnId, MonotonicNs, Tgid, Tid};

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the field does.
    #[error("record ends inside its field {0}")]
    Short(&'static str),
    /// Bytes follow the last field.
    #[error("{0} bytes follow the record's last field")]
    Trailing(usize),
    /// A field has a value that the ABI does not give it.
    #[error("record field {0} has an impossible value")]
    Value(&'static str),
}

/// Decodes one record from exactly its bytes.
///
/// # Errors
/// [`DecodeError`] when the bytes are too few, too many or impossible. A kind from a later version is not an error
/// but [`Event::Unknown`].
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader(bytes);
    let at = MonotonicNs(r.u64("ktime")?);
    let kind = r.u32("kind")?;
    let len = r.u32("len")? as usize;
    if len < bytes.len() {
        return Err(DecodeError::Trailing(bytes.len() - len));
    }
    if len > bytes.len() {
        return Err(DecodeError::Short("len"));
    }
    let tgid = Tgid(r.u32("tgid")?);
    let tid = Tid(r.u32("tid")?);
    let event = event(kind, &mut r)?;
    match (&event, r.0.len()) {
        (Event::Unknown(_), _) | (_, 0) => Ok(Record { at, tgid, tid, event }),
        (_, rest) => Err(DecodeError::Trailing(rest)),
    }
}

/// Length of the record that starts `bytes`, once its header is there.
pub fn len_of(bytes: &[u8]) -> Option<usize> {
    let len = bytes.get(12..16)?;
    Some(u32::from_le_bytes(len.try_into().ok()?) as usize)
}

fn event(kind: u32, r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    Ok(match kind {
        abi::kind::BYTES => bytes(r)?,
        abi::kind::SOCKET => socket(r)?,
        abi::kind::NEW_TASK => {
            let clone_flags = r.u64("clone_flags")?;
            let cgroup = CgroupId(r.u64("cgroup")?);
            let child = Tgid(r.u32("child")?);
            let parent = Tgid(r.u32("parent")?);
            Event::NewTask(NewTask { child, parent, clone_flags, cgroup })
        }
        abi::kind::EXEC => exec(r)?,
        abi::kind::EXIT => {
            let code = r.u32("code")?;
            r.u32("reserved")?;
            let comm = r.comm()?;
            let signal = (code & 0x7f) as u8;
            let signal = (signal != 0).then_some(signal);
            let status = signal.is_none().then_some(((code >> 8) & 0xff) as u8);
            Event::Exit(Exit { status, signal, comm })
        }
        abi::kind::SYSCALL => syscall(r)?,
        abi::kind::CGROUP => cgroup(r)?,
        abi::kind::CGROUP_WRITE => cgroup_write(r)?,
        abi::kind::OOM => Event::Oom { victim: Tgid(r.u32("victim")?), rss_kib: r.u32("rss_kib")? },
        abi::kind::SIGNAL => Event::Signal {
            target: Tgid(r.u32("target")?),
            signal: r.u32("signal")?,
            code: r.i32("code")?,
            result: r.u32("result")?,
            // Recordings of before do not have it.
            comm: if r.0.is_empty() { String::new() } else { r.comm()? },
        },
        abi::kind::LISTEN => {
            Event::Listen(Listen { cgroup: CgroupId(r.u64("cgroup")?), netns: r.u32("netns")?, port: r.u32("port")? })
        }
        abi::kind::CONNECT => Event::Connect(Connect {
            start: MonotonicNs(r.u64("start")?),
            address: Ipv6Addr::from(r.array::<16>("address")?).to_canonical(),
            port: r.u32("port")?,
            accepted: r.u32("accepted")? != 0,
        }),
        abi::kind::CLOCK => Event::Clock { realtime: r.u64("realtime")? },
        abi::kind::TICK => Event::Tick,
        abi::kind::LOST => {
            let count = r.u64("count")?;
            let counter = r.u32("counter")?;
            r.u32("reserved")?;
            Event::Lost { counter, count }
        }
        abi::kind::NODE => {
            let text = std::mem::take(&mut r.0);
            Event::Node(pairs(text))
        }
        abi::kind::PROCESS => process(r)?,
        abi::kind::MARK => {
            let what = r.u32("what")?;
            r.u32("reserved")?;
            Event::Mark(what)
        }
        abi::kind::LISTED => Event::Listed(Listed::decode(r)?),
        abi::kind::WAITING => Event::Waiting(Waiting::decode(r)?),
        other => Event::Unknown(other),
    })
}

fn bytes(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let conn = ConnId(r.u64("conn")?);
    let offset = r.u64("offset")?;
    let other_at = MonotonicNs(r.u64("other_ktime")?);
    let fd = r.i32("fd")?;
    let direction = match r.u32("direction")? {
        abi::direction::IN => Direction::In,
        abi::direction::OUT => Direction::Out,
        _ => return Err(DecodeError::Value("direction")),
    };
    let len = r.u32("len")?;
    let captured = r.u32("captured")?;
    if captured > len {
        return Err(DecodeError::Value("captured"));
    }
    let data = r.take(captured, "data")?.to_vec();
    Ok(Event::Bytes(Bytes { conn, offset, other_at, fd, direction, len, data }))
}

fn socket(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let conn = ConnId(r.u64("conn")?);
    let op = match r.u32("op")? {
        abi::socket_op::ACCEPT => SocketOp::Accept,
        abi::socket_op::CONNECT => SocketOp::Connect,
        abi::socket_op::CLOSE => SocketOp::Close,
        abi::socket_op::DUP => SocketOp::Dup,
        abi::socket_op::BIND => SocketOp::Bind,
        abi::socket_op::LISTEN => SocketOp::Listen,
        abi::socket_op::FOUND => SocketOp::Found,
        _ => return Err(DecodeError::Value("op")),
    };
    let fd = r.i32("fd")?;
    let other_fd = Some(r.i32("other_fd")?).filter(|fd| *fd >= 0);
    let ret = r.i32("ret")?;
    let peer = Some(Tgid(r.u32("peer")?)).filter(|t| t.0 != 0);
    let path_len = r.u32("path_len")?;
    let path = socket_name(r.take(path_len, "path")?);
    Ok(Event::Socket(Socket { op, conn, fd, other_fd, ret, peer, path }))
}

/// The text of a socket's name: a path up to its zero, or `@` and an abstract name, which a zero begins.
pub(crate) fn socket_name(raw: &[u8]) -> String {
    match raw.split_first() {
        Some((0, name)) => format!("@{}", text(name)),
        _ => text(raw.split(|b| *b == 0).next().unwrap_or_default()),
    }
}

fn exec(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let cgroup = CgroupId(r.u64("cgroup")?);
    let namespaces = r.namespaces()?;
    let parent = Tgid(r.u32("parent")?);
    let flags = r.u32("flags")?;
    let comm = r.comm()?;
    let oom_score_adj = r.i32("oom_score_adj")?;
    let filename_len = r.u32("filename_len")?;
    let argv_len = r.u32("argv_len")?;
    let env_len = r.u32("env_len")?;
    let filename = strings(r.take(filename_len, "filename")?).next().unwrap_or_default();
    let argv = strings(r.take(argv_len, "argv")?).collect();
    let cni = pairs(r.take(env_len, "env")?);
    Ok(Event::Exec(Exec {
        parent,
        cgroup,
        namespaces,
        container: flags & abi::exec_flag::CONTAINER != 0,
        incomplete: flags & !abi::exec_flag::CONTAINER != 0,
        comm,
        oom_score_adj,
        filename,
        argv,
        cni,
    }))
}

fn syscall(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let enter = MonotonicNs(r.u64("enter")?);
    let ret = r.u64("ret")?.cast_signed();
    let mut args = [0; 5];
    for arg in &mut args {
        *arg = r.u64("args")?;
    }
    let namespaces = r.namespaces()?;
    let sys = Sys::from_code(r.u32("sys")?);
    let mut lens = [0; 3];
    for len in &mut lens {
        *len = r.u32("str_len")?;
    }
    let mut strings = [const { String::new() }; 3];
    for (string, len) in strings.iter_mut().zip(lens) {
        *string = text(r.take(len, "strings")?);
    }
    Ok(Event::Syscall(Syscall { sys, enter, ret, args, namespaces, strings }))
}

fn cgroup(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let id = CgroupId(r.u64("id")?);
    let op = match r.u32("op")? {
        abi::cgroup_op::MKDIR => CgroupOp::Mkdir,
        abi::cgroup_op::RMDIR => CgroupOp::Rmdir,
        abi::cgroup_op::ATTACH => CgroupOp::Attach,
        _ => return Err(DecodeError::Value("op")),
    };
    let hierarchy = r.u32("hierarchy")?;
    let task = Tgid(r.u32("task")?);
    let threadgroup = r.u32("threadgroup")? != 0;
    let path_len = r.u32("path_len")?;
    r.u32("reserved")?;
    let path = text(r.take(path_len, "path")?);
    let task = (op == CgroupOp::Attach).then_some(task);
    Ok(Event::Cgroup(Cgroup { op, hierarchy, id, task, threadgroup, path }))
}

fn cgroup_write(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let exit = MonotonicNs(r.u64("exit")?);
    let ret = r.u64("ret")?.cast_signed();
    let cgroup = CgroupId(r.u64("cgroup")?);
    let dir_len = r.u32("dir_len")?;
    let file_len = r.u32("file_len")?;
    let value_len = r.u32("value_len")?;
    r.u32("reserved")?;
    let dir = text(r.take(dir_len, "dir")?);
    let file = text(r.take(file_len, "file")?);
    let value = text(r.take(value_len, "value")?);
    Ok(Event::CgroupWrite(CgroupWrite { exit, ret, cgroup, dir, file, value }))
}

fn process(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let namespaces = r.namespaces()?;
    let parent = Tgid(r.u32("parent")?);
    let role = match r.u32("role")? {
        abi::role::RUNTIME => Role::Runtime,
        abi::role::SHIM => Role::Shim,
        abi::role::SELF => Role::Myself,
        _ => Role::Other,
    };
    let exe_len = r.u32("exe_len")?;
    let argv_len = r.u32("argv_len")?;
    let cgroup_len = r.u32("cgroup_len")?;
    let helper_len = r.u32("helper_len")?;
    let exe = text(r.take(exe_len, "exe")?);
    let argv = strings(r.take(argv_len, "argv")?).collect();
    let cgroup = text(r.take(cgroup_len, "cgroup")?);
    let helper = match r.take(helper_len, "helper")? {
        [] => None,
        bytes => Some(helper(&mut Reader(bytes))?),
    };
    Ok(Event::Process(Process { namespaces, parent, role, exe, argv, cgroup, helper }))
}

fn helper(r: &mut Reader<'_>) -> Result<Helper, DecodeError> {
    Ok(Helper { started: MonotonicNs(r.u64("started")?), cni: pairs(r.0) })
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Like [`text`], but never longer than its bytes (one `?` for what is not UTF-8), so that `comm` can be encoded again.
fn short_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push('?');
        }
    }
    text
}

/// Zero-terminated strings; a last one without its zero counts too.
fn strings(bytes: &[u8]) -> impl Iterator<Item = String> {
    let whole = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let parts = (!bytes.is_empty()).then(|| whole.split(|b| *b == 0).map(text));
    parts.into_iter().flatten()
}

fn pairs(bytes: &[u8]) -> Vec<(String, String)> {
    strings(bytes).filter_map(|s| s.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect()
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: u32, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(len as usize).ok_or(DecodeError::Short(field))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short(field))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    fn comm(&mut self) -> Result<String, DecodeError> {
        let raw: [u8; abi::COMM_LEN] = self.array("comm")?;
        // The last byte is the terminating zero, whatever stands there.
        Ok(short_text(raw[..abi::COMM_LEN - 1].split(|b| *b == 0).next().unwrap_or_default()))
    }

    fn namespaces(&mut self) -> Result<Namespaces, DecodeError> {
        let mut next = || self.u32("namespaces");
        Ok(Namespaces { mnt: next()?, net: next()?, ipc: next()?, uts: next()?, pid: next()?, user: next()? })
    }
}

//! Which syscalls are watched, and how their arguments are read. One program pair serves many syscalls; the table goes
//! to the kernel by syscall number.
//!
//! A hook costs each of its syscalls on the whole node about 110 ns, and the kernel some 50 ms when it goes. So the
//! table holds what runtimes do, and every CRI runtime there is (containerd, CRI-O, cri-dockerd) is a Go program: its
//! sockets are read by read and written by write or writev; recvfrom, sendto and their like, which servers of all kinds
//! call all the time, are not watched.
//! Where trampolines tell the payload of sockets (`hooks::trampolines`), none of the three is watched for it.
//! Not watched: fcntl(F_DUPFD), a call that Go programs make for each descriptor of theirs, while a copy of a CRI or
//! shim connection is made by none. (Were one made, its bytes would be missed; none would be taken for another's, for
//! what closes or replaces a number is watched.)

use tracer_ebpf::shared::{NO_ARG, Spec, class, shape, spec_flag};
use tracer_ebpf::{direction, socket_op, sys};

use super::hooks::{Backend, Group};

/// A watched syscall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// Name, also of its tracepoints (`sys_enter_…`) unless `event` says otherwise.
    pub(crate) name: &'static str,
    /// Name in its tracepoints.
    pub(crate) event: &'static str,
    /// Number.
    pub(crate) nr: i64,
    /// What it tells.
    pub(crate) group: Group,
    /// Without it no start can be told.
    pub(crate) required: bool,
    /// Program at its entry.
    pub(crate) enter: Option<&'static str>,
    /// Program at its exit.
    pub(crate) exit: Option<&'static str>,
    /// How it is read.
    pub(crate) spec: Spec,
}

const NONE: [u32; 3] = [NO_ARG; 3];

/// Programs set the names of their threads by prctl; what a runtime does to its init's privileges, and a shim that
/// becomes a reaper, is rare.
const PRCTL: [i32; 4] =
    [libc::PR_SET_KEEPCAPS, libc::PR_SET_SECCOMP, libc::PR_SET_CHILD_SUBREAPER, libc::PR_SET_NO_NEW_PRIVS];

/// libseccomp asks for the first when a program begins to make a filter; the second installs one.
const SECCOMP: [i32; 2] = [0, 1];

const fn watched(name: &'static str, nr: libc::c_long, group: Group, args: u32, class: u32, code: u32) -> Watched {
    let (enter, exit) = match class {
        class::IO => ("fd_enter", "io_exit"),
        class::SOCKET => ("fd_enter", "sock_exit"),
        _ => ("task_enter", "task_exit"),
    };
    let spec = Spec { only: 0, class, code, args, flags: 0, strings: NONE, reserved: 0 };
    Watched { name, event: name, nr, group, required: false, enter: Some(enter), exit: Some(exit), spec }
}

const fn io(name: &'static str, nr: libc::c_long, args: u32, direction: u32, shape: u32) -> Watched {
    watched(name, nr, Group::Socket, args, class::IO, direction | shape << 1)
}

const fn socket(name: &'static str, nr: libc::c_long, args: u32, op: u32) -> Watched {
    watched(name, nr, Group::Socket, args, class::SOCKET, op)
}

const fn task(name: &'static str, nr: libc::c_long, group: Group, args: u32, sys: u32, strings: &[u32]) -> Watched {
    let mut it = watched(name, nr, group, args, class::TASK, sys);
    let mut index = 0;
    while index < strings.len() {
        it.spec.strings[index] = strings[index];
        index += 1;
    }
    it
}

/// The disk is slow, its calls are few: only of the runtime.
const fn runtime(name: &'static str, nr: libc::c_long, args: u32, sys: u32, strings: &[u32]) -> Watched {
    task(name, nr, Group::Disk, args, sys, strings).enter(Some("runtime_enter"))
}

impl Watched {
    const fn required(mut self) -> Watched {
        self.required = true;
        self
    }

    const fn enter(mut self, program: Option<&'static str>) -> Watched {
        self.enter = program;
        self
    }

    const fn exit(mut self, program: Option<&'static str>) -> Watched {
        self.exit = program;
        self
    }

    const fn exit_only(self, program: &'static str) -> Watched {
        self.enter(None).exit(Some(program))
    }

    const fn event(mut self, event: &'static str) -> Watched {
        self.event = event;
        self
    }

    /// As it is watched where the payload of sockets comes by `payload`. Trampolines leave writes to cgroup files over.
    pub(crate) fn beside(self, payload: Backend) -> Option<Watched> {
        if payload == Backend::Tracepoint || self.spec.class != class::IO {
            return Some(self);
        }
        (self.nr == libc::SYS_write).then(|| Watched {
            group: Group::Cgroup,
            required: false,
            ..self.enter(Some("file_write_enter")).exit(Some("file_write_exit"))
        })
    }

    /// Reported for these values of argument 0 alone.
    const fn only(mut self, values: &[i32]) -> Watched {
        let mut index = 0;
        while index < values.len() {
            self.spec.only |= 1 << values[index];
            index += 1;
        }
        self
    }

    const fn flags(mut self, flags: u32) -> Watched {
        self.spec.flags = flags;
        self
    }
}

/// The table.
pub(crate) fn all() -> Vec<Watched> {
    let (read, write) = (direction::IN, direction::OUT);
    let failed = spec_flag::FAILED_ONLY;
    let mut table = vec![
        io("read", libc::SYS_read, 3, read, shape::BUFFER).required(),
        io("write", libc::SYS_write, 3, write, shape::BUFFER)
            .enter(Some("write_enter"))
            .exit(Some("write_exit"))
            .required(),
        io("writev", libc::SYS_writev, 3, write, shape::IOVEC),
        socket("accept4", libc::SYS_accept4, 4, socket_op::ACCEPT).required(),
        socket("accept", libc::SYS_accept, 3, socket_op::ACCEPT),
        socket("listen", libc::SYS_listen, 2, socket_op::LISTEN),
        socket("connect", libc::SYS_connect, 3, socket_op::CONNECT).enter(Some("addr_enter")),
        socket("bind", libc::SYS_bind, 3, socket_op::BIND).enter(Some("addr_enter")),
        socket("close", libc::SYS_close, 1, socket_op::CLOSE).enter(Some("close_enter")).exit(None).required(),
        socket("dup", libc::SYS_dup, 1, socket_op::DUP),
        socket("dup3", libc::SYS_dup3, 3, socket_op::DUP),
        task("execve", libc::SYS_execve, Group::Exec, 3, sys::EXECVE, &[0]).flags(failed),
        task("execveat", libc::SYS_execveat, Group::Exec, 5, sys::EXECVEAT, &[1]).flags(failed),
        task("clone", libc::SYS_clone, Group::Process, 0, sys::CLONE, &[]).exit_only("clone_exit"),
        task("clone3", libc::SYS_clone3, Group::Process, 0, sys::CLONE3, &[]).exit_only("clone_exit"),
        task("setns", libc::SYS_setns, Group::Namespaces, 2, sys::SETNS, &[]).flags(spec_flag::NAMESPACES),
        task("unshare", libc::SYS_unshare, Group::Namespaces, 1, sys::UNSHARE, &[]).flags(spec_flag::NAMESPACES),
        task("pivot_root", libc::SYS_pivot_root, Group::Mounts, 2, sys::PIVOT_ROOT, &[0, 1]),
        task("mount", libc::SYS_mount, Group::Mounts, 5, sys::MOUNT, &[0, 1, 2]).flags(spec_flag::CLIENTS),
        task("umount2", libc::SYS_umount2, Group::Mounts, 2, sys::UMOUNT2, &[0]).event("umount"),
        task("fsopen", libc::SYS_fsopen, Group::Mounts, 2, sys::FSOPEN, &[0]),
        task("fsconfig", libc::SYS_fsconfig, Group::Mounts, 5, sys::FSCONFIG, &[2]),
        task("fsmount", libc::SYS_fsmount, Group::Mounts, 3, sys::FSMOUNT, &[]),
        task("move_mount", libc::SYS_move_mount, Group::Mounts, 5, sys::MOVE_MOUNT, &[1, 3]).flags(spec_flag::CLIENTS),
        task("open_tree", libc::SYS_open_tree, Group::Mounts, 3, sys::OPEN_TREE, &[1]),
        task("mount_setattr", libc::SYS_mount_setattr, Group::Mounts, 5, sys::MOUNT_SETATTR, &[1]),
        task("mkdirat", libc::SYS_mkdirat, Group::Mounts, 3, sys::MKDIRAT, &[1]).flags(failed),
        task("mknodat", libc::SYS_mknodat, Group::Mounts, 3, sys::MKNODAT, &[1]),
        task("renameat", libc::SYS_renameat, Group::Mounts, 4, sys::RENAMEAT, &[1, 3]),
        task("prctl", libc::SYS_prctl, Group::Privileges, 1, sys::PRCTL, &[]).only(&PRCTL),
        task("seccomp", libc::SYS_seccomp, Group::Privileges, 1, sys::SECCOMP, &[]).only(&SECCOMP),
        task("capset", libc::SYS_capset, Group::Privileges, 1, sys::CAPSET, &[]),
        runtime("fsync", libc::SYS_fsync, 1, sys::FSYNC, &[]),
        runtime("fdatasync", libc::SYS_fdatasync, 1, sys::FDATASYNC, &[]),
        runtime("syncfs", libc::SYS_syncfs, 1, sys::SYNCFS, &[]),
        runtime("fchownat", libc::SYS_fchownat, 5, sys::FCHOWNAT, &[1]),
        runtime("setxattr", libc::SYS_setxattr, 2, sys::SETXATTR, &[0, 1]),
        runtime("lsetxattr", libc::SYS_lsetxattr, 2, sys::LSETXATTR, &[0, 1]),
    ];
    // Architectures younger than these calls do not have them.
    #[cfg(target_arch = "x86_64")]
    table.extend([
        socket("dup2", libc::SYS_dup2, 2, socket_op::DUP),
        task("mkdir", libc::SYS_mkdir, Group::Mounts, 2, sys::MKDIR, &[0]).flags(failed),
        task("mknod", libc::SYS_mknod, Group::Mounts, 3, sys::MKNOD, &[0]),
        runtime("lchown", libc::SYS_lchown, 3, sys::LCHOWN, &[0]),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tracer_ebpf::shared::ARGS;

    #[test]
    fn every_syscall_is_listed_once_and_fits_the_kernel_table() {
        let mut seen = HashSet::new();
        for it in super::all() {
            assert!(seen.insert(it.nr), "{} twice", it.name);
            assert!(it.nr < 512 && it.spec.args as usize <= ARGS, "{}", it.name);
            assert!(it.enter.is_some() || it.exit.is_some(), "{}", it.name);
        }
    }
}

//! What a process waits for, as `/proc` says: proc_pid_syscall(5), `wchan` and, where podlapse may read it, `stack`.

use std::fs;

use syscalls::Sysno;

use super::proc::Proc;
use super::session::suspended;
use crate::ids::{MonotonicNs, Tid};
use crate::record::Waiting;

/// Threads that are looked at.
const MAX_THREADS: usize = 256;
/// Frames of a stack that are kept.
const MAX_FRAMES: usize = 32;

/// Where the threads of a program wait that have nothing to do: Go's, and those of other pools.
const IDLE: [&str; 5] = ["futex", "epoll_wait", "epoll_pwait", "epoll_pwait2", "nanosleep"];

/// What a process does, and which of its threads: one that the kernel holds fast, else one that does not idle, else its
/// first. None: it has ended.
pub(super) fn look(proc: &Proc, pid: u32) -> Option<(Tid, Waiting)> {
    let threads = fs::read_dir(proc.file(pid, "task")).ok()?.flatten();
    let mut tids: Vec<u32> = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    let threads: Vec<Thread> =
        tids.into_iter().take(MAX_THREADS).filter_map(|tid| Thread::read(proc, pid, tid)).collect();
    let held = threads.iter().find(|thread| thread.state == 'D');
    let busy = || threads.iter().find(|thread| thread.busy());
    let thread = held.or_else(busy).or(threads.first())?;
    let of = |name: &str| proc.text(pid, &format!("task/{}/{name}", thread.tid)).unwrap_or_default();
    // A process that ends has none, and one that ended is no answer.
    let started = proc.started(pid).filter(|_| thread.state != 'Z' && thread.state != 'X')?;
    let stack = of("stack");
    let frames = stack.lines().take(MAX_FRAMES).map(|line| line.trim_start_matches("[<0>] ").to_owned());
    let waiting = Waiting {
        started: MonotonicNs(started.saturating_sub(suspended())),
        state: Some(thread.state),
        syscall: thread.syscall.map(|(number, _)| number),
        comm: proc.text(pid, "comm").unwrap_or_default().trim_end_matches('\n').to_owned(),
        syscall_name: thread.syscall.and_then(|(_, name)| name).map_or(String::new(), |name| name.name().to_owned()),
        // `0`: it does not wait, or podlapse may not know.
        wchan: Some(of("wchan")).filter(|wchan| wchan != "0").unwrap_or_default(),
        stack: frames.collect(),
    };
    Some((Tid(thread.tid), waiting))
}

struct Thread {
    tid: u32,
    state: char,
    syscall: Option<(u32, Option<Sysno>)>,
}

impl Thread {
    fn read(proc: &Proc, pid: u32, tid: u32) -> Option<Thread> {
        let stat = proc.text(pid, &format!("task/{tid}/stat"))?;
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        let syscall = proc.text(pid, &format!("task/{tid}/syscall")).and_then(|text| syscall(&text));
        Some(Thread { tid, state, syscall })
    }

    /// It waits for something of its own.
    fn busy(&self) -> bool {
        self.syscall.is_some_and(|(_, name)| name.is_none_or(|name| !IDLE.contains(&name.name())))
    }
}

/// `running`, `-1 SP PC` where it waits in no syscall, or `NUMBER ARGUMENT… SP PC`.
fn syscall(text: &str) -> Option<(u32, Option<Sysno>)> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let number: u32 = words.first()?.parse().ok()?;
    let stack = u64::from_str_radix(words.get(words.len().checked_sub(2)?)?.strip_prefix("0x")?, 16).ok()?;
    // A 32-bit program's numbers mean something else.
    let wide = stack > u64::from(u32::MAX) || cfg!(target_pointer_width = "32");
    Some((number, Sysno::new(number as usize).filter(|_| wide)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEPS: &str = "230 0x0 0x0 0x7ffd85d122c0 0x0 0x0 0x0 0x7ffd85d122a8 0x7ff3397fd503\n";

    #[test]
    fn syscalls_have_names() {
        let name = |text| syscall(text).map(|(number, name)| (number, name.map(|name| name.name())));
        assert_eq!(name("running\n"), None);
        assert_eq!(name("-1 0x7ffd85d122a8 0x7ff3397fd503\n"), None);
        assert_eq!(name(""), None);
        let sleep = Sysno::clock_nanosleep;
        let text = SLEEPS.replacen("230", &sleep.id().to_string(), 1);
        assert_eq!(name(&text), Some((sleep.id().unsigned_abs(), Some("clock_nanosleep"))));
        let of_32_bits = text.replace("0x7ffd85d122a8", "0xffd122a8");
        assert_eq!(name(&of_32_bits), Some((sleep.id().unsigned_abs(), None)));
        assert_eq!(name(&SLEEPS.replacen("230", "99999", 1)), Some((99999, None)));
    }

    /// A process with threads: their state and syscall.
    fn threads(root: &std::path::Path, threads: &[(u32, char, Sysno)]) {
        let stat = |tid, state| format!("{tid} (a) b) {state} 7 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0");
        let dir = root.join("42");
        for (tid, state, syscall) in threads {
            let task = dir.join(format!("task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("stat"), stat(*tid, *state)).unwrap();
            fs::write(task.join("syscall"), SLEEPS.replacen("230", &syscall.id().to_string(), 1)).unwrap();
            fs::write(task.join("wchan"), format!("in_{}", syscall.name())).unwrap();
        }
        fs::write(dir.join("stat"), stat(42, 'S')).unwrap();
        fs::write(dir.join("comm"), "a) b\n").unwrap();
    }

    #[test]
    fn the_thread_that_waits_for_something() {
        let check = |all: &[(u32, char, Sysno)]| {
            let root = tempfile::tempdir().unwrap();
            threads(root.path(), all);
            look(&Proc::at(root.path()), 42).map(|(tid, waiting)| (tid.0, waiting.wchan))
        };
        let found = |tid, wchan: &str| Some((tid, wchan.to_owned()));
        let (first, idle) = ((42, 'S', Sysno::futex), (43, 'S', Sysno::epoll_pwait));
        assert_eq!(check(&[first, idle]), found(42, "in_futex"));
        assert_eq!(check(&[first, idle, (44, 'S', Sysno::flock)]), found(44, "in_flock"));
        assert_eq!(check(&[(44, 'S', Sysno::flock), idle, (45, 'D', Sysno::mount)]), found(45, "in_mount"));
        assert_eq!(check(&[(42, 'Z', Sysno::futex)]), None);
    }

    #[test]
    fn what_may_not_be_read_is_absent() {
        let root = tempfile::tempdir().unwrap();
        threads(root.path(), &[(42, 'S', Sysno::read)]);
        let task = root.path().join("42/task/42");
        fs::write(task.join("wchan"), "0").unwrap();
        fs::write(task.join("stack"), "[<0>] pipe_read+0x1/0x2\n[<0>] vfs_read+0x3/0x4\n").unwrap();
        let (_, waiting) = look(&Proc::at(root.path()), 42).unwrap();
        assert_eq!((waiting.comm.as_str(), waiting.wchan.as_str(), waiting.state), ("a) b", "", Some('S')));
        assert_eq!(waiting.stack, ["pipe_read+0x1/0x2", "vfs_read+0x3/0x4"]);
        fs::remove_file(task.join("syscall")).unwrap();
        fs::remove_file(task.join("stack")).unwrap();
        let (_, waiting) = look(&Proc::at(root.path()), 42).unwrap();
        assert_eq!((waiting.syscall, waiting.syscall_name.as_str(), waiting.stack.len()), (None, "", 0));
        assert_eq!(look(&Proc::at(root.path()), 41), None);
    }
}

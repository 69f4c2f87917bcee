//! What is seen of one OCI container (a sandbox's pause container or a pod's container), whichever pod it is of.
//!
//! Signs find their unit at once, by an id in argv, environment, path or ancestry; a unit finds its start when a call,
//! `CNI_ARGS` or a cgroup path says so. Nothing is ever moved between units.

use std::collections::BTreeMap;

use tracer_ebpf::Namespaces;

use super::StartKey;
use super::argv::Cni;
use super::calls::TaskSeen;
use super::life::Life;
use super::limits::Writes;
use super::listed::Existing;
use crate::ids::{CgroupId, ContainerId, MonotonicNs, Tgid, Tid};
use crate::record::{CgroupWrite, Exec, Exit, Syscall};
use crate::trace::{PodInfo, ProcessInfo};

/// A unit's place in [`Units`]; ascending with first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitKey(u64);

/// Processes that a unit remembers; a plugin may run many.
const MAX_RUNS: usize = 256;
/// Signs that a unit remembers.
const MAX_SIGNS: usize = 2048;

/// What a process of a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cni(Cni),
    ShimStarter,
    ShimDaemon,
    /// Starts the monitor of one container, its child.
    Conmon,
    /// Makes the pod's namespaces.
    Pinns,
    OciCreate,
    OciStart,
    /// `runc init` and its stages, crun's child: cloned by `create`, later the entrypoint.
    Init,
    /// Cloned by an init.
    InitChild,
    /// A program that `create` or init runs.
    Hook,
    /// Works for one of the others.
    Helper,
    /// Exec probe, `delete`, `kill`, …: of this container, but not of its start.
    Aside,
    /// In the container, after its exec.
    Contained,
    /// Not known yet, or of no unit.
    Other,
}

/// One process of a unit.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) tgid: Tgid,
    /// Real parent when it was created, or at its first exec.
    pub(super) parent: Tgid,
    pub(super) kind: Kind,
    pub(super) created: Option<Created>,
    /// First exec to last: a runtime re-executes itself.
    pub(super) execs: Vec<ExecSeen>,
    pub(super) exit: Option<(MonotonicNs, Exit)>,
    /// Where the exit was not seen, the pid's next use.
    pub(super) gone: Option<MonotonicNs>,
}

/// How a process was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Created {
    pub(super) at: MonotonicNs,
    pub(super) clone_flags: u64,
    pub(super) cgroup: CgroupId,
}

/// One exec.
#[derive(Clone, Debug)]
pub(super) struct ExecSeen {
    pub(super) at: MonotonicNs,
    pub(super) filename: String,
    pub(super) comm: String,
    pub(super) argv: Vec<String>,
    /// Its network namespace; 0: unknown.
    pub(super) net: u32,
}

impl ExecSeen {
    pub(super) fn of(at: MonotonicNs, exec: &Exec) -> ExecSeen {
        ExecSeen {
            at,
            filename: exec.filename.clone(),
            comm: exec.comm.clone(),
            argv: exec.argv.clone(),
            net: exec.namespaces.net,
        }
    }
}

impl Run {
    /// When it was created, or where that was not seen its first exec.
    pub(super) fn begin(&self) -> Option<MonotonicNs> {
        self.created.map(|created| created.at).or(self.first_exec())
    }

    /// First exec.
    pub(super) fn first_exec(&self) -> Option<MonotonicNs> {
        self.execs.first().map(|exec| exec.at)
    }

    /// When it ended, and whether the exit itself was seen.
    pub(super) fn end(&self) -> (Option<MonotonicNs>, bool) {
        (self.exit.as_ref().map(|(at, _)| *at).or(self.gone), self.exit.is_some())
    }

    /// For a span.
    pub(super) fn info(&self) -> ProcessInfo {
        let exec = self.execs.first();
        let exit = self.exit.as_ref().map(|(_, exit)| exit);
        ProcessInfo {
            pid: self.tgid,
            ppid: self.parent,
            comm: exec.map(|e| e.comm.clone()).unwrap_or_default(),
            exe: exec.map(|e| e.filename.clone()).unwrap_or_default(),
            args: exec.map(|e| e.argv.clone()).unwrap_or_default(),
            exit_code: exit.and_then(|e| e.status),
            signal: exit.and_then(|e| e.signal),
            errno: None,
        }
    }
}

/// One sign that is an edge of a stage.
#[derive(Clone, Debug)]
pub(super) struct Sign {
    pub(super) tgid: Tgid,
    pub(super) tid: Tid,
    pub(super) enter: MonotonicNs,
    pub(super) exit: MonotonicNs,
    pub(super) what: What,
}

/// What a sign is.
#[derive(Clone, Debug)]
pub(super) enum What {
    Syscall(Syscall),
    CgroupMkdir(CgroupId),
    CgroupAttach,
    CgroupWrite(CgroupWrite),
}

/// The execve of an entrypoint.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: MonotonicNs,
    pub(super) tgid: Tgid,
    pub(super) path: String,
    /// Empty: unknown.
    pub(super) comm: String,
    pub(super) errno: Option<i32>,
    pub(super) namespaces: Option<Namespaces>,
    pub(super) cgroup: CgroupId,
    pub(super) oom_score_adj: Option<i32>,
}

/// The first listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listening {
    pub(super) at: MonotonicNs,
    pub(super) tgid: Tgid,
    pub(super) port: u32,
}

/// A call of the task API about a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskCall {
    pub(super) start: MonotonicNs,
    pub(super) end: Option<MonotonicNs>,
}

/// One OCI container.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) id: ContainerId,
    pub(super) start: Option<StartKey>,
    /// Whose sandbox it is, and what container, where it was there before podlapse.
    pub(super) pod: Option<PodInfo>,
    pub(super) existing: Option<Box<Existing>>,
    /// The OCI runtime worked for it when podlapse came: since when.
    pub(super) found: Option<MonotonicNs>,
    /// Its entrypoint ran already then.
    pub(super) ran_before: bool,
    pub(super) runs: Vec<Run>,
    pub(super) signs: Vec<Sign>,
    /// Runs, signs, writes and task calls that found no room.
    pub(super) overflow: u64,
    pub(super) netns_path: Option<String>,
    /// unshare to bind mount, both by one thread of the runtime.
    pub(super) netns: Option<(MonotonicNs, MonotonicNs)>,
    pub(super) cgroup: Option<String>,
    /// How much `cgroup` is worth, see [`Unit::cgroup`].
    cgroup_rank: u8,
    pub(super) writes: Writes,
    pub(super) shim: Option<Tgid>,
    /// Called pivot_root.
    pub(super) init_seen: Option<Tgid>,
    /// As the shim reported it.
    pub(super) init_told: Option<Tgid>,
    /// As the shim's events say.
    pub(super) event_pid: Option<Tgid>,
    /// Exit status of init, as the shim said, and when.
    pub(super) told_exit: Option<(MonotonicNs, u64)>,
    /// The shim said that the container ran out of memory.
    pub(super) told_oom: bool,
    /// When the CRI's client was told that it had exited with 0.
    pub(super) told_done: Option<MonotonicNs>,
    /// The task API's calls about its init.
    pub(super) tasks: Vec<TaskSeen>,
    pub(super) task_create: Option<TaskCall>,
    pub(super) task_start: Option<TaskCall>,
    /// The entrypoint's exec, or the last one that failed.
    pub(super) entry: Option<Entry>,
    pub(super) listening: Option<Listening>,
    pub(super) exit: Option<(MonotonicNs, Exit)>,
    pub(super) oom: bool,
    /// Which of the processes that become init, where it was one of them.
    pub(super) init_oom: Option<Tgid>,
    /// What is told of it besides its start.
    pub(super) life: Life,
}

impl Unit {
    /// The init process.
    pub(super) fn init(&self) -> Option<Tgid> {
        self.init_seen.or(self.init_told)
    }

    /// Its shim has answered that it runs.
    pub(super) fn told_started(&self) -> bool {
        self.tasks.iter().any(|task| task.method == "Start" && task.call.end.is_some() && task.pid.is_some())
    }

    /// The entrypoint runs, or ran.
    pub(super) fn entered(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|entry| entry.errno.is_none())
    }

    /// The entrypoint runs, or ran, by that time; its exec need not have been seen.
    pub(super) fn ran_at(&self, at: MonotonicNs) -> bool {
        self.ran_before || self.entered().is_some_and(|entry| entry.at <= at)
    }

    /// Its init, where that lives and has not run the entrypoint.
    pub(super) fn entering(&self) -> Option<Tgid> {
        self.init().filter(|_| self.entered().is_none() && self.exit.is_none())
    }

    /// The OOM killer chose one of its processes, and a signal ended its init.
    pub(super) fn was_oom_killed(&self) -> bool {
        self.oom && self.exit.as_ref().is_some_and(|(_, exit)| exit.signal.is_some())
    }

    /// The runtime's `create` runs.
    pub(super) fn is_creating(&self) -> bool {
        self.runs.iter().any(|run| run.kind == Kind::OciCreate && run.end().0.is_none())
            && self.task_start.is_none()
            && !self.runs.iter().any(|run| run.kind == Kind::OciStart)
    }

    /// Its init ended without having reached the entrypoint. An init that exits with 0 has reached it, seen or not.
    pub(super) fn died(&self) -> Option<MonotonicNs> {
        let exit = self.exit.as_ref().filter(|(_, exit)| exit.status != Some(0));
        exit.filter(|_| self.entered().is_none()).map(|(at, _)| *at)
    }

    /// Nothing but its id is known.
    pub(super) fn is_blank(&self) -> bool {
        let seen = !self.runs.is_empty() || !self.signs.is_empty() || !self.tasks.is_empty() || self.exit.is_some();
        !seen && self.existing.is_none() && self.pod.is_none() && self.cgroup.is_none() && self.shim.is_none()
    }

    /// Remembers a process; its index, unless there are too many.
    pub(super) fn run(&mut self, run: Run) -> Option<usize> {
        if self.runs.len() >= MAX_RUNS {
            self.overflow += 1;
            return None;
        }
        self.runs.push(run);
        Some(self.runs.len() - 1)
    }

    /// Remembers a sign.
    pub(super) fn sign(&mut self, sign: Sign) {
        if self.signs.len() >= MAX_SIGNS {
            self.overflow += 1;
            return;
        }
        self.signs.push(sign);
    }

    /// Remembers its cgroup: a path that ends in its id wins, then the default hierarchy's, then the first.
    pub(super) fn cgroup(&mut self, path: &str, own: bool, unified: bool) {
        let rank = 1 + u8::from(unified) + 2 * u8::from(own);
        if rank > self.cgroup_rank {
            self.cgroup = Some(path.to_owned());
            self.cgroup_rank = rank;
        }
    }

    /// The entrypoint's exec by `tgid`.
    pub(super) fn enter(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec) {
        self.entry = Some(Entry {
            at,
            tgid,
            path: exec.filename.clone(),
            comm: exec.comm.clone(),
            errno: None,
            namespaces: Some(exec.namespaces),
            cgroup: exec.cgroup,
            oom_score_adj: Some(exec.oom_score_adj),
        });
    }
}

/// Files that move processes rather than set a limit.
pub(super) fn is_membership(file: &str) -> bool {
    matches!(file, "cgroup.procs" | "tasks" | "cgroup.threads" | "cgroup.subtree_control" | "cgroup.type")
}

/// All units, bounded.
#[derive(Debug)]
pub(super) struct Units {
    by_id: BTreeMap<ContainerId, UnitKey>,
    units: BTreeMap<UnitKey, Unit>,
    next: u64,
    limit: usize,
    pub(super) evicted: u64,
}

impl Units {
    pub(super) fn new(limit: usize) -> Units {
        Units { by_id: BTreeMap::new(), units: BTreeMap::new(), next: 0, limit: limit.max(1), evicted: 0 }
    }

    /// The unit of `id`, made if it is new. Where there is no room the oldest unit of no start goes, else the oldest.
    pub(super) fn of(&mut self, id: &ContainerId) -> UnitKey {
        if let Some(key) = self.by_id.get(id) {
            return *key;
        }
        if self.units.len() >= self.limit {
            let free = self.units.iter().find(|(_, unit)| unit.start.is_none()).map(|(key, _)| *key);
            if let Some(key) = free.or_else(|| self.units.keys().next().copied()) {
                self.evicted += 1;
                self.remove(key);
            }
        }
        let key = UnitKey(self.next);
        self.next += 1;
        self.by_id.insert(id.clone(), key);
        self.units.insert(key, Unit { id: id.clone(), ..Unit::default() });
        key
    }

    pub(super) fn find(&self, id: &ContainerId) -> Option<UnitKey> {
        self.by_id.get(id).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (UnitKey, &Unit)> {
        self.units.iter().map(|(key, unit)| (*key, unit))
    }

    pub(super) fn get(&self, key: UnitKey) -> Option<&Unit> {
        self.units.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: UnitKey) -> Option<&mut Unit> {
        self.units.get_mut(&key)
    }

    pub(super) fn remove(&mut self, key: UnitKey) {
        if let Some(unit) = self.units.remove(&key) {
            self.by_id.remove(&unit.id);
        }
    }
}

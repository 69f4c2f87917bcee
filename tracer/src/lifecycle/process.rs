//! The process table: which unit a process belongs to and what it is there. By tgid, for the runtimes are Go programs
//! and fork from any thread; by real parent, for runc clones its stages with CLONE_PARENT.

use std::collections::BTreeMap;

use super::unit::{Created, Kind, UnitKey};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{NewTask, Role, Waiting};

/// One live process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) parent: Tgid,
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) unit: Option<UnitKey>,
    /// Index into its unit's runs.
    pub(super) run: Option<usize>,
    pub(super) created: Option<Created>,
    /// Of one that is of no unit, where its exec was seen, or it was found: it may be a client.
    pub(super) name: Option<Box<str>>,
    /// It has run a program in a container.
    pub(super) inside: bool,
    /// What it was last seen to wait for.
    pub(super) seen: Option<Box<Seen>>,
    order: u64,
}

impl Default for Process {
    fn default() -> Process {
        let (parent, role, kind) = (Tgid(0), Role::Other, Kind::Other);
        Process {
            parent,
            role,
            kind,
            unit: None,
            run: None,
            created: None,
            name: None,
            inside: false,
            seen: None,
            order: 0,
        }
    }
}

/// A look at a process.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: MonotonicNs,
    pub(super) waiting: Waiting,
}

/// Live processes, bounded.
#[derive(Debug)]
pub(super) struct Processes {
    table: BTreeMap<Tgid, Process>,
    /// Oldest first, for eviction.
    ages: BTreeMap<u64, Tgid>,
    next: u64,
    limit: usize,
    pub(super) evicted: u64,
}

impl Processes {
    pub(super) fn new(limit: usize) -> Processes {
        Processes { table: BTreeMap::new(), ages: BTreeMap::new(), next: 0, limit: limit.max(1), evicted: 0 }
    }

    pub(super) fn get(&self, tgid: Tgid) -> Option<&Process> {
        self.table.get(&tgid)
    }

    pub(super) fn get_mut(&mut self, tgid: Tgid) -> Option<&mut Process> {
        self.table.get_mut(&tgid)
    }

    /// A process that this table has not seen being created inherits from `parent`, as [`Processes::fork`] does.
    pub(super) fn adopt(&mut self, tgid: Tgid, parent: Tgid) -> &mut Process {
        if !self.table.contains_key(&tgid) {
            let process = self.child_of(parent);
            self.insert(tgid, process);
        }
        self.table.entry(tgid).or_default()
    }

    /// A process was created; what its pid named before, if its exit was not seen, is the result.
    pub(super) fn fork(&mut self, at: MonotonicNs, task: &NewTask) -> Option<Process> {
        let old = self.remove(task.child);
        let mut process = self.child_of(task.parent);
        process.created = Some(Created { at, clone_flags: task.clone_flags, cgroup: task.cgroup });
        self.insert(task.child, process);
        old
    }

    pub(super) fn remove(&mut self, tgid: Tgid) -> Option<Process> {
        let process = self.table.remove(&tgid)?;
        self.ages.remove(&process.order);
        Some(process)
    }

    /// The youngest child that works for a start: not a container's own, nor a probe.
    pub(super) fn youngest_child(&self, parent: Tgid) -> Option<Tgid> {
        let works = |it: &Process| !matches!(it.kind, Kind::Contained | Kind::Aside);
        let children = self.table.iter().filter(|(_, it)| it.parent == parent && works(it));
        children.max_by_key(|(_, it)| it.order).map(|(child, _)| *child)
    }

    /// What a process is by ancestry alone.
    fn child_of(&self, parent: Tgid) -> Process {
        let Some(up) = self.table.get(&parent) else { return Process { parent, ..Process::default() } };
        let kind = match &up.kind {
            Kind::OciCreate => Kind::Init,
            Kind::Init | Kind::InitChild => Kind::InitChild,
            Kind::Cni(_) | Kind::Helper | Kind::OciStart => Kind::Helper,
            Kind::Hook => Kind::Hook,
            Kind::Aside => Kind::Aside,
            Kind::Contained => Kind::Contained,
            // It forks once, and ends.
            Kind::Conmon => Kind::ShimDaemon,
            Kind::ShimStarter | Kind::ShimDaemon | Kind::Pinns | Kind::Other => Kind::Other,
        };
        Process { parent, kind, unit: up.unit, ..Process::default() }
    }

    fn insert(&mut self, tgid: Tgid, mut process: Process) {
        if self.table.len() >= self.limit {
            // The runtime and podlapse itself stay: without them nothing else can be told apart.
            let aged = self.ages.values().find(|t| {
                self.table.get(t).is_none_or(|p| p.role == Role::Other && !matches!(p.kind, Kind::ShimDaemon))
            });
            if let Some(oldest) = aged.or_else(|| self.ages.values().next()).copied() {
                self.remove(oldest);
                self.evicted += 1;
            }
        }
        process.order = self.next;
        self.next += 1;
        self.ages.insert(process.order, tgid);
        self.table.insert(tgid, process);
    }
}

//! Records to units: each sign finds its container by an id in argv, environment or path, else by its process.

use super::argv::{OciAction, Program, ShimAction, classify, program};
use super::cgroup::{cgroup_ids, container_id, path_container};
use super::unit::{Entry, ExecSeen, Kind, Run, UnitKey, What};
use super::{Lifecycle, MAX_SMALL};
use crate::ids::{ContainerId, MonotonicNs, PodUid, Tgid};
use crate::record::{
    Cgroup, CgroupOp, CgroupWrite, Event, Exec, Exit, NewTask, Process, Record, Role, SocketOp, Sys, Syscall,
};
use crate::trace::PodInfo;

/// `MS_BIND` of mount(2).
const MS_BIND: u64 = 0x1000;
/// `CLONE_NEWNET` of unshare(2).
const CLONE_NEWNET: u64 = 0x4000_0000;

impl Lifecycle {
    pub(super) fn sign(&mut self, record: &Record) {
        let Record { at, tgid, .. } = *record;
        // Pid 0 stands for every process that podlapse's pid namespace does not show.
        let hidden = match &record.event {
            Event::NewTask(task) => task.child == Tgid(0),
            Event::Exec(_) | Event::Exit(_) | Event::Syscall(_) | Event::Process(_) => tgid == Tgid(0),
            _ => false,
        };
        if hidden {
            return;
        }
        match &record.event {
            Event::NewTask(task) => self.new_task(at, task),
            Event::Exec(exec) => self.exec(at, tgid, exec),
            Event::Exit(exit) => self.exit(at, tgid, exit),
            Event::Syscall(syscall) => self.syscall(record, syscall),
            Event::Cgroup(cgroup) => self.cgroup(at, tgid, cgroup),
            Event::CgroupWrite(write) => self.cgroup_write(at, tgid, write),
            Event::Oom { victim } => {
                let unit = self.processes.get(*victim).and_then(|p| p.unit);
                if let Some(unit) = unit.and_then(|key| self.units.get_mut(key)) {
                    unit.oom = true;
                }
            }
            Event::Socket(socket) => {
                // Only a runtime's sockets are watched: who accepts on one is a runtime, also after a restart.
                if matches!(socket.op, SocketOp::Accept | SocketOp::Bind | SocketOp::Listen) && socket.ret >= 0 {
                    let process = self.processes.adopt(tgid, Tgid(0));
                    if process.kind == Kind::Other && process.unit.is_none() && process.role == Role::Other {
                        process.role = Role::Runtime;
                    }
                }
            }
            Event::Clock { realtime } => self.clock = Some((at, *realtime)),
            Event::Lost { counter, count } => self.lost(*counter, *count),
            Event::Node(pairs) => self.node(pairs),
            Event::Process(process) => self.found(tgid, process),
            Event::Bytes(_) | Event::Signal { .. } | Event::Tick | Event::Mark(_) | Event::Unknown(_) => {}
        }
    }

    fn new_task(&mut self, at: MonotonicNs, task: &NewTask) {
        if let Some(old) = self.processes.fork(at, task) {
            self.with_run(old.unit, old.run, |run| run.gone = Some(at));
        }
        // Stages of an init do not always exec: they are remembered from their creation.
        let stage = self.processes.get(task.child).is_some_and(|p| matches!(p.kind, Kind::Init | Kind::InitChild));
        if stage {
            self.remember(task.child, None);
        }
    }

    fn exec(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec) {
        let process = self.processes.adopt(tgid, exec.parent);
        let (kind, unit) = (process.kind.clone(), process.unit);
        if kind == Kind::Contained {
            return;
        }
        if exec.container {
            self.exec_in_container(at, tgid, exec, &kind, unit);
            return;
        }
        let (kind, unit) = match program(exec) {
            Program::Cni(cni) => {
                let unit = self.units.of(&cni.container);
                self.cni(at, unit, &cni);
                (Kind::Cni(cni), Some(unit))
            }
            Program::Shim { action, id } => {
                let kind = match action {
                    ShimAction::Start => Kind::ShimStarter,
                    ShimAction::Daemon => Kind::ShimDaemon,
                    ShimAction::Delete => Kind::Aside,
                };
                (kind, Some(self.units.of(&id)))
            }
            Program::Oci { action, id } => {
                let kind = match action {
                    OciAction::Create => Kind::OciCreate,
                    OciAction::Start => Kind::OciStart,
                    OciAction::Exec | OciAction::Other => Kind::Aside,
                };
                (kind, Some(self.units.of(&id)))
            }
            Program::Init => (kind, unit),
            Program::Other if matches!(kind, Kind::Init | Kind::InitChild) => (Kind::Hook, unit),
            Program::Other => (kind, unit),
        };
        if kind == Kind::ShimDaemon
            && let Some(unit) = unit.and_then(|key| self.units.get_mut(key))
        {
            unit.shim = Some(tgid);
        }
        let process = self.processes.adopt(tgid, exec.parent);
        if process.unit != unit {
            process.run = None;
        }
        (process.kind, process.unit) = (kind, unit);
        self.remember(tgid, Some((at, exec)));
    }

    /// The entrypoint is the first exec in the container by its init; hooks in the container are children of init.
    fn exec_in_container(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec, kind: &Kind, key: Option<UnitKey>) {
        if !matches!(kind, Kind::Init | Kind::InitChild) {
            return;
        }
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        let is_init = match unit.init_seen {
            Some(init) => init == tgid,
            None => unit.init_told == Some(tgid) || *kind == Kind::Init,
        };
        let entered = is_init && unit.entered().is_none();
        if entered {
            unit.enter(at, tgid, exec);
            unit.init_seen = unit.init_seen.or(Some(tgid));
        }
        let start = unit.start;
        let kind = if is_init { Kind::Contained } else { Kind::Hook };
        if let Some(process) = self.processes.get_mut(tgid) {
            process.kind = kind;
        }
        self.remember(tgid, Some((at, exec)));
        self.touch(start);
    }

    /// Makes or extends the run of a process that its unit should remember.
    fn remember(&mut self, tgid: Tgid, exec: Option<(MonotonicNs, &Exec)>) {
        let Some(process) = self.processes.get_mut(tgid) else { return };
        if matches!(process.kind, Kind::Aside | Kind::Contained | Kind::Other) {
            return;
        }
        let Some(unit) = process.unit.and_then(|key| self.units.get_mut(key)) else { return };
        if process.run.is_none() {
            process.run = unit.run(Run {
                tgid,
                parent: process.parent,
                kind: process.kind.clone(),
                created: process.created,
                execs: Vec::new(),
                exit: None,
                gone: None,
            });
        }
        let Some(run) = process.run.and_then(|index| unit.runs.get_mut(index)) else { return };
        run.kind = process.kind.clone();
        if let Some((at, exec)) = exec {
            run.execs.push(ExecSeen {
                at,
                filename: exec.filename.clone(),
                comm: exec.comm.clone(),
                argv: exec.argv.clone(),
            });
        }
    }

    fn with_run(&mut self, unit: Option<UnitKey>, run: Option<usize>, change: impl FnOnce(&mut Run)) {
        let unit = unit.and_then(|key| self.units.get_mut(key));
        if let Some(run) = unit.zip(run).and_then(|(unit, index)| unit.runs.get_mut(index)) {
            change(run);
        }
    }

    /// A plugin names its sandbox, its pod and its network namespace.
    fn cni(&mut self, at: MonotonicNs, key: UnitKey, cni: &super::argv::Cni) {
        let path = netns_path(&cni.netns);
        let netns = self.netns_paths.get(path).copied();
        if let Some(unit) = self.units.get_mut(key) {
            if !path.is_empty() {
                unit.netns_path = Some(cni.netns.clone());
            }
            unit.netns = unit.netns.or(netns);
        }
        let Some(uid) = &cni.uid else { return };
        let linked = self.link_by_uid(uid, &cni.container);
        if let Some(start) = linked.and_then(|key| self.starts.get_mut(&key)) {
            start.pod.namespace = start.pod.namespace.take().or_else(|| cni.namespace.clone());
            start.pod.name = start.pod.name.take().or_else(|| cni.name.clone());
        } else if linked.is_none() && cni.command == "ADD" && self.start_of_pod(uid).is_none() {
            // A sandbox is being made, and its RunPodSandbox came before podlapse or was lost.
            let pod = PodInfo {
                namespace: cni.namespace.clone(),
                name: cni.name.clone(),
                uid: Some(uid.clone()),
                ..PodInfo::default()
            };
            let key = self.begin_partial(at, pod);
            self.link_sandbox(key, &cni.container, false);
        }
    }

    /// A start whose beginning was not seen.
    pub(super) fn begin_partial(&mut self, at: MonotonicNs, pod: PodInfo) -> super::StartKey {
        let key = self.begin(at, pod);
        if let Some(start) = self.starts.get_mut(&key) {
            start.partial = true;
            start.notes.insert("begins_in_the_middle".to_owned());
        }
        key
    }

    fn exit(&mut self, at: MonotonicNs, tgid: Tgid, exit: &Exit) {
        let Some(process) = self.processes.remove(tgid) else { return };
        self.with_run(process.unit, process.run, |run| run.exit = Some((at, exit.clone())));
        if let Some(unit) = process.unit.and_then(|key| self.units.get_mut(key))
            && unit.init() == Some(tgid)
            && unit.exit.is_none()
        {
            unit.exit = Some((at, exit.clone()));
            let start = unit.start;
            self.touch(start);
        }
        if process.role == Role::Runtime {
            self.netns_threads.retain(|(owner, _), _| *owner != tgid);
            for start in self.starts.values_mut().filter(|start| !start.state.is_over()) {
                start.notes.insert("runtime_restarted".to_owned());
            }
        }
    }

    fn syscall(&mut self, record: &Record, syscall: &Syscall) {
        let Record { at, tgid, tid, .. } = *record;
        let process = self.processes.get(tgid);
        let (kind, key) = process.map_or((Kind::Other, None), |p| (p.kind.clone(), p.unit));
        match syscall.sys {
            Sys::Unshare if key.is_none() && syscall.ret == 0 && syscall.args[0] & CLONE_NEWNET != 0 => {
                bound(&mut self.netns_threads, &mut self.losses.evicted);
                self.netns_threads.insert((tgid, tid), (syscall.enter, at));
                return;
            }
            Sys::Mount if syscall.ret == 0 && syscall.args[3] & MS_BIND != 0 => {
                if let Some((from, _)) = self.netns_threads.remove(&(tgid, tid)) {
                    bound(&mut self.netns_paths, &mut self.losses.evicted);
                    self.netns_paths.insert(netns_path(&syscall.strings[1]).to_owned(), (from, at));
                    return;
                }
            }
            Sys::Execve | Sys::Execveat if matches!(kind, Kind::Init | Kind::InitChild) => {
                self.failed_exec(at, tgid, key, syscall);
                return;
            }
            _ => {}
        }
        // A shim serves a whole pod: its mounts name the container.
        let key = match kind {
            Kind::ShimDaemon | Kind::Other => path_container(&syscall.strings[1]).map(|id| self.units.of(&id)).or(key),
            Kind::Aside | Kind::Contained | Kind::Helper | Kind::Cni(_) => None,
            _ => key,
        };
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        unit.sign(tgid, syscall.enter, at, What::Syscall(syscall.clone()));
        if syscall.sys == Sys::PivotRoot && syscall.ret == 0 && matches!(kind, Kind::Init | Kind::InitChild) {
            unit.init_seen.get_or_insert(tgid);
            let (seen, told, start) = (unit.init_seen, unit.init_told, unit.start);
            self.compare_init(seen, told, start);
        }
    }

    pub(super) fn compare_init(&mut self, seen: Option<Tgid>, told: Option<Tgid>, start: Option<super::StartKey>) {
        if let (Some(seen), Some(told)) = (seen, told)
            && seen != told
            && let Some(start) = start.and_then(|key| self.starts.get_mut(&key))
        {
            start.notes.insert(format!("init_pid_disagrees: kernel {seen}, shim {told}"));
        }
    }

    /// An execve of init that failed; runtimes look the path up before, so it is kept as what stopped the container
    /// until another one succeeds.
    fn failed_exec(&mut self, at: MonotonicNs, tgid: Tgid, key: Option<UnitKey>, syscall: &Syscall) {
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        if unit.entered().is_none() && unit.init().is_some_and(|init| init == tgid) {
            unit.entry = Some(Entry {
                at,
                tgid,
                path: syscall.strings[0].clone(),
                errno: syscall.errno(),
                namespaces: None,
                oom_score_adj: None,
            });
        }
    }

    fn cgroup(&mut self, at: MonotonicNs, tgid: Tgid, cgroup: &Cgroup) {
        let ids = cgroup_ids(&cgroup.path);
        if let (Some(uid), None) = (&ids.uid, &ids.container) {
            self.pod_cgroup(at, uid, cgroup.op);
            return;
        }
        let by_process = |task: Tgid| {
            let process = self.processes.get(task)?;
            process.unit.filter(|_| matches!(process.kind, Kind::OciCreate | Kind::Init | Kind::InitChild))
        };
        let key = match (&ids.container, ids.own) {
            (Some(id), true) => Some(self.units.of(id)),
            // Made by the container's own processes.
            (Some(_), false) => None,
            (None, _) => cgroup.task.and_then(by_process).or_else(|| by_process(tgid)),
        };
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        match cgroup.op {
            CgroupOp::Mkdir => unit.sign(tgid, at, at, What::CgroupMkdir(cgroup.id)),
            CgroupOp::Attach => unit.sign(tgid, at, at, What::CgroupAttach),
            CgroupOp::Rmdir => return,
        }
        unit.cgroup(&cgroup.path, cgroup.hierarchy == 0);
        if let (Some(uid), Some(id)) = (&ids.uid, &ids.container) {
            let start = self.link_by_uid(uid, id);
            if let Some(start) = start.and_then(|key| self.starts.get_mut(&key)) {
                start.pod.uid.get_or_insert_with(|| uid.clone());
            }
        }
    }

    fn pod_cgroup(&mut self, at: MonotonicNs, uid: &PodUid, op: CgroupOp) {
        match op {
            CgroupOp::Mkdir if self.start_of_pod(uid).is_none() => {
                bound(&mut self.prepared, &mut self.losses.evicted);
                self.prepared.entry(uid.clone()).or_insert(at);
            }
            CgroupOp::Rmdir => {
                self.prepared.remove(uid);
            }
            CgroupOp::Mkdir | CgroupOp::Attach => {}
        }
    }

    fn cgroup_write(&mut self, at: MonotonicNs, tgid: Tgid, write: &CgroupWrite) {
        let process = self.processes.get(tgid);
        let key = match process.map(|p| (&p.kind, p.unit)) {
            Some((Kind::Aside | Kind::Contained, _)) => None,
            Some((Kind::OciCreate | Kind::Init | Kind::InitChild, Some(unit))) => Some(unit),
            _ => container_id(&write.dir).and_then(|id| self.units.find(&id)),
        };
        if let Some(unit) = key.and_then(|key| self.units.get_mut(key)) {
            unit.limit(write);
            unit.sign(tgid, at, write.exit, What::CgroupWrite(write.clone()));
        }
    }

    fn lost(&mut self, counter: u32, count: u64) {
        use tracer_ebpf::counter as c;
        let losses = &mut self.losses;
        let total = match counter {
            c::SIGNS_LOST | c::BYTES_LOST => &mut losses.records,
            c::UNREADABLE => &mut losses.unreadable,
            c::MAP_FULL => &mut losses.evicted,
            _ => return,
        };
        *total = total.saturating_add(count);
    }

    fn node(&mut self, pairs: &[(String, String)]) {
        for (key, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
            let node = &mut self.node;
            let place = match key.as_str() {
                "name" => &mut node.name,
                "boot_id" => &mut node.boot_id,
                "kernel" => &mut node.kernel,
                "runtime" => &mut node.runtime,
                "runtime_version" => &mut node.runtime_version,
                "socket" => &mut node.socket,
                other => {
                    if let Some(hook) = other.strip_prefix("probe.") {
                        node.probes.insert(hook.to_owned(), value.clone());
                    }
                    continue;
                }
            };
            *place = Some(value.clone());
        }
    }

    fn found(&mut self, tgid: Tgid, found: &Process) {
        self.processes.remove(tgid);
        let (kind, id): (Kind, Option<ContainerId>) = match (found.role, classify(&found.argv)) {
            (Role::Runtime | Role::Myself, _) => (Kind::Other, None),
            (_, Program::Shim { action: ShimAction::Daemon, id }) => (Kind::ShimDaemon, Some(id)),
            (_, Program::Oci { action: OciAction::Create, id }) => (Kind::OciCreate, Some(id)),
            (_, Program::Oci { action: OciAction::Start, id }) => (Kind::OciStart, Some(id)),
            (_, Program::Init) => (Kind::Init, cgroup_ids(&found.cgroup).container),
            _ => match cgroup_ids(&found.cgroup).container {
                Some(id) => (Kind::Contained, Some(id)),
                None => (Kind::Other, None),
            },
        };
        let unit = id.map(|id| self.units.of(&id));
        if kind == Kind::ShimDaemon
            && let Some(unit) = unit.and_then(|key| self.units.get_mut(key))
        {
            unit.shim = Some(tgid);
        }
        let process = self.processes.adopt(tgid, found.parent);
        (process.role, process.kind, process.unit) = (found.role, kind, unit);
    }
}

/// `/var/run` is a link to `/run`, and containerd's thread and CNI need not spell it alike.
fn netns_path(path: &str) -> &str {
    path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path)
}

/// Makes room for one more.
fn bound<K: Ord, V>(table: &mut std::collections::BTreeMap<K, V>, evicted: &mut u64) {
    if table.len() >= MAX_SMALL {
        table.pop_first();
        *evicted += 1;
    }
}

//! Records to units: each sign finds its container by an id in argv, environment or path, else by its process.

mod effects;
mod listen;
mod node;

use super::argv::{OciAction, Program, ShimAction, program};
use super::unit::{ExecSeen, Kind, Run, UnitKey};
use super::{IN_THE_MIDDLE, Lifecycle, bound};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Event, Exec, Exit, NewTask, Record, Role, SocketOp};
use crate::trace::PodInfo;
use tracer_ebpf::mark;

impl Lifecycle {
    pub(super) fn sign(&mut self, record: &Record) {
        let Record { at, tgid, .. } = *record;
        // Pid 0 stands for every process that podlapse's pid namespace does not show.
        let hidden = match &record.event {
            Event::NewTask(task) => task.child == Tgid(0),
            Event::Exec(_) | Event::Exit(_) | Event::Syscall(_) | Event::Process(_) | Event::Waiting(_) => {
                tgid == Tgid(0)
            }
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
            Event::Cgroup(cgroup) => self.cgroup(record, cgroup),
            Event::CgroupWrite(write) => self.cgroup_write(record, write),
            Event::Oom { victim, rss_kib } => self.oom(at, *victim, *rss_kib),
            Event::Signal { target, signal, code, result, comm } => {
                self.signal(record, *target, (*signal, *code, *result), comm);
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
            Event::Listen(listen) => self.listen(at, tgid, *listen),
            Event::Connect(connect) => self.connect(at, tgid, *connect),
            Event::Clock { realtime } => self.clock = Some((at, *realtime)),
            Event::Lost { counter, count } => self.lost(*counter, *count),
            Event::Node(pairs) => self.node(pairs),
            Event::Process(process) => self.found(at, tgid, process),
            Event::Listed(listed) => self.listed(at, listed),
            Event::Waiting(waiting) => self.looked(record, waiting),
            Event::Mark(mark::ATTACHED) => self.attached(at),
            Event::Bytes(_) | Event::Tick | Event::Mark(_) | Event::Unknown(_) => {}
        }
    }

    /// The programs follow all that there is from now on.
    fn attached(&mut self, at: MonotonicNs) {
        self.attached_at = Some(at);
        for (key, start) in self.starts.iter_mut().filter(|(_, start)| !start.state.is_over()) {
            start.early = true;
            self.touched.insert(*key);
        }
    }

    fn new_task(&mut self, at: MonotonicNs, task: &NewTask) {
        if let Some(old) = self.processes.fork(at, task) {
            self.with_run(old.unit, old.run, |run| run.gone = Some(at));
        }
        // Stages of an init do not always exec: they are remembered from their creation.
        // Nor does the monitor that conmon forks.
        let Some(process) = self.processes.get(task.child) else { return };
        let (unit, monitor) = (process.unit, process.kind == Kind::ShimDaemon);
        if monitor || matches!(process.kind, Kind::Init | Kind::InitChild) {
            self.remember(task.child, None);
        }
        if let Some(unit) = unit.filter(|_| monitor).and_then(|key| self.units.get_mut(key)) {
            unit.shim = Some(task.child);
        }
    }

    pub(super) fn exec(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec) {
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
            Program::Conmon { id } => (Kind::Conmon, Some(self.units.of(&id))),
            Program::Pinns { netns } => {
                self.pinned(at, tgid, exec, netns);
                (Kind::Pinns, None)
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
        process.name = unit.is_none().then(|| exec.comm.as_str().into());
        let starts = matches!(kind, Kind::ShimStarter | Kind::Conmon | Kind::OciCreate | Kind::OciStart);
        (process.kind, process.unit) = (kind, unit);
        self.remember(tgid, Some((at, exec)));
        self.goes_on(at, unit.filter(|_| starts));
    }

    /// The entrypoint is the first exec in the container by its init; hooks in the container are children of init.
    /// Nobody enters while `create` still runs: for an idmapped mount runc starts itself in a user namespace of its own
    /// (runc's internal/userns, usernsproc).
    fn exec_in_container(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec, kind: &Kind, key: Option<UnitKey>) {
        if let Some(process) = self.processes.get_mut(tgid) {
            process.inside = true;
        }
        if !matches!(kind, Kind::Init | Kind::InitChild) {
            return;
        }
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        let helper = unit.init().is_none() && *kind == Kind::Init && unit.is_creating();
        let is_init = match unit.init_seen {
            Some(init) => init == tgid,
            None => !helper && (unit.init_told == Some(tgid) || *kind == Kind::Init),
        };
        let entered = is_init && unit.entered().is_none();
        if entered {
            unit.enter(at, tgid, exec);
            unit.init_seen = unit.init_seen.or(Some(tgid));
        }
        let start = unit.start;
        self.goes_on(at, key.filter(|_| entered));
        key.into_iter().for_each(|key| self.cross_check(key));
        let kind = match (is_init, helper) {
            (true, _) => Kind::Contained,
            (false, true) => Kind::Helper,
            (false, false) => Kind::Hook,
        };
        if let Some(process) = self.processes.get_mut(tgid) {
            process.kind = kind;
        }
        self.remember(tgid, Some((at, exec)));
        self.touch(start);
    }

    /// Makes or extends the run of a process that its unit should remember.
    pub(super) fn remember(&mut self, tgid: Tgid, exec: Option<(MonotonicNs, &Exec)>) {
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
            run.execs.push(ExecSeen::of(at, exec));
        }
    }

    fn with_run(&mut self, unit: Option<UnitKey>, run: Option<usize>, change: impl FnOnce(&mut Run)) {
        let unit = unit.and_then(|key| self.units.get_mut(key));
        if let Some(run) = unit.zip(run).and_then(|(unit, index)| unit.runs.get_mut(index)) {
            change(run);
        }
    }

    /// Namespaces are made for a pod; a plugin says for which.
    fn pinned(&mut self, at: MonotonicNs, tgid: Tgid, exec: &Exec, netns: Option<String>) {
        let (Some(path), Some(process)) = (netns, self.processes.get(tgid)) else { return };
        bound(&mut self.pinned, &mut self.losses.evicted);
        let run = Run {
            tgid,
            parent: process.parent,
            kind: Kind::Pinns,
            created: process.created,
            execs: vec![ExecSeen::of(at, exec)],
            exit: None,
            gone: None,
        };
        self.pinned.insert(netns_path(&path).to_owned(), run);
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
            if let Some(pinns) = self.pinned.remove(path) {
                unit.run(pinns);
            }
        }
        let Some(uid) = &cni.uid else { return };
        let linked = self.link_by_uid(uid, &cni.container);
        if let Some(start) = linked.and_then(|key| self.starts.get_mut(&key)) {
            start.pod.namespace = start.pod.namespace.take().or_else(|| cni.namespace.clone());
            start.pod.name = start.pod.name.take().or_else(|| cni.name.clone());
        } else if linked.is_none() && cni.command == "ADD" && self.start_of_pod(uid).is_none() {
            // A sandbox is being made, and its RunPodSandbox came before podlapse, was lost, or cannot be read.
            let pod = PodInfo {
                namespace: cni.namespace.clone(),
                name: cni.name.clone(),
                uid: Some(uid.clone()),
                ..PodInfo::default()
            };
            self.begin_by_signs(at, pod, &cni.container);
        }
    }

    /// A start whose beginning was not seen.
    pub(super) fn begin_partial(&mut self, at: MonotonicNs, pod: PodInfo) -> super::StartKey {
        let key = self.begin(at, pod);
        if let Some(start) = self.starts.get_mut(&key) {
            start.partial = true;
            start.notes.insert(IN_THE_MIDDLE.to_owned());
        }
        key
    }

    fn exit(&mut self, at: MonotonicNs, tgid: Tgid, exit: &Exit) {
        let Some(process) = self.processes.remove(tgid) else { return };
        self.with_run(process.unit, process.run, |run| run.exit = Some((at, exit.clone())));
        if process.kind == Kind::Pinns
            && let Some(run) = self.pinned.values_mut().find(|run| run.tgid == tgid)
        {
            run.exit = Some((at, exit.clone()));
        }
        if let Some(unit) = process.unit.and_then(|key| self.units.get_mut(key))
            && unit.init() == Some(tgid)
            && unit.exit.is_none()
        {
            unit.exit = Some((at, exit.clone()));
            let start = unit.start;
            self.touch(start);
            process.unit.into_iter().for_each(|key| self.life.ended(key));
            process.unit.into_iter().for_each(|key| self.cross_check(key));
        }
        self.helper_ended(at, tgid, &process, exit);
        if process.role == Role::Runtime {
            self.netns_threads.retain(|(owner, _), _| *owner != tgid);
            for start in self.starts.values_mut().filter(|start| !start.state.is_over()) {
                start.notes.insert("runtime_restarted".to_owned());
            }
        }
    }
}

/// `/var/run` is a link to `/run`, and containerd's thread and CNI need not spell it alike.
fn netns_path(path: &str) -> &str {
    path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path)
}

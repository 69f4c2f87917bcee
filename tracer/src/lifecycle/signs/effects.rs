//! What tracked processes do to namespaces, mounts and cgroups.

use super::super::Lifecycle;
use super::super::bound;
use super::super::cgroup::{cgroup_ids, container_id, path_container};
use super::super::unit::{Entry, Kind, Sign, UnitKey, What};
use super::netns_path;
use crate::ids::{CgroupId, MonotonicNs, PodUid, Tgid};
use crate::record::{Cgroup, CgroupOp, CgroupWrite, Record, Role, Sys, Syscall};

/// `MS_BIND` of mount(2).
const MS_BIND: u64 = 0x1000;
/// `CLONE_NEWNET` of unshare(2).
const CLONE_NEWNET: u64 = 0x4000_0000;

impl Lifecycle {
    pub(super) fn syscall(&mut self, record: &Record, syscall: &Syscall) {
        let Record { at, tgid, tid, .. } = *record;
        let process = self.processes.get(tgid);
        let (kind, key) = process.map_or((Kind::Other, None), |p| (p.kind.clone(), p.unit));
        let is_runtime = process.is_some_and(|process| process.role == Role::Runtime);
        match syscall.sys {
            Sys::Unshare if key.is_none() && syscall.ret == 0 && syscall.args[0] & CLONE_NEWNET != 0 => {
                bound(&mut self.netns_threads, &mut self.losses.evicted);
                self.netns_threads.insert((tgid, tid), (syscall.enter, at));
                return;
            }
            // pinns pins other namespaces before the network's.
            Sys::Mount
                if syscall.ret == 0 && syscall.args[3] & MS_BIND != 0 && syscall.strings[0].ends_with("/ns/net") =>
            {
                let thread = self.netns_threads.remove(&(tgid, tid)).map(|(from, _)| from);
                if let Some(from) = thread.or_else(|| self.netns_child(tgid, &syscall.strings[0])) {
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
        if matches!(syscall.sys, Sys::Mount | Sys::MoveMount) && key.is_none() && self.volume_mounted(at, syscall) {
            return;
        }
        if is_runtime {
            self.chores.syscall(tid, at, syscall);
        }
        // A shim serves a whole pod: its mounts name the container.
        let key = match kind {
            Kind::ShimDaemon | Kind::Other => path_container(&syscall.strings[1]).map(|id| self.units.of(&id)).or(key),
            // A plugin's visits to the pod's network namespace; its mounts tell nothing.
            Kind::Cni(_) if syscall.sys == Sys::Setns => key,
            Kind::Aside | Kind::Contained | Kind::Helper | Kind::Cni(_) => None,
            _ => key,
        };
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        unit.sign(Sign { tgid, tid, enter: syscall.enter, exit: at, what: What::Syscall(syscall.clone()) });
        if syscall.sys == Sys::PivotRoot && syscall.ret == 0 && matches!(kind, Kind::Init | Kind::InitChild) {
            unit.init_seen.get_or_insert(tgid);
            key.into_iter().for_each(|key| self.cross_check(key));
        }
    }

    /// With a user namespace the runtime clones a child into new namespaces and pins the child's (containerd
    /// `pkg/sys/unshare_linux.go`).
    fn netns_child(&self, runtime: Tgid, source: &str) -> Option<MonotonicNs> {
        let pid = source.strip_prefix("/proc/")?.strip_suffix("/ns/net")?.parse().ok()?;
        let child = self.processes.get(Tgid(pid)).filter(|child| child.parent == runtime)?;
        child.created.filter(|created| created.clone_flags & CLONE_NEWNET != 0).map(|created| created.at)
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
                comm: String::new(),
                errno: syscall.errno(),
                namespaces: None,
                cgroup: CgroupId(0),
                oom_score_adj: None,
            });
        }
    }

    pub(super) fn cgroup(&mut self, record: &Record, cgroup: &Cgroup) {
        let Record { at, tgid, tid, .. } = *record;
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
            // crun makes one below the scope and moves init there; what the container itself makes is its business.
            (Some(id), false) => by_process(tgid).filter(|key| self.units.find(id) == Some(*key)),
            (None, _) => cgroup.task.and_then(by_process).or_else(|| by_process(tgid)),
        };
        let Some(unit) = key.and_then(|key| self.units.get_mut(key)) else { return };
        let what = match cgroup.op {
            CgroupOp::Mkdir => What::CgroupMkdir(cgroup.id),
            CgroupOp::Attach => What::CgroupAttach,
            CgroupOp::Rmdir => return,
        };
        unit.sign(Sign { tgid, tid, enter: at, exit: at, what });
        unit.cgroup(&cgroup.path, ids.own, cgroup.hierarchy == 0);
        if let (Some(uid), Some(id)) = (&ids.uid, &ids.container) {
            // A sandbox or container of the pod exists: its RunPodSandbox has come, seen or not.
            if let Some((_, used)) = self.prepared.get_mut(uid) {
                used.get_or_insert(at);
            }
            let start = self.link_by_uid(uid, id).or_else(|| self.link_created(uid, id));
            let start = start.or_else(|| self.link_unread(at, uid, id));
            if let Some(start) = start.and_then(|key| self.starts.get_mut(&key)) {
                start.pod.uid.get_or_insert_with(|| uid.clone());
            }
        }
    }

    fn pod_cgroup(&mut self, at: MonotonicNs, uid: &PodUid, op: CgroupOp) {
        match op {
            CgroupOp::Mkdir if self.start_of_pod(uid).is_none() => {
                bound(&mut self.prepared, &mut self.losses.evicted);
                self.prepared.entry(uid.clone()).or_insert((at, None));
            }
            CgroupOp::Rmdir => {
                self.volumes.remove(uid);
                self.prepared.remove(uid);
            }
            CgroupOp::Mkdir | CgroupOp::Attach => {}
        }
    }

    pub(super) fn cgroup_write(&mut self, record: &Record, write: &CgroupWrite) {
        let Record { at, tgid, tid, .. } = *record;
        let process = self.processes.get(tgid);
        let key = match process.map(|p| (&p.kind, p.unit)) {
            Some((Kind::Aside | Kind::Contained, _)) => None,
            Some((Kind::OciCreate | Kind::Init | Kind::InitChild, Some(unit))) => Some(unit),
            _ => container_id(&write.dir).and_then(|id| self.units.find(&id)),
        };
        let run = process.filter(|process| process.unit == key).and_then(|process| process.run);
        if let Some(unit) = key.and_then(|key| self.units.get_mut(key)) {
            // cpuset files are written up to the root of the hierarchy; only the container's own are its limits, and
            // those of the cgroup that crun makes below a scope.
            let below = write.dir == "container";
            let own = write.dir.is_empty() || below || container_id(&write.dir).as_ref() == Some(&unit.id);
            let run = run.and_then(|run| unit.runs.get(run)).and_then(|run| run.execs.last());
            let comm = run.map(|exec| exec.comm.clone());
            if own && !unit.writes.add(at, tgid, comm, write) {
                unit.overflow += 1;
            }
            unit.sign(Sign { tgid, tid, enter: at, exit: write.exit, what: What::CgroupWrite(write.clone()) });
        }
    }
}

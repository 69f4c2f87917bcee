//! What user space says: the node, losses, processes found at attach.

use super::super::Lifecycle;
use super::super::argv::{OciAction, Program, ShimAction, basename, classify, is_installed, program};
use super::super::cgroup::{PathIds, cgroup_ids};
use super::super::unit::{Created, Kind, UnitKey};
use crate::ids::{CgroupId, ContainerId, MonotonicNs, Tgid};
use crate::record::{Exec, Helper, Process, Role};

impl Lifecycle {
    pub(super) fn lost(&mut self, counter: u32, count: u64) {
        use tracer_ebpf::counter as c;
        let losses = &mut self.losses;
        let total = match counter {
            c::SIGNS_LOST | c::BYTES_LOST => &mut losses.records,
            c::UNREADABLE => &mut losses.unreadable,
            c::MAP_FULL => &mut losses.evicted,
            _ => return,
        };
        *total = total.saturating_add(count);
        if counter != c::UNREADABLE {
            self.lost_at = Some(self.now);
        }
        // What is waited for may never come.
        let open = self.starts.iter().filter(|(_, start)| !start.state.is_over());
        self.touched.extend(open.map(|(key, _)| *key));
    }

    pub(super) fn node(&mut self, pairs: &[(String, String)]) {
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
                    if let Some(hook) = other.strip_prefix("probes.") {
                        node.probes.insert(hook.to_owned(), value.clone());
                    }
                    continue;
                }
            };
            *place = Some(value.clone());
        }
    }

    pub(super) fn found(&mut self, at: MonotonicNs, tgid: Tgid, found: &Process) {
        self.processes.remove(tgid);
        if let Some(helper) = &found.helper
            && self.helper_found(at, tgid, found, helper)
        {
            return;
        }
        let (kind, id): (Kind, Option<ContainerId>) = match (found.role, classify(&found.argv)) {
            (Role::Runtime | Role::Myself, _) => (Kind::Other, None),
            (_, Program::Shim { action: ShimAction::Daemon, id }) => (Kind::ShimDaemon, Some(id)),
            // What is found of conmon is the monitor.
            (_, Program::Conmon { id }) => (Kind::ShimDaemon, Some(id)),
            (_, Program::Oci { action: OciAction::Create, id }) => (Kind::OciCreate, Some(id)),
            (_, Program::Oci { action: OciAction::Start, id }) => (Kind::OciStart, Some(id)),
            (_, Program::Init) => (Kind::Init, cgroup_ids(&found.cgroup).container),
            _ => match cgroup_ids(&found.cgroup) {
                // Below a container that is itself a node, such as kind's, only what is in a pod is contained.
                PathIds { uid, container: Some(id), own } if own || uid.is_some() => (Kind::Contained, Some(id)),
                _ => (Kind::Other, None),
            },
        };
        let unit = id.map(|id| self.units.of(&id));
        if kind == Kind::ShimDaemon
            && let Some(unit) = unit.and_then(|key| self.units.get_mut(key))
        {
            unit.shim = Some(tgid);
        }
        let shims = self.processes.get(found.parent).is_some_and(|parent| parent.kind == Kind::ShimDaemon);
        if kind == Kind::Contained
            && let Some(unit) = unit.filter(|_| shims).and_then(|key| self.units.get_mut(key))
        {
            unit.ran_before = true;
        }
        let process = self.processes.adopt(tgid, found.parent);
        process.name = unit.is_none().then(|| basename(&found.exe).into());
        (process.role, process.kind, process.unit) = (found.role, kind, unit);
    }

    /// What works for the runtime already is taken as if its clone and its exec had been seen; false: it is told apart
    /// by more than those. Of what began before podlapse came, the calls did, too.
    fn helper_found(&mut self, at: MonotonicNs, tgid: Tgid, found: &Process, helper: &Helper) -> bool {
        let mut exec = Exec {
            parent: found.parent,
            cgroup: CgroupId(0),
            namespaces: found.namespaces,
            container: false,
            incomplete: false,
            comm: basename(&found.exe).to_owned(),
            oom_score_adj: 0,
            filename: found.exe.clone(),
            argv: found.argv.clone(),
            cni: helper.cni.clone(),
        };
        // A plugin is called by its path, which need not be the executable's own; a script's is the last word.
        let installed = |word: &&String| exec.variable("CNI_PATH").is_some_and(|path| is_installed(word, path));
        let script = found.argv.last().filter(|_| found.argv.len() <= 3).filter(installed);
        let first = found.argv.first().filter(|word| word.starts_with('/'));
        if let Some(word) = script.or(first) {
            exec.filename = word.clone();
        }
        let at = helper.started.min(at);
        let created = Some(Created { at, clone_flags: 0, cgroup: CgroupId(0) });
        match program(&exec) {
            Program::Shim { action: ShimAction::Daemon, .. } | Program::Conmon { .. } => return false,
            Program::Init => {
                let container = cgroup_ids(&found.cgroup).container.map(|id| self.units.of(&id));
                let process = self.processes.adopt(tgid, found.parent);
                let Some(unit) = container.or(process.unit) else { return false };
                (process.kind, process.unit, process.created) = (Kind::Init, Some(unit), created);
                self.remember(tgid, None);
                self.made_at_attach(at, unit);
                // Its stages are the OCI runtime's children; init is the shim's, once the runtime has ended.
                let left = self.processes.get(found.parent).is_some_and(|parent| parent.kind == Kind::ShimDaemon);
                let Some(unit) = self.units.get_mut(unit) else { return true };
                if container.is_some() {
                    unit.cgroup(&found.cgroup, true, true);
                }
                unit.init_seen = unit.init_seen.or(left.then_some(tgid));
            }
            program => {
                self.processes.adopt(tgid, found.parent).created = created;
                self.exec(at, tgid, &exec);
                match program {
                    Program::Cni(cni) if cni.command == "ADD" => self.sandbox_asked_before(&cni.container),
                    Program::Oci { action: OciAction::Create | OciAction::Start, id } => {
                        let unit = self.units.of(&id);
                        self.made_at_attach(at, unit);
                    }
                    _ => {}
                }
            }
        }
        true
    }

    fn made_at_attach(&mut self, at: MonotonicNs, unit: UnitKey) {
        if let Some(unit) = self.units.get_mut(unit) {
            unit.found = Some(unit.found.map_or(at, |found| found.min(at)));
        }
    }
}

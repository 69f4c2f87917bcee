//! What existed when podlapse came, or when the runtime came back: whose containers and sandboxes they are.
//!
//! Nothing that ran before becomes a start. A container that was made and not started, or that is seen to be started
//! before it is listed, is of a start that was under way: what is left of it is a partial trace.

use super::cgroup::cgroup_ids;
use super::start::Container;
use super::unit::{Kind, Unit, UnitKey};
use super::{Lifecycle, StartKey};
use crate::ids::{ContainerId, MonotonicNs, PodUid, Tgid};
use crate::record::{ContainerState, ListSource, Listed, ListedContainer, ListedSandbox, Listing};
use crate::trace::PodInfo;

/// A container as the list has it.
#[derive(Clone, Debug)]
pub(super) struct Existing {
    pub(super) container: Container,
    /// Its sandbox.
    pub(super) sandbox: ContainerId,
    state: Option<ContainerState>,
}

impl Existing {
    /// It ran when it was listed.
    pub(super) fn ran(&self) -> bool {
        self.state == Some(ContainerState::Running)
    }
}

impl Lifecycle {
    pub(super) fn listed(&mut self, at: MonotonicNs, listed: &Listed) {
        match &listed.what {
            Listing::Sandbox(sandbox) => self.listed_sandbox(at, sandbox),
            Listing::Container(container) => self.listed_container(at, container),
            Listing::End { trouble } => {
                self.list_is_whole = trouble.is_none() && listed.source == ListSource::Cri;
                if self.list_is_whole {
                    self.sandboxes_under_way();
                }
                let holds = self.units.iter().filter(|(_, unit)| unit.life.holds()).map(|(key, _)| key);
                self.life.all_named(holds);
            }
        }
    }

    fn listed_sandbox(&mut self, at: MonotonicNs, it: &ListedSandbox) {
        let id = ContainerId(it.id.0.clone());
        let pod = PodInfo {
            namespace: known(&it.namespace),
            name: known(&it.name),
            uid: known(&it.uid.0).map(PodUid),
            attempt: it.attempt,
            runtime_handler: known(&it.handler),
            qos: None,
            ip: known(&it.ip),
        };
        let key = self.listed_unit(&id, it.pid, &it.cgroup);
        let Some(unit) = self.units.get_mut(key) else { return };
        unit.pod = Some(pod.clone());
        if it.ready == Some(true) {
            unit.found = None;
        }
        let Some(start) = unit.start else { return };
        if let Some(of) = self.starts.get_mut(&start).filter(|of| of.pod.name.is_none() || of.pod.attempt.is_none()) {
            of.pod = filled(&of.pod, &pod);
            self.pod_known(start, at);
            self.touched.insert(start);
        }
    }

    fn listed_container(&mut self, at: MonotonicNs, it: &ListedContainer) {
        let container = Container {
            id: Some(it.id.clone()),
            name: known(&it.name),
            attempt: it.attempt,
            image: known(&it.image),
            created: at,
            replaced: false,
        };
        let sandbox = ContainerId(it.sandbox.0.clone());
        let key = self.listed_unit(&it.id, it.pid, &it.cgroup);
        let Some(unit) = self.units.get_mut(key) else { return };
        unit.existing = Some(Box::new(Existing { container, sandbox, state: it.state }));
        // A program of the container's own may be called like the runtime's init.
        unit.found = unit.found.filter(|_| it.state == Some(ContainerState::Created));
        let first = first_of_start(unit).or(unit.found);
        match (unit.start, first) {
            (None, Some(first)) => self.begin_under_way(first, key),
            (Some(start), _) => self.name_container(at, start, key),
            (None, None) => {}
        }
    }

    fn listed_unit(&mut self, id: &ContainerId, pid: Option<Tgid>, cgroup: &str) -> UnitKey {
        let key = self.units.of(id);
        let Some(unit) = self.units.get_mut(key) else { return key };
        if !cgroup.is_empty() {
            unit.cgroup(cgroup, true, true);
        }
        let Some(pid) = pid.filter(|_| unit.exit.is_none()) else { return key };
        unit.init_told.get_or_insert(pid);
        // Its exit is to be its container's.
        let process = self.processes.adopt(pid, Tgid(0));
        if process.unit.is_none() {
            (process.kind, process.unit) = (Kind::Contained, Some(key));
        }
        key
    }

    /// A helper of the runtime or the entrypoint shows that a container is being started that was only made before.
    pub(super) fn goes_on(&mut self, at: MonotonicNs, key: Option<UnitKey>) {
        let Some(unit) = key.and_then(|key| self.units.get(key)) else { return };
        let at = first_of_start(unit).unwrap_or(at);
        let made = unit.existing.as_ref().is_some_and(|it| it.state == Some(ContainerState::Created));
        if let Some(key) = key.filter(|_| made && unit.start.is_none()) {
            self.begin_under_way(at, key);
        }
    }

    fn begin_under_way(&mut self, at: MonotonicNs, key: UnitKey) {
        let Some(Existing { container, sandbox, .. }) = self.existing(key).cloned() else { return };
        let of = self.start_of_unit(&sandbox);
        let open = of.filter(|key| self.starts.get(key).is_some_and(|start| !start.state.is_over()));
        let start = open.unwrap_or_else(|| {
            let start = self.begin_partial(at, self.listed_pod(&sandbox).unwrap_or_default());
            self.link_sandbox(start, &sandbox, true);
            start
        });
        let Some(id) = container.id.clone() else { return };
        if let Some(start) = self.starts.get_mut(&start) {
            start.containers.push(Container { created: at, ..container });
        }
        self.link_unit(start, &id);
        // CRI-O's init waits for a StartContainer that is still to come.
        let found = self.units.get(key).and_then(|unit| unit.found);
        if let Some(found) = found.filter(|_| self.node.runtime.as_deref() != Some("cri-o")) {
            self.container_asked_before(found, start);
        }
    }

    /// The OCI runtime works for a shim's own sandbox, which is not ready: it is being made since before podlapse came.
    fn sandboxes_under_way(&mut self) {
        let pod = |unit: &Unit| unit.cgroup.as_deref().and_then(|path| cgroup_ids(path).uid);
        let made = self.units.iter().filter(|(_, unit)| {
            unit.found.is_some() && unit.shim.is_some() && unit.start.is_none() && unit.existing.is_none()
        });
        let made = made.filter_map(|(_, unit)| Some((unit.id.clone(), unit.found?, pod(unit)?)));
        for (id, at, uid) in made.collect::<Vec<_>>() {
            if self.start_of_pod(&uid).is_some() {
                continue;
            }
            let listed = self.listed_pod(&id).unwrap_or_default();
            let key = self.begin_partial(at, filled(&PodInfo { uid: Some(uid), ..PodInfo::default() }, &listed));
            self.link_sandbox(key, &id, false);
            self.sandbox_asked_before(&id);
        }
    }

    /// A start knows a container by its id alone.
    fn name_container(&mut self, at: MonotonicNs, key: StartKey, unit: UnitKey) {
        let Some(Existing { container, sandbox, .. }) = self.existing(unit).cloned() else { return };
        let pod = self.listed_pod(&sandbox);
        let Some(start) = self.starts.get_mut(&key) else { return };
        let Some(known) = start.containers.iter_mut().find(|c| c.id == container.id && c.name.is_none()) else {
            return;
        };
        *known = Container { created: known.created, replaced: known.replaced, ..container };
        start.pod = pod.map_or_else(|| start.pod.clone(), |pod| filled(&start.pod, &pod));
        if start.sandbox.is_none() && self.start_of_unit(&sandbox).is_none() {
            self.link_sandbox(key, &sandbox, true);
        }
        self.reconsider(key, at);
        self.touched.insert(key);
    }

    fn existing(&self, key: UnitKey) -> Option<&Existing> {
        self.units.get(key)?.existing.as_deref()
    }

    /// A container's name and place, as the list has them.
    pub(super) fn existing_container(&self, id: &ContainerId) -> Option<&Existing> {
        self.existing(self.units.find(id)?)
    }

    /// The pod of a sandbox, as the list has it.
    pub(super) fn listed_pod(&self, sandbox: &ContainerId) -> Option<PodInfo> {
        self.units.get(self.units.find(sandbox)?)?.pod.clone()
    }

    /// The containers of a sandbox, as the list has them: those that live now.
    pub(super) fn listed_peers(&self, sandbox: &ContainerId) -> Vec<Container> {
        let lives = |unit: &Unit, it: &Existing| match it.state {
            Some(ContainerState::Running) => unit.exit.is_none(),
            Some(ContainerState::Created) => unit.entered().is_some() && unit.exit.is_none(),
            Some(ContainerState::Exited) | None => false,
        };
        let here = self.units.iter().filter_map(|(_, unit)| Some((unit, unit.existing.as_deref()?)));
        let living = here.filter(|(unit, it)| it.sandbox == *sandbox && lives(unit, it));
        living.map(|(_, it)| it.container.clone()).collect()
    }

    /// Whether a list that is whole has a sandbox, but no container of that name in it: whatever its attempt, it is the
    /// first one there.
    pub(super) fn listed_without(&self, sandbox: &ContainerId, name: Option<&str>) -> bool {
        let mut here = self.units.iter().filter_map(|(_, unit)| unit.existing.as_deref());
        self.list_is_whole
            && self.listed_pod(sandbox).is_some()
            && !here.any(|it| it.sandbox == *sandbox && it.container.name.as_deref() == name)
    }

    /// A sandbox is removed, and its containers with it.
    pub(super) fn unlist(&mut self, sandbox: &ContainerId) {
        let of = |unit: &Unit| {
            unit.id == *sandbox || unit.existing.as_ref().is_some_and(|existing| existing.sandbox == *sandbox)
        };
        let gone = self.units.iter().filter(|(_, unit)| unit.start.is_none() && of(unit)).map(|(key, _)| key);
        gone.collect::<Vec<_>>().into_iter().for_each(|key| self.units.remove(key));
    }
}

/// What a list left empty is not known.
fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// When the runtime was first seen to make or start it.
pub(super) fn first_of_start(unit: &Unit) -> Option<MonotonicNs> {
    let makes = |kind: &Kind| match kind {
        Kind::Cni(cni) => cni.command == "ADD",
        Kind::ShimStarter | Kind::Conmon | Kind::OciCreate | Kind::OciStart => true,
        _ => false,
    };
    let runs = unit.runs.iter().filter(|run| makes(&run.kind)).filter_map(|run| run.begin());
    let tasks = [unit.task_create, unit.task_start].into_iter().flatten().map(|call| call.start);
    runs.chain(tasks).min()
}

/// What is known, and what the list has besides.
pub(super) fn filled(known: &PodInfo, listed: &PodInfo) -> PodInfo {
    let PodInfo { namespace, name, uid, attempt, runtime_handler, qos, ip } = known.clone();
    PodInfo {
        namespace: namespace.or_else(|| listed.namespace.clone()),
        name: name.or_else(|| listed.name.clone()),
        uid: uid.or_else(|| listed.uid.clone()),
        attempt: attempt.or(listed.attempt),
        runtime_handler: runtime_handler.or_else(|| listed.runtime_handler.clone()),
        qos,
        ip: ip.or_else(|| listed.ip.clone()),
    }
}

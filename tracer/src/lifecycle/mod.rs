//! From calls and signs to starts: which process, sign and call belongs to which pod, and when a start is over.
//!
//! Two steps, so that several pods can start at once: a sign goes to the unit (`unit.rs`) of its container id, at once
//! and for good; a unit is linked to a start (`start.rs`) as soon as a call, `CNI_ARGS` or a cgroup path names both.
//! Spans are made from a start and its units only when a trace is asked for (`build.rs`, `edges/`).
//!
//! Pure: no I/O, no clock, no failure. All tables are bounded; nothing depends on a hash map's order.

#![forbid(unsafe_code)]

mod argv;
mod attempts;
mod build;
mod calls;
pub(crate) mod cgroup;
mod chores;
mod connects;
mod edges;
mod images;
mod life;
mod limits;
mod listed;
mod nameless;
mod node;
mod process;
mod queue;
mod signs;
mod start;
mod state;
mod stuck;
#[cfg(test)]
mod tests;
mod unit;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::calls::{Pending, Pull};
use self::chores::Chores;
use self::connects::Early;
use self::images::Images;
use self::nameless::Nameless;
pub use self::node::Answered;
use self::node::Health;
use self::process::Processes;
use self::queue::Pulls;
use self::start::{Call, Method, Start};
use self::state::{State, Step};
use self::unit::{Run, Units};
use self::volumes::Volume;
use crate::cri::{CallKey, Slot};
use crate::engine::{Config, Update};
use crate::ids::{ConnId, ContainerId, MonotonicNs, PodUid, Tgid, Tid};
use crate::record::{Event, Record, Role};
use crate::trace::{NodeInfo, NodeVerdict, PodInfo, Trace};

/// Live processes.
const MAX_PROCESSES: usize = 32_768;
/// Containers that are remembered, those of finished starts included.
const MAX_UNITS: usize = 4096;
/// Starts that are remembered: a finished one may be reopened until its sandbox is removed.
const MAX_STARTS: usize = 1024;
/// Calls under way.
const MAX_CALLS: usize = 4096;
/// Entries of each of the small tables: network namespaces, pod cgroups, pulls of no known pod.
const MAX_SMALL: usize = 1024;
/// A start is final when so much time went by since it was over, and since the end of each of its containers. kubelet
/// makes the container that follows an init container within seconds of that one's end (it lists each second), and a
/// list names calls that had no name; later than that is possible for either, but rare.
const FINAL_NS: u64 = 10_000_000_000;
/// The note of a start whose beginning was not seen.
const IN_THE_MIDDLE: &str = "begins_in_the_middle";

/// A start's place in the table; ascending with its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StartKey(u64);

/// What was missed since the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    records: u64,
    undecoded: u64,
    unreadable: u64,
    evicted: u64,
    /// Calls of clients that will never be named.
    nameless: u64,
}

/// How the engine stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Starts that are not over.
    pub open_starts: usize,
    /// How old the oldest of them is.
    pub oldest_ns: Option<u64>,
    /// Records that were lost since the beginning.
    pub lost_records: u64,
    /// Bytes of the runtime's sockets that could not be decoded.
    pub undecoded_bytes: u64,
    /// Entries of tables that had to make room.
    pub evicted: u64,
}

/// The lifecycle tables.
#[derive(Debug)]
pub struct Lifecycle {
    config: Config,
    now: MonotonicNs,
    node: NodeInfo,
    /// The last pair of clocks.
    clock: Option<(MonotonicNs, u64)>,
    processes: Processes,
    units: Units,
    starts: BTreeMap<StartKey, Start>,
    next_start: u64,
    /// Starts that the current record or call changed.
    touched: BTreeSet<StartKey>,
    /// Starts that were told of and are part of others now: their ids, and those.
    withdrawn: Vec<(String, StartKey)>,
    /// When the next start settles, if no more happens.
    deadline: Option<MonotonicNs>,
    /// When the next start is looked at that takes long.
    remind_at: Option<MonotonicNs>,
    /// Processes that are to be looked at.
    looks: BTreeSet<Tgid>,
    calls: BTreeMap<CallKey, Pending>,
    /// Starts whose sandbox was removed, oldest first.
    removed: VecDeque<StartKey>,
    /// Ids of those that are forgotten.
    gone: VecDeque<ContainerId>,
    /// From what a table slot's name was inferred.
    evidence: BTreeMap<(ConnId, Slot), String>,
    pulls: Vec<Pull>,
    /// CreateContainers that could not be read, of no container that is known.
    unread: VecDeque<Call>,
    queue: Pulls,
    chores: Chores,
    health: Health,
    images: Images,
    nameless: Nameless,
    /// The last unshare(NEWNET) of a runtime thread.
    netns_threads: BTreeMap<(Tgid, Tid), (MonotonicNs, MonotonicNs)>,
    /// By path: the process that made and pinned it.
    pinned: BTreeMap<String, Run>,
    /// By path: unshare to bind mount.
    netns_paths: BTreeMap<String, (MonotonicNs, MonotonicNs)>,
    /// Pod cgroups that were made, and no RunPodSandbox yet; when the first container below showed that one had come.
    prepared: BTreeMap<PodUid, (MonotonicNs, Option<MonotonicNs>)>,
    /// Volumes of pods that were mounted, and no RunPodSandbox yet.
    volumes: BTreeMap<PodUid, Vec<Volume>>,
    /// Clients' connects to addresses of no known pod.
    early_connects: VecDeque<Early>,
    /// The last list of what exists holds everything.
    list_is_whole: bool,
    losses: Losses,
    /// When records were last lost.
    lost_at: Option<MonotonicNs>,
    /// When podlapse followed all that there is.
    attached_at: Option<MonotonicNs>,
    life: life::Tables,
    /// The OOM killer chose a process that is of no unit.
    stray_oom: bool,
    wire_evicted: u64,
}

impl Lifecycle {
    /// Tables that have seen nothing.
    pub fn new(config: Config) -> Lifecycle {
        Lifecycle {
            config,
            now: MonotonicNs(0),
            node: NodeInfo::default(),
            clock: None,
            processes: Processes::new(MAX_PROCESSES),
            units: Units::new(MAX_UNITS),
            starts: BTreeMap::new(),
            next_start: 0,
            touched: BTreeSet::new(),
            withdrawn: Vec::new(),
            deadline: None,
            remind_at: None,
            looks: BTreeSet::new(),
            calls: BTreeMap::new(),
            removed: VecDeque::new(),
            gone: VecDeque::new(),
            evidence: BTreeMap::new(),
            pulls: Vec::new(),
            unread: VecDeque::new(),
            queue: Pulls::default(),
            chores: Chores::default(),
            health: Health::default(),
            images: Images::default(),
            nameless: Nameless::default(),
            netns_threads: BTreeMap::new(),
            netns_paths: BTreeMap::new(),
            pinned: BTreeMap::new(),
            prepared: BTreeMap::new(),
            volumes: BTreeMap::new(),
            early_connects: VecDeque::new(),
            list_is_whole: false,
            losses: Losses::default(),
            lost_at: None,
            attached_at: None,
            life: life::Tables::default(),
            stray_oom: false,
            wire_evicted: 0,
        }
    }

    /// Takes one record; what it changed goes to `updates`.
    pub fn feed(&mut self, record: &Record, updates: &mut Vec<Update>) {
        self.advance(record.at, updates);
        let about = match &record.event {
            Event::Syscall(_) | Event::Exit(_) => Some(record.tgid),
            Event::Signal { target, .. } => Some(*target),
            _ => None,
        };
        let role = about.and_then(|pid| self.processes.get(pid)).map(|process| process.role);
        self.health.record(record, role == Some(Role::Runtime));
        self.sign(record);
        self.tell_all(updates);
    }

    /// What a record or a call's event changed.
    fn tell_all(&mut self, updates: &mut Vec<Update>) {
        self.settle_touched(updates);
        self.tell(updates);
        self.tell_of_node(updates);
    }

    /// Tells what was found of the node.
    fn tell_of_node(&mut self, updates: &mut Vec<Update>) {
        for verdict in self.health.told.take() {
            let realtime = self.realtime(verdict.at);
            updates.push(Update::Node(Box::new(NodeVerdict { realtime, ..verdict })));
        }
    }

    /// Nanoseconds since the epoch, when a clock pair was recorded.
    fn realtime(&self, at: MonotonicNs) -> Option<u64> {
        self.clock.map(|(then, real)| real.saturating_add(at.0).saturating_sub(then.0))
    }

    /// Connections that the wire decoder has evicted since the beginning.
    pub fn wire_evicted(&mut self, total: u64) {
        self.wire_evicted = total;
    }

    /// Traces of the starts that are not over, as known now.
    pub fn open(&self) -> Vec<Trace> {
        self.open_starts().map(|start| self.trace(start)).collect()
    }

    fn open_starts(&self) -> impl Iterator<Item = &Start> {
        self.starts.values().filter(|start| !start.state.is_over() && !start.is_refused(&self.units))
    }

    /// The calls of the CRI that were answered since the last such question.
    pub fn take_answered(&mut self) -> Vec<Answered> {
        self.health.take_answered()
    }

    /// How it stands at the last record's time.
    pub fn standing(&self) -> Standing {
        let oldest = self.open_starts().map(|start| start.begin).min();
        let Losses { records, undecoded, evicted, .. } = self.losses_now();
        Standing {
            open_starts: self.open_starts().count(),
            oldest_ns: oldest.map(|begin| self.now.since(begin)),
            lost_records: records,
            undecoded_bytes: undecoded,
            evicted,
        }
    }

    /// When a start that is over is final: by then, record time, its next container would have come, and the names of
    /// its calls. One that is forgotten is so at once, one that is not over not yet.
    pub fn final_at(&self, trace_id: &str) -> Option<MonotonicNs> {
        let Some(start) = self.starts.values().find(|start| start.trace_id == trace_id) else {
            return Some(MonotonicNs(0));
        };
        let ends = start.units(&self.units).filter_map(|unit| unit.exit.as_ref()).map(|(at, _)| *at);
        let last = ends.chain(start.closed).max().filter(|_| start.state.is_over())?;
        Some(MonotonicNs(last.0.saturating_add(FINAL_NS)))
    }

    /// Time has come to `at`: what settled before it is over.
    fn advance(&mut self, at: MonotonicNs, updates: &mut Vec<Update>) {
        self.now = self.now.max(at);
        let (units, starts) = (&self.units, &self.starts);
        self.health.advance(self.now, &|id| pod_of(units, starts, id));
        self.remind(updates);
        self.oom_settled();
        self.life.no_name_comes(self.now);
        let now = self.now;
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let settled = |start: &Start| match start.state {
            State::Settling(since) => now.since(since) >= self.config.settle_ns,
            State::Active | State::Over(_) => false,
        };
        let keys: Vec<StartKey> = self.starts.iter().filter(|(_, s)| settled(s)).map(|(key, _)| *key).collect();
        for key in keys {
            self.finish_settled(key);
            self.publish(key, updates);
        }
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        let settling = |start: &Start| match start.state {
            State::Settling(since) => Some(MonotonicNs(since.0.saturating_add(self.config.settle_ns))),
            State::Active | State::Over(_) => None,
        };
        self.deadline = self.starts.values().filter_map(settling).min();
        self.set_reminder();
    }

    fn finish_settled(&mut self, key: StartKey) {
        if let Some(start) = self.starts.get_mut(&key) {
            let end = start.last_sign(&self.units);
            start.end = Some(end);
            start.closed = Some(MonotonicNs(end.0.saturating_add(self.config.settle_ns)));
            let outcome = start.settled_outcome(&self.units);
            step(start, Step::Ended(outcome));
        }
    }

    /// Moves every start that changed to its next state, and tells of those that began or are over.
    fn settle_touched(&mut self, updates: &mut Vec<Update>) {
        for (trace_id, whole) in std::mem::take(&mut self.withdrawn) {
            let pod = self.starts.get(&whole).map_or_else(String::new, |start| start.pod.full_name());
            updates.push(Update::Withdrawn { trace_id, pod });
        }
        if self.touched.is_empty() {
            return;
        }
        self.names_may_be_known();
        for key in std::mem::take(&mut self.touched) {
            let Some(start) = self.starts.get_mut(&key) else { continue };
            if start.is_unfounded(&self.units) {
                continue;
            }
            if !start.announced {
                start.announced = true;
                if let Some(start) = self.starts.get(&key) {
                    updates.push(Update::Started(Box::new(self.trace(start))));
                }
            }
            let lost = self.losses.records;
            let Some(start) = self.starts.get_mut(&key) else { continue };
            let complete = lost == start.losses.records;
            let Some(next) = start.step(&self.units, &self.config, complete) else { continue };
            if let (Step::Ended(_), Some(end)) = (next, start.end) {
                let settled = MonotonicNs(end.0.saturating_add(self.config.settle_ns));
                // It failed, was stopped before it settled, or had all that was asked for.
                let stopped = start.stopped.filter(|_| start.failure.is_none()).map(|at| at.min(settled));
                start.closed = stopped.max(Some(end));
            }
            step(start, next);
            // What is told late may have settled long ago.
            if let State::Settling(since) = start.state
                && self.now.since(since) >= self.config.settle_ns
            {
                self.finish_settled(key);
            }
            self.publish(key, updates);
        }
        self.set_deadline();
    }

    fn publish(&mut self, key: StartKey, updates: &mut Vec<Update>) {
        let Some(start) = self.starts.get(&key).filter(|start| start.state.is_over()) else { return };
        let trace = self.trace(start);
        if let Some(start) = self.starts.get_mut(&key) {
            start.told = trace.verdict.as_ref().map(|verdict| (verdict.stage.clone(), verdict.reason.clone()));
        }
        updates.push(Update::Finished(Box::new(trace)));
        self.check_ready(Some(key));
    }

    /// A new start. Where there is no room the oldest that is over goes, else the oldest.
    fn begin(&mut self, at: MonotonicNs, pod: PodInfo) -> StartKey {
        if self.starts.len() >= MAX_STARTS {
            let over = self
                .starts
                .iter()
                .find(|(_, start)| start.state.is_over() || start.is_refused(&self.units))
                .map(|(key, _)| *key);
            if let Some(key) = over.or_else(|| self.starts.keys().next().copied()) {
                self.losses.evicted += 1;
                self.forget(key);
            }
        }
        let key = StartKey(self.next_start);
        self.next_start += 1;
        let id = build::trace_id(self.node.boot_id.as_deref(), pod.uid.as_ref(), at);
        let mut start = Start::new(id, at, pod);
        start.losses = self.losses_now();
        self.starts.insert(key, start);
        self.touched.insert(key);
        self.prepare(key);
        key
    }

    /// What was made ready for a pod before its RunPodSandbox.
    fn prepare(&mut self, key: StartKey) {
        let Some(start) = self.starts.get_mut(&key) else { return };
        let Some(uid) = &start.pod.uid else { return };
        let at = start.begin;
        start.volumes = self.volumes.remove(uid).unwrap_or_default();
        start.volumes.retain(|volume| volume.exit <= at);
        let made = self.prepared.remove(uid).filter(|(made, used)| *made <= at && used.is_none_or(|used| used >= at));
        let first = start.volumes.iter().map(|volume| volume.enter).min();
        start.prepared = made.map(|(made, _)| made).into_iter().chain(first).min();
    }

    /// Forgets a start and its units.
    fn forget(&mut self, key: StartKey) {
        let Some(start) = self.starts.remove(&key) else { return };
        start.calls.iter().for_each(|call| self.chores.forget(call.key));
        let ids = start.sandbox.iter().chain(start.containers.iter().filter_map(|c| c.id.as_ref()));
        for unit in ids.filter_map(|id| self.units.find(id)).collect::<Vec<_>>() {
            // A container's start only looks at its sandbox.
            if self.units.get(unit).is_some_and(|unit| unit.start.is_none_or(|of| of == key)) {
                self.units.remove(unit);
            }
        }
    }

    /// The sandbox of a start is `id`. A reply is `certain`; what else says so only fills what is unknown.
    fn link_sandbox(&mut self, key: StartKey, id: &ContainerId, certain: bool) {
        let Some(start) = self.starts.get_mut(&key) else { return };
        match &start.sandbox {
            Some(known) if known == id => return,
            Some(_) if !certain => return,
            Some(known) => {
                start.notes.insert(format!("sandbox_id_disagrees: {known} before the reply"));
            }
            None => {}
        }
        start.sandbox = Some(id.clone());
        self.link_unit(key, id);
    }

    fn link_unit(&mut self, key: StartKey, id: &ContainerId) {
        self.absorb(key, id);
        let unit = self.units.of(id);
        if let Some(unit) = self.units.get_mut(unit) {
            unit.start = Some(key);
        }
        self.life.named(unit);
        self.cross_check(unit);
        self.touched.insert(key);
    }

    /// A unit of no start and a pod uid were seen together: it is the sandbox of that pod's open RunPodSandbox.
    fn link_by_uid(&mut self, uid: &PodUid, id: &ContainerId) -> Option<StartKey> {
        let unit = self.units.of(id);
        if let Some(start) = self.units.get(unit)?.start {
            return Some(start);
        }
        let open = |start: &Start| {
            start.pod.uid.as_ref() == Some(uid)
                && start.sandbox.is_none()
                && !start.state.is_over()
                && start.creating_sandbox()
        };
        let key = self.starts.iter().rev().find(|(_, start)| open(start)).map(|(key, _)| *key)?;
        self.link_sandbox(key, id, false);
        Some(key)
    }

    /// A container of a pod is made while its one CreateContainer is open: CRI-O does so (containerd, in StartContainer,
    /// where its id is known). The reply has the last word.
    fn link_created(&mut self, uid: &PodUid, id: &ContainerId) -> Option<StartKey> {
        let key = self.start_of_pod(uid)?;
        let start = self.starts.get_mut(&key)?;
        let creating = |call: &&Call| call.method == Method::CreateContainer && call.end.is_none();
        let mut open = start.calls.iter().filter(creating).map(|call| call.container);
        let (Some(Some(container)), None) = (open.next(), open.next()) else { return None };
        let container = start.containers.get_mut(container).filter(|container| container.id.is_none())?;
        container.id = Some(id.clone());
        self.link_unit(key, id);
        Some(key)
    }

    /// The newest start of a pod that is not over.
    fn start_of_pod(&self, uid: &PodUid) -> Option<StartKey> {
        let of_pod = |start: &Start| start.pod.uid.as_ref() == Some(uid) && !start.state.is_over();
        self.starts.iter().rev().find(|(_, start)| of_pod(start)).map(|(key, _)| *key)
    }

    /// The start that a sandbox or container id is known to be of.
    fn start_of_unit(&self, id: &ContainerId) -> Option<StartKey> {
        self.units.get(self.units.find(id)?)?.start
    }

    /// The starts in a sandbox: its pod's, and those of later attempts of containers.
    fn starts_in(&self, sandbox: &ContainerId) -> Vec<StartKey> {
        let here = self.starts.iter().filter(|(_, start)| start.sandbox.as_ref() == Some(sandbox));
        here.map(|(key, _)| *key).collect()
    }

    /// Marks the start that a unit is linked to.
    fn touch(&mut self, start: Option<StartKey>) {
        self.touched.extend(start);
    }

    fn losses_now(&self) -> Losses {
        let evicted = self.losses.evicted
            + self.processes.evicted
            + self.units.evicted
            + self.chores.evicted
            + self.health.evicted
            + self.wire_evicted;
        Losses { evicted, ..self.losses }
    }
}

/// The name of the pod that a sandbox or container is of.
fn pod_of(units: &Units, starts: &BTreeMap<StartKey, Start>, id: &str) -> Option<String> {
    let unit = units.get(units.find(&ContainerId(id.to_owned()))?)?;
    Some(starts.get(&unit.start?)?.pod.full_name())
}

/// Makes room for one more.
fn bound<K: Ord, V>(table: &mut BTreeMap<K, V>, evicted: &mut u64) {
    if table.len() >= MAX_SMALL {
        table.pop_first();
        *evicted += 1;
    }
}

/// One transition; an impossible one changes nothing and is noted.
fn step(start: &mut Start, step: Step) {
    match start.state.next(step) {
        Ok(next) => start.state = next,
        Err(impossible) => {
            start.notes.insert(impossible.to_string());
        }
    }
}

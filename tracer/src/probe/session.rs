//! A live run: attach, read, finish. The only place where the rings, `/proc`, the clock and podlapse's own CRI call
//! come together, all as records in time order.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::ClockId;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracer_ebpf::mark;

use super::ahead::Ahead;
use super::hooks::{Backend, Choice, Group, Hook, Status};
use super::loader::{self, Loaded};
use super::merge::{Merge, WINDOW_NS};
use super::node::Node;
use super::proc::Proc;
use super::register::{self, Runtime};
use super::rings::Rings;
use super::sockets::Listener;
use super::{ProbeError, cri, privileges, sockets, waiting};
use crate::ids::{ConnId, MonotonicNs, Tgid, Tid};
use crate::pods;
use crate::record::{Event, Record, Socket, SocketOp};
use crate::recording;

/// Longest time without a record for the engine.
const TICK: Duration = Duration::from_millis(100);
/// Pause between two searches for a runtime that went away.
const SEARCH: Duration = Duration::from_millis(200);
/// Time between two looks into the rings. Records wait for the merge's window anyway, so nothing is gained by being
/// woken for each; what counts is that the machine is seldom disturbed.
const LOOK: Duration = Duration::from_millis(50);
/// How long the kernel may take to finish the records that it is writing.
const GATHER: Duration = Duration::from_millis(5);
/// Parts of a list that may wait to be taken.
const LISTED: usize = 1024;
/// How long the first list is waited for.
const FIRST_LIST: Duration = Duration::from_secs(1);
/// Pairs of both clocks are this far apart.
const CLOCK: Duration = Duration::from_secs(60);
/// How often the programs' cost is read.
const COST: Duration = Duration::from_secs(1);

/// The mount table is counted no more often, however many starts take long.
const MOUNTS: Duration = Duration::from_secs(10);

/// What to watch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The runtime's CRI socket; None looks where runtimes have theirs, see [`super::candidates`].
    pub socket: Option<PathBuf>,
    /// What the payload of sockets is to come by.
    pub backend: Choice,
    /// Who says what exists already.
    pub bootstrap: Bootstrap,
    /// Have the kernel count the time that BPF programs take, all of this machine's.
    pub count_cost: bool,
}

/// Who says which sandboxes and containers exist already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bootstrap {
    /// The runtime, over the CRI; `/proc` where it does not answer.
    #[default]
    Cri,
    /// `/proc` and cgroup paths alone.
    Proc,
    /// Nobody.
    Off,
}

/// A node under watch. Dropping it detaches everything; that takes the kernel some seconds, in the background.
#[derive(Debug)]
pub struct Session {
    loaded: Loaded,
    hooks: Vec<Hook>,
    rings: Rings,
    merge: Merge,
    ahead: Ahead,
    proc: Proc,
    socket: PathBuf,
    bootstrap: Bootstrap,
    runtime: Option<Runtime>,
    runtime_pid: u32,
    next_tick: Instant,
    next_look: Instant,
    next_search: Instant,
    next_clock: Instant,
    next_mounts: Instant,
    next_cost: Instant,
    programs_ns: Option<u64>,
    /// The kernel counts as long as this is held.
    #[expect(dead_code, reason = "held for its descriptor alone")]
    counting: Option<OwnedFd>,
    /// The version call of a runtime that came back.
    asking: Option<JoinHandle<Result<cri::Version, cri::VersionError>>>,
    /// Who lists what exists; ends with the session, or when the list is asked for again.
    listing: JoinSet<()>,
    listed: Option<Receiver<pods::Part>>,
    news: Vec<String>,
}

impl Session {
    /// Loads and attaches the programs, finds the runtime, and puts all that exists already into the first records:
    /// Node, Clock, Process, Socket, Mark. `found` is called once there is a runtime to attach for; what follows takes
    /// seconds.
    ///
    /// # Errors
    /// [`ProbeError`] says what is wrong and what to do; nothing is left attached then.
    pub async fn attach(options: Options, found: impl FnOnce()) -> Result<Session, ProbeError> {
        privileges::check()?;
        // Before the programs: with no runtime there is nothing to attach for.
        let (socket, listener) = find(options.socket).await?;
        found();
        let proc = Proc::default();
        let mnt = proc.namespaces(listener.pid).mnt;
        let mut loaded = loader::load_for_tracing(options.backend)?;
        // Since Linux 5.8; where it is refused the cost is not known.
        let counting = options.count_cost.then(|| aya::sys::enable_stats(aya::sys::Stats::RunTime).ok()).flatten();
        let rings = Rings::take(&mut loaded.ebpf)?;
        let start = Instant::now();
        let mut session = Session {
            hooks: loaded.hooks.clone(),
            loaded,
            rings,
            merge: Merge::default(),
            ahead: Ahead::default(),
            proc,
            socket,
            bootstrap: options.bootstrap,
            runtime: None,
            runtime_pid: 0,
            next_tick: start + TICK,
            next_look: start + LOOK,
            next_search: start,
            next_clock: start + CLOCK,
            next_mounts: start,
            next_cost: start,
            programs_ns: None,
            counting,
            asking: None,
            listing: JoinSet::new(),
            listed: None,
            news: Vec::new(),
        };
        let at = now();
        let mut found = vec![register::myself(&mut session.loaded, &session.proc, at)?];
        // A runtime that comes from now on, be it in the middle of this, is known by its bind.
        register::watch(&mut session.loaded, &listener.name, mnt)?;
        match session.register(at) {
            Ok(runtime) => {
                found.extend(runtime);
                let version = cri::version(&session.socket).await;
                session.answer(at, version);
            }
            Err(error) if session.went_away(&error) => {
                session.node(at, cri::Version::default());
                session.wait_for_another("process went away while podlapse attached");
            }
            Err(error) => return Err(error),
        }
        session.merge.extend(found);
        session.attached();
        session.first_list().await;
        Ok(session)
    }

    /// Waits for the list of what exists, a moment at most: what ends before it is named would be nobody's.
    async fn first_list(&mut self) {
        let deadline = Instant::now() + FIRST_LIST;
        while !self.listing.is_empty() && Instant::now() < deadline {
            let ended = tokio::time::timeout(LOOK, self.listing.join_next()).await;
            self.drain();
            self.listed();
            if ended.is_ok() {
                return;
            }
        }
    }

    /// The next records, in time order. Cancel safe.
    ///
    /// # Errors
    /// When the kernel's rings cannot be read any more.
    pub async fn next(&mut self) -> Result<Vec<Record>, ProbeError> {
        // What was handed on before was looked at by now.
        for (conn, offset) in self.ahead.take() {
            register::allow(&mut self.loaded, conn, offset)?;
        }
        loop {
            if let Ok(urgent) = tokio::time::timeout_at(self.next_look, self.rings.urgent()).await {
                urgent.map_err(ProbeError::Rings)?;
            }
            self.next_look = Instant::now() + LOOK;
            // What is older than this and written by now is in the rings: time first, then the drain.
            let until = MonotonicNs(now().0.saturating_sub(WINDOW_NS));
            // Its exit is in the rings by then, unless they were full.
            let ended = self.runtime.as_ref().is_some_and(Runtime::has_ended);
            self.drain();
            self.listed();
            if let Some(pid) = self.runtime.take_if(|_| ended).map(|runtime| runtime.pid) {
                self.wait_for_another(&format!("process {pid} ended"));
            }
            if self.runtime.is_none() && Instant::now() >= self.next_search {
                self.next_search = Instant::now() + SEARCH;
                // Not there yet, or going again: the next look will tell.
                if let Ok(found) = self.register(now()) {
                    self.news.push(format!("the runtime is back, as process {}", self.runtime_pid));
                    self.merge.extend(found);
                    let socket = self.socket.clone();
                    self.asking = Some(tokio::spawn(async move { cri::version_of_new(&socket).await }));
                    self.attached();
                }
            }
            let tick = Instant::now() >= self.next_tick;
            if tick {
                self.next_tick = Instant::now() + TICK;
                self.losses()?;
                self.answered().await;
                if Instant::now() >= self.next_clock {
                    self.next_clock = Instant::now() + CLOCK;
                    self.merge.push(clock());
                }
            }
            let mut records = self.merge.take(until);
            if tick {
                records.push(own(until, Event::Tick));
            }
            if !records.is_empty() {
                self.ahead.hand_on(&records);
                return Ok(records);
            }
        }
    }

    /// Puts something that podlapse does into the records, now; see [`tracer_ebpf::mark`].
    pub fn mark(&mut self, what: u32) {
        self.merge.push(own(now(), Event::Mark(what)));
    }

    /// Nothing more is sent of that connection's payload, which nobody needs.
    pub fn mute(&mut self, conn: ConnId) {
        self.ahead.mute(conn);
        // A map that cannot be written now costs what is sent in vain.
        let _ = register::mute(&mut self.loaded, conn);
    }

    /// Puts what these processes do now into the records. One that has ended says nothing.
    pub fn look(&mut self, pids: &[Tgid]) {
        for pid in pids {
            if let Some((tid, waiting)) = waiting::look(&self.proc, pid.0) {
                self.merge.push(Record { at: now(), tgid: *pid, tid, event: Event::Waiting(waiting) });
            }
        }
        // A large mount table makes starts slow. Reading it costs the kernel some microseconds a mount.
        if !pids.is_empty() && Instant::now() >= self.next_mounts {
            let pairs = self.mounts();
            self.merge.push(own(now(), Event::Node(pairs.into_iter().collect())));
        }
    }

    /// How many mounts the runtime sees.
    fn mounts(&mut self) -> Option<(String, String)> {
        self.next_mounts = Instant::now() + MOUNTS;
        let count = self.proc.mounts(self.runtime.as_ref()?.pid)?;
        Some(("mounts".to_owned(), count.to_string()))
    }

    /// Stops listening: everything still buffered, ending in a tick. The hooks are gone when the session is.
    pub async fn finish(&mut self) -> Vec<Record> {
        // What the kernel is writing at this moment shall be there.
        tokio::time::sleep(GATHER).await;
        self.drain();
        self.listed();
        let _ = self.losses();
        let mut records = self.merge.rest();
        let last = records.last().map_or(MonotonicNs(0), |record| record.at);
        records.push(own(now().max(last), Event::Tick));
        records
    }

    /// Every hook, with what became of it.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// This machine and its clocks now, for a recording's header.
    pub fn node_now(&self) -> recording::Node {
        let monotonic = now();
        recording::Node {
            kernel: Node::read().kernel,
            monotonic_ns: monotonic.0,
            realtime_ns: read(ClockId::Realtime),
            backends: self.backends().map(|(group, by)| (group.name().to_owned(), by.to_string())).collect(),
        }
    }

    /// What each group of hooks is attached by; of several backends, the one of its first hook.
    fn backends(&self) -> impl Iterator<Item = (Group, Backend)> {
        let attached = |hook: &&Hook| hook.status == Status::Attached;
        let first = move |group| self.hooks.iter().filter(attached).find(|hook| hook.group == group);
        Group::ALL.into_iter().filter_map(move |group| first(group).map(|hook| (group, hook.backend)))
    }

    /// What a person should hear of the runtime since the last such question.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// What the programs took so far, a second ago at most; none where the kernel does not count it
    /// (`kernel.bpf_stats_enabled`, or [`Options::count_cost`]).
    pub fn programs_ns(&mut self) -> Option<u64> {
        if Instant::now() >= self.next_cost {
            self.next_cost = Instant::now() + COST;
            let infos = self.loaded.ebpf.programs().filter_map(|(_, program)| program.info().ok());
            let took: u128 = infos.map(|info| info.run_time().as_nanos()).sum();
            self.programs_ns = u64::try_from(took).ok().filter(|took| *took > 0);
        }
        self.programs_ns
    }

    /// The runtime's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The runtime's process, or the last one that was known.
    pub fn runtime_pid(&self) -> Tgid {
        Tgid(self.runtime_pid)
    }

    fn drain(&mut self) {
        self.loaded.lines.flush();
        let merge = &mut self.merge;
        let mut clients = Vec::new();
        self.rings.drain(|record| {
            // A shim's connection is to the other socket, and its mounts are followed anyhow.
            if let Event::Socket(Socket { op: SocketOp::Accept, peer: Some(peer), path, .. }) = &record.event
                && !path.ends_with(".ttrpc")
            {
                clients.push(peer.0);
            }
            merge.push(record);
        });
        clients.into_iter().for_each(|pid| register::client(&mut self.loaded, pid));
    }

    /// The runtime is gone.
    fn wait_for_another(&mut self, why: &str) {
        self.listing = JoinSet::new();
        self.news.push(format!("the runtime's {why}; waiting for one that listens on {}", self.socket.display()));
    }

    /// Whether a runtime could not be watched because it is not there any more.
    fn went_away(&self, error: &ProbeError) -> bool {
        match error {
            ProbeError::Socket { .. } => true,
            ProbeError::Runtime { pid, .. } => {
                sockets::listener(&self.socket).ok().map(|listener| listener.pid) != Some(*pid)
            }
            _ => false,
        }
    }

    /// All that there was is in the records; what exists is asked for.
    fn attached(&mut self) {
        self.mark(mark::ATTACHED);
        if let Some(runtime) = &self.runtime {
            let (sender, listed) = mpsc::channel(LISTED);
            self.listing = JoinSet::new();
            let (socket, name) = (self.socket.clone(), runtime.name.clone());
            let about = pods::About { socket, name, runtime: Tgid(runtime.pid), bootstrap: self.bootstrap };
            self.listing.spawn(pods::list_existing(about, sender));
            self.listed = Some(listed);
        }
    }

    fn losses(&mut self) -> Result<(), ProbeError> {
        for (counter, count) in self.rings.losses()? {
            self.merge.push(own(now(), Event::Lost { counter, count }));
        }
        Ok(())
    }

    /// Watches the runtime that listens now; what there is already, as records.
    fn register(&mut self, at: MonotonicNs) -> Result<Vec<Record>, ProbeError> {
        let mut records = vec![clock_at(at)];
        let (runtime, found) = register::runtime(&mut self.loaded, &self.proc, &self.socket, at)?;
        records.extend(found);
        self.runtime_pid = runtime.pid;
        self.runtime = Some(runtime);
        Ok(records)
    }

    /// What was listed meanwhile.
    fn listed(&mut self) {
        while let Some(Ok((at, listed))) = self.listed.as_mut().map(Receiver::try_recv) {
            self.merge.push(own(at, Event::Listed(listed)));
        }
    }

    /// What a runtime that came back calls itself, once it has said so.
    async fn answered(&mut self) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished())
            && let Ok(version) = asking.await
        {
            self.answer(now(), version);
        }
    }

    fn answer(&mut self, at: MonotonicNs, version: Result<cri::Version, cri::VersionError>) {
        let version = version.unwrap_or_else(|error| {
            let socket = self.socket.display();
            self.news.push(format!("the CRI call Version on {socket} failed, is that a runtime's socket? ({error})"));
            cri::Version::default()
        });
        self.node(at, version);
    }

    fn node(&mut self, at: MonotonicNs, version: cri::Version) {
        let Node { name, boot_id, kernel } = Node::read();
        let mut pairs = vec![
            ("name".to_owned(), name),
            ("boot_id".to_owned(), boot_id),
            ("kernel".to_owned(), kernel),
            ("socket".to_owned(), self.socket.display().to_string()),
        ];
        if !version.name.is_empty() {
            pairs.push(("runtime".to_owned(), version.name));
            pairs.push(("runtime_version".to_owned(), version.version));
        }
        pairs.extend(self.mounts());
        pairs.extend(self.backends().map(|(group, by)| (format!("probes.{}", group.name()), by.to_string())));
        self.merge.push(own(at, Event::Node(pairs)));
    }
}

/// The socket to watch, and who listens there: the named one, or the first candidate whose runtime answers a CRI call, or that answers at all.
async fn find(named: Option<PathBuf>) -> Result<(PathBuf, Listener), ProbeError> {
    if let Some(path) = named {
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        return sockets::listener(&path).map(|listener| (path, listener));
    }
    let mut alive = Vec::new();
    let mut invisible = None;
    for path in sockets::candidates() {
        match sockets::listener(&path) {
            Ok(listener) if cri::version(&path).await.is_ok() => return Ok((path, listener)),
            Ok(listener) => alive.push((path, listener)),
            Err(error @ ProbeError::Invisible { .. }) => invisible = Some(error),
            Err(_) => {}
        }
    }
    let nobody = || {
        let paths: Vec<_> = sockets::candidates().iter().map(|path| path.display().to_string()).collect();
        ProbeError::NoSocket(paths.join(", "))
    };
    alive.into_iter().next().ok_or_else(|| invisible.unwrap_or_else(nobody))
}

/// The kernel's clock.
pub(crate) fn now() -> MonotonicNs {
    MonotonicNs(read(ClockId::Monotonic))
}

/// How long the machine was suspended since its boot: the kernel's clock stood still.
pub(super) fn suspended() -> u64 {
    read(ClockId::Boottime).saturating_sub(now().0)
}

fn read(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn clock() -> Record {
    clock_at(now())
}

/// Both clocks, as of a monotonic time that is not long past.
fn clock_at(at: MonotonicNs) -> Record {
    let realtime = read(ClockId::Realtime) - now().since(at);
    own(at, Event::Clock { realtime })
}

fn own(at: MonotonicNs, event: Event) -> Record {
    let pid = std::process::id();
    Record { at, tgid: Tgid(pid), tid: Tid(pid), event }
}

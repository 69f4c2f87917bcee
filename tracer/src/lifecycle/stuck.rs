//! A start that takes long: when it is looked at, and what it waits for.
//!
//! What `/proc` says of a process has to be a record. So the lifecycle names the processes that are to be looked at,
//! waits for what is seen of them, and tells then.

use std::collections::BTreeSet;

use super::Lifecycle;
use super::argv::basename;
use super::process::Seen;
use super::start::{Call, Method, Start};
use super::unit::{Kind, Run, Sign, Unit, What};
use crate::engine::Update;
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{self, Record};
use crate::trace::{Draft, DraftId, LastSign, Look, Waiting, WaitingProcess};

/// What is not answered by then has ended meanwhile. A look takes the merge's window, and as long to be asked for.
const ANSWER_NS: u64 = 500_000_000;
/// Processes that are looked at for one start, and at once.
const MAX_CHAIN: usize = 8;
const MAX_LOOKS: usize = 256;

/// How long a start is waited for.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Since it began, or began anew; none while it is over.
    since: Option<MonotonicNs>,
    /// How often the time to wait was doubled.
    doubled: u32,
    asked: Option<Asked>,
}

/// A look that was asked for.
#[derive(Debug)]
struct Asked {
    at: MonotonicNs,
    unanswered: BTreeSet<Tgid>,
}

impl Patience {
    /// Of a start that begins then.
    pub(super) fn from(begin: MonotonicNs) -> Patience {
        Patience { since: Some(begin), ..Patience::default() }
    }

    /// When it is to be looked at, or told of.
    fn due(&self, after_ns: u64) -> Option<MonotonicNs> {
        Some(match &self.asked {
            Some(asked) if asked.unanswered.is_empty() => asked.at,
            Some(asked) => MonotonicNs(asked.at.0.saturating_add(ANSWER_NS)),
            None => {
                let times = 1u64.checked_shl(self.doubled).unwrap_or(u64::MAX);
                MonotonicNs(self.since?.0.saturating_add(after_ns.saturating_mul(times)))
            }
        })
    }

    /// Told: the next time comes when it has taken twice as long.
    fn told(&mut self, now: MonotonicNs, after_ns: u64) {
        self.asked = None;
        while self.doubled < u64::BITS && self.due(after_ns).is_some_and(|due| due <= now) {
            self.doubled += 1;
        }
    }
}

impl Lifecycle {
    /// The processes that are to be looked at, since the last such question.
    pub fn take_looks(&mut self) -> Vec<Tgid> {
        std::mem::take(&mut self.looks).into_iter().collect()
    }

    /// Those of every start that is not over.
    pub fn look_at_all(&mut self) -> Vec<Tgid> {
        let pids: BTreeSet<Tgid> = self.open().iter().flat_map(waited_for).take(MAX_LOOKS).collect();
        pids.into_iter().collect()
    }

    /// What was seen of a process.
    pub(super) fn looked(&mut self, record: &Record, waiting: &record::Waiting) {
        if let Some(process) = self.processes.get_mut(record.tgid) {
            process.seen = Some(Box::new(Seen { at: record.at, waiting: waiting.clone() }));
        }
        for asked in self.starts.values_mut().filter_map(|start| start.patience.asked.as_mut()) {
            asked.unanswered.remove(&record.tgid);
        }
        self.set_reminder();
    }

    /// When the next start is to be looked at, or told of.
    pub(super) fn set_reminder(&mut self) {
        let after_ns = self.config.stuck_after_ns;
        if after_ns == 0 {
            return;
        }
        self.remind_at = None;
        for start in self.starts.values_mut() {
            if start.state.is_over() {
                start.patience = Patience::default();
                continue;
            }
            start.patience.since.get_or_insert(self.now);
            let due = start.patience.due(after_ns).filter(|_| start.announced);
            self.remind_at = self.remind_at.into_iter().chain(due).min();
        }
    }

    /// Asks for a look at the starts that are due, or tells of them.
    pub(super) fn remind(&mut self, updates: &mut Vec<Update>) {
        let (now, after_ns) = (self.now, self.config.stuck_after_ns);
        if self.remind_at.is_none_or(|at| now < at) {
            return;
        }
        let due = |start: &&Start| {
            !start.state.is_over() && start.announced && start.patience.due(after_ns).is_some_and(|due| due <= now)
        };
        let traces: Vec<_> = self.starts.iter().filter(|(_, it)| due(it)).map(|(k, it)| (*k, self.trace(it))).collect();
        for (key, trace) in traces {
            let Some(start) = self.starts.get_mut(&key) else { continue };
            if start.patience.asked.is_none() {
                let room = MAX_LOOKS.saturating_sub(self.looks.len());
                let unanswered: BTreeSet<Tgid> = waited_for(&trace).take(room).collect();
                self.looks.extend(&unanswered);
                start.patience.asked = Some(Asked { at: now, unanswered });
            } else {
                start.patience.told(now, after_ns);
                updates.push(Update::Stuck(Box::new(trace)));
            }
        }
        self.set_reminder();
    }

    /// A start takes longer than it is given.
    pub(super) fn is_stuck(&self, start: &Start) -> bool {
        let (after_ns, since) = (self.config.stuck_after_ns, start.patience.since);
        after_ns > 0 && since.is_some_and(|since| self.now.since(since) >= after_ns)
    }

    /// What a start waits for at the `end` of its trace, as far as its spans say; below a call that was given up, where
    /// there is one.
    pub(super) fn waiting(
        &self,
        draft: &Draft,
        start: &Start,
        given_up: Option<DraftId>,
        (origin, end): (MonotonicNs, MonotonicNs),
    ) -> Option<Waiting> {
        let open = draft.innermost_open(given_up);
        let innermost = *open.first()?;
        let called = open.last().is_some_and(|top| top.stage != "kubelet.gap");
        let entering = self.entering(start);
        let (mut stage, mut name, mut since) = (innermost.stage.clone(), innermost.name.clone(), innermost.start);
        let mut chain = Vec::new();
        if let Some(own) = open.iter().find_map(|span| span.process.as_ref()) {
            // What a hook runs has a span of its own, beside it.
            let first = self.first_of_hook(own.pid);
            let span = draft.open_process(first).filter(|_| first != own.pid);
            if let Some(span) = span {
                (name, since) = (span.name.clone(), span.start);
            }
            let own = span.and_then(|span| span.process.as_ref()).unwrap_or(own);
            let comm = if own.comm.is_empty() { basename(&own.exe) } else { &own.comm };
            self.follow(own.pid, comm, &mut chain);
            // The container's first process is not a child of `start`, which waits for it.
            let unit = self.processes.get(own.pid).and_then(|it| self.units.get(it.unit?));
            let init = unit.filter(|unit| stage.ends_with(".oci.start") && unit.entered().is_none());
            init.and_then(Unit::init).into_iter().for_each(|init| self.follow(init, "init", &mut chain));
        } else if let Some(shim) = self.asked_shim(start) {
            self.follow(shim, "shim", &mut chain);
        } else if let Some((container, init, told)) = entering.filter(|_| !stage.ends_with(".oci.fifo_wait")) {
            // StartContainer is answered when init may go on, not when it has.
            if let Some(told) = told.filter(|_| !called) {
                (stage, name, since) = ("container.exec".to_owned(), container, told);
            }
            if called || told.is_some() {
                self.follow(init, "init", &mut chain);
            }
        }
        for process in &mut chain {
            let known = self.processes.get(process.pid);
            let seen = known.and_then(|it| it.seen.as_deref());
            let created = known.and_then(|it| it.created).map(|created| created.at);
            process.age_ns = created.or(seen.map(|seen| seen.waiting.started)).map(|created| end.since(created));
            process.look = seen.map(|seen| look(seen, origin));
            process.comm = seen.map_or(process.comm.clone(), |seen| seen.waiting.comm.clone());
        }
        let last_sign = self.last_sign(start, (origin, end));
        Some(Waiting { stage, name, for_ns: end.since(since), called, chain, last_sign })
    }

    /// The shim that has not answered yet what the runtime asks of it.
    fn asked_shim(&self, start: &Start) -> Option<Tgid> {
        let of_pod = start.sandbox.as_ref().and_then(|id| self.units.get(self.units.find(id)?)).and_then(|it| it.shim);
        let asked = |unit: &&Unit| {
            let calls = [unit.task_create, unit.task_start];
            calls.iter().flatten().any(|call| call.end.is_none()) && unit.exit.is_none()
        };
        start.units(&self.units).find(asked).and_then(|unit| unit.shim.or(of_pod))
    }

    /// The hook that runs a process, where one does, else the process itself.
    fn first_of_hook(&self, pid: Tgid) -> Tgid {
        let hook = |pid: &Tgid| self.processes.get(*pid).is_some_and(|it| it.kind == Kind::Hook);
        let parent = |pid: &Tgid| self.processes.get(*pid).map(|it| it.parent);
        let up = std::iter::successors(Some(pid).filter(hook), |pid| parent(pid).filter(hook));
        up.take(MAX_CHAIN).last().unwrap_or(pid)
    }

    /// A process and those that it waits for: of its children always the youngest.
    fn follow(&self, root: Tgid, comm: &str, chain: &mut Vec<WaitingProcess>) {
        let lives = |pid: &Tgid| pid.0 != 0 && self.processes.get(*pid).is_some();
        let down = std::iter::successors(Some(root).filter(lives), |pid| self.processes.youngest_child(*pid));
        for pid in down.filter(lives).take(MAX_CHAIN) {
            let name = self.processes.get(pid).and_then(|it| it.name.as_deref());
            let comm = if pid == root { comm } else { name.unwrap_or("a process") };
            if chain.iter().all(|known| known.pid != pid) {
                chain.push(WaitingProcess { pid, comm: comm.to_owned(), ..WaitingProcess::default() });
            }
        }
    }

    /// A container whose init lives and has not run the entrypoint, and when its StartContainer was answered.
    fn entering(&self, start: &Start) -> Option<(String, Tgid, Option<MonotonicNs>)> {
        let mut live = start.containers.iter().enumerate().filter(|(_, container)| !container.replaced);
        live.find_map(|(index, container)| {
            let init = start.unit(container, &self.units)?.entering()?;
            let of = |call: &&Call| call.method == Method::StartContainer && call.container == Some(index);
            let told = start.calls.iter().filter(of).filter_map(|call| call.end.as_ref()).map(|(at, _)| *at).max();
            Some((container.name.clone().unwrap_or_default(), init, told))
        })
    }

    /// The last sign of a start, of its calls and of its containers' processes.
    fn last_sign(&self, start: &Start, (origin, end): (MonotonicNs, MonotonicNs)) -> Option<LastSign> {
        let began = start.calls.iter().map(|call| (call.start.at, format!("{} began", call.start.method)));
        let ended = start.calls.iter().filter_map(|call| {
            let (at, _) = call.end.as_ref()?;
            Some((*at, format!("{} ended", call.start.method)))
        });
        let units = start.units(&self.units).flat_map(|unit| {
            let sign = unit.signs.iter().max_by_key(|sign| sign.exit).map(|sign| (sign.exit, sign_in_words(sign)));
            let run = unit.runs.iter().filter_map(last_of_run).max_by_key(|(at, _)| *at);
            sign.into_iter().chain(run)
        });
        let all = began.chain(ended).chain(units).filter(|(at, _)| *at <= end);
        let (at, what) = all.max_by_key(|(at, _)| *at)?;
        Some(LastSign { what, at_ns: at.since(origin), ago_ns: end.since(at) })
    }
}

/// The processes that a trace's start waits for.
fn waited_for(trace: &crate::trace::Trace) -> impl Iterator<Item = Tgid> {
    trace.waiting.iter().flat_map(|waiting| &waiting.chain).map(|process| process.pid)
}

fn look(seen: &Seen, origin: MonotonicNs) -> Look {
    let record::Waiting { state, syscall, syscall_name, wchan, stack, .. } = seen.waiting.clone();
    Look { at_ns: seen.at.since(origin), state, syscall, syscall_name, wchan, stack }
}

fn sign_in_words(sign: &Sign) -> String {
    let what = match &sign.what {
        What::Syscall(call) => call.sys.name().to_owned(),
        What::CgroupMkdir(_) => "a cgroup made".to_owned(),
        What::CgroupAttach => "a cgroup joined".to_owned(),
        What::CgroupWrite(write) => format!("{} written", write.file),
    };
    format!("{what} by pid {}", sign.tgid)
}

fn last_of_run(run: &Run) -> Option<(MonotonicNs, String)> {
    let name = || run.execs.last().map_or("a process", |exec| basename(&exec.filename));
    let exit = run.exit.as_ref().map(|(at, _)| (*at, "exit"));
    let exec = || run.execs.last().map(|exec| (exec.at, "exec"));
    let clone = || run.created.map(|created| (created.at, "clone"));
    exit.or_else(exec).or_else(clone).map(|(at, what)| (at, format!("{what} of {} (pid {})", name(), run.tgid)))
}

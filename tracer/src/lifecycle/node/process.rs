//! `runtime_restarted`: the runtime's process ended; how, by whom, and when another one served its socket.

use std::collections::BTreeMap;

use super::SECOND;
use super::told::{Finding, Told};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{self, Exit, Role, Socket, SocketOp};
use crate::trace::{Confidence, seconds};

const REASON: &str = "runtime_restarted";
/// What a service manager's stop takes at most, mostly (systemd's `TimeoutStopSec`): a signal of before is another matter.
const ASKED_NS: u64 = 90 * SECOND;
/// HUP, INT, QUIT, ILL, TRAP, ABRT, BUS, FPE, KILL, SEGV, TERM: what ends a process that does not care, or crashed.
const ENDING: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15];
/// Processes that were sent one.
const MAX_SIGNALS: usize = 64;

/// A signal that was sent.
#[derive(Clone, Debug)]
struct Sent {
    at: MonotonicNs,
    signal: u32,
    by: String,
}

/// The runtime is not there.
#[derive(Clone, Debug)]
struct Down {
    at: MonotonicNs,
    pid: Tgid,
    how: String,
}

/// The runtime's process.
#[derive(Debug, Default)]
pub(super) struct Process {
    signals: BTreeMap<Tgid, Sent>,
    killed: Option<Tgid>,
    down: Option<Down>,
}

impl Process {
    /// A signal was sent to any process.
    pub(super) fn signal(
        &mut self,
        at: MonotonicNs,
        target: Tgid,
        signal: u32,
        code: i32,
        (sender, comm): (Tgid, &str),
    ) {
        /// `SI_KERNEL`, and `SEGV_MAPERR` and its like: who is current then did not send it.
        const FROM_THE_KERNEL: std::ops::RangeInclusive<i32> = 1..=0x80;
        if !ENDING.contains(&signal) || target == Tgid(0) {
            return;
        }
        if self.signals.len() >= MAX_SIGNALS && !self.signals.contains_key(&target) {
            let oldest = self.signals.iter().min_by_key(|(_, sent)| sent.at).map(|(pid, _)| *pid);
            oldest.iter().for_each(|pid| drop(self.signals.remove(pid)));
        }
        let name = if comm.is_empty() { "a process" } else { comm };
        let by = match () {
            () if FROM_THE_KERNEL.contains(&code) => "the kernel".to_owned(),
            () if sender == target => "itself".to_owned(),
            () if sender == Tgid(0) => format!("{name}, of another pid namespace"),
            () => format!("{name} (pid {sender})"),
        };
        self.signals.insert(target, Sent { at, signal, by });
    }

    pub(super) fn oom(&mut self, victim: Tgid) {
        self.killed = Some(victim);
    }

    /// The runtime's process ended; the methods are those of the calls that were open then.
    pub(super) fn ended<'a>(
        &mut self,
        at: MonotonicNs,
        pid: Tgid,
        exit: &Exit,
        cut_off: impl Iterator<Item = &'a str>,
        told: &mut Told,
    ) {
        let sent = self.signals.remove(&pid).filter(|sent| at.since(sent.at) <= ASKED_NS);
        let sent = sent.filter(|sent| exit.signal.is_none_or(|signal| sent.signal == u32::from(signal)));
        let by = sent.map(|sent| format!("signal {}, which {} sent", sent.signal, sent.by));
        let oom = self.killed.take_if(|victim| *victim == pid).is_some();
        let name = if exit.comm.is_empty() { "the runtime" } else { &exit.comm };
        let how = match (oom, exit.signal, exit.status, by) {
            (true, ..) => "was killed by the kernel for memory".to_owned(),
            (_, Some(_), _, Some(by)) => format!("was ended by {by}"),
            (_, Some(signal), _, None) => format!("was ended by signal {signal}"),
            (_, None, Some(code), Some(by)) => format!("exited with {code} after {by}"),
            (_, None, Some(code), None) => format!("exited with {code}"),
            (_, None, None, _) => "ended".to_owned(),
        };
        let how = format!("{name} (pid {pid}) {how}");
        let mut methods: BTreeMap<&str, u64> = BTreeMap::new();
        cut_off.for_each(|method| *methods.entry(method).or_default() += 1);
        let calls: u64 = methods.values().sum();
        let name = |(method, count): (&&str, &u64)| {
            format!("{count} {}", if method.is_empty() { "without a name" } else { method })
        };
        let names: Vec<String> = methods.iter().map(name).collect();
        let evidence = if calls == 0 { Vec::new() } else { vec![format!("cut off: {}", names.join(", "))] };
        let message = format!("{how}; calls that were cut off: {calls}; nobody serves its socket");
        told.say(REASON, at, at, Finding { message, evidence, confidence: Confidence::Seen });
        self.down = Some(Down { at, pid, how: format!("{how}; calls that were cut off: {calls}") });
    }

    /// A process bound a socket: of the runtime's alone that is a record.
    pub(super) fn socket(&mut self, at: MonotonicNs, pid: Tgid, socket: &Socket, told: &mut Told) {
        if matches!(socket.op, SocketOp::Bind | SocketOp::Listen) && socket.ret >= 0 {
            self.back(at, pid, told);
        }
    }

    /// A process that is there was found.
    pub(super) fn found(&mut self, at: MonotonicNs, pid: Tgid, found: &record::Process, told: &mut Told) {
        if found.role == Role::Runtime {
            self.back(at, pid, told);
        }
    }

    fn back(&mut self, at: MonotonicNs, pid: Tgid, told: &mut Told) {
        let Some(down) = self.down.take_if(|down| down.pid != pid) else { return };
        let after = seconds(at.since(down.at));
        told.end(REASON, at, format!("{}; pid {pid} serves its socket after {after}", down.how));
    }
}

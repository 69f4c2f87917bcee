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
/// A signal that was sent.
#[derive(Clone, Debug)]
struct Sent {
    at: MonotonicNs,
    signal: u32,
    /// `signal 9, which bash (pid 4711) sent`
    by: String,
}

/// What is told of a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal<'a> {
    pub(super) target: Tgid,
    pub(super) signal: u32,
    /// `si_code`.
    pub(super) code: i32,
    pub(super) delivered: bool,
    /// Of the sender.
    pub(super) comm: &'a str,
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
    sent: Option<(Tgid, Sent)>,
    stopped: Option<Sent>,
    killed: Option<Tgid>,
    down: Option<Down>,
}

impl Process {
    /// A signal was sent to the runtime.
    pub(super) fn signal(&mut self, at: MonotonicNs, sender: Tgid, sent: &Signal<'_>) {
        /// `SI_KERNEL`, and `SEGV_MAPERR` and its like: who is current then did not send it.
        const FROM_THE_KERNEL: std::ops::RangeInclusive<i32> = 1..=0x80;
        const CONT: u32 = 18;
        const STOP: u32 = 19;
        let Signal { target, signal, code, delivered, comm } = *sent;
        let name = if comm.is_empty() { "a process" } else { comm };
        let by = match () {
            () if FROM_THE_KERNEL.contains(&code) => "the kernel".to_owned(),
            () if sender == target => "it itself".to_owned(),
            () if sender == Tgid(0) => format!("{name}, of another pid namespace,"),
            () => format!("{name} (pid {sender})"),
        };
        let sent = Sent { at, signal, by: format!("signal {signal}, which {by} sent") };
        match signal {
            // It takes effect also where it is ignored, and who kills goes on, too.
            CONT => self.stopped = None,
            STOP if delivered => drop(self.stopped.get_or_insert(sent)),
            _ if delivered && ENDING.contains(&signal) => self.sent = Some((target, sent)),
            _ => {}
        }
    }

    /// Since when it is stopped, and by what.
    pub(super) fn stopped(&self) -> Option<(MonotonicNs, &str)> {
        self.stopped.as_ref().map(|sent| (sent.at, sent.by.as_str()))
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
        self.stopped = None;
        let sent = self.sent.take().filter(|(to, sent)| *to == pid && at.since(sent.at) <= ASKED_NS);
        let sent = sent.filter(|(_, sent)| exit.signal.is_none_or(|signal| sent.signal == u32::from(signal)));
        let by = sent.map(|(_, sent)| sent.by);
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

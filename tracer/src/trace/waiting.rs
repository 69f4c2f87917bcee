//! What a start that is not over waits for: its innermost open stage, and the processes that hold it.

use crate::ids::Tgid;

/// What a start waits for, as far as it was seen at the trace's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The innermost stage that is open.
    pub stage: String,
    /// The name of its span: `bridge`, `runc create`, `between calls`, …
    pub name: String,
    /// How long it is open.
    pub for_ns: u64,
    /// A call of the start is open; else the next one is the client's to make.
    pub called: bool,
    /// The stage's own process, and from it down the last that it waits for, whether it was looked at or not. None: the
    /// stage has no process of its own.
    pub chain: Vec<WaitingProcess>,
    /// The last sign of the start.
    pub last_sign: Option<LastSign>,
}

/// The last sign of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSign {
    /// In words.
    pub what: String,
    /// Relative to the trace's start.
    pub at_ns: u64,
    /// Before the trace's end.
    pub ago_ns: u64,
}

/// A process that a start waits for. What was not seen of it is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingProcess {
    /// Thread group.
    pub pid: Tgid,
    /// `comm`.
    pub comm: String,
    /// Time since its creation.
    pub age_ns: Option<u64>,
    /// What the kernel has it wait for, when podlapse looked.
    pub look: Option<Look>,
}

/// What a process was seen to do. Texts that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// When, relative to the trace's start.
    pub at_ns: u64,
    /// The thread's state, a letter of proc_pid_stat(5).
    pub state: Option<char>,
    /// Number of the syscall.
    pub syscall: Option<u32>,
    /// Its name.
    pub syscall_name: String,
    /// The function of the kernel.
    pub wchan: String,
    /// The stack in the kernel, innermost first.
    pub stack: Vec<String>,
}

impl Waiting {
    /// The processes that it waits for. Where some were looked at, those further down were not there then.
    pub fn processes(&self) -> &[WaitingProcess] {
        let seen = self.chain.iter().rposition(|process| process.look.is_some());
        &self.chain[..seen.map_or(self.chain.len(), |last| last + 1)]
    }

    /// A sentence each: what its processes do, or that it has none, and the last sign.
    pub fn evidence(&self) -> Vec<String> {
        let mut evidence: Vec<String> = self.processes().iter().map(WaitingProcess::sentence).collect();
        if evidence.is_empty() {
            evidence.push(match self.called {
                true => "no process of its own is seen: the runtime holds the call".to_owned(),
                false => "no call is open: the next one is the client's to make".to_owned(),
            });
        }
        let last = |sign: &LastSign| format!("the last sign is {} old: {}", seconds(sign.ago_ns), sign.what);
        evidence.extend(self.last_sign.as_ref().map(last));
        evidence
    }

    /// `waits for 10.2 s in sandbox.cni.bridge: …`
    pub fn sentence(&self) -> String {
        format!("waits for {} in {}: {}", seconds(self.for_ns), self.stage, self.evidence().join("; "))
    }

    /// The stage's own process: `slow-plugin (pid 4711)`.
    pub fn culprit(&self) -> Option<String> {
        self.chain.first().map(|process| format!("{} (pid {})", process.comm, process.pid))
    }
}

impl WaitingProcess {
    /// `slow-plugin (pid 4711, 10.1 s old) waits in clock_nanosleep (hrtimer_nanosleep)`.
    fn sentence(&self) -> String {
        let age = self.age_ns.map_or(String::new(), |age| format!(", {} old", seconds(age)));
        let does = self.look.as_ref().map_or("has not ended".to_owned(), Look::sentence);
        format!("{} (pid {}{age}) {does}", self.comm, self.pid)
    }
}

impl Look {
    fn sentence(&self) -> String {
        let syscall = match (self.syscall_name.as_str(), self.syscall) {
            ("", None) => None,
            ("", Some(number)) => Some(format!("syscall {number}")),
            (name, _) => Some(name.to_owned()),
        };
        let wchan = Some(&self.wchan).filter(|wchan| !wchan.is_empty());
        let place = match (syscall, wchan) {
            (Some(syscall), Some(wchan)) => format!(" in {syscall} ({wchan})"),
            (Some(syscall), None) => format!(" in {syscall}"),
            (None, Some(wchan)) => format!(" in the kernel ({wchan})"),
            (None, None) => String::new(),
        };
        match self.state {
            Some('R') => "runs".to_owned(),
            Some('T' | 't') => "is stopped".to_owned(),
            // It takes no signal.
            Some('D') => format!("waits uninterruptibly{place}"),
            _ => format!("waits{place}"),
        }
    }
}

/// `10.2 s`, cut, not rounded.
pub fn seconds(ns: u64) -> String {
    format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let look = |state, syscall, name: &str, wchan: &str| {
            let (syscall_name, wchan) = (name.to_owned(), wchan.to_owned());
            Look { state, syscall, syscall_name, wchan, ..Look::default() }.sentence()
        };
        assert_eq!(
            look(Some('S'), Some(230), "clock_nanosleep", "hrtimer_nanosleep"),
            "waits in clock_nanosleep (hrtimer_nanosleep)"
        );
        assert_eq!(look(Some('D'), Some(999), "", "flock_lock"), "waits uninterruptibly in syscall 999 (flock_lock)");
        assert_eq!(look(Some('S'), Some(0), "read", ""), "waits in read");
        assert_eq!(look(None, None, "", "do_freezer_trap"), "waits in the kernel (do_freezer_trap)");
        assert_eq!(look(None, None, "", ""), "waits");
        assert_eq!(
            (look(Some('R'), None, "", ""), look(Some('T'), None, "", "")),
            ("runs".into(), "is stopped".into())
        );
    }
}

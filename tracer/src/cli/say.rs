//! Messages on stderr; progress only where a person watches.

use std::io::{IsTerminal, Write};

use crate::engine::Update;
use crate::export::{Charset, duration, rfc3339};
use crate::trace::{NodeVerdict, StartKind, Trace, Waiting};

/// Says things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Say {
    progress: bool,
    /// What is said happens now.
    live: bool,
}

impl Say {
    /// With progress, where a person watches.
    pub(super) fn live() -> Say {
        Say { progress: std::io::stderr().is_terminal(), live: true }
    }

    /// With what takes long or is wrong with the node, as it happens; nobody watches.
    pub(super) fn service() -> Say {
        Say { progress: false, live: true }
    }

    /// Messages alone.
    pub(super) fn plain() -> Say {
        Say { progress: false, live: false }
    }

    /// One message. Texts of pods and runtimes may be in it, so it is made harmless. A closed stderr is no failure.
    pub(super) fn line(self, text: &str) {
        let _ = writeln!(std::io::stderr(), "podlapse: {}", Charset::Unicode.clean(text));
    }

    /// What to say of an update, should it be about a chosen start.
    pub(super) fn progress(self, update: &Update) -> Option<String> {
        let pod = |trace: &Trace| {
            let restart = match trace.kind {
                StartKind::Pod => "",
                StartKind::Container => " restart of a container",
            };
            format!("{}{restart}", trace.pod.full_name())
        };
        let said = self.progress || self.live && matches!(update, Update::Stuck(_));
        let line = match update {
            Update::Started(trace) => format!("{} began", pod(trace)),
            Update::Stuck(trace) => {
                let waits = trace.waiting.as_ref().map_or("goes on".to_owned(), Waiting::sentence);
                let why = trace.verdict.as_ref().filter(|verdict| verdict.reason != "stuck");
                let why = why.map_or(String::new(), |why| format!(" ({}: {})", why.reason, why.message));
                format!("{}, {} after it began, {waits}{why}", pod(trace), duration(trace.total_ns))
            }
            Update::Finished(trace) => {
                format!("{} {} after {}", pod(trace), trace.outcome.name(), duration(trace.total_ns))
            }
            Update::Withdrawn { .. } | Update::Life(_) => return None,
            Update::Node(verdict) => return Some(self.of_node(verdict)),
        };
        said.then_some(line)
    }

    /// What is wrong with the node, or no longer; of a recording with the time at which it was.
    fn of_node(self, verdict: &NodeVerdict) -> String {
        let at = verdict.realtime.filter(|_| !self.live).map_or(String::new(), |at| format!("{} ", rfc3339(at)));
        let over = if verdict.open { "" } else { " is over" };
        let mut text = format!("{at}node: {}{over}: {}", verdict.reason, verdict.message);
        if verdict.open && !verdict.evidence.is_empty() {
            text += &format!(" ({})", verdict.evidence.join("; "));
        }
        text
    }

    pub(super) fn progress_line(self, line: Option<String>) {
        if let Some(line) = line {
            self.line(&line);
        }
    }
}

//! Messages on stderr; progress only where a person watches.

use std::io::{IsTerminal, Write};

use crate::engine::Update;
use crate::export::{Charset, duration};
use crate::trace::{StartKind, Trace, Waiting};

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
                format!("{}, {} after it began, {waits}", pod(trace), duration(trace.total_ns))
            }
            Update::Finished(trace) => {
                format!("{} {} after {}", pod(trace), trace.outcome.name(), duration(trace.total_ns))
            }
            Update::Withdrawn { .. } | Update::Life(_) | Update::Node(_) => return None,
        };
        said.then_some(line)
    }

    pub(super) fn progress_line(self, line: Option<String>) {
        if let Some(line) = line {
            self.line(&line);
        }
    }
}

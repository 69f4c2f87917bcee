//! What `trace` and `record` were told, in one shape; what of it a recording says of itself.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::args::{Live, Record, Show, Starts, Trace};
use super::values::Span;
use crate::engine::Config;
use crate::export::rfc3339;
use crate::recording::{Header, Node, Selection};

/// What `trace` and `record` share.
pub(super) struct Plan<'a> {
    pub(super) starts: &'a Starts,
    pub(super) live: &'a Live,
    pub(super) show: &'a Show,
    pub(super) recording: Option<&'a Path>,
    pub(super) force: bool,
    pub(super) command: &'a [OsString],
}

impl<'a> From<&'a Trace> for Plan<'a> {
    fn from(args: &'a Trace) -> Self {
        let Trace { starts, live, show, record, force, command } = args;
        Plan { starts, live, show, recording: record.as_deref(), force: *force, command }
    }
}

impl<'a> From<&'a Record> for Plan<'a> {
    fn from(args: &'a Record) -> Self {
        let Record { file, starts, live, show, force, command } = args;
        Plan { starts, live, show, recording: Some(file), force: *force, command }
    }
}

const SETTLE_NS: u64 = 2_000_000_000;
const STUCK_AFTER_NS: u64 = 10_000_000_000;
const TIMEOUT: Span = Span(Duration::from_secs(300));

impl Plan<'_> {
    pub(super) fn config(&self) -> Config {
        let settle_ns = self.starts.settle.map_or(SETTLE_NS, |settle| settle.ns());
        let stuck_after_ns = self.starts.stuck_after.map_or(STUCK_AFTER_NS, |stuck| stuck.ns());
        Config { settle_ns, containers: self.starts.containers, stuck_after_ns }
    }

    pub(super) fn selection(&self) -> Selection {
        self.starts.selection(!self.command.is_empty())
    }

    pub(super) fn header(&self, node: Option<Node>) -> Header {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let Config { settle_ns, containers, stuck_after_ns } = self.config();
        Header {
            tool: format!("podlapse {}", env!("CARGO_PKG_VERSION")),
            created: rfc3339(u64::try_from(now).unwrap_or(0)),
            arguments: arguments(std::env::args_os().skip(1)),
            node,
            settle_ns,
            containers,
            stuck_after_ns,
            selection: self.selection(),
        }
    }

    /// How long to wait.
    pub(super) fn timeout(&self) -> Option<Span> {
        self.live.timeout.or((!self.starts.lifecycle).then_some(TIMEOUT))
    }

    /// What to say when no start was seen.
    pub(super) fn what(&self) -> String {
        let selection = self.selection();
        let what = if selection.lifecycle { "sign" } else { "start" };
        match selection {
            Selection { pod: Some((namespace, name)), .. } => format!("{what} of pod {namespace}/{name}"),
            Selection { uid: Some(uid), .. } => format!("{what} of the pod with UID {uid}"),
            _ => "pod start".to_owned(),
        }
    }
}

/// podlapse's own arguments; of COMMAND, which may hold secrets, the first word.
fn arguments(all: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut after = None;
    all.take_while(|word| {
        match &mut after {
            Some(words) => *words += 1,
            None if word == "--" => after = Some(0),
            None => {}
        }
        after.is_none_or(|words| words <= 1)
    })
    .map(|word| word.to_string_lossy().into_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_command_stay_out_of_the_header() {
        let check = |line: &str, kept: &str| {
            let words = arguments(line.split(' ').map(OsString::from));
            assert_eq!(words.join(" "), kept);
        };
        check("record f --next 2", "record f --next 2");
        check("record f -- kubectl --token SECRET", "record f -- kubectl");
        check("record f -- kubectl -- SECRET", "record f -- kubectl");
        check("record f --", "record f --");
    }
}

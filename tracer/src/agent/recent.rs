//! The traces of late, as JSON, bounded by their size.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::trace::{Outcome, Trace};

/// What is kept of them all.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Which of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `NAMESPACE/NAME`, or a UID.
    pub pod: Option<String>,
    /// Only those that failed.
    pub failed: bool,
    /// How many at most, the latest.
    pub limit: Option<usize>,
}

#[derive(Debug)]
struct Kept {
    trace_id: String,
    pod: String,
    uid: Option<String>,
    failed: bool,
    json: Arc<str>,
}

/// Traces, the latest last.
#[derive(Debug, Default)]
pub struct Recent {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// How many had to go.
    pub evicted: u64,
}

impl Recent {
    /// Keeps a trace; one that comes again takes the place of the one before.
    pub fn add(&mut self, trace: &Trace, json: String) {
        if let Some(old) = self.kept.iter().position(|kept| kept.trace_id == trace.trace_id)
            && let Some(old) = self.kept.remove(old)
        {
            self.bytes -= old.json.len();
        }
        self.bytes += json.len();
        self.kept.push_back(Kept {
            trace_id: trace.trace_id.clone(),
            pod: trace.pod.full_name(),
            uid: trace.pod.uid.as_ref().map(|uid| uid.as_str().to_owned()),
            failed: trace.outcome == Outcome::Failed,
            json: json.into(),
        });
        while self.bytes > MAX_BYTES
            && let Some(old) = self.kept.pop_front()
        {
            self.bytes -= old.json.len();
            self.evicted += 1;
        }
    }

    /// Those that are asked for, the latest first.
    pub fn find(&self, query: &Query) -> Vec<Arc<str>> {
        let pod =
            |kept: &&Kept| query.pod.as_ref().is_none_or(|pod| kept.pod == *pod || kept.uid.as_ref() == Some(pod));
        let failed = |kept: &&Kept| !query.failed || kept.failed;
        let found = self.kept.iter().rev().filter(pod).filter(failed).map(|kept| Arc::clone(&kept.json));
        found.take(query.limit.unwrap_or(usize::MAX)).collect()
    }
}

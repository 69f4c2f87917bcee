//! The traces of late, as JSON, bounded by their size.

use std::collections::VecDeque;

use axum::body::Bytes;

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
    json: Bytes,
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
    pub fn add(&mut self, trace: &Trace, json: Vec<u8>) {
        if let Some(old) = self.kept.iter().position(|kept| kept.trace_id == trace.trace_id)
            && let Some(old) = self.kept.remove(old)
        {
            self.bytes -= old.json.len();
        }
        if json.len() > MAX_BYTES {
            self.evicted += 1;
            return;
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
    pub fn find(&self, query: &Query) -> Vec<Bytes> {
        let pod =
            |kept: &&Kept| query.pod.as_ref().is_none_or(|pod| kept.pod == *pod || kept.uid.as_ref() == Some(pod));
        let failed = |kept: &&Kept| !query.failed || kept.failed;
        let found = self.kept.iter().rev().filter(pod).filter(failed).map(|kept| kept.json.clone());
        found.take(query.limit.unwrap_or(usize::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples;

    /// What is found, each by its JSON.
    fn found(recent: &Recent, query: Query) -> Vec<String> {
        recent.find(&query).iter().map(|json| String::from_utf8_lossy(json).into_owned()).collect()
    }

    fn named(id: &str, name: &str, of: Trace) -> Trace {
        let mut trace = Trace { trace_id: id.into(), ..of };
        trace.pod.name = Some(name.into());
        trace
    }

    #[test]
    fn by_pod_by_failure_the_latest_first() {
        let mut recent = Recent::default();
        for (id, name, of) in [("1", "web", samples::complete()), ("2", "db", samples::failed())] {
            recent.add(&named(id, name, of), id.into());
        }
        recent.add(&named("3", "web", samples::failed()), b"3".into());
        let pod = |pod: &str| Query { pod: Some(pod.into()), ..Query::default() };
        assert_eq!(found(&recent, Query::default()), ["3", "2", "1"]);
        assert_eq!(found(&recent, pod("default/web")), ["3", "1"]);
        assert_eq!(found(&recent, Query { failed: true, ..pod("default/web") }), ["3"]);
        assert_eq!(found(&recent, Query { failed: true, ..Query::default() }), ["3", "2"]);
        assert_eq!(found(&recent, Query { limit: Some(2), ..Query::default() }), ["3", "2"]);
        assert_eq!(found(&recent, Query { limit: Some(0), ..Query::default() }), [""; 0]);
        let uid = samples::complete().pod.uid.unwrap().to_string();
        assert_eq!(found(&recent, pod(&uid)), ["3", "2", "1"]);
        for nobody in ["web", "default/", "", "default/web2"] {
            assert_eq!(found(&recent, pod(nobody)), [""; 0], "{nobody:?}");
        }
    }

    #[test]
    fn one_that_comes_again_is_there_once() {
        let mut recent = Recent::default();
        for (id, json) in [("1", "old"), ("2", "other"), ("1", "new")] {
            recent.add(&named(id, "web", samples::complete()), json.into());
        }
        assert_eq!(found(&recent, Query::default()), ["new", "other"]);
        assert_eq!((recent.bytes, recent.evicted), ("newother".len(), 0));
    }

    #[test]
    fn bounded() {
        let mut recent = Recent::default();
        let add = |recent: &mut Recent, id: usize, bytes: usize| {
            recent.add(&named(&id.to_string(), "web", samples::complete()), vec![b'0' + id as u8; bytes]);
        };
        for id in 0..5 {
            add(&mut recent, id, MAX_BYTES / 4);
        }
        assert_eq!((recent.bytes, recent.kept.len(), recent.evicted), (MAX_BYTES, 4, 1));
        add(&mut recent, 5, 1);
        assert_eq!((recent.kept.len(), recent.evicted), (4, 2));
        // Larger than all the room: the others stay.
        add(&mut recent, 6, MAX_BYTES + 1);
        assert_eq!((recent.kept.len(), recent.evicted), (4, 3));
        add(&mut recent, 7, 3);
        assert_eq!(found(&recent, Query { limit: Some(2), ..Query::default() }), ["777", "5"]);
    }
}

//! What was said of the node: what goes on, and the last of what is over.

use std::collections::{BTreeMap, VecDeque};

use crate::diagnose;
use crate::ids::MonotonicNs;
use crate::trace::{Confidence, NodeVerdict};

/// Verdicts that are remembered after their end, for the starts of that time.
const MAX_PAST: usize = 64;

/// What a check found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) message: String,
    pub(super) evidence: Vec<String>,
    pub(super) confidence: Confidence,
}

/// Verdicts, one of a reason at a time.
#[derive(Debug, Default)]
pub(in crate::lifecycle) struct Told {
    open: BTreeMap<&'static str, NodeVerdict>,
    past: VecDeque<NodeVerdict>,
    fresh: Vec<NodeVerdict>,
}

impl Told {
    /// It began, or is worse by now: it goes on since `since`.
    pub(super) fn say(&mut self, reason: &'static str, since: MonotonicNs, at: MonotonicNs, finding: Finding) {
        let Finding { message, evidence, confidence } = finding;
        let next_check = diagnose::reason(reason).map(|reason| reason.next_check.to_owned());
        let verdict = NodeVerdict {
            since,
            at,
            realtime: None,
            reason: reason.to_owned(),
            message,
            evidence,
            confidence,
            next_check,
            open: true,
        };
        self.fresh.push(verdict.clone());
        self.open.insert(reason, verdict);
    }

    /// It is over, where it was told.
    pub(super) fn end(&mut self, reason: &str, at: MonotonicNs, message: String) {
        let Some(verdict) = self.open.remove(reason) else { return };
        let over = NodeVerdict { at, message, open: false, ..verdict };
        self.fresh.push(over.clone());
        if self.past.len() >= MAX_PAST {
            self.past.pop_front();
        }
        self.past.push_back(over);
    }

    /// What was said since the last such question.
    pub(in crate::lifecycle) fn take(&mut self) -> Vec<NodeVerdict> {
        std::mem::take(&mut self.fresh)
    }

    /// What was so at any time from `from` to `to`, in the order of its beginning.
    pub(in crate::lifecycle) fn within(&self, from: MonotonicNs, to: MonotonicNs) -> Vec<NodeVerdict> {
        let then = |verdict: &&NodeVerdict| verdict.since <= to && (verdict.open || verdict.at >= from);
        let mut verdicts: Vec<NodeVerdict> = self.past.iter().chain(self.open.values()).filter(then).cloned().collect();
        verdicts.sort_by(|a, b| (a.since, &a.reason).cmp(&(b.since, &b.reason)));
        verdicts
    }
}

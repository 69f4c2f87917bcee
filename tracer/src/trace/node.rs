//! What is wrong with the node or its runtime, rather than with one pod.

use super::Confidence;
use crate::ids::MonotonicNs;

/// Something that is wrong with the node, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    /// Since when.
    pub since: MonotonicNs,
    /// When this was known.
    pub at: MonotonicNs,
    /// Realtime of `at`, ns since the epoch, when a clock pair was recorded.
    pub realtime: Option<u64>,
    /// Reason, of [`crate::diagnose::REASONS`].
    pub reason: String,
    /// Message, with figures.
    pub message: String,
    /// What it rests on, a sentence each.
    pub evidence: Vec<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What to check next.
    pub next_check: Option<String>,
    /// It goes on; else it is over.
    pub open: bool,
}

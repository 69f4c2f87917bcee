//! `mount_table_large`, `cri_response_large`: what grows with the node until it breaks.

use std::collections::BTreeMap;

use super::Answer;
use super::told::{Finding, Told};
use crate::cri::{Field, Fields};
use crate::ids::MonotonicNs;
use crate::trace::Confidence;

const MOUNTS: &str = "mount_table_large";
const RESPONSE: &str = "cri_response_large";
/// A pod has about 15 mounts (root file systems, shm, network namespace, volumes), a large node 250 pods: what is above
/// leaks. runc, systemd and kubelet read the table whole, again and again.
const MANY_MOUNTS: u64 = 5000;
const MIB: u64 = 1 << 20;
/// kubelet and containerd take messages of up to 16 MiB (`maxMsgSize`, `defaults.DefaultMaxRecvMsgSize`).
const MAX_MESSAGE: u64 = 16 * MIB;
const LARGE_MESSAGE: u64 = 12 * MIB;
/// gRPC's RESOURCE_EXHAUSTED.
const RESOURCE_EXHAUSTED: u32 = 8;
/// Methods whose responses are large.
const MAX_METHODS: usize = 16;

/// A response that was large.
#[derive(Clone, Debug)]
struct Large {
    since: MonotonicNs,
    bytes: u64,
    /// The runtime's words, where it did not send it.
    refused: Option<String>,
}

/// Sizes.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// The last count of mounts, where nobody looked at it yet.
    mounts: Option<(MonotonicNs, u64)>,
    /// Since when there are many, and how many were told.
    many: Option<(MonotonicNs, u64)>,
    large: BTreeMap<String, Large>,
    /// When the first was, and how large the largest was when it was told.
    told: Option<(MonotonicNs, u64)>,
    changed: bool,
}

impl Sizes {
    /// The runtime's mount table has so many entries.
    pub(super) fn mounts(&mut self, at: MonotonicNs, count: u64) {
        self.mounts = Some((at, count));
    }

    /// A response is complete.
    pub(super) fn response(&mut self, method: &str, at: MonotonicNs, fields: &Fields) {
        let bytes = fields.number(Field::Length).unwrap_or_default();
        if bytes <= LARGE_MESSAGE {
            self.changed |= self.large.remove(method).is_some();
        } else {
            self.add(method, Large { since: at, bytes, refused: None });
        }
    }

    /// A call is over.
    pub(super) fn answer(&mut self, answer: &Answer<'_>) {
        if let Some((RESOURCE_EXHAUSTED, text)) = answer.status
            && text.contains("message larger than max")
        {
            self.add(answer.method, Large { since: answer.at, bytes: MAX_MESSAGE, refused: Some(text.to_owned()) });
        }
    }

    fn add(&mut self, method: &str, large: Large) {
        let since = self.large.get(method).map_or(large.since, |known| known.since);
        if self.large.len() < MAX_METHODS || self.large.contains_key(method) {
            self.changed |= self.large.get(method).is_none_or(|known| known.bytes != large.bytes);
            self.large.insert(method.to_owned(), Large { since, ..large });
        }
    }

    pub(super) fn look(&mut self, now: MonotonicNs, told: &mut Told) {
        if let Some((at, count)) = self.mounts.take() {
            self.look_at_mounts(at, count, told);
        }
        if std::mem::take(&mut self.changed) {
            self.look_at_responses(now, told);
        }
    }

    fn look_at_mounts(&mut self, at: MonotonicNs, count: u64, told: &mut Told) {
        if count < MANY_MOUNTS {
            self.many = None;
            return told.end(MOUNTS, at, format!("the runtime's mount table has {count} entries"));
        }
        let (since, before) = self.many.unwrap_or((at, 0));
        if before > 0 && count < before * 2 {
            return;
        }
        self.many = Some((since, count));
        let message = format!("the runtime's mount table has {count} entries");
        let evidence = vec![format!("/proc/PID/mountinfo of the runtime has {count} lines; {MANY_MOUNTS} are many")];
        told.say(MOUNTS, since, at, Finding { message, evidence, confidence: Confidence::Seen });
    }

    fn look_at_responses(&mut self, now: MonotonicNs, told: &mut Told) {
        let Some((method, largest)) = self.large.iter().max_by_key(|(_, large)| large.bytes) else {
            self.told = None;
            return told.end(RESPONSE, now, "responses are smaller by now".to_owned());
        };
        // It is told again when it is refused; it cannot double.
        let (since, before) = self.told.unwrap_or((largest.since, 0));
        if before > 0 && (largest.refused.is_none() || before >= MAX_MESSAGE) {
            return;
        }
        self.told =
            Some((since, if largest.refused.is_some() { MAX_MESSAGE } else { largest.bytes.min(MAX_MESSAGE - 1) }));
        let message = match &largest.refused {
            Some(_) => format!("the response to {method} is larger than what is allowed, and was not sent"),
            None => format!("the response to {method} has {} of {} MiB", mib(largest.bytes), MAX_MESSAGE / MIB),
        };
        let each = self.large.iter().map(|(method, large)| match &large.refused {
            Some(text) => format!("{method} was answered with RESOURCE_EXHAUSTED: {text}"),
            None => format!("a response to {method} had {} bytes", large.bytes),
        });
        let finding = Finding { message, evidence: each.collect(), confidence: Confidence::Seen };
        told.say(RESPONSE, since, now, finding);
    }
}

/// `12.3`
fn mib(bytes: u64) -> String {
    format!("{}.{}", bytes / MIB, bytes % MIB * 10 / MIB)
}

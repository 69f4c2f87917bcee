//! `cri_unavailable`: the runtime does not have the CRI, or not in the version that is asked for.

use super::told::{Finding, Told};
use super::{Answer, SECOND};
use crate::ids::{ConnId, MonotonicNs};
use crate::trace::Confidence;

const REASON: &str = "cri_unavailable";
/// gRPC's UNIMPLEMENTED.
const UNIMPLEMENTED: u32 = 12;
/// A client that knows another version of the CRI asks for that one at once.
const TRY_ANOTHER_NS: u64 = SECOND;
/// Every version of the CRI has these; a runtime may lack a younger one.
const ALWAYS: [&str; 6] = ["Version", "Status", "ListPodSandbox", "ListContainers", "ListImages", "ImageFsInfo"];

#[derive(Debug)]
struct Missing {
    since: MonotonicNs,
    conn: ConnId,
    service: String,
    method: String,
    text: String,
    /// Refused calls; those when it was told last.
    count: u64,
    told: u64,
}

/// Calls of a service that the runtime does not have.
#[derive(Debug, Default)]
pub(super) struct Refused {
    missing: Option<Missing>,
    answered: Option<MonotonicNs>,
}

impl Refused {
    /// A call is over.
    pub(super) fn answer(&mut self, answer: &Answer<'_>) {
        match answer.status {
            Some((UNIMPLEMENTED, text)) if text.contains("unknown service") || ALWAYS.contains(&answer.method) => {
                let missing = self.missing.get_or_insert_with(|| Missing {
                    since: answer.began,
                    conn: answer.key.conn,
                    service: answer.service.to_owned(),
                    method: answer.method.to_owned(),
                    text: text.to_owned(),
                    count: 0,
                    told: 0,
                });
                missing.count += 1;
            }
            Some((0, _)) => {
                // The same client found another version, or the service is there by now.
                let found = |missing: &Missing| missing.conn == answer.key.conn || missing.service == answer.service;
                if self.missing.as_ref().is_some_and(found) {
                    self.answered = Some(answer.at);
                }
            }
            _ => {}
        }
    }

    pub(super) fn look(&mut self, now: MonotonicNs, told: &mut Told) {
        if let Some(at) = self.answered.take() {
            self.missing = None;
            return told.end(REASON, at, "calls of the CRI are answered".to_owned());
        }
        let Some(missing) = &mut self.missing else { return };
        let again = missing.count >= missing.told.saturating_mul(2).max(1);
        if now.since(missing.since) < TRY_ANOTHER_NS || !again {
            return;
        }
        missing.told = missing.count;
        let Missing { service, method, count, .. } = &*missing;
        let message = format!("the runtime does not have {service}; calls that were refused: {count}");
        let says = Some(&missing.text).filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        let evidence =
            vec![format!("{method} of {service} was answered with UNIMPLEMENTED{}", says.unwrap_or_default())];
        told.say(REASON, missing.since, now, Finding { message, evidence, confidence: Confidence::Seen });
    }
}

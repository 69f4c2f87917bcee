//! What holds for the decoder whatever it is fed: each call's events in order, the same events for the same records,
//! and the same from what a recording keeps of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::cri::infer::Infer;
use crate::cri::{CallEvent, CallKey, MethodSource};
use crate::ids::{ConnId, MonotonicNs};
use crate::record::{Event, Record};
use crate::wire::parts::{Context, Mask};
use crate::wire::{Counters, Decoder, Limits, Redactor};

/// Small, so that eviction is reached, too.
const LIMITS: Limits = Limits { connections: 4, calls: 8, header_block: 1024 };

/// What a part of the decoder is given with each record.
#[derive(Default)]
pub(crate) struct Surroundings {
    out: Vec<CallEvent>,
    infer: Infer,
    pub(crate) counters: Counters,
    limits: Limits,
}

impl Surroundings {
    pub(crate) fn context<'a>(&'a mut self, mask: Mask<'a>) -> Context<'a> {
        Context {
            at: MonotonicNs(0),
            conn: ConnId(1),
            client: None,
            process: None,
            whole: true,
            out: &mut self.out,
            infer: &mut self.infer,
            counters: &mut self.counters,
            limits: &self.limits,
            mask,
            undecoded: 0,
        }
    }
}

/// What `bits` keep of `bytes`.
pub(crate) fn kept(bytes: &[u8], bits: &[u8]) -> Vec<u8> {
    bytes.iter().zip(bits).map(|(byte, kept)| byte & kept).collect()
}

pub(crate) fn decode(records: &[Record], limits: Limits) -> (Vec<CallEvent>, Counters) {
    let (mut decoder, mut out) = (Decoder::new(limits), Vec::new());
    records.iter().for_each(|record| decoder.record(record, &mut out));
    (out, decoder.counters())
}

/// The records as a recording holds them.
pub(crate) fn redact(records: &[Record], limits: Limits) -> Vec<Record> {
    let mut redactor = Redactor::new(limits);
    let mut records = records.to_vec();
    records.iter_mut().for_each(|record| redactor.record(record));
    records
}

/// Decodes, and checks; gives what was decoded.
pub(crate) fn records(records: &[Record]) -> Vec<CallEvent> {
    records_within(records, LIMITS)
}

/// The same with other limits.
pub(crate) fn records_within(records: &[Record], limits: Limits) -> Vec<CallEvent> {
    let (events, counters) = decode(records, limits);
    order(&events);
    let kept = redact(records, limits);
    let (again, counters_again) = decode(&kept, limits);
    assert!(events == again, "the redacted records decode to other events:\n{events:#?}\n{again:#?}");
    assert_eq!(counters, counters_again, "redacted");
    for (once, twice) in kept.iter().zip(redact(&kept, limits)) {
        if let (Event::Bytes(once), Event::Bytes(twice)) = (&once.event, &twice.event) {
            assert_eq!(once.data, twice.data, "redacting twice is redacting once: at {:?}", once.offset);
        }
    }
    for (before, after) in records.iter().zip(&kept) {
        if let (Event::Bytes(before), Event::Bytes(after)) = (&before.event, &after.event) {
            let clean = before.data.iter().zip(&after.data).all(|(b, a)| a & !b == 0);
            assert!(clean && before.data.len() == after.data.len(), "redacting only takes bits away");
        }
    }
    events
}

/// Each call starts once, has its messages while it is open, ends once, and gets its name at most once.
fn order(events: &[CallEvent]) {
    let mut open = BTreeSet::new();
    let mut opaque: BTreeMap<CallKey, usize> = BTreeMap::new();
    for event in events {
        match event {
            CallEvent::Start(start) => {
                assert!(open.insert(start.key), "started twice: {:?}", start.key);
                let nameless = start.service.is_empty() || start.method.is_empty();
                match start.source {
                    MethodSource::Opaque => {
                        assert!(start.service.is_empty() && start.method.is_empty(), "opaque, with a name: {start:?}");
                        *opaque.entry(start.key).or_default() += 1;
                    }
                    MethodSource::Inferred => assert!(!nameless && start.slot.is_some(), "inferred: {start:?}"),
                    MethodSource::Literal | MethodSource::Table => {}
                }
            }
            CallEvent::Request { key, .. } | CallEvent::Response { key, .. } => {
                assert!(open.contains(key), "a message of no call: {key:?}");
            }
            CallEvent::End { key, .. } => assert!(open.remove(key), "ended twice: {key:?}"),
            CallEvent::Unasked { key, .. } => assert!(!open.contains(key), "asked, and open: {key:?}"),
            CallEvent::Named(named) => {
                let left = opaque.get_mut(&named.start.key).filter(|left| **left > 0);
                *left.expect("a name only for a call that has none") -= 1;
                assert!(named.start.source == MethodSource::Inferred && !named.evidence.is_empty(), "{named:?}");
            }
            CallEvent::Unnamed(unnamed) => {
                assert!(opaque.contains_key(&unnamed.start.key), "unnamed, but not opaque: {unnamed:?}");
            }
            CallEvent::Undecoded { .. } => {}
        }
    }
}

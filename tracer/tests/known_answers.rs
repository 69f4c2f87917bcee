//! The decoders over recorded kubelet and crictl traffic: every call as an independent decoder has it; joined late or
//! with losses, never a wrong name; redacted, the same events.

mod capture;

use std::collections::{BTreeMap, BTreeSet};

use capture::{Call, NAMES, calls, decode, random, records, redact, split, truth};
use podlapse::cri::{CallEvent, CallKey, Field, MethodSource};
use podlapse::record::{Direction, Event, Record, SocketOp};
use proptest::prelude::*;

type Records = Vec<Record>;

fn assert_exact(name: &str, records: &Records, what: &str) {
    let (events, counters) = decode(records);
    let decoded: Vec<Call> = calls(&events).into_iter().map(|(call, _)| call).collect();
    let truth = truth(name);
    for (decoded, truth) in decoded.iter().zip(&truth) {
        assert_eq!(decoded, truth, "{name}, {what}");
    }
    assert_eq!(decoded.len(), truth.len(), "{name}, {what}");
    assert_eq!(
        (counters.skipped_bytes, counters.malformed_messages, counters.table_epochs),
        (0, 0, 0),
        "{name}, {what}"
    );
}

/// Checks what must hold however little of a capture was seen; gives how many calls have a name, and how many not.
fn assert_never_wrong(name: &str, records: &Records, truth: &BTreeMap<CallKey, Call>, what: &str) -> (usize, usize) {
    let (events, _) = decode(records);
    let (mut named, mut opaque) = (0, 0);
    for (call, source) in calls(&events) {
        let truth = truth.get(&call.key).unwrap_or_else(|| panic!("{name}, {what}: no such call {:?}", call.key));
        match source {
            MethodSource::Opaque => opaque += 1,
            MethodSource::Literal | MethodSource::Table | MethodSource::Inferred => {
                named += 1;
                assert!(same_name(&call.path, &truth.path), "{name}, {what}: {} is {}", call.path, truth.path);
            }
        }
        if call.timeout_ns.is_some() {
            assert_eq!(call.timeout_ns, truth.timeout_ns, "{name}, {what}");
        }
        if let (Some((code, message)), Some((true_code, true_message))) = (call.status, &truth.status) {
            assert_eq!(code, *true_code, "{name}, {what}");
            assert!(message.is_empty() || message == *true_message, "{name}, {what}: {message}");
        }
    }
    let (again, _) = decode(&redact(records));
    assert!(events == again, "{name}, {what}: the redacted records decode to other events");
    (named, opaque)
}

fn by_key(name: &str) -> BTreeMap<CallKey, Call> {
    truth(name).into_iter().map(|call| (call.key, call)).collect()
}

/// An inferred service has no package while the version of the API is not known.
fn same_name(path: &str, truth: &str) -> bool {
    let tail = truth.rsplit_once('.').map(|(_, tail)| format!("/{tail}"));
    path == truth || tail.is_some_and(|tail| tail == path)
}

#[test]
fn every_call_as_an_independent_decoder_has_it() {
    for name in NAMES {
        assert_exact(name, &records(name), "as recorded");
    }
}

#[test]
fn every_call_however_the_bytes_are_split() {
    for name in NAMES {
        let records = records(name);
        let sizes: Vec<usize> = match name.starts_with("crictl") {
            true => (1..=64).collect(),
            false => vec![1, 2, 3, 5, 8, 9, 10, 24, 33, 100, 1000],
        };
        for size in sizes {
            assert_exact(name, &split(&records, || size), &format!("pieces of {size}"));
        }
    }
}

#[test]
fn redacted_records_decode_to_the_same_events() {
    for name in NAMES {
        let records = records(name);
        for size in [1, 3, 10, 33, 1000, usize::MAX] {
            let records = split(&records, || size);
            assert!(decode(&redact(&records)) == decode(&records), "{name}, pieces of {size}");
        }
    }
}

#[test]
fn joined_late_no_name_is_wrong() {
    for name in NAMES {
        let (records, truth) = (records(name), by_key(name));
        let mut pick = random(1);
        let (mut named, mut opaque) = (0, 0);
        for cut in 0..60 {
            // At a chunk's beginning, and within one.
            let from = pick(records.len());
            let mut late: Records = records[from..].to_vec();
            late.retain(|record| !matches!(&record.event, Event::Socket(s) if s.op == SocketOp::Accept));
            if cut % 2 == 1
                && let Some(Record { event: Event::Bytes(bytes), .. }) = late.first_mut()
            {
                let n = pick(bytes.data.len());
                bytes.data.drain(..n);
                bytes.offset += n as u64;
                bytes.len -= u32::try_from(n).unwrap();
            }
            let (n, o) = assert_never_wrong(name, &late, &truth, &format!("cut {cut} before {from}"));
            (named, opaque) = (named + n, opaque + o);
        }
        println!("{name}: joined late: {named} named, {opaque} opaque");
        assert!(named > 0, "{name}");
    }
}

fn lossy(records: &Records, seed: u64, per_mille: usize, announced: bool) -> Records {
    let mut pick = random(seed);
    let mut lost: BTreeMap<(u64, bool), u64> = BTreeMap::new();
    let mut out = Vec::new();
    for record in records {
        let mut record = record.clone();
        if let Event::Bytes(bytes) = &mut record.event {
            let gone = lost.entry((bytes.conn.0, bytes.direction == Direction::In)).or_default();
            bytes.offset -= *gone;
            if pick(1000) < per_mille {
                if !announced {
                    *gone += u64::from(bytes.len);
                    continue;
                }
                match pick(3) {
                    // The record came without its payload, or with a part of it, or not at all.
                    0 => bytes.data.clear(),
                    1 => bytes.data.truncate(pick(bytes.data.len())),
                    _ => continue,
                }
            }
        }
        out.push(record);
    }
    out
}

#[test]
fn with_losses_no_name_is_wrong() {
    for name in NAMES {
        let (records, truth) = (records(name), by_key(name));
        let (mut named, mut opaque) = (0, 0);
        for seed in 0..40 {
            let lossy = lossy(&records, seed, 10, true);
            let (n, o) = assert_never_wrong(name, &lossy, &truth, &format!("announced, seed {seed}"));
            (named, opaque) = (named + n, opaque + o);
        }
        println!("{name}: announced losses: {named} named, {opaque} opaque");
    }
}

/// Names only: a status has nothing that would betray a loss that nobody announced, and the kernel's offsets do.
#[test]
fn with_losses_that_nobody_announced_no_name_is_wrong() {
    for name in NAMES {
        let (records, truth) = (records(name), by_key(name));
        let (mut named, mut opaque, mut wrong) = (0, 0, 0);
        for seed in 0..40 {
            let (events, _) = decode(&lossy(&records, seed, 10, false));
            for (call, source) in calls(&events) {
                match (source, truth.get(&call.key)) {
                    (MethodSource::Opaque, _) => opaque += 1,
                    (_, Some(truth)) if same_name(&call.path, &truth.path) => named += 1,
                    _ => wrong += 1,
                }
            }
        }
        println!("{name}: losses that nobody announced: {named} named, {opaque} opaque, {wrong} wrong");
        assert_eq!(wrong, 0, "{name}");
    }
}

#[test]
fn identities_are_read_and_secrets_are_not_kept() {
    let records = records(NAMES[0]);
    let (events, _) = decode(&records);
    let debug = format!("{events:?}");
    let named = |event: &CallEvent| match event {
        CallEvent::Request { fields, .. } => fields.text(Field::PodName).map(str::to_owned),
        _ => None,
    };
    let pods: BTreeSet<String> = events.iter().filter_map(named).collect();
    assert_eq!(pods.len(), 2, "web and bad: {pods:?}");
    let kept: Vec<u8> = redact(&records)
        .iter()
        .flat_map(|record| match &record.event {
            Event::Bytes(bytes) => bytes.data.clone(),
            _ => Vec::new(),
        })
        .collect();
    let kept = String::from_utf8_lossy(&kept);
    for secret in SECRETS {
        assert!(!kept.contains(secret) && !debug.contains(secret), "{secret}");
    }
    assert!(pods.iter().all(|pod| kept.contains(pod)));
}

/// Words of the capture's env, annotations, commands and their output.
const SECRETS: [&str; 5] = ["SECRET_TOKEN", "not-to-be-exported", "io.kubernetes.", "kubernetes.io/", "PATH="];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_splits(seed in any::<u64>(), name in 1..3_usize) {
        let mut pick = random(seed);
        let records = split(&records(NAMES[name]), || 1 + pick(400));
        assert_exact(NAMES[name], &records, "random splits");
        prop_assert!(decode(&redact(&records)) == decode(&records));
    }

    #[test]
    fn random_cuts_and_losses(seed in any::<u64>(), name in 1..3_usize) {
        let mut pick = random(seed);
        let name = NAMES[name];
        let whole = split(&records(name), || 1 + pick(3000));
        let lossy = lossy(&whole[pick(whole.len())..].to_vec(), seed, 30, true);
        assert_never_wrong(name, &lossy, &by_key(name), "random cuts and losses");
    }
}

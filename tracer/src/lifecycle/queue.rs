//! Pulls that wait for each other: kubelet pulls one image after another unless told otherwise (`serializeImagePulls`),
//! and asks the runtime for the next only when the one before is over.
//!
//! Nobody says that a pull waits. It is claimed only on a connection on which no two pulls that are remembered were ever
//! open at once, and only where kubelet goes straight to the pull: from RunPodSandbox or another pull. After a
//! StartContainer it may as well wait for that container.

use std::collections::VecDeque;

use super::start::{Call, Method, Start};
use crate::cri::{CallEvent, CallKey, CallStart, Field, Fields, Protocol};
use crate::ids::{ConnId, MonotonicNs, PodUid};

/// Pulls that are remembered.
const MAX_PULLS: usize = 256;
/// kubelet begins the next pull within milliseconds: after a longer pause it had waited for something else.
const HAND_OVER_NS: u64 = 100_000_000;

/// A pull of any pod.
#[derive(Debug)]
struct Seen {
    key: CallKey,
    begin: MonotonicNs,
    end: Option<MonotonicNs>,
    image: Option<String>,
    uid: Option<PodUid>,
}

/// Another pod's pull that a start waited for.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) begin: MonotonicNs,
    pub(super) end: MonotonicNs,
    pub(super) image: Option<String>,
}

/// The last pulls, in the order of their begin.
#[derive(Debug, Default)]
pub(super) struct Pulls(VecDeque<Seen>);

impl Pulls {
    /// A call begins, says what it is about, or ends.
    pub(super) fn call(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Start(start) => self.start(start),
            CallEvent::Request { key, fields, .. } => self.request(*key, fields),
            CallEvent::End { key, at, .. } => self.end(*key, *at),
            CallEvent::Named(named) => {
                let key = named.start.key;
                self.start(&named.start);
                named.request.iter().for_each(|(_, fields)| self.request(key, fields));
                named.end.iter().for_each(|(at, _)| self.end(key, *at));
            }
            CallEvent::Response { .. }
            | CallEvent::Unasked { .. }
            | CallEvent::Unnamed(_)
            | CallEvent::Undecoded { .. } => {}
        }
    }

    /// A pull whose name comes late takes its place among the others.
    fn start(&mut self, start: &CallStart) {
        if start.protocol != Protocol::Grpc || start.method != "PullImage" {
            return;
        }
        if self.0.len() >= MAX_PULLS {
            self.0.pop_front();
        }
        let place = self.0.partition_point(|pull| pull.begin <= start.at);
        self.0.insert(place, Seen { key: start.key, begin: start.at, end: None, image: None, uid: None });
    }

    fn request(&mut self, key: CallKey, fields: &Fields) {
        if let Some(pull) = self.find(key) {
            pull.image = fields.text(Field::Image).map(str::to_owned);
            pull.uid = fields.text(Field::PodUid).map(|uid| PodUid(uid.to_owned()));
        }
    }

    fn end(&mut self, key: CallKey, at: MonotonicNs) {
        if let Some(pull) = self.find(key) {
            pull.end = Some(at);
        }
    }

    fn find(&mut self, key: CallKey) -> Option<&mut Seen> {
        self.0.iter_mut().rev().find(|pull| pull.key == key)
    }

    /// Whether any pod's pull goes on.
    pub(super) fn is_any_open(&self) -> bool {
        self.0.iter().any(|pull| pull.end.is_none())
    }

    /// What a pull that began at `at` waited for since the start's call before.
    pub(super) fn before(&self, start: &Start, conn: ConnId, at: MonotonicNs) -> Vec<Queued> {
        let ended = |call: &Call| call.end.as_ref().map(|(end, _)| (*end, call.method)).filter(|(end, _)| *end <= at);
        let earlier = start.calls.iter().filter(|call| call.start.at < at);
        let Some(calls) = earlier.map(ended).collect::<Option<Vec<_>>>() else { return Vec::new() };
        let last = calls.into_iter().max_by_key(|(end, _)| *end);
        let Some((since, Method::RunPodSandbox | Method::PullImage)) = last else { return Vec::new() };

        let pulls: Vec<&Seen> = self.0.iter().filter(|pull| pull.key.conn == conn && pull.begin <= at).collect();
        let in_turn = |pair: &[&Seen]| pair[0].end.is_some_and(|end| end <= pair[1].begin);
        if !pulls.windows(2).all(in_turn) {
            return Vec::new();
        }
        let mut queued = Vec::new();
        let mut next = at;
        for (pull, end) in pulls.iter().rev().filter_map(|pull| Some((pull, pull.end?))) {
            if end <= since || next.since(end) > HAND_OVER_NS {
                break;
            }
            if pull.uid.is_some() && pull.uid != start.pod.uid {
                queued.push(Queued { begin: pull.begin.max(since), end, image: pull.image.clone() });
            }
            next = pull.begin;
        }
        queued
    }
}

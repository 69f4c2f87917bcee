//! `cri_list_slow`: what kubelet's PLEG polls is not answered, or late.
//!
//! kubelet asks each second for all sandboxes and containers, and the status of those that changed
//! (pkg/kubelet/pleg/generic.go, `relistPeriod`); when that has not gone through for `relistThreshold`, 3 minutes, the
//! node is NotReady.

use std::collections::BTreeMap;

use super::told::{Finding, Told};
use super::{Answer, Open, SECOND};
use crate::cri::CallKey;
use crate::ids::MonotonicNs;
use crate::trace::{Confidence, seconds};

const REASON: &str = "cri_list_slow";
/// A call that takes so long is slow: ten of PLEG's periods.
const SLOW_NS: u64 = 10 * SECOND;
/// kubelet's `relistThreshold`.
const UNHEALTHY_NS: u64 = 180 * SECOND;
/// After so long without a call nobody asks any more; the rate is that of so long.
const MINUTE_NS: u64 = 60 * SECOND;

const POLLED: [&str; 6] = [
    "ListPodSandbox",
    "ListContainers",
    "PodSandboxStatus",
    "ContainerStatus",
    // Since Kubernetes 1.36.
    "StreamPodSandboxes",
    "StreamContainers",
];

/// A method that was asked for since its last answer.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    since: MonotonicNs,
    /// The last try began, or was given up.
    last: MonotonicNs,
}

/// It goes on.
#[derive(Clone, Copy, Debug)]
struct Slow {
    since: MonotonicNs,
    /// When it is told again: after so long.
    again: u64,
}

/// How it is now.
#[derive(Debug)]
struct Now {
    /// Polls that are open.
    open: usize,
    /// Since when a method is not answered, and which.
    oldest: Option<(MonotonicNs, String)>,
    /// An answer that came late: of what, its begin, how long it took.
    late: Option<(&'static str, MonotonicNs, u64)>,
}

/// The polls.
#[derive(Debug, Default)]
pub(super) struct Polls {
    unanswered: BTreeMap<&'static str, Unanswered>,
    /// By second: calls that began.
    begun: BTreeMap<u64, u64>,
    /// The last call that was answered, when, and how long it took.
    answered: Option<(&'static str, MonotonicNs, u64)>,
    /// An answer that came late, and that nobody looked at yet.
    late: Option<(&'static str, MonotonicNs, u64)>,
    longest: u64,
    slow: Option<Slow>,
}

impl Polls {
    /// A call begins.
    pub(super) fn begin(&mut self, method: &str, at: MonotonicNs) {
        let Some(method) = polled(method) else { return };
        *self.begun.entry(at.0 / SECOND).or_default() += 1;
        if self.begun.len() > 60 {
            self.begun.pop_first();
        }
        let fresh = Unanswered { since: at, last: at };
        let known = self.unanswered.entry(method).or_insert(fresh);
        // One that was given up long ago is another story.
        *known =
            if at.since(known.last) > MINUTE_NS { fresh } else { Unanswered { last: at.max(known.last), ..*known } };
    }

    /// A call is over.
    pub(super) fn answer(&mut self, answer: &Answer<'_>) {
        let Some(method) = polled(answer.method) else { return };
        if !answer.is_answered() {
            self.unanswered.entry(method).and_modify(|known| known.last = known.last.max(answer.at));
            return;
        }
        self.unanswered.remove(method);
        let took = answer.took();
        if self.answered.is_none_or(|(_, at, _)| at <= answer.at) {
            self.answered = Some((method, answer.at, took));
        }
        self.longest = self.longest.max(took);
        if took >= SLOW_NS {
            self.late = Some((method, answer.began, took));
        }
    }

    pub(super) fn are_slow(&self) -> bool {
        self.slow.is_some()
    }

    /// Nobody answers those that are open.
    pub(super) fn restarted(&mut self, at: MonotonicNs, told: &mut Told) {
        (self.unanswered, self.late) = (BTreeMap::new(), None);
        if self.slow.take().is_some() {
            told.end(REASON, at, "the runtime ended".to_owned());
        }
    }

    pub(super) fn look(
        &mut self,
        now: MonotonicNs,
        began: MonotonicNs,
        calls: &BTreeMap<CallKey, Open>,
        others: &dyn Fn() -> Vec<String>,
        told: &mut Told,
    ) {
        self.begun.retain(|second, _| (second + 60) * SECOND > now.0);
        let open: Vec<&Open> = calls.values().filter(|open| !open.answered && polled(&open.method).is_some()).collect();
        // Of a method the time counts over several tries, as long as one is open.
        let since = |open: &&Open| {
            let unanswered = polled(&open.method).and_then(|method| self.unanswered.get(method));
            unanswered.map_or(open.at, |unanswered| unanswered.since.min(open.at))
        };
        let oldest = open.iter().map(|open| (since(open), open.method.clone())).min();
        let oldest = oldest.filter(|(since, _)| now.since(*since) >= SLOW_NS);
        let late = self.late.take();
        let Some(slow) = &mut self.slow else {
            let since = oldest.iter().map(|(since, _)| *since).chain(late.map(|(_, began, _)| began)).min();
            if let Some(since) = since {
                self.longest = late.map_or(0, |(_, _, took)| took);
                self.slow = Some(Slow { since, again: next(now.since(since)) });
                self.tell(now, began, Now { open: open.len(), oldest, late }, others, told);
            }
            return;
        };
        let lasts = now.since(slow.since);
        // What was given up is asked for again, or by nobody.
        let given_up =
            |(_, it): &(&&str, &Unanswered)| now.since(it.since) >= SLOW_NS && now.since(it.last) <= MINUTE_NS;
        let given_up =
            self.unanswered.iter().filter(given_up).map(|(method, it)| (it.since, (*method).to_owned())).min();
        let oldest = oldest.or(given_up);
        let quick = self.answered.filter(|(_, at, took)| *at > slow.since && *took < SLOW_NS);
        let begun = self.begun.last_key_value().map_or(0, |(second, _)| second * SECOND);
        let last = self.answered.map_or(begun, |(_, at, _)| at.0.max(begun));
        let idle = open.is_empty() && now.since(MonotonicNs(last)) >= MINUTE_NS;
        if oldest.is_none() && late.is_none() && (quick.is_some() || idle) {
            let why = quick.map(|(method, _, took)| format!("{method} is answered within {}", millis(took)));
            let why = why.unwrap_or_else(|| "nobody asks any more".to_owned());
            let longest = match self.longest {
                0 => String::new(),
                longest => format!("; the slowest answer took {}", seconds(longest)),
            };
            told.end(REASON, now, format!("{why}, after {}{longest}", seconds(lasts)));
            self.slow = None;
        } else if lasts >= slow.again {
            slow.again = next(lasts);
            self.tell(now, began, Now { open: open.len(), oldest, late }, others, told);
        }
    }

    fn tell(
        &self,
        now: MonotonicNs,
        began: MonotonicNs,
        Now { open, oldest, late }: Now,
        others: &dyn Fn() -> Vec<String>,
        told: &mut Told,
    ) {
        let Some(slow) = &self.slow else { return };
        let what = match (&oldest, late.or(self.answered)) {
            (Some((since, method)), _) => format!("{method} is not answered for {}", seconds(now.since(*since))),
            (None, Some((method, _, took))) => format!("{method} took {}", seconds(took)),
            (None, None) => "lists are slow".to_owned(),
        };
        let unanswered = oldest.map_or(0, |(since, _)| now.since(since));
        let pleg = match unanswered >= UNHEALTHY_NS {
            true => "that is past the 3 min after which kubelet's PLEG is unhealthy",
            false => "kubelet's PLEG is unhealthy after 3 min of that",
        };
        let mut evidence = vec![self.rate(now, began, open)];
        evidence.extend(self.answered.map(|(method, at, took)| {
            format!("the last answer, {} ago, to {method}, took {}", seconds(now.since(at)), millis(took))
        }));
        if self.longest > 0 {
            evidence.push(format!("the slowest answer since then took {}", seconds(self.longest)));
        }
        let others = others();
        match others.is_empty() {
            true => evidence.push("no other call is open".to_owned()),
            false => evidence.extend(others),
        }
        let message = format!("{what}; {pleg}");
        told.say(REASON, slow.since, now, Finding { message, evidence, confidence: Confidence::Seen });
    }

    /// How often such calls come, and how many are open.
    fn rate(&self, now: MonotonicNs, began: MonotonicNs, open: usize) -> String {
        let watched = now.since(began).clamp(SECOND, MINUTE_NS);
        let begun: u64 = self.begun.values().sum();
        let tenths = (begun * 10 * SECOND).div_ceil(watched);
        let (whole, tenth) = (tenths / 10, tenths % 10);
        format!("{whole}.{tenth} polls a second in the last {}, {open} of them open", seconds(watched))
    }
}

fn polled(method: &str) -> Option<&'static str> {
    POLLED.into_iter().find(|polled| *polled == method)
}

/// When it is told next: after twice as long; PLEG's threshold is one of these times.
fn next(lasts: u64) -> u64 {
    let twice = lasts.max(SLOW_NS).saturating_mul(2);
    if lasts < UNHEALTHY_NS && twice > UNHEALTHY_NS / 2 { twice.max(UNHEALTHY_NS) } else { twice }
}

/// `4.2 ms`, or seconds.
fn millis(ns: u64) -> String {
    match ns < SECOND {
        true => format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10),
        false => seconds(ns),
    }
}

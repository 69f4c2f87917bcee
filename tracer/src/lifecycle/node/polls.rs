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
pub(super) struct View<'a> {
    pub(super) now: MonotonicNs,
    /// The first record.
    pub(super) began: MonotonicNs,
    pub(super) calls: &'a BTreeMap<CallKey, Open>,
    /// Since when the runtime's process is stopped, and by what.
    pub(super) stopped: Option<(MonotonicNs, &'a str)>,
    /// Calls that are open and no polls, in words.
    pub(super) others: &'a dyn Fn() -> Vec<String>,
}

impl View<'_> {
    /// The polls that are open, with their method.
    fn open(&self) -> impl Iterator<Item = (&'static str, &Open)> {
        self.calls.values().filter(|open| !open.answered).filter_map(|open| Some((polled(&open.method)?, open)))
    }
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

    pub(super) fn look(&mut self, view: &View<'_>, told: &mut Told) {
        let now = view.now;
        if view.stopped.is_none() {
            self.begun.retain(|second, _| (second + 60) * SECOND > now.0);
        }
        let oldest = self.oldest(view);
        let late = self.late.take();
        let Some(slow) = self.slow else {
            let since = oldest.iter().map(|(since, _)| *since).chain(late.map(|(_, began, _)| began)).min();
            if let Some(since) = since {
                self.longest = late.map_or(0, |(_, _, took)| took);
                self.slow = Some(Slow { since, again: next(now.since(since)) });
                self.tell(view, oldest, late, told);
            }
            return;
        };
        let lasts = now.since(slow.since);
        // What was given up is asked for again, or by nobody.
        let given_up =
            |(_, it): &(&&str, &Unanswered)| now.since(it.since) >= SLOW_NS && now.since(it.last) <= MINUTE_NS;
        let given_up = self.unanswered.iter().filter(given_up).map(|(method, it)| (it.since, unanswered(method)));
        let oldest = oldest.or_else(|| given_up.min());
        let quick = self.answered.filter(|(_, at, took)| *at > slow.since && *took < SLOW_NS);
        let begun = self.begun.last_key_value().map_or(0, |(second, _)| second * SECOND);
        let last = self.answered.map_or(begun, |(_, at, _)| at.0.max(begun));
        let idle = view.open().next().is_none() && now.since(MonotonicNs(last)) >= MINUTE_NS;
        if oldest.is_none() && late.is_none() && (quick.is_some() || idle) {
            let why = quick.map(|(method, _, took)| format!("{method} is answered within {}", millis(took)));
            let why = why.unwrap_or_else(|| "nobody asks any more".to_owned());
            let longest = match self.longest {
                ..SLOW_NS => String::new(),
                longest => format!("; the slowest answer took {}", seconds(longest)),
            };
            told.end(REASON, now, format!("{why}, after {}{longest}", seconds(lasts)));
            self.slow = None;
        } else if lasts >= slow.again {
            self.slow = Some(Slow { again: next(lasts), ..slow });
            self.tell(view, oldest, late, told);
        }
    }

    /// Since when lists are not answered, where that is long, and why that is known.
    fn oldest(&self, view: &View<'_>) -> Option<(MonotonicNs, String)> {
        // Of a method the time counts over several tries, as long as one is open.
        let open = view.open().map(|(method, open)| {
            let since = self.unanswered.get(method).map_or(open.at, |it| it.since.min(open.at));
            (since, unanswered(method))
        });
        let open = open.min();
        // A call that nobody reads is not seen: it is known only that there were some in the minute before.
        let stopped = view.stopped.filter(|_| !self.begun.is_empty());
        let oldest = match stopped {
            // That is why those that are open are.
            Some((at, by)) => {
                let since = open.map_or(at, |(since, _)| since.min(at));
                Some((since, format!("the runtime is stopped by {by}, and reads no call,")))
            }
            None => open,
        };
        oldest.filter(|(since, _)| view.now.since(*since) >= SLOW_NS)
    }

    fn tell(
        &self,
        view: &View<'_>,
        oldest: Option<(MonotonicNs, String)>,
        late: Option<(&'static str, MonotonicNs, u64)>,
        told: &mut Told,
    ) {
        let (Some(slow), now) = (self.slow, view.now) else { return };
        let what = match (&oldest, late.or(self.answered)) {
            (Some((since, what)), _) => format!("{what} for {}", seconds(now.since(*since))),
            (None, Some((method, _, took))) => format!("{method} took {}", seconds(took)),
            (None, None) => "lists are slow".to_owned(),
        };
        let unanswered = oldest.map_or(0, |(since, _)| now.since(since));
        let pleg = match unanswered >= UNHEALTHY_NS {
            true => "that is past the 3 min after which kubelet's PLEG is unhealthy",
            false => "kubelet's PLEG is unhealthy after 3 min of that",
        };
        let mut evidence = vec![self.rate(view)];
        evidence.extend(self.answered.map(|(method, at, took)| {
            format!("the last answer, {} ago, to {method}, took {}", seconds(now.since(at)), millis(took))
        }));
        if self.longest >= SLOW_NS {
            evidence.push(format!("the slowest answer since then took {}", seconds(self.longest)));
        }
        let others = (view.others)();
        match others.is_empty() {
            true => evidence.push("no other call is open".to_owned()),
            false => evidence.extend(others),
        }
        let message = format!("{what}; {pleg}");
        told.say(REASON, slow.since, now, Finding { message, evidence, confidence: Confidence::Seen });
    }

    /// How often such calls come, and how many are open.
    fn rate(&self, view: &View<'_>) -> String {
        let open = view.open().count();
        if view.stopped.is_some() {
            return format!("polls that are open: {open}");
        }
        let watched = view.now.since(view.began).clamp(SECOND, MINUTE_NS);
        let begun: u64 = self.begun.values().sum();
        let tenths = (begun * 10 * SECOND).div_ceil(watched);
        let (whole, tenth) = (tenths / 10, tenths % 10);
        format!("{whole}.{tenth} polls a second in the last {}, {open} of them open", seconds(watched))
    }
}

fn unanswered(method: &str) -> String {
    format!("{method} is not answered")
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

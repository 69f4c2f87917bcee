//! `runtime_slow`, `runtime_slow_disk`: calls that only ask are slow, of several kinds, and none of them is stuck. They
//! take no container's work: what they have in common is the runtime itself, its processors, its locks, its disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::told::{Finding, Told};
use super::{Answer, SECOND};
use crate::cri::schema;
use crate::ids::MonotonicNs;
use crate::lifecycle::calls::asks;
use crate::record::{Sys, Syscall};
use crate::trace::{Confidence, seconds};

const SLOW: &str = "runtime_slow";
const DISK: &str = "runtime_slow_disk";
/// Answers that are remembered, and for how long.
const MAX_ANSWERS: usize = 512;
const WINDOW_NS: u64 = 30 * SECOND;
/// kubelet asks each second: an answer that takes longer holds it up. On a healthy node they take milliseconds.
const SLOW_NS: u64 = SECOND;
/// That long, so many answers, of so many methods: PLEG's two lists alone may have a reason of their own.
const LASTS_NS: u64 = 10 * SECOND;
const MIN_ANSWERS: usize = 6;
const MIN_METHODS: usize = 3;
/// Times without a thread in the disk's syscalls that are told apart.
const MAX_WAITS: usize = 512;

#[derive(Clone, Debug)]
struct Took {
    method: String,
    began: MonotonicNs,
    at: MonotonicNs,
}

impl Took {
    fn is_slow(&self) -> bool {
        self.at.since(self.began) >= SLOW_NS
    }
}

/// It goes on.
#[derive(Clone, Copy, Debug)]
struct Slow {
    reason: &'static str,
    since: MonotonicNs,
    /// When it is told again: after so long.
    again: u64,
}

/// How fast the runtime answers.
#[derive(Debug, Default)]
pub(super) struct Pace {
    answers: VecDeque<Took>,
    /// When a thread of the runtime waited for the disk: apart from each other, in order.
    waits: Vec<(MonotonicNs, MonotonicNs)>,
    slow: Option<Slow>,
}

impl Pace {
    /// A call is over.
    pub(super) fn answer(&mut self, answer: &Answer<'_>) {
        if !asks(answer.method) || schema::streams(answer.service, answer.method) || !answer.is_answered() {
            return;
        }
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(Took { method: answer.method.to_owned(), began: answer.began, at: answer.at });
    }

    /// A thread of the runtime ended a syscall.
    pub(super) fn syscall(&mut self, exit: MonotonicNs, syscall: &Syscall) {
        if !matches!(syscall.sys, Sys::Fsync | Sys::Fdatasync | Sys::Syncfs | Sys::Umount2) {
            return;
        }
        let mut wait = (syscall.enter, exit);
        while let Some((from, to)) = self.waits.pop_if(|(_, to)| *to >= wait.0) {
            wait = (from.min(wait.0), to.max(wait.1));
        }
        if self.waits.len() >= MAX_WAITS {
            self.waits.remove(0);
        }
        self.waits.push(wait);
    }

    pub(super) fn restarted(&mut self, at: MonotonicNs, told: &mut Told) {
        (self.answers, self.waits) = (VecDeque::new(), Vec::new());
        self.end(at, "the runtime ended", told);
    }

    fn end(&mut self, at: MonotonicNs, why: &str, told: &mut Told) {
        if let Some(slow) = self.slow.take() {
            told.end(slow.reason, at, format!("{why}, after {}", seconds(at.since(slow.since))));
        }
    }

    /// `stuck`: lists are not answered at all, which is another matter.
    pub(super) fn look(&mut self, now: MonotonicNs, stuck: bool, told: &mut Told) {
        self.waits.retain(|(_, to)| now.since(*to) <= WINDOW_NS * 2);
        if stuck {
            self.answers.clear();
            return self.end(now, "lists are not answered at all", told);
        }
        self.answers.retain(|took| now.since(took.at) <= WINDOW_NS);
        let slow: Vec<&Took> = self.answers.iter().filter(|took| took.is_slow()).collect();
        let (count, all) = (slow.len(), self.answers.len());
        let since = slow.iter().map(|took| took.began).min();
        if let Some(known) = self.slow {
            if count * 2 < all || all == 0 {
                let why = if all == 0 { "nobody asks any more" } else { "most calls are answered within a second" };
                self.end(now, why, told);
            } else if now.since(known.since) >= known.again {
                self.slow = Some(Slow { again: now.since(known.since) * 2, ..known });
                self.tell(now, told);
            }
            return;
        }
        let methods: BTreeSet<&str> = slow.iter().map(|took| took.method.as_str()).collect();
        let Some(since) = since.filter(|_| all >= MIN_ANSWERS && methods.len() >= MIN_METHODS) else { return };
        if count * 5 >= all * 4 && now.since(since) >= LASTS_NS {
            let reason = if self.waited(since, now) >= 50 { DISK } else { SLOW };
            self.slow = Some(Slow { reason, since, again: now.since(since) * 2 });
            self.tell(now, told);
        }
    }

    /// In what share of the time a thread waited for the disk, in percent.
    fn waited(&self, from: MonotonicNs, to: MonotonicNs) -> u64 {
        let within = |(enter, exit): &(MonotonicNs, MonotonicNs)| (*exit).min(to).since((*enter).max(from));
        let total: u64 = self.waits.iter().map(within).sum();
        total * 100 / to.since(from).max(1)
    }

    fn tell(&self, now: MonotonicNs, told: &mut Told) {
        let Some(slow) = self.slow else { return };
        let mut longest: BTreeMap<&str, u64> = BTreeMap::new();
        for took in self.answers.iter().filter(|took| took.is_slow()) {
            let known = longest.entry(&took.method).or_default();
            *known = (*known).max(took.at.since(took.began));
        }
        let window = now.since(slow.since).min(WINDOW_NS);
        let share = self.waited(MonotonicNs(now.0 - window), now);
        let (count, all) = (self.answers.iter().filter(|took| took.is_slow()).count(), self.answers.len());
        let methods = longest.len();
        let message = format!(
            "{count} of the last {all} calls that only ask took a second or more, of {methods} methods; it goes on for {}",
            seconds(now.since(slow.since))
        );
        let each = longest.iter().map(|(method, took)| format!("{method} took up to {}", seconds(*took)));
        // None at all may as well not have been seen.
        let disk = (share > 0).then(|| {
            let calls = "fsync, fdatasync, syncfs or umount2";
            format!("a thread of the runtime was in {calls} for {share} % of the last {}", seconds(window))
        });
        let evidence = disk.into_iter().chain(each).collect();
        // That the disk is why is a conclusion.
        let confidence = if slow.reason == DISK { Confidence::Inferred } else { Confidence::Seen };
        told.say(slow.reason, slow.since, now, Finding { message, evidence, confidence });
    }
}

//! What is wrong with the node or its runtime, rather than with one pod: from the CRI's calls, whoever makes them, and
//! from the signs of the runtime's process. A check a file; each looks once a second of record time.

mod pace;
mod polls;
mod process;
mod refused;
mod sizes;
mod told;

use std::collections::BTreeMap;

use self::pace::Pace;
use self::polls::{Polls, View};
use self::process::{Process, Signal};
use self::refused::Refused;
use self::sizes::Sizes;
use self::told::Told;
use super::calls::asks;
use crate::cri::{CallEvent, CallKey, CallStart, Ending, Field, Fields, Protocol, schema};
use crate::ids::{MonotonicNs, Tgid};
use crate::record::{Event, Exit, Record};
use crate::trace::seconds;

/// Calls under way.
const MAX_CALLS: usize = 4096;
/// Answers that nobody has asked for yet.
const MAX_ANSWERED: usize = 4096;
/// Calls beside those that are slow that are told of: one of them may be what holds the runtime.
const MAX_OTHERS: usize = 3;
const SECOND: u64 = 1_000_000_000;

/// A call of the CRI under way, or one that has no name yet.
#[derive(Clone, Debug)]
struct Open {
    at: MonotonicNs,
    service: String,
    method: String,
    /// Pod, sandbox, container or image that it is about.
    about: Option<String>,
    answered: bool,
}

/// A call of the CRI that is over, or a stream that was answered; podlapse's own are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// `RunPodSandbox`, …; empty where it is not known.
    pub method: String,
    /// gRPC's status code; none: there was no answer, or none that could be read.
    pub code: Option<u32>,
    /// From the request's first byte to the answer.
    pub took_ns: u64,
}

/// A call that is over, or a stream that was answered.
#[derive(Clone, Copy, Debug)]
struct Answer<'a> {
    key: CallKey,
    service: &'a str,
    method: &'a str,
    began: MonotonicNs,
    at: MonotonicNs,
    /// gRPC's code and text; none: there was no answer, or no status of it that could be read.
    status: Option<(u32, &'a str)>,
}

impl Answer<'_> {
    fn took(&self) -> u64 {
        self.at.since(self.began)
    }

    /// The runtime said something of its own: CANCELLED and DEADLINE_EXCEEDED are what the client's leaving looks like.
    fn is_answered(&self) -> bool {
        self.status.is_some_and(|(code, _)| !matches!(code, 1 | 4))
    }
}

/// The checks, and what they are fed from.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// First record, and the last second that was looked at.
    began: Option<MonotonicNs>,
    looked: u64,
    calls: BTreeMap<CallKey, Open>,
    polls: Polls,
    pace: Pace,
    process: Process,
    refused: Refused,
    sizes: Sizes,
    answered: Vec<Answered>,
    pub(super) told: Told,
    pub(super) evicted: u64,
}

impl Health {
    /// Takes one event of a call that is not podlapse's own.
    pub(super) fn call(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Start(start) => self.start(start),
            CallEvent::Request { key, fields, .. } => self.request(*key, fields),
            CallEvent::Response { key, at, fields } => self.response(*key, *at, fields),
            CallEvent::End { key, at, ending } => {
                if let Some(open) = self.calls.remove(key) {
                    self.end(*key, open, *at, ending);
                }
            }
            CallEvent::Named(named) => {
                let key = named.start.key;
                // Its end was told before its name.
                let over = self.calls.remove(&key).is_none();
                self.start(&named.start);
                named.request.iter().for_each(|(_, fields)| self.request(key, fields));
                named.response.iter().for_each(|(at, fields)| self.response(key, *at, fields));
                if let Some((at, ending)) = &named.end
                    && let Some(open) = self.calls.remove(&key)
                {
                    self.end(key, open, *at, ending);
                } else if over {
                    self.calls.remove(&key);
                }
            }
            CallEvent::Unasked { .. } | CallEvent::Unnamed(_) | CallEvent::Undecoded { .. } => {}
        }
    }

    fn start(&mut self, start: &CallStart) {
        let CallStart { key, at, service, method, .. } = start;
        let of_the_cri = schema::is_runtime(service) || schema::is_image(service);
        if start.protocol != Protocol::Grpc || start.signs.namespace || !(service.is_empty() || of_the_cri) {
            return;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_first();
            self.evicted += 1;
        }
        self.polls.begin(method, *at);
        let (service, method) = (service.clone(), method.clone());
        self.calls.insert(*key, Open { at: *at, service, method, about: None, answered: false });
    }

    fn request(&mut self, key: CallKey, fields: &Fields) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        let text = |field| fields.text(field).filter(|text| !text.is_empty()).map(str::to_owned);
        let pod = || Some(format!("{}/{}", text(Field::PodNamespace)?, text(Field::PodName)?));
        open.about = pod().or_else(|| text(Field::ContainerId)).or_else(|| text(Field::SandboxId));
        open.about = open.about.take().or_else(|| text(Field::Image));
    }

    fn response(&mut self, key: CallKey, at: MonotonicNs, fields: &Fields) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        self.sizes.response(&open.method, at, fields);
        // Of a stream the first message is the answer.
        if schema::streams(&open.service, &open.method) && !open.answered {
            let open = open.clone();
            self.answer(Answer {
                key,
                service: &open.service,
                method: &open.method,
                began: open.at,
                at,
                status: Some((0, "")),
            });
        }
        if let Some(open) = self.calls.get_mut(&key) {
            open.answered = true;
        }
    }

    fn end(&mut self, key: CallKey, open: Open, at: MonotonicNs, ending: &Ending) {
        let Open { at: began, service, method, answered, .. } = &open;
        if *answered && schema::streams(service, method) {
            return;
        }
        let status = match ending {
            Ending::Status { code, message } => Some((*code, message.as_str())),
            Ending::NoStatus if *answered => Some((0, "")),
            _ => None,
        };
        self.answer(Answer { key, service, method, began: *began, at, status });
    }

    fn answer(&mut self, answer: Answer<'_>) {
        if self.answered.len() < MAX_ANSWERED {
            let code = answer.status.map(|(code, _)| code);
            self.answered.push(Answered { method: answer.method.to_owned(), code, took_ns: answer.took() });
        }
        self.polls.answer(&answer);
        self.pace.answer(&answer);
        self.refused.answer(&answer);
        self.sizes.answer(&answer);
    }

    /// The calls that were answered since the last such question.
    pub(super) fn take_answered(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answered)
    }

    /// Takes a record; what it is about is a `runtime` process.
    pub(super) fn record(&mut self, record: &Record, runtime: bool) {
        let at = record.at;
        match &record.event {
            Event::Node(pairs) => {
                let count = pairs.iter().find(|(key, _)| key == "mounts").and_then(|(_, count)| count.parse().ok());
                count.into_iter().for_each(|count| self.sizes.mounts(at, count));
            }
            Event::Syscall(syscall) if runtime => self.pace.syscall(at, syscall),
            Event::Signal { target, signal, code, result, comm } if runtime => {
                let (target, signal, code) = (*target, *signal, *code);
                let sent = Signal { target, signal, code, delivered: *result == 0, comm };
                self.process.signal(at, record.tgid, &sent);
            }
            Event::Oom { victim, .. } => self.process.oom(*victim),
            Event::Exit(exit) if runtime => self.ended(at, record.tgid, exit),
            Event::Socket(socket) => self.process.socket(at, record.tgid, socket, &mut self.told),
            Event::Process(found) => self.process.found(at, record.tgid, found, &mut self.told),
            _ => {}
        }
    }

    fn ended(&mut self, at: MonotonicNs, pid: Tgid, exit: &Exit) {
        let cut_off = std::mem::take(&mut self.calls);
        let names = cut_off.values().filter(|open| !open.answered).map(|open| open.method.as_str());
        self.process.ended(at, pid, exit, names, &mut self.told);
        self.polls.restarted(at, &mut self.told);
        self.pace.restarted(at, &mut self.told);
    }

    /// Time has come to `now`. `pod` gives the name of the pod that an id is of.
    pub(super) fn advance(&mut self, now: MonotonicNs, pod: &dyn Fn(&str) -> Option<String>) {
        let began = *self.began.get_or_insert(now);
        if now.0 / SECOND == self.looked {
            return;
        }
        self.looked = now.0 / SECOND;
        let others = || others(&self.calls, now, pod);
        let view = View { now, began, calls: &self.calls, stopped: self.process.stopped(), others: &others };
        self.polls.look(&view, &mut self.told);
        self.pace.look(now, self.polls.are_slow(), &mut self.told);
        self.refused.look(now, &mut self.told);
        self.sizes.look(now, &mut self.told);
    }
}

/// The oldest calls that are open and no polls, in words.
fn others(calls: &BTreeMap<CallKey, Open>, now: MonotonicNs, pod: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let other = |open: &&Open| !open.method.is_empty() && !asks(&open.method);
    let mut open: Vec<&Open> = calls.values().filter(other).collect();
    open.sort_by_key(|open| open.at);
    let sentence = |open: &&Open| {
        let about = open.about.as_deref().map(|about| pod(about).unwrap_or_else(|| about.to_owned()));
        let of = about.map_or(String::new(), |about| format!(" of {about}"));
        format!("{}{of} is open for {}", open.method, seconds(now.since(open.at)))
    };
    open.iter().take(MAX_OTHERS).map(sentence).collect()
}

//! One story a pod: what was tried before, and how long nothing was tried after it.

use super::Lifecycle;
use super::start::{Container, Failure, Start};
use super::unit::Unit;
use crate::ids::MonotonicNs;
use crate::trace::{Attempt, AttemptExit, StartKind};

/// Most attempts of a trace: the first, and the latest.
const MAX_ATTEMPTS: usize = 16;

impl Lifecycle {
    /// Earlier starts of the same pod, in order; of a container's start its own and the pod's.
    pub(super) fn attempts(&self, start: &Start) -> Vec<Attempt> {
        let mut earlier = self.earlier(start);
        if earlier.len() > MAX_ATTEMPTS {
            earlier.drain(1..=earlier.len() - MAX_ATTEMPTS);
        }
        let origin = start.origin();
        let next = earlier.iter().skip(1).map(|next| next.origin()).chain([origin]);
        let next: Vec<MonotonicNs> = next.collect();
        let known = |(of, next): (&&Start, MonotonicNs)| self.attempt(of, start, next);
        earlier.iter().zip(next).map(known).collect()
    }

    /// The trace in which the name was taken that this start finds reserved: the first attempt whose call is open, or
    /// was given up by its client.
    pub(super) fn first_given_up(&self, start: &Start) -> Option<String> {
        let given_up =
            |other: &&Start| !other.state.is_over() || other.failure.as_ref().is_some_and(Failure::is_given_up);
        self.earlier(start).into_iter().find(given_up).map(|other| other.trace_id.clone())
    }

    fn earlier(&self, start: &Start) -> Vec<&Start> {
        let Some(uid) = &self.pod(start).uid else { return Vec::new() };
        let name = |start: &Start| start.containers.first().and_then(|it| it.name.clone());
        let same = |other: &&Start| {
            let told = other.kind == StartKind::Pod || start.kind == StartKind::Container && name(other) == name(start);
            told && self.pod(other).uid.as_ref() == Some(uid) && !other.is_unfounded(&self.units)
        };
        self.starts.values().take_while(|other| other.trace_id != start.trace_id).filter(same).collect()
    }

    fn attempt(&self, of: &Start, start: &Start, next: MonotonicNs) -> Attempt {
        let name = start.containers.first().and_then(|it| it.name.as_ref());
        let own = |it: &&Container| start.kind == StartKind::Pod || it.name.as_ref() == name;
        let container = of.containers.iter().rev().find(own).filter(|_| start.kind == StartKind::Container);
        let unit = container.and_then(|it| of.unit(it, &self.units));
        let exit = unit.and_then(|unit| exit_of(unit, start.origin()));
        let ended = unit.and_then(|unit| unit.exit.as_ref()).map(|(at, _)| *at).filter(|at| *at <= next);
        let (begin, over) = (of.origin(), of.state.is_over());
        let end = of.end.filter(|_| over);
        // A failed one is over with its reply, another one with its container's end.
        let tried = if of.failure.is_some() { end } else { ended };
        let (stage, reason) = of.told.clone().filter(|_| over).unzip();
        Attempt {
            trace_id: of.trace_id.clone(),
            kind: of.kind,
            attempt: if of.kind == StartKind::Pod { self.pod(of).attempt } else { container.and_then(|it| it.attempt) },
            outcome: of.state.outcome(),
            stage,
            reason,
            before_ns: start.origin().since(begin),
            total_ns: end.unwrap_or(next).since(begin),
            exit: exit.filter(|_| ended.is_some()),
            waited_ns: tried.filter(|at| *at <= next).map(|at| next.since(at)),
        }
    }
}

fn exit_of(unit: &Unit, origin: MonotonicNs) -> Option<AttemptExit> {
    let (at, exit) = unit.exit.as_ref()?;
    let before_ns = origin.since(*at);
    Some(AttemptExit { code: exit.status, signal: exit.signal, oom: unit.was_oom_killed(), before_ns })
}

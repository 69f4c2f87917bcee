//! Which of the engine's traces a run is about, and when it has them all. Pure, on record time.

use tracer_ebpf::mark;

use super::follow::Follow;
use super::unseen::Unseen;
use super::values::From;
use crate::engine::Update;
use crate::ids::MonotonicNs;
use crate::record::{Event, Record};
use crate::recording::Selection;
use crate::trace::{LifeEvent, PodInfo, StartKind, Trace};

/// After COMMAND's end no more starts are waited for, once so much record time has passed.
const GRACE_NS: u64 = 200_000_000;

/// Finished traces that are held back, since a start may change; the earliest beyond that are given out.
const HELD: usize = 1000;

/// Starts that are remembered; the earliest beyond that are forgotten, once they were given out.
const REMEMBERED: usize = 10 * HELD;

/// One start that was chosen.
#[derive(Debug)]
struct Chosen {
    id: String,
    start: MonotonicNs,
    /// The trace when it is over, until it is given out.
    finished: Option<Box<Trace>>,
    /// When to ask whether it is final.
    due: MonotonicNs,
    given: bool,
}

/// What a run gives out, in this order.
#[derive(Debug)]
pub(super) enum Given {
    /// A trace of which no more will be known.
    Trace(Box<Trace>),
    /// With `--lifecycle`: an event of a pod that is followed.
    Life {
        event: Box<LifeEvent>,
        /// The pod's first sign.
        first: MonotonicNs,
    },
    /// With `--lifecycle`: a start is over; its trace comes later.
    Over {
        trace: Box<Trace>,
        /// The pod's first sign.
        first: MonotonicNs,
        /// It was told before, and more is known now.
        again: bool,
    },
}

/// Chooses traces.
#[derive(Debug)]
pub(super) struct Selector {
    selection: Selection,
    /// With `--lifecycle`: the pods that are followed.
    follow: Option<Follow>,
    from: Option<From>,
    /// Time of the first record.
    first: Option<MonotonicNs>,
    now: MonotonicNs,
    attached: Option<MonotonicNs>,
    command_started: Option<MonotonicNs>,
    command_ended: Option<MonotonicNs>,
    chosen: Vec<Chosen>,
    /// What to give out.
    ready: Vec<Given>,
    /// Whether traces are given out as soon as they are final.
    early: bool,
    /// Pods whose trace changed after it was given out.
    changed: Vec<String>,
    /// How many were forgotten, and the latest beginning of one of them: what began before is not chosen again.
    forgotten: (usize, Option<MonotonicNs>),
    unseen: Unseen,
}

impl Selector {
    pub(super) fn new(selection: Selection, settle_ns: u64) -> Selector {
        Selector {
            follow: selection.lifecycle.then(|| Follow::new(settle_ns)),
            selection,
            from: None,
            first: None,
            now: MonotonicNs(0),
            attached: None,
            command_started: None,
            command_ended: None,
            chosen: Vec::new(),
            ready: Vec::new(),
            early: false,
            changed: Vec::new(),
            forgotten: (0, None),
            unseen: Unseen::default(),
        }
    }

    /// Gives traces out as soon as they are final, not at the end.
    pub(super) fn give_early(&mut self) {
        self.early = true;
    }

    /// Chooses only starts that began at `from` or later.
    pub(super) fn only_from(&mut self, from: From) {
        self.from = Some(from);
    }

    /// Takes a record's time and mark.
    pub(super) fn record(&mut self, record: &Record) {
        self.first.get_or_insert(record.at);
        self.now = self.now.max(record.at);
        self.unseen.record(record, &self.selection);
        match record.event {
            // Again when a runtime comes back.
            Event::Mark(mark::ATTACHED) => self.attached = self.attached.or(Some(record.at)),
            Event::Mark(mark::COMMAND_STARTED) => self.command_started = Some(record.at),
            Event::Mark(mark::COMMAND_ENDED) => self.command_ended = Some(record.at),
            _ => {}
        }
    }

    /// Takes what the engine said; gives back whether it is about a chosen start, a pod that is followed, or all.
    pub(super) fn update(&mut self, update: Update) -> bool {
        let (trace, over) = match update {
            Update::Started(trace) | Update::Stuck(trace) => (trace, false),
            Update::Finished(trace) => (trace, true),
            Update::Withdrawn { trace_id, pod } => {
                self.withdraw(&trace_id, pod);
                return false;
            }
            Update::Life(event) => return self.life(event),
            // It is about every start of that time.
            Update::Node(_) => return true,
        };
        self.follow_start(&trace, over);
        let known = self.chosen.iter().position(|chosen| chosen.id == trace.trace_id);
        let at = match known {
            Some(at) => at,
            None if self.wants(&trace) => {
                self.chosen.push(Chosen {
                    id: trace.trace_id.clone(),
                    start: trace.start,
                    finished: None,
                    due: MonotonicNs(0),
                    given: false,
                });
                self.chosen.len() - 1
            }
            None => {
                self.unseen.not_chosen(&trace);
                return false;
            }
        };
        let chosen = &mut self.chosen[at];
        if over && chosen.given {
            self.changed.push(trace.pod.full_name());
        } else if over {
            (chosen.finished, chosen.due) = (Some(trace), self.now);
        }
        true
    }

    /// With `--lifecycle`: a sign of a start.
    fn follow_start(&mut self, trace: &Trace, over: bool) {
        let wanted = self.wants_pod(&trace.pod, trace.start, trace.start_realtime)
            && (self.is_named() || trace.kind == StartKind::Pod || self.wants_all())
            && (self.is_named() || !self.selection.command || self.during_command(trace));
        let Some(follow) = &mut self.follow else { return };
        let Some(first) = follow.start(trace, self.now, wanted) else { return };
        if over && let Some(again) = follow.tell(trace) {
            self.ready.push(Given::Over { trace: Box::new(trace.clone()), first, again });
        }
    }

    /// An event; whether its pod is followed. One whose start was not seen is where it is named, or where all are.
    fn life(&mut self, event: Box<LifeEvent>) -> bool {
        let wanted = self.wants_pod(&event.pod, event.at, event.realtime) && (self.is_named() || self.wants_all());
        let Some(follow) = &mut self.follow else { return false };
        let Some(first) = follow.event(&event, self.now, wanted) else { return false };
        self.ready.push(Given::Life { event, first });
        true
    }

    /// A start was part of another one, which counts by itself.
    fn withdraw(&mut self, id: &str, pod: String) {
        let Some(at) = self.chosen.iter().position(|chosen| chosen.id == id) else { return };
        if self.chosen[at].given {
            self.changed.push(pod);
        } else {
            self.chosen.remove(at);
        }
    }

    /// Gives out what is final by now, one document a start. `final_at` says when one is, if it is over. Asked at each
    /// record, so that a replay gives out the same.
    pub(super) fn ripen(&mut self, final_at: impl Fn(&str) -> Option<MonotonicNs>) {
        if !self.early {
            return;
        }
        for chosen in self.chosen.iter_mut().filter(|chosen| chosen.finished.is_some() && chosen.due <= self.now) {
            match final_at(&chosen.id) {
                Some(at) if at <= self.now => {
                    self.ready.extend(chosen.finished.take().map(Given::Trace));
                    chosen.given = true;
                }
                Some(at) => chosen.due = at,
                // Under way again: it comes again.
                None => chosen.due = MonotonicNs(u64::MAX),
            }
        }
    }

    /// Pods whose trace changed after it was given out.
    pub(super) fn changed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changed)
    }

    /// Whether an unknown start is one to choose.
    fn wants(&self, trace: &Trace) -> bool {
        let known = self.forgotten.1.is_some_and(|start| trace.start <= start);
        if let Some(follow) = &self.follow {
            return !known && follow.has(trace);
        }
        let selection = &self.selection;
        let kind = self.is_named() || selection.restarts || trace.kind == StartKind::Pod;
        let command = !selection.command || self.during_command(trace);
        !known && kind && command && self.wants_pod(&trace.pod, trace.start, trace.start_realtime)
    }

    /// Whether a pod, of which something began then, is one to choose, and there is room for it.
    fn wants_pod(&self, pod: &PodInfo, start: MonotonicNs, realtime: Option<u64>) -> bool {
        let selection = &self.selection;
        let full = selection.next.is_some_and(|next| self.count().0 >= next as usize);
        let name = selection.pod.as_ref().is_none_or(|(namespace, name)| {
            pod.namespace.as_ref() == Some(namespace) && pod.name.as_ref() == Some(name)
        });
        let uid = selection.uid.as_ref().is_none_or(|uid| pod.uid.as_ref().is_some_and(|u| u.as_str() == uid));
        // Of a named pod also a start that was under way; of "the next" only those that began later.
        let next = self.is_named() || self.attached.or(self.first).is_none_or(|since| start >= since);
        let late = match self.from {
            None => true,
            Some(From::Wall(wall)) => realtime.is_some_and(|realtime| realtime >= wall),
            Some(From::After(span)) => self.first.is_some_and(|first| start.since(first) >= span.ns()),
        };
        !full && name && uid && next && late
    }

    fn is_named(&self) -> bool {
        self.selection.pod.is_some() || self.selection.uid.is_some()
    }

    /// Whatever there is, as in a replay.
    fn wants_all(&self) -> bool {
        self.selection.next.is_none() && !self.selection.command
    }

    fn during_command(&self, trace: &Trace) -> bool {
        let arrived = trace.spans.iter().find(|span| span.stage == "sandbox").map_or(0, |span| span.start_ns);
        let arrived = MonotonicNs(trace.start.0.saturating_add(arrived));
        self.command_started.is_some_and(|started| arrived >= started)
            && self.command_ended.is_none_or(|ended| arrived <= ended)
    }

    /// What is known where no start was chosen.
    pub(super) fn unseen(&self) -> &Unseen {
        &self.unseen
    }

    /// Whether all that was asked for is there.
    pub(super) fn done(&self) -> bool {
        if let Some(follow) = &self.follow {
            return self.all_came() && follow.all_gone(self.now);
        }
        let all = self.chosen.iter().all(|chosen| chosen.finished.is_some() || chosen.given);
        all && self.all_came()
    }

    /// No other start, or pod, is to be chosen. A pod that is named is waited for beyond COMMAND's end.
    fn all_came(&self) -> bool {
        let full = self.selection.next.is_some_and(|next| self.count().0 >= next as usize);
        let command_over = self.command_ended.is_some_and(|ended| self.now.since(ended) >= GRACE_NS);
        let here = self.follow.is_none() || !self.is_named() || self.count().0 > 0;
        if self.selection.command { command_over && here } else { full }
    }

    /// Starts chosen, and those of them that are over; with `--lifecycle` pods followed, and those that are gone.
    pub(super) fn count(&self) -> (usize, usize) {
        if let Some(follow) = &self.follow {
            return follow.count();
        }
        let over = self.chosen.iter().filter(|chosen| chosen.finished.is_some() || chosen.given);
        (self.forgotten.0 + self.chosen.len(), self.forgotten.0 + over.count())
    }

    /// What to give out: events, traces that are final, and those beyond what is held back, in order.
    pub(super) fn overflow(&mut self) -> Vec<Given> {
        let held = self.chosen.iter().filter(|chosen| chosen.finished.is_some()).count();
        let mut out = std::mem::take(&mut self.ready);
        for chosen in self.chosen.iter_mut().filter(|chosen| chosen.finished.is_some()).take(held.saturating_sub(HELD))
        {
            out.extend(chosen.finished.take().map(Given::Trace));
            chosen.given = true;
        }
        let many = self.chosen.len().saturating_sub(REMEMBERED);
        let given =
            self.chosen.iter().take(many).take_while(|chosen| chosen.given && chosen.finished.is_none()).count();
        for chosen in self.chosen.drain(..given) {
            self.forgotten = (self.forgotten.0 + 1, self.forgotten.1.max(Some(chosen.start)));
        }
        out
    }

    /// Finished traces that are held back.
    pub(super) fn held(&self) -> impl Iterator<Item = &Trace> {
        self.chosen.iter().filter_map(|chosen| chosen.finished.as_deref())
    }

    /// What is left to give out: last the chosen traces, in order of choice; those that are not over from `open`, what the
    /// engine knows of them.
    pub(super) fn finish(mut self, open: Vec<Trace>) -> Vec<Given> {
        for trace in open {
            self.follow_start(&trace, false);
            // A pod's name may have been learnt after the start was seen.
            if let Some(chosen) = self.chosen.iter_mut().find(|chosen| chosen.id == trace.trace_id) {
                if !chosen.given {
                    chosen.finished.get_or_insert_with(|| Box::new(trace));
                }
            } else if self.wants(&trace) {
                let (id, start) = (trace.trace_id.clone(), trace.start);
                let (finished, due) = (Some(Box::new(trace)), self.now);
                self.chosen.push(Chosen { id, start, finished, due, given: false });
            }
        }
        let rest = self.chosen.into_iter().filter_map(|chosen| chosen.finished).map(Given::Trace);
        self.ready.into_iter().chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PodUid, Tgid, Tid};
    use crate::trace::{NodeInfo, Outcome, Quality, Sandbox};

    fn trace(name: &str, start: u64) -> Box<Trace> {
        Box::new(Trace {
            trace_id: format!("id of {name}"),
            kind: StartKind::Pod,
            node: NodeInfo::default(),
            pod: PodInfo {
                namespace: Some("default".into()),
                name: Some(name.into()),
                uid: Some(PodUid(format!("uid-{name}"))),
                ..PodInfo::default()
            },
            outcome: Outcome::InProgress,
            start: MonotonicNs(start),
            start_realtime: None,
            total_ns: 0,
            stages: Vec::new(),
            named_ns: 0,
            spans: Vec::new(),
            sandbox: Sandbox::default(),
            containers: Vec::new(),
            verdict: None,
            attempts: Vec::new(),
            waiting: None,
            quality: Quality::default(),
        })
    }

    fn at(selector: &mut Selector, at: u64, event: Event) {
        selector.record(&Record { at: MonotonicNs(at), tgid: Tgid(0), tid: Tid(0), event });
    }

    fn names(given: &[Given]) -> Vec<&str> {
        let traces = given.iter().filter_map(|given| match given {
            Given::Trace(trace) => Some(trace),
            Given::Life { .. } | Given::Over { .. } => None,
        });
        traces.filter_map(|trace| trace.pod.name.as_deref()).collect()
    }

    fn selector(selection: Selection) -> Selector {
        Selector::new(selection, SETTLE)
    }

    const SETTLE: u64 = 2_000_000_000;

    #[test]
    fn the_next_that_begin() {
        let mut selector = selector(Selection { next: Some(2), ..Selection::default() });
        at(&mut selector, 10, Event::Tick);
        assert!(!selector.update(Update::Started(trace("found while podlapse attached", 9))));
        at(&mut selector, 10, Event::Mark(mark::ATTACHED));
        assert!(!selector.update(Update::Started(trace("early", 9))));
        assert!(selector.update(Update::Started(trace("a", 11))));
        assert!(selector.update(Update::Started(trace("b", 12))));
        assert!(!selector.update(Update::Started(trace("c", 13))));
        assert!(!selector.update(Update::Finished(trace("c", 13))), "the first to end is not the first to begin");
        assert!(selector.update(Update::Finished(trace("b", 12))));
        assert!(!selector.done());
        assert_eq!(selector.count(), (2, 1));
        assert!(selector.update(Update::Finished(trace("a", 11))));
        assert!(selector.done());
        assert_eq!(names(&selector.finish(Vec::new())), ["a", "b"]);
    }

    #[test]
    fn a_reopened_start_is_one_trace() {
        let mut selector = selector(Selection { next: Some(2), ..Selection::default() });
        for update in [Update::Started(trace("a", 1)), Update::Finished(trace("a", 1))] {
            selector.update(update);
        }
        let mut again = trace("a", 1);
        again.total_ns = 7;
        selector.update(Update::Finished(again));
        let traces = selector.finish(vec![*trace("b", 2)]);
        assert_eq!(names(&traces), ["a", "b"]);
        assert!(matches!(&traces[0], Given::Trace(trace) if trace.total_ns == 7));
    }

    #[test]
    fn what_was_part_of_another_start() {
        let withdrawn =
            |id: &str| Update::Withdrawn { trace_id: format!("id of {id}"), pod: "default/whole".to_owned() };
        let mut selector = selector(Selection { next: Some(2), ..Selection::default() });
        selector.give_early();
        for update in [Update::Started(trace("whole", 1)), Update::Finished(trace("part", 2))] {
            selector.update(update);
        }
        assert!(!selector.update(withdrawn("part")) && !selector.update(withdrawn("none")));
        assert_eq!((selector.count(), selector.changed()), ((1, 0), Vec::new()));
        // One that was printed cannot be taken back.
        selector.update(Update::Finished(trace("printed", 3)));
        selector.ripen(|_| Some(MonotonicNs(0)));
        assert_eq!(names(&selector.overflow()), ["printed"]);
        selector.update(withdrawn("printed"));
        assert_eq!(selector.changed(), ["default/whole"]);
        selector.update(Update::Finished(trace("whole", 1)));
        assert_eq!(names(&selector.finish(Vec::new())), ["whole"]);
    }

    #[test]
    fn given_out_when_final() {
        let mut selector = selector(Selection { next: Some(3), ..Selection::default() });
        selector.give_early();
        let ripe = |selector: &mut Selector, at: u64, final_at: Option<u64>| {
            selector.record(&Record { at: MonotonicNs(at), tgid: Tgid(0), tid: Tid(0), event: Event::Tick });
            selector.ripen(|_| final_at.map(MonotonicNs));
            names(&selector.overflow()).join(" ")
        };
        selector.update(Update::Started(trace("a", 1)));
        selector.update(Update::Finished(trace("a", 1)));
        assert_eq!(ripe(&mut selector, 5, Some(10)), "");
        assert_eq!(ripe(&mut selector, 9, Some(0)), "", "the same answer holds until then");
        assert_eq!(ripe(&mut selector, 10, None), "", "it goes on");
        assert_eq!(ripe(&mut selector, 50, Some(20)), "", "until it is over again");
        selector.update(Update::Finished(trace("a", 1)));
        assert_eq!(ripe(&mut selector, 60, Some(55)), "a");
        assert_eq!(ripe(&mut selector, 70, Some(55)), "", "once");
        assert!(selector.changed().is_empty());
        selector.update(Update::Finished(trace("a", 1)));
        assert_eq!(ripe(&mut selector, 80, Some(55)), "", "never two of one start");
        assert_eq!(selector.changed(), ["default/a"]);
        selector.update(Update::Started(trace("b", 90)));
        selector.update(Update::Finished(trace("b", 90)));
        assert_eq!(selector.count(), (2, 2));
        assert_eq!(names(&selector.finish(vec![*trace("a", 1), *trace("c", 95)])), ["b", "c"]);
    }

    #[test]
    fn by_name_and_uid() {
        let pod = Some(("default".to_owned(), "a".to_owned()));
        let mut by_name = selector(Selection { pod, next: Some(1), ..Selection::default() });
        let mut by_uid = selector(Selection { uid: Some("uid-a".into()), next: Some(1), ..Selection::default() });
        for selector in [&mut by_name, &mut by_uid] {
            at(selector, 10, Event::Mark(mark::ATTACHED));
            assert!(!selector.update(Update::Started(trace("b", 12))));
            assert!(selector.update(Update::Started(trace("a", 9))), "also one that was under way");
            assert!(!selector.done());
        }
        assert_eq!(names(&by_name.finish(vec![*trace("b", 12), *trace("a", 9)])), ["a"]);
        let mut unnamed = trace("a", 12);
        unnamed.pod = PodInfo::default();
        let mut late = selector(Selection { uid: Some("uid-a".into()), next: Some(1), ..Selection::default() });
        assert!(!late.update(Update::Started(unnamed)));
        assert!(late.update(Update::Finished(trace("a", 12))), "a name may be learnt late");
    }

    #[test]
    fn restarts_of_a_named_pod_or_when_asked_for() {
        let restart = || {
            let mut it = trace("a", 12);
            it.kind = StartKind::Container;
            Update::Started(it)
        };
        let next = Selection { next: Some(1), ..Selection::default() };
        let pod = Some(("default".to_owned(), "a".to_owned()));
        assert!(!selector(next.clone()).update(restart()));
        assert!(selector(Selection { pod, ..next.clone() }).update(restart()));
        assert!(selector(Selection { uid: Some("uid-a".into()), ..next.clone() }).update(restart()));
        assert!(selector(Selection { restarts: true, ..next }).update(restart()));
    }

    #[test]
    fn while_command_runs() {
        let mut selector = selector(Selection { command: true, ..Selection::default() });
        at(&mut selector, 10, Event::Mark(mark::COMMAND_STARTED));
        assert!(!selector.update(Update::Started(trace("before", 9))));
        assert!(selector.update(Update::Started(trace("a", 11))));
        at(&mut selector, 20, Event::Mark(mark::COMMAND_ENDED));
        assert!(selector.update(Update::Started(trace("b", 20))), "seen late, arrived in time");
        assert!(!selector.update(Update::Started(trace("after", 21))));
        at(&mut selector, 20 + GRACE_NS, Event::Tick);
        selector.update(Update::Finished(trace("a", 11)));
        assert!(!selector.done());
        selector.update(Update::Finished(trace("b", 20)));
        assert!(selector.done());
    }

    #[test]
    fn no_more_than_so_many_are_held() {
        let mut selector = selector(Selection { next: Some(1_000_000), ..Selection::default() });
        for number in 0..HELD as u64 + 3 {
            selector.update(Update::Started(trace(&number.to_string(), number)));
            selector.update(Update::Finished(trace(&number.to_string(), number)));
        }
        assert_eq!(names(&selector.overflow()), ["0", "1", "2"]);
        assert!(selector.overflow().is_empty());
        assert_eq!(selector.count(), (HELD + 3, HELD + 3));
        assert_eq!(selector.finish(Vec::new()).len(), HELD);
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut selector = selector(Selection::default());
        let count = REMEMBERED as u64 + 100;
        for number in 0..count {
            selector.update(Update::Started(trace(&number.to_string(), number)));
            selector.update(Update::Finished(trace(&number.to_string(), number)));
            selector.overflow();
        }
        assert_eq!((selector.chosen.len(), selector.count()), (REMEMBERED, (count as usize, count as usize)));
        assert!(!selector.update(Update::Finished(trace("99", 99))), "it was counted, and comes again");
    }
}

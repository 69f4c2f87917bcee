//! Which pods a run follows to their removal, and when all of them are gone. Pure, on record time.

use crate::ids::{MonotonicNs, PodUid, SandboxId};
use crate::trace::{LifeEvent, Trace};

/// Pods that are remembered; of more, those that were gone first are forgotten.
const REMEMBERED: usize = 10_000;

/// Sandboxes that are remembered of a pod, for signs that do not say whose they are.
const SANDBOXES: usize = 16;

/// The pods that are followed.
#[derive(Debug)]
pub(super) struct Follow {
    /// Nothing more is to come of a pod for so long before it counts as gone.
    settle_ns: u64,
    pods: Vec<Pod>,
    /// How many were forgotten.
    forgotten: usize,
    /// When the last sign of any of them came.
    last: MonotonicNs,
}

/// One of them.
#[derive(Debug)]
struct Pod {
    uid: Option<PodUid>,
    sandboxes: Vec<SandboxId>,
    /// Its first sign.
    first: MonotonicNs,
    /// The start that it was first seen by: what it is called may become known later.
    trace_id: Option<String>,
    /// When its last sandbox was removed.
    gone: Option<MonotonicNs>,
    /// What was told of its latest start: its trace, what makes one telling differ from the next.
    told: Option<(String, Told)>,
}

/// What makes a start's line differ from the one before: the outcome's name, the time that it took, the reason.
type Told = (&'static str, u64, Option<String>);

impl Follow {
    pub(super) fn new(settle_ns: u64) -> Follow {
        Follow { settle_ns, pods: Vec::new(), forgotten: 0, last: MonotonicNs(0) }
    }

    /// How many pods are followed, and how many of them are gone.
    pub(super) fn count(&self) -> (usize, usize) {
        let gone = self.pods.iter().filter(|pod| pod.gone.is_some()).count();
        (self.forgotten + self.pods.len(), self.forgotten + gone)
    }

    /// All that are followed are gone, and nothing more came.
    pub(super) fn all_gone(&self, now: MonotonicNs) -> bool {
        self.pods.iter().all(|pod| pod.gone.is_some()) && now.since(self.last) >= self.settle_ns
    }

    /// A sign of a start: the pod's first sign, if it is followed; `chosen` says whether one that is not shall be.
    pub(super) fn start(&mut self, trace: &Trace, now: MonotonicNs, chosen: bool) -> Option<MonotonicNs> {
        let (uid, sandbox) = (trace.pod.uid.as_ref(), trace.sandbox.id.as_ref());
        let pod = self.sign(self.of_trace(trace), chosen, uid, sandbox, trace.start, now)?;
        pod.trace_id.get_or_insert_with(|| trace.trace_id.clone());
        // What comes again of an earlier start brings nobody back.
        pod.gone = pod.gone.filter(|gone| *gone >= trace.start);
        Some(pod.first)
    }

    /// Whether a start's end is to be told, and whether it was told before: not where nothing changed.
    pub(super) fn tell(&mut self, trace: &Trace) -> Option<bool> {
        let reason = trace.verdict.as_ref().map(|verdict| verdict.reason.clone());
        let told = Some((trace.trace_id.clone(), (trace.outcome.name(), trace.total_ns, reason)));
        let known = self.of_trace(trace)?;
        let pod = &mut self.pods[known];
        let again = pod.told.as_ref().is_some_and(|(id, _)| *id == trace.trace_id);
        let new = pod.told != told;
        pod.told = told;
        new.then_some(again)
    }

    /// Whether the start is of a pod that is followed.
    pub(super) fn has(&self, trace: &Trace) -> bool {
        self.of_trace(trace).is_some()
    }

    /// An event, in the same way.
    pub(super) fn event(&mut self, event: &LifeEvent, now: MonotonicNs, chosen: bool) -> Option<MonotonicNs> {
        let (uid, sandbox) = (event.pod.uid.as_ref(), event.sandbox.as_ref());
        let pod = self.sign(self.find(uid, sandbox), chosen, uid, sandbox, event.at, now)?;
        if event.is_the_end() {
            pod.gone = Some(event.at);
        }
        Some(pod.first)
    }

    fn sign(
        &mut self,
        known: Option<usize>,
        chosen: bool,
        uid: Option<&PodUid>,
        sandbox: Option<&SandboxId>,
        at: MonotonicNs,
        now: MonotonicNs,
    ) -> Option<&mut Pod> {
        let known = match known {
            Some(known) => known,
            None if chosen => {
                self.forget();
                self.pods.push(Pod::new(at));
                self.pods.len() - 1
            }
            None => return None,
        };
        self.last = now;
        let pod = &mut self.pods[known];
        pod.first = pod.first.min(at);
        if pod.uid.is_none() {
            pod.uid = uid.cloned();
        }
        if let Some(sandbox) = sandbox.filter(|id| !pod.sandboxes.contains(id)) {
            pod.sandboxes.push(sandbox.clone());
            let many = pod.sandboxes.len().saturating_sub(SANDBOXES);
            pod.sandboxes.drain(..many);
        }
        Some(pod)
    }

    /// By UID where both have one, else by sandbox.
    fn find(&self, uid: Option<&PodUid>, sandbox: Option<&SandboxId>) -> Option<usize> {
        self.pods.iter().position(|pod| match (uid, &pod.uid) {
            (Some(one), Some(other)) => one == other,
            _ => sandbox.is_some_and(|id| pod.sandboxes.contains(id)),
        })
    }

    /// The same; what it is called may not be known yet of the start by which it was first seen.
    fn of_trace(&self, trace: &Trace) -> Option<usize> {
        let first = || self.pods.iter().position(|pod| pod.trace_id.as_deref() == Some(trace.trace_id.as_str()));
        self.find(trace.pod.uid.as_ref(), trace.sandbox.id.as_ref()).or_else(first)
    }

    fn forget(&mut self) {
        if self.pods.len() >= REMEMBERED
            && let Some(at) = self.pods.iter().position(|pod| pod.gone.is_some()).or(Some(0))
        {
            self.pods.remove(at);
            self.forgotten += 1;
        }
    }
}

impl Pod {
    fn new(first: MonotonicNs) -> Pod {
        Pod { uid: None, sandboxes: Vec::new(), first, trace_id: None, gone: None, told: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::select::{Given, Selector};
    use super::*;
    use crate::engine::Update;
    use crate::export::samples::complete;
    use crate::ids::{Tgid, Tid};
    use crate::record::{Event, Record};
    use crate::recording::Selection;
    use crate::trace::{LifeKind, Outcome, PodInfo, StartKind};
    use tracer_ebpf::mark;

    const SETTLE: u64 = 100;

    /// A selector that is fed a story, and tells what it gave out.
    struct Story(Selector);

    impl Story {
        fn new(selection: Selection) -> Story {
            let mut story = Story(Selector::new(Selection { lifecycle: true, ..selection }, SETTLE));
            story.at(1, Event::Mark(mark::ATTACHED));
            story
        }

        fn at(&mut self, at: u64, event: Event) -> &mut Story {
            self.0.record(&Record { at: MonotonicNs(at), tgid: Tgid(0), tid: Tid(0), event });
            self
        }

        fn start(&mut self, at: u64, pod: &str, id: &str, over: bool) -> &mut Story {
            self.at(at, Event::Tick);
            let trace = Box::new(trace(pod, id, at));
            self.0.update(if over { Update::Finished(trace) } else { Update::Started(trace) });
            self
        }

        fn event(&mut self, at: u64, pod: &str, kind: LifeKind) -> &mut Story {
            self.at(at, Event::Tick);
            let last = ("last", (pod.len() == 1).to_string());
            let attributes = if kind == LifeKind::SandboxRemoved { vec![last] } else { Vec::new() };
            self.0.update(Update::Life(Box::new(LifeEvent { attributes, ..life(pod, at, kind) })));
            self
        }

        fn said(&mut self) -> String {
            let word = |given: Given| match given {
                Given::Trace(trace) => format!("trace {}", trace.trace_id),
                Given::Life { event, first } => format!("{} +{}", event.kind.name(), event.at.since(first)),
                Given::Over { trace, again, .. } => {
                    format!("over {}{}", trace.trace_id, if again { " again" } else { "" })
                }
            };
            self.0.overflow().into_iter().map(word).collect::<Vec<_>>().join(", ")
        }

        fn is_done(&mut self, at: u64) -> bool {
            self.at(at, Event::Tick).0.done()
        }
    }

    /// The pod's name without its primes: `a'` is another sandbox of `a`.
    fn pod(name: &str) -> PodInfo {
        let name = name.trim_end_matches('\'');
        let (namespace, uid) = (Some("shop".into()), Some(PodUid(format!("uid-{name}"))));
        PodInfo { namespace, name: Some(name.into()), uid, ..PodInfo::default() }
    }

    fn trace(name: &str, id: &str, at: u64) -> Trace {
        let mut trace = complete();
        (trace.pod, trace.trace_id, trace.start) = (pod(name), id.into(), MonotonicNs(at));
        trace.sandbox.id = Some(SandboxId(name.into()));
        trace
    }

    fn life(name: &str, at: u64, kind: LifeKind) -> LifeEvent {
        let sandbox = Some(SandboxId(name.into()));
        LifeEvent { pod: pod(name), sandbox, ..LifeEvent::new(kind, MonotonicNs(at)) }
    }

    fn named() -> Selection {
        Selection { pod: Some(("shop".into(), "a".into())), next: Some(1), ..Selection::default() }
    }

    #[test]
    fn the_next_pod_to_its_end() {
        let mut story = Story::new(Selection { next: Some(1), ..Selection::default() });
        story.event(5, "old", LifeKind::Exit).start(10, "a", "1", false).start(11, "b", "2", false);
        story.event(20, "b", LifeKind::Exit).start(10, "a", "1", true).event(30, "a", LifeKind::Exit);
        assert_eq!(story.said(), "over 1, exit +20");
        story.event(40, "a", LifeKind::SandboxRemoved);
        assert!(!story.is_done(40 + SETTLE - 1) && story.is_done(40 + SETTLE));
        assert_eq!((story.said(), story.0.count()), ("sandbox_removed +30".into(), (1, 1)));
        assert_eq!(story.0.finish(Vec::new()).len(), 1, "the trace itself");
    }

    #[test]
    fn a_pod_that_ran_before_is_followed_by_name() {
        let mut story = Story::new(named());
        story.event(5, "b", LifeKind::Exit).event(6, "a", LifeKind::Exit).event(9, "a", LifeKind::SandboxRemoved);
        assert_eq!(story.said(), "exit +0, sandbox_removed +3");
        assert!(story.is_done(9 + SETTLE));
        let mut other = Story::new(Selection { next: Some(1), ..Selection::default() });
        other.event(6, "a", LifeKind::Exit);
        assert_eq!((other.said(), other.0.count().0), (String::new(), 0));
        let mut all = Story::new(Selection::default());
        all.event(6, "a", LifeKind::Exit).event(7, "b", LifeKind::Exit);
        assert_eq!(all.said(), "exit +0, exit +0");
        assert!(!all.is_done(10_000));
    }

    #[test]
    fn a_sandbox_that_is_made_again_belongs_to_the_same_pod() {
        let mut story = Story::new(named());
        story.start(10, "a", "1", true).start(20, "a'", "2", false).event(30, "a'", LifeKind::SandboxRemoved);
        assert!(!story.is_done(30 + SETTLE), "the new one is there");
        // The end came, and yet kubelet makes the sandbox again.
        story.event(200, "a", LifeKind::SandboxRemoved).start(210, "a''", "3", false);
        assert!(!story.is_done(1000));
        story.event(1100, "a", LifeKind::SandboxRemoved).start(20, "a'", "2", true);
        assert!(story.is_done(1100 + SETTLE), "what comes late of an earlier start brings nobody back");
        assert_eq!(story.0.count(), (1, 1));
    }

    #[test]
    fn another_pod_of_that_name_is_another_pod() {
        let mut story = Story::new(named());
        let mut again = trace("a", "2", 50);
        again.pod.uid = Some(PodUid("other".into()));
        again.sandbox.id = Some(SandboxId("other".into()));
        story.start(10, "a", "1", true).event(30, "a", LifeKind::SandboxRemoved).at(50, Event::Tick);
        assert!(!story.0.update(Update::Started(Box::new(again))));
        assert!(story.is_done(30 + SETTLE));
    }

    #[test]
    fn a_start_is_told_once_unless_it_changes() {
        let mut story = Story::new(named());
        story.start(10, "a", "1", true).start(10, "a", "1", true);
        let mut failed = trace("a", "1", 10);
        failed.outcome = Outcome::Failed;
        story.0.update(Update::Finished(Box::new(failed)));
        let mut restart = trace("a", "2", 40);
        restart.kind = StartKind::Container;
        story.0.update(Update::Finished(Box::new(restart)));
        assert_eq!(story.said(), "over 1, over 1 again, over 2");
    }

    #[test]
    fn a_pod_whose_name_comes_late() {
        let mut story = Story::new(Selection { next: Some(1), ..Selection::default() });
        let mut nobody = trace("a", "1", 10);
        (nobody.pod, nobody.sandbox.id) = (PodInfo::default(), None);
        story.at(10, Event::Tick).0.update(Update::Started(Box::new(nobody)));
        story.event(11, "a", LifeKind::Exit).start(10, "a", "1", true).event(30, "a", LifeKind::Exit);
        assert_eq!((story.said(), story.0.count().0), ("over 1, exit +20".into(), 1));
    }

    #[test]
    fn with_command() {
        let story = |selection| {
            let mut story = Story::new(Selection { command: true, next: None, ..selection });
            story.at(5, Event::Mark(mark::COMMAND_STARTED));
            story
        };
        let mut any = story(Selection::default());
        any.start(3, "before", "0", true).start(10, "a", "1", true).at(20, Event::Mark(mark::COMMAND_ENDED));
        any.start(25, "late", "2", true).event(26, "old", LifeKind::Exit);
        assert_eq!((any.said(), any.is_done(1_000_000_000)), ("over 1".into(), false));
        assert!(any.event(1_000_000_000, "a", LifeKind::SandboxRemoved).is_done(1_000_000_000 + SETTLE));
        // What COMMAND does to a pod that runs may come after it.
        let mut running = story(named());
        running.at(20, Event::Mark(mark::COMMAND_ENDED));
        assert!(!running.is_done(1_000_000_000));
        running.event(1_000_000_000, "a", LifeKind::SandboxRemoved);
        assert!(running.is_done(1_000_000_000 + SETTLE));
        let mut nothing = story(Selection::default());
        assert!(nothing.at(20, Event::Mark(mark::COMMAND_ENDED)).is_done(1_000_000_000));
    }
}

//! A trace in the making: spans in any order with absolute times, then clamped, ordered, numbered and divided.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::model::{CallInfo, ProcessInfo, Span, SpanId, StageTotal};
use super::partition::{Node, partition};
use super::stages::{Edges, lookup, self_stage};
use crate::ids::{MonotonicNs, Tgid};

/// A span's place in its [`Draft`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DraftId(usize);

/// A span before it is placed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftSpan {
    pub(crate) stage: String,
    pub(crate) name: String,
    pub(crate) start: MonotonicNs,
    /// Absent while open.
    pub(crate) end: Option<MonotonicNs>,
    /// Both edges are signs that were seen, not guesses.
    pub(crate) observed: bool,
    /// Nothing waits for it: it owns no time. For spans without any below them.
    pub(crate) aside: bool,
    pub(crate) process: Option<ProcessInfo>,
    pub(crate) call: Option<CallInfo>,
    pub(crate) attributes: BTreeMap<String, String>,
}

/// Spans of one trace.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    spans: Vec<(Option<usize>, DraftSpan)>,
}

/// A finished draft.
#[derive(Debug)]
pub(crate) struct Divided {
    pub(crate) spans: Vec<Span>,
    pub(crate) stages: Vec<StageTotal>,
    pub(crate) named_ns: u64,
}

impl Draft {
    /// Adds a span below `parent`.
    pub(crate) fn add(&mut self, parent: Option<DraftId>, span: DraftSpan) -> DraftId {
        self.spans.push((parent.map(|p| p.0), span));
        DraftId(self.spans.len() - 1)
    }

    /// Adds an attribute to a span.
    pub(crate) fn attribute(&mut self, id: DraftId, key: &str, value: String) {
        self.spans[id.0].1.attributes.insert(key.to_owned(), value);
    }

    /// A span that was added.
    pub(crate) fn get(&self, id: DraftId) -> &DraftSpan {
        &self.spans[id.0].1
    }

    /// Spans whose parent is `parent`.
    pub(crate) fn below(&self, parent: DraftId) -> impl Iterator<Item = &DraftSpan> {
        self.spans.iter().filter(move |(of, _)| *of == Some(parent.0)).map(|(_, span)| span)
    }

    /// The deepest span at or below `root` whose process failed, or whose last sign failed inside such a process; of
    /// several, the last to start.
    pub(crate) fn failed_below(&self, root: DraftId) -> Option<&DraftSpan> {
        let process_failed = |span: &DraftSpan| span.process.as_ref().is_some_and(ProcessInfo::failed);
        let failed = |(parent, span): &(Option<usize>, DraftSpan)| {
            // Runtimes try calls that may fail: that is a reason only where the process then failed too.
            let inside =
                span.attributes.contains_key("errno") && parent.is_some_and(|p| process_failed(&self.spans[p].1));
            process_failed(span) || inside
        };
        self.deepest(root, failed)
    }

    /// The deepest span below `root` that has not ended; of several, the last to start.
    pub(crate) fn open_below(&self, root: DraftId) -> Option<&DraftSpan> {
        self.deepest(root, |(_, span)| span.end.is_none())
    }

    /// The deepest span that is open, all above it too, and from it up to the top; of several, the last to start. Below
    /// `root` alone, which is taken for open, where there is one.
    pub(crate) fn innermost_open(&self, root: Option<DraftId>) -> Vec<&DraftSpan> {
        // Parents come first.
        let mut depths: Vec<Option<usize>> = Vec::with_capacity(self.spans.len());
        for (index, (parent, span)) in self.spans.iter().enumerate() {
            let top = root.is_none_or(|root| root.0 == index).then_some(0);
            let depth = parent.map_or(top, |parent| depths[parent].map(|depth| depth + 1)).or(top);
            let open = span.end.is_none() && !span.aside || root.is_some_and(|root| root.0 == index);
            depths.push(depth.filter(|_| open));
        }
        let open = depths.iter().enumerate().filter_map(|(index, depth)| Some((index, (*depth)?)));
        let deepest = open.max_by_key(|(index, depth)| (*depth, self.spans[*index].1.start)).map(|(index, _)| index);
        let up = std::iter::successors(deepest, |index| self.spans[*index].0);
        up.map(|index| &self.spans[index].1).collect()
    }

    /// The span of a process that has not ended.
    pub(crate) fn open_process(&self, pid: Tgid) -> Option<&DraftSpan> {
        let is = |span: &DraftSpan| span.end.is_none() && span.process.as_ref().is_some_and(|it| it.pid == pid);
        self.spans.iter().map(|(_, span)| span).find(|span| is(span))
    }

    /// The deepest span at or below `root` that was open then; of several, the last to start.
    pub(crate) fn open_at(&self, root: DraftId, at: MonotonicNs) -> Option<&DraftSpan> {
        self.deepest(root, |(_, span)| span.start <= at && span.end.is_none_or(|end| end > at))
    }

    fn deepest(&self, root: DraftId, fits: impl Fn(&(Option<usize>, DraftSpan)) -> bool) -> Option<&DraftSpan> {
        // Parents come first, so one pass tells who is below.
        let mut depths = vec![None; self.spans.len()];
        for (index, (parent, _)) in self.spans.iter().enumerate() {
            depths[index] =
                if index == root.0 { Some(0) } else { parent.and_then(|p| depths[p]).map(|d: usize| d + 1) };
        }
        let below = self.spans.iter().zip(depths).filter_map(|(span, depth)| Some((span, depth?)));
        let found = below.filter(|(span, _)| fits(span)).max_by_key(|((_, span), depth)| (*depth, span.start));
        found.map(|((_, span), _)| span)
    }

    /// Fills what is left of `start..end` between the spans at the top with spans of `stage`; the last one is open
    /// when `open` says so.
    pub(crate) fn fill_gaps(&mut self, start: MonotonicNs, end: MonotonicNs, open: bool, stage: &str, name: &str) {
        let mut top: Vec<(MonotonicNs, MonotonicNs)> = self
            .spans
            .iter()
            .filter(|(parent, span)| parent.is_none() && !span.aside)
            .map(|(_, span)| (span.start, span.end.unwrap_or(end)))
            .collect();
        top.sort_unstable();
        let mut cursor = start;
        for (from, to) in top {
            self.gap(cursor, from.min(end), false, stage, name);
            cursor = cursor.max(to);
        }
        self.gap(cursor, end, open, stage, name);
    }

    fn gap(&mut self, start: MonotonicNs, end: MonotonicNs, open: bool, stage: &str, name: &str) {
        if start < end {
            let end = (!open).then_some(end);
            let span = DraftSpan { stage: stage.to_owned(), name: name.to_owned(), start, end, ..DraftSpan::default() };
            self.add(None, span);
        }
    }

    /// Clamps every span to its parent and to `start..end`, orders them (parents first, then by start) and divides
    /// the time. Time that no span covers is given to `rest`, so that the stages always add up to the total.
    pub(crate) fn divide(self, start: MonotonicNs, end: MonotonicNs, rest: &str) -> Divided {
        let total = end.since(start);
        let placed = self.place(start, total);
        let nodes: Vec<Node> =
            placed.iter().map(|p| Node { parent: p.parent, start: p.start, end: p.end.unwrap_or(p.limit) }).collect();
        // Of no length, so that others own its time.
        let owner = |(node, place): (&Node, &Placed)| Node {
            end: if place.span.aside { node.start } else { node.end },
            ..*node
        };
        let owners: Vec<Node> = nodes.iter().zip(&placed).map(owner).collect();
        let (shares, left) = partition(total, &owners);

        let mut leaf = vec![true; placed.len()];
        nodes.iter().filter_map(|node| node.parent).for_each(|parent| leaf[parent] = false);
        let mut totals = Totals::default();
        let mut named_ns = 0;
        let mut spans = Vec::with_capacity(placed.len());
        for (index, place) in placed.into_iter().enumerate() {
            let (share, node) = (shares[index], nodes[index]);
            let edges = lookup(&place.span.stage).map(|stage| stage.edges);
            totals.add(&place.span.stage, (node.start, node.end), 1);
            match self_stage(&place.span.stage) {
                Cow::Owned(remainder) => totals.own(&remainder, share.own, share.own, 1),
                Cow::Borrowed(stage) => totals.own(stage, share.own, 0, 0),
            }
            if leaf[index] && place.span.observed && edges == Some(Edges::Signs) {
                named_ns += share.own;
            }
            spans.push(Span {
                id: span_id(index),
                parent: place.parent.map(span_id),
                stage: place.span.stage,
                name: place.span.name,
                start_ns: place.start,
                end_ns: place.end,
                path_ns: share.path,
                self_ns: share.own,
                process: place.span.process,
                call: place.span.call,
                attributes: place.span.attributes,
            });
        }
        if left > 0 {
            totals.own(rest, left, left, 0);
        }
        Divided { spans, stages: totals.finish(), named_ns }
    }

    fn place(self, origin: MonotonicNs, total: u64) -> Vec<Placed> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.spans.len()];
        let mut todo = Vec::new();
        let by_start = |index: &usize| (self.spans[*index].1.start, *index);
        for (index, (parent, _)) in self.spans.iter().enumerate() {
            match parent {
                Some(parent) => children[*parent].push(index),
                None => todo.push(index),
            }
        }
        children.iter_mut().for_each(|siblings| siblings.sort_by_key(by_start));
        todo.sort_by_key(by_start);
        todo.reverse();
        let mut todo: Vec<(usize, Option<usize>)> = todo.into_iter().map(|index| (index, None)).collect();

        let mut spans: Vec<Option<DraftSpan>> = self.spans.into_iter().map(|(_, span)| Some(span)).collect();
        let mut placed: Vec<Placed> = Vec::with_capacity(spans.len());
        while let Some((index, parent)) = todo.pop() {
            let Some(mut span) = spans[index].take() else { continue };
            let (low, high, open) = parent.map_or((0, total, true), |p: usize| {
                (placed[p].start, placed[p].end.unwrap_or(placed[p].limit), placed[p].end.is_none())
            });
            let start = span.start.since(origin).clamp(low, high);
            // A span that outlives its parent ends with it: what follows is no longer part of the parent's time, and
            // that end is no sign of its own.
            let fits = span.start.since(origin) >= low && span.end.is_some_and(|end| end.since(origin) <= high);
            span.observed &= fits;
            let end = span.end.map(|end| end.since(origin).clamp(start, high)).or((!open).then_some(high));
            todo.extend(children[index].iter().rev().map(|&child| (child, Some(placed.len()))));
            placed.push(Placed { parent, start, end, limit: high, span });
        }
        placed
    }
}

struct Placed {
    parent: Option<usize>,
    start: u64,
    end: Option<u64>,
    /// Where it ends for the division while it is open.
    limit: u64,
    span: DraftSpan,
}

fn span_id(index: usize) -> SpanId {
    SpanId(u32::try_from(index + 1).unwrap_or(u32::MAX))
}

/// Stage totals, in order of first appearance.
#[derive(Default)]
struct Totals {
    stages: Vec<(StageTotal, Vec<(u64, u64)>)>,
}

impl Totals {
    fn of(&mut self, stage: &str) -> &mut (StageTotal, Vec<(u64, u64)>) {
        let index = self.stages.iter().position(|(total, _)| total.stage == stage).unwrap_or_else(|| {
            let total = StageTotal { stage: stage.to_owned(), wall_ns: 0, self_ns: 0, count: 0 };
            self.stages.push((total, Vec::new()));
            self.stages.len() - 1
        });
        &mut self.stages[index]
    }

    fn add(&mut self, stage: &str, interval: (u64, u64), count: u32) {
        let (total, intervals) = self.of(stage);
        total.count += count;
        intervals.push(interval);
    }

    fn own(&mut self, stage: &str, own: u64, wall: u64, count: u32) {
        let (total, _) = self.of(stage);
        total.self_ns += own;
        total.wall_ns += wall;
        total.count += count;
    }

    fn finish(self) -> Vec<StageTotal> {
        let union = |mut intervals: Vec<(u64, u64)>| {
            intervals.sort_unstable();
            let (mut covered, mut cursor) = (0, 0);
            for (from, to) in intervals {
                covered += to.saturating_sub(from.max(cursor));
                cursor = cursor.max(to);
            }
            covered
        };
        self.stages
            .into_iter()
            .map(|(mut total, intervals)| {
                total.wall_ns += union(intervals);
                total
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the spans, also such as lie outside their parents or have not ended: nothing is lost or doubled.
        #[test]
        fn stages_add_up(
            spans in prop::collection::vec((prop::option::of(0usize..20), 0u64..500, prop::option::of(0u64..500), 0usize..5), 0..20),
            begin in 0u64..300,
            length in 0u64..300,
        ) {
            let stages = ["sandbox", "sandbox.cni", "container.start.oci.create", "kubelet.gap", "not.registered"];
            let mut draft = Draft::default();
            for (index, (parent, start, end, stage)) in spans.into_iter().enumerate() {
                let parent = parent.filter(|p| *p < index).map(DraftId);
                draft.add(parent, DraftSpan {
                    stage: stages[stage].to_owned(),
                    start: MonotonicNs(start),
                    end: end.map(MonotonicNs),
                    observed: true,
                    ..DraftSpan::default()
                });
            }
            let divided = draft.divide(MonotonicNs(begin), MonotonicNs(begin + length), "kubelet.gap");
            prop_assert_eq!(divided.stages.iter().map(|s| s.self_ns).sum::<u64>(), length);
            prop_assert!(divided.named_ns <= length);
            for span in &divided.spans {
                let end = span.end_ns.unwrap_or(length);
                prop_assert!(span.start_ns <= end && end <= length);
                if let Some(parent) = span.parent {
                    prop_assert!(parent < span.id);
                    let parent = &divided.spans[parent.0 as usize - 1];
                    prop_assert!(parent.start_ns <= span.start_ns && end <= parent.end_ns.unwrap_or(length));
                }
            }
        }
    }
}

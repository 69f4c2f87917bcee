//! Depth-first order of a trace's spans.

use std::collections::{HashMap, HashSet};

use crate::trace::{Span, SpanId};

/// A span and its depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) span: &'a Span,
    pub(super) depth: usize,
}

/// Parents directly before their children, siblings by start. A span whose parent is not there is a root.
pub(super) fn rows(spans: &[Span]) -> Vec<Row<'_>> {
    let ids: HashSet<SpanId> = spans.iter().map(|span| span.id).collect();
    let mut children: HashMap<Option<SpanId>, Vec<&Span>> = HashMap::new();
    for span in spans {
        let parent = span.parent.filter(|parent| ids.contains(parent));
        children.entry(parent).or_default().push(span);
    }
    // Last first, so that the earliest is taken from the end.
    for siblings in children.values_mut() {
        siblings.sort_by_key(|span| std::cmp::Reverse((span.start_ns, span.id)));
    }
    let mut rows = Vec::with_capacity(spans.len());
    let mut open: Vec<(usize, &Span)> =
        children.remove(&None).unwrap_or_default().into_iter().map(|s| (0, s)).collect();
    while let Some((depth, span)) = open.pop() {
        rows.push(Row { span, depth });
        open.extend(children.remove(&Some(span.id)).unwrap_or_default().into_iter().map(|s| (depth + 1, s)));
    }
    rows
}

//! Depth-first order of a trace's spans.

use std::collections::{HashMap, HashSet};

use crate::trace::{Span, SpanId};

/// A span and its depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) span: &'a Span,
    pub(super) depth: usize,
}

/// Parents directly before their children, siblings by start. A span whose parent is not there is a root. One that is to
/// be hidden goes with all below it, unless one of those is not to be; the number of hidden ones.
pub(super) fn rows(spans: &[Span], hide: impl Fn(&Span) -> bool) -> (Vec<Row<'_>>, usize) {
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
    let all = rows.len();
    // From the last one on: how deep the rows are that need the one before as their parent.
    let mut needed = 0;
    let mut shown = Vec::with_capacity(all);
    for row in rows.into_iter().rev() {
        if needed > row.depth || !hide(row.span) {
            needed = row.depth;
            shown.push(row);
        }
    }
    shown.reverse();
    let hidden = all - shown.len();
    (shown, hidden)
}

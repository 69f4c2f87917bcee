//! Histograms in the order in which people read them: by outcome, then as a start goes.

use std::collections::BTreeMap;

use super::{By, Entry, Key, START, Stats};
use crate::trace::{Edges, STAGES, lookup};

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// How the starts ended.
    pub outcome: String,
    /// A stage of the registry, or [`START`].
    pub stage: String,
    /// What the table is broken down by; absent where that is not known.
    pub group: Option<String>,
    /// The durations.
    pub entry: Entry,
    /// Time of all the starts that `entry`'s own time is a share of.
    pub total_ns: u64,
}

impl Stats {
    /// The histograms, those that `by` does not tell apart as one.
    pub fn rows(&self, by: Option<By>) -> Vec<Row> {
        let mut totals: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
        for (key, entry) in self.entries().filter(|(key, _)| key.stage == START) {
            let total = totals.entry((&key.outcome, whole(key, by))).or_default();
            *total = total.saturating_add(entry.self_ns);
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut places: BTreeMap<(&str, &str, Option<&str>), usize> = BTreeMap::new();
        for (key, entry) in self.entries() {
            let Some(group) = place(key, by) else { continue };
            let place = *places.entry((&key.outcome, &key.stage, group)).or_insert(rows.len());
            if let Some(row) = rows.get_mut(place) {
                row.entry.merge(entry);
            } else {
                rows.push(Row {
                    outcome: key.outcome.clone(),
                    stage: key.stage.clone(),
                    group: group.map(str::to_owned),
                    entry: entry.clone(),
                    total_ns: totals.get(&(key.outcome.as_str(), whole(key, by))).copied().unwrap_or(0),
                });
            }
        }
        rows.sort_by(|a, b| order(a).cmp(&order(b)));
        rows
    }
}

/// The same line of two tables.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Of the first.
    pub a: Option<Row>,
    /// Of the second.
    pub b: Option<Row>,
}

impl Pair {
    /// One of the two: what the line is about.
    pub fn any(&self) -> Option<&Row> {
        self.a.as_ref().or(self.b.as_ref())
    }
}

/// Two tables side by side, in the order of one.
pub fn pairs(a: &Stats, b: &Stats, by: Option<By>) -> Vec<Pair> {
    let mut second = b.rows(by);
    let same = |a: &Row, b: &Row| (&a.outcome, &a.stage, &a.group) == (&b.outcome, &b.stage, &b.group);
    let mut pairs: Vec<Pair> = Vec::new();
    for row in a.rows(by) {
        let at = second.iter().position(|other| same(&row, other));
        pairs.push(Pair { a: Some(row), b: at.map(|at| second.remove(at)) });
    }
    pairs.extend(second.into_iter().map(|row| Pair { a: None, b: Some(row) }));
    pairs.sort_by(|a, b| a.any().map(order).cmp(&b.any().map(order)));
    pairs
}

/// The group of a key in a table that is broken down by `by`; `None` where it is not part of that table.
fn place(key: &Key, by: Option<By>) -> Option<Option<&str>> {
    match by {
        None => Some(None),
        Some(By::Plugin) => plugin(&key.stage).map(Some),
        Some(By::Handler) => Some(key.handler.as_deref()),
        Some(By::Namespace) => Some(key.group.as_deref()),
        Some(By::Image) => key.group.as_deref().map(Some),
    }
}

/// The CNI plugin that a stage is about, itself or a part of it.
fn plugin(stage: &str) -> Option<&str> {
    let plugin = stage.strip_prefix("sandbox.cni.")?;
    Some(plugin.strip_suffix(".netns").or_else(|| plugin.strip_suffix(".host")).unwrap_or(plugin))
}

/// The starts that a key's time is a share of: a plugin or a container is part of a whole start.
fn whole(key: &Key, by: Option<By>) -> Option<&str> {
    match by {
        None | Some(By::Plugin | By::Image) => None,
        Some(By::Handler) => key.handler.as_deref(),
        Some(By::Namespace) => key.group.as_deref(),
    }
}

fn order(row: &Row) -> impl Ord + '_ {
    let outcomes = ["complete", "failed", "partial"];
    let outcome = outcomes.iter().position(|outcome| row.outcome == *outcome).unwrap_or(outcomes.len());
    (outcome, &row.outcome, in_a_start(&row.stage), &row.group)
}

/// Whole starts first, then stages in the order of a start: those before any call, each call with what is inside it,
/// then the others.
pub(super) fn in_a_start(stage: &str) -> impl Ord + '_ {
    let calls = || STAGES.iter().filter(|stage| stage.edges == Edges::Call);
    let inside = |call: &str| stage.strip_prefix(call).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let family = match stage {
        START => 0,
        _ if stage.starts_with("kubelet.") => 1,
        _ => calls().position(|call| inside(call.pattern)).unwrap_or(usize::MAX - 2) + 2,
    };
    let known = lookup(stage);
    let place = STAGES.iter().position(|stage| known.is_some_and(|known| known.pattern == stage.pattern));
    (family, place.unwrap_or(STAGES.len()), stage)
}

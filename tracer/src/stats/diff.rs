//! Two traces, stage by stage.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A stage of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTimes {
    /// Time that it owned.
    pub self_ns: u64,
    /// Time during which a span of it was open.
    pub wall_ns: u64,
    /// Its spans.
    pub count: u64,
}

/// A stage of two traces; absent where a trace has none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub stage: String,
    /// In the first trace.
    pub a: Option<StageTimes>,
    /// In the second one.
    pub b: Option<StageTimes>,
}

impl Change {
    /// By how much a time is longer in the second trace, a stage that is not there counting as 0.
    pub fn by(&self, time: fn(&StageTimes) -> u64) -> i128 {
        let of = |times: &Option<StageTimes>| times.as_ref().map_or(0, |times| i128::from(time(times)));
        of(&self.b) - of(&self.a)
    }
}

/// What changed, the largest change of own time first.
pub fn changes(a: &BTreeMap<String, StageTimes>, b: &BTreeMap<String, StageTimes>) -> Vec<Change> {
    let only_b = b.keys().filter(|stage| !a.contains_key(*stage));
    let change = |stage: &String| Change { stage: stage.clone(), a: a.get(stage).copied(), b: b.get(stage).copied() };
    let mut changes: Vec<Change> = a.keys().chain(only_b).map(change).collect();
    let size = |change: &Change, time| Reverse(change.by(time).unsigned_abs());
    changes.sort_by_key(|change| (size(change, |times| times.self_ns), size(change, |times| times.wall_ns)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_change_first() {
        let trace = |stages: &[(&str, u64, u64)]| {
            let times = |&(stage, self_ns, wall_ns): &(&str, u64, u64)| {
                (stage.to_owned(), StageTimes { self_ns, wall_ns, count: 1 })
            };
            stages.iter().map(times).collect::<BTreeMap<_, _>>()
        };
        let a = trace(&[("same", 5, 9), ("faster", 90, 90), ("gone", 7, 7), ("around", 0, 50)]);
        let b = trace(&[("same", 5, 9), ("faster", 30, 30), ("new", 8, 8), ("around", 0, 90)]);
        let changes = changes(&a, &b);
        let text = |change: &Change| {
            let (own, wall) = (change.by(|times| times.self_ns), change.by(|times| times.wall_ns));
            format!("{} {own} {wall} {} {}", change.stage, change.a.is_some(), change.b.is_some())
        };
        let texts: Vec<String> = changes.iter().map(text).collect();
        assert_eq!(
            texts,
            [
                "faster -60 -60 true true",
                "new 8 8 false true",
                "gone -7 -7 true false",
                "around 0 40 true true",
                "same 0 0 true true"
            ]
        );
    }
}

//! What podlapse made of a cut, against the truth; and the table of that.

use std::collections::BTreeMap;
use std::fmt;

use podlapse::cri::{CallEvent, CallKey, CallStart, MethodSource};

use super::capture::Traffic;
use super::cut::{Cut, replay};

/// One method's calls, over any number of cuts.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Calls after the cut.
    pub calls: u64,
    /// Named by a literal or an entry of the table.
    pub exact: u64,
    /// Named by inference, at once or later.
    pub inferred: u64,
    /// Without a name at the end.
    pub ambiguous: u64,
    /// Without a name when they ended.
    pub online: u64,
    /// With another method's name.
    pub wrong: u64,
    /// Calls of a slot up to its binding, once a cut.
    pub calls_to_bind: Vec<u64>,
    /// Time from the first of them to the binding, in nanoseconds, once a cut.
    pub time_to_bind: Vec<u64>,
    /// Calls that follow the first complete one.
    pub following: u64,
    /// Of them, without a name at the end.
    pub following_ambiguous: u64,
}

/// All methods.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// By path.
    pub rows: BTreeMap<String, Row>,
    /// Wrong names, told apart for whoever looks for the reason.
    pub wrong: Vec<String>,
}

struct Label {
    /// By a literal or the table.
    exact: bool,
}

#[derive(Default)]
struct Seen {
    start: u64,
    end: Option<u64>,
    label: Option<Label>,
    online: bool,
    bound_at: Option<u64>,
}

impl Score {
    /// Scores one cut.
    pub fn of(traffic: &Traffic, cut: &Cut) -> Score {
        let mut score = Score::default();
        let mut calls: BTreeMap<CallKey, Seen> = BTreeMap::new();
        replay(traffic, cut, &mut |n, event| {
            let at = traffic.chunks[n].at;
            score.event(traffic, cut, at, event, &mut calls);
        });
        score.count(traffic, calls);
        score
    }

    fn event(&mut self, traffic: &Traffic, cut: &Cut, at: u64, event: &CallEvent, calls: &mut BTreeMap<CallKey, Seen>) {
        match event {
            CallEvent::Start(start) => {
                let seen = calls.entry(start.key).or_insert_with(|| Seen { start: at, ..Seen::default() });
                if start.source != MethodSource::Opaque {
                    self.label(traffic, cut, start, seen);
                }
            }
            CallEvent::Named(named) => {
                if let Some(seen) = calls.get_mut(&named.start.key) {
                    seen.bound_at = Some(at);
                    self.label(traffic, cut, &named.start, seen);
                }
            }
            CallEvent::End { key, .. } => {
                if let Some(seen) = calls.get_mut(key) {
                    seen.end = Some(at);
                    seen.online = seen.label.is_none();
                }
            }
            CallEvent::Request { .. }
            | CallEvent::Response { .. }
            | CallEvent::Unnamed(_)
            | CallEvent::Unasked { .. }
            | CallEvent::Undecoded { .. } => {}
        }
    }

    /// A call has a name: the right one?
    fn label(&mut self, traffic: &Traffic, cut: &Cut, start: &CallStart, seen: &mut Seen) {
        let path = format!("/{}/{}", start.service, start.method);
        let truth = traffic.truth.get(&start.key);
        if !truth.is_some_and(|truth| same(truth, &path)) {
            self.wrong.push(format!("{}: {cut:?} {:?}: {path}, is {truth:?}", traffic.name, start.key));
            self.rows.entry(truth.cloned().unwrap_or_else(|| "no call".into())).or_default().wrong += 1;
        }
        seen.label = Some(Label { exact: start.source != MethodSource::Inferred });
    }

    fn count(&mut self, traffic: &Traffic, calls: BTreeMap<CallKey, Seen>) {
        let mut first: BTreeMap<&String, u64> = BTreeMap::new();
        for (key, seen) in &calls {
            if let (Some(path), Some(end)) = (traffic.truth.get(key), seen.end) {
                let first = first.entry(path).or_insert(end);
                *first = end.min(*first);
            }
        }
        // Calls and their first one's start, until a method's slot is bound, by connection.
        let mut until: BTreeMap<(u64, &String), (u64, u64, Option<u64>)> = BTreeMap::new();
        for (key, seen) in &calls {
            let Some(path) = traffic.truth.get(key) else { continue };
            let row = self.rows.entry(path.clone()).or_default();
            row.calls += 1;
            match &seen.label {
                None => row.ambiguous += 1,
                Some(label) if label.exact => row.exact += 1,
                Some(_) => row.inferred += 1,
            }
            row.online += u64::from(seen.online);
            if first.get(path).is_some_and(|first| seen.start >= *first) {
                row.following += 1;
                row.following_ambiguous += u64::from(seen.label.is_none());
            }
            if let Some(bound) = seen.bound_at {
                let (calls, start, at) = until.entry((key.conn.0, path)).or_insert((0, seen.start, None));
                *calls += 1;
                *start = seen.start.min(*start);
                *at = Some(at.map_or(bound, |at: u64| at.min(bound)));
            }
        }
        for ((_, path), (calls, start, bound)) in until {
            let row = self.rows.entry(path.clone()).or_default();
            row.calls_to_bind.push(calls);
            row.time_to_bind.extend(bound.map(|bound| bound.saturating_sub(start)));
        }
    }

    /// Adds another cut's.
    pub fn add(&mut self, other: Score) {
        for (path, row) in other.rows {
            let own = self.rows.entry(path).or_default();
            own.calls += row.calls;
            own.exact += row.exact;
            own.inferred += row.inferred;
            own.ambiguous += row.ambiguous;
            own.online += row.online;
            own.wrong += row.wrong;
            own.calls_to_bind.extend(row.calls_to_bind);
            own.time_to_bind.extend(row.time_to_bind);
            own.following += row.following;
            own.following_ambiguous += row.following_ambiguous;
        }
        self.wrong.extend(other.wrong);
    }

    /// Wrong names.
    pub fn wrong(&self) -> u64 {
        self.rows.values().map(|row| row.wrong).sum()
    }

    /// Calls that follow the first complete one of their method, and how many of them have no name at the end.
    pub fn pooled(&self) -> (u64, u64) {
        self.rows.values().fold((0, 0), |(all, not), row| (all + row.following, not + row.following_ambiguous))
    }

    /// The same as a share.
    pub fn share(&self) -> f64 {
        let (all, not) = self.pooled();
        not as f64 / all.max(1) as f64
    }
}

/// Whether a name is the call's; a service without its package is one whose version is not known.
fn same(truth: &str, path: &str) -> bool {
    let tail = |path: &str| path.rsplit_once('.').map(|(_, tail)| format!("/{tail}"));
    truth == path || (!path.contains('.') && tail(truth).is_some_and(|tail| tail == path))
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["calls", "exact", "inferred", "to bind", "time to bind", "ambiguous", "online", "wrong"];
        writeln!(f, "{:26} {}", "method", head.map(|name| format!(" {name:>12}")).concat())?;
        for (path, row) in &self.rows {
            let name = path.rsplit('/').next().unwrap_or(path);
            let name = if path.starts_with("/containerd.") { format!("{name} (containerd)") } else { name.to_owned() };
            let numbers = [
                row.calls.to_string(),
                row.exact.to_string(),
                row.inferred.to_string(),
                median(&row.calls_to_bind).map_or("-".into(), |n| n.to_string()),
                median(&row.time_to_bind).map_or("-".into(), |ns| format!("{:.1} ms", ns as f64 / 1e6)),
                row.ambiguous.to_string(),
                row.online.to_string(),
                row.wrong.to_string(),
            ];
            writeln!(f, "{name:26} {}", numbers.map(|n| format!(" {n:>12}")).concat())?;
        }
        let (all, not) = self.pooled();
        writeln!(
            f,
            "of {all} calls that follow the first complete call of their method {not} are ambiguous: {:.3} %; wrong: {}",
            100.0 * self.share(),
            self.wrong()
        )
    }
}

fn median(values: &[u64]) -> Option<u64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

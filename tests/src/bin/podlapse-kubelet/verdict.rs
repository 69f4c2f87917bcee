//! podlapse's calls against containerd's: who is right about each name.

use std::collections::{BTreeMap, BTreeSet};

use podlapse::ids::ConnId;
use podlapse_tests::calls::{Seen, Source};

use crate::truth::Logged;

/// containerd writes its line between the two edges of a call; the clocks are compared to within this.
const SLACK: u64 = 500_000;

/// What came of the calls of one method.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    logged: usize,
    read: usize,
    inferred: usize,
    ambiguous: usize,
    unseen: usize,
    wrong: usize,
}

/// The comparison.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    rows: BTreeMap<String, Row>,
    /// Calls that are not the CRI's, which containerd does not log.
    foreign: usize,
    wrong: Vec<String>,
    ambiguous: Vec<String>,
    /// Start and end, method as the log has it, and whether podlapse had a name: calls on connections that were
    /// older than podlapse.
    late: Vec<(u64, u64, &'static str, bool)>,
}

/// Compares all calls with the log. `attached` and `detached` are when everything was to be seen.
pub(crate) fn compare(seen: &[Seen], log: &[Logged], attached: u64, detached: u64) -> Verdict {
    let mut verdict = Verdict::default();
    let mut taken = vec![false; log.len()];
    let cri = |call: &&Seen| call.service.ends_with("RuntimeService") || call.service.ends_with("ImageService");
    let old: BTreeSet<_> = seen.iter().filter(|call| call.source != Source::Read).map(|call| call.key.conn).collect();
    verdict.foreign = seen.iter().filter(|call| call.source != Source::Unknown && !cri(call)).count();

    // Named calls first: one that is not named may be any that is left. Those that end first choose first.
    let mut named: Vec<&Seen> = seen.iter().filter(|call| call.source != Source::Unknown).filter(cri).collect();
    named.sort_by_key(|call| call.end);
    for call in named {
        let fits = |entry: &Logged| {
            let id = entry.id.as_ref().is_none_or(|id| call.ids.is_empty() || call.ids.contains(id));
            entry.method == call.method && id
        };
        let Some(index) = find(log, &taken, call, fits) else {
            verdict.row(&call.method).wrong += 1;
            verdict.wrong.push(describe(call));
            continue;
        };
        taken[index] = true;
        verdict.settle(call, log[index].method, &old);
        let row = verdict.row(&call.method);
        match call.source {
            Source::Read => row.read += 1,
            Source::Inferred => row.inferred += 1,
            Source::Unknown => {}
        }
    }
    let mut unnamed: Vec<&Seen> = seen.iter().filter(|call| call.source == Source::Unknown).collect();
    unnamed.sort_by_key(|call| call.end);
    for call in unnamed {
        let candidate = |entry: &Logged| call.candidates.is_empty() || call.candidates.contains(&entry.method);
        if let Some(index) = find(log, &taken, call, candidate) {
            taken[index] = true;
            verdict.settle(call, log[index].method, &old);
            verdict.row(log[index].method).ambiguous += 1;
            verdict
                .ambiguous
                .push(format!("{} may be {:?}: {:?} {:?}", log[index].method, call.candidates, call.key, call.ids));
        } else if call.candidates.is_empty() {
            // Nothing is claimed, so nothing is wrong: another API's.
            verdict.foreign += 1;
        } else {
            verdict.row("(none of its candidates)").wrong += 1;
            verdict.wrong.push(describe(call));
        }
    }
    for (entry, taken) in log.iter().zip(taken) {
        let row = verdict.row(entry.method);
        if attached <= entry.at && entry.at < detached {
            row.logged += 1;
            row.unseen += usize::from(!taken);
        }
    }
    verdict.rows.retain(|_, row| row.logged + row.read + row.inferred + row.ambiguous + row.wrong > 0);
    verdict
}

/// The first line of the log that was written during a call and fits.
fn find(log: &[Logged], taken: &[bool], call: &Seen, fits: impl Fn(&Logged) -> bool) -> Option<usize> {
    let first = log.partition_point(|entry| entry.at + SLACK < call.start);
    let during = |entry: &Logged| call.end.is_none_or(|end| entry.at <= end + SLACK);
    let mut lines = log.iter().enumerate().skip(first).take_while(|(_, entry)| during(entry));
    lines.find(|(index, entry)| !taken[*index] && fits(entry)).map(|(index, _)| index)
}

fn describe(call: &Seen) -> String {
    let Seen { key, start, end, source, method, candidates, ids, .. } = call;
    format!(
        "{method} ({source:?}) {candidates:?} {key:?} {ids:?} from {start} to {end:?}: containerd served no such call then"
    )
}

impl Verdict {
    fn settle(&mut self, call: &Seen, method: &'static str, old: &BTreeSet<ConnId>) {
        if let (Some(end), true) = (call.end, old.contains(&call.key.conn)) {
            self.late.push((call.start, end, method, call.source != Source::Unknown));
        }
    }

    /// Calls on connections older than podlapse that follow the first complete one of their method, and how many of
    /// them have no name in the end.
    pub(crate) fn late(&self) -> (usize, usize) {
        let mut first: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, end, method, _) in &self.late {
            let known = first.entry(method).or_insert(*end);
            *known = (*known).min(*end);
        }
        let followers = || self.late.iter().filter(|(start, _, method, _)| first[method] <= *start);
        (followers().count(), followers().filter(|(.., named)| !named).count())
    }

    fn row(&mut self, method: &str) -> &mut Row {
        self.rows.entry(method.to_owned()).or_default()
    }

    /// Names that are wrong, each with its call.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Of these methods, those that have a call without a name, or one that was not seen.
    pub(crate) fn unnamed(&self, methods: &[&str]) -> Vec<String> {
        let rows = methods.iter().filter_map(|method| Some((method, self.rows.get(*method)?)));
        let unnamed = rows.filter(|(_, row)| row.ambiguous + row.unseen > 0);
        unnamed.map(|(method, row)| format!("{method}: {}", row.ambiguous + row.unseen)).collect()
    }

    /// The table, a row per method.
    pub(crate) fn print(&self) {
        println!(
            "{:<26} {:>7} {:>9} {:>9} {:>10} {:>7} {:>6}",
            "method", "served", "read", "inferred", "ambiguous", "unseen", "wrong"
        );
        let mut sum = Row::default();
        for (method, row) in &self.rows {
            print_row(method, *row);
            sum.logged += row.logged;
            sum.read += row.read;
            sum.inferred += row.inferred;
            sum.ambiguous += row.ambiguous;
            sum.unseen += row.unseen;
            sum.wrong += row.wrong;
        }
        print_row("all", sum);
        let (late, open) = self.late();
        let share = 100.0 * open as f64 / late.max(1) as f64;
        println!(
            "on connections older than podlapse, after the first of its method: {late} calls, {open} ambiguous ({share:.2} %)"
        );
        println!("calls of other APIs: {}", self.foreign);
        self.ambiguous.iter().take(20).for_each(|call| println!("ambiguous: {call}"));
        self.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    }
}

fn print_row(method: &str, row: Row) {
    let Row { logged, read, inferred, ambiguous, unseen, wrong } = row;
    println!("{method:<26} {logged:>7} {read:>9} {inferred:>9} {ambiguous:>10} {unseen:>7} {wrong:>6}");
}

#[cfg(test)]
mod tests {
    use podlapse::cri::CallKey;

    use super::*;

    fn call(method: &str, source: Source, at: u64, id: &str, candidates: &[&'static str]) -> Seen {
        Seen {
            key: CallKey { conn: ConnId(1), stream: 1 },
            client: None,
            start: at,
            end: Some(at + 10_000_000),
            source,
            service: "runtime.v1.RuntimeService".into(),
            method: method.into(),
            candidates: candidates.to_vec(),
            ids: vec![id.into()],
        }
    }

    fn logged(method: &'static str, at: u64, id: &str) -> Logged {
        Logged { at, method, id: Some(id.into()) }
    }

    /// Rows as `method read inferred ambiguous unseen wrong`.
    fn rows(seen: &[Seen], log: &[Logged]) -> Vec<String> {
        let verdict = compare(seen, log, 0, u64::MAX);
        let row = |(method, row): (&String, &Row)| {
            format!("{method} {} {} {} {} {}", row.read, row.inferred, row.ambiguous, row.unseen, row.wrong)
        };
        verdict.rows.iter().map(row).collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn each_call_takes_one_line() {
        let seen = [
            call("StopContainer", Source::Inferred, 100 * MS, "a", &[]),
            call("StopContainer", Source::Read, 101 * MS, "b", &[]),
            call("", Source::Unknown, 102 * MS, "c", &["Status", "Version"]),
        ];
        let log = [
            logged("StopContainer", 102 * MS, "b"),
            logged("StopContainer", 103 * MS, "a"),
            logged("Version", 104 * MS, "c"),
            logged("Version", 105 * MS, "c"),
        ];
        assert_eq!(rows(&seen, &log), ["StopContainer 1 1 0 0 0", "Version 0 0 1 1 0"]);
    }

    #[test]
    fn a_name_that_is_not_in_the_log_is_wrong() {
        let log = [logged("RemoveContainer", 102 * MS, "a")];
        let of = |method: &str, at, id: &str| rows(&[call(method, Source::Inferred, at, id, &[])], &log);
        assert_eq!(of("RemoveContainer", 100 * MS, "a"), ["RemoveContainer 0 1 0 0 0"]);
        let missed = "RemoveContainer 0 0 0 1 0";
        assert_eq!(of("StopContainer", 100 * MS, "a"), [missed, "StopContainer 0 0 0 0 1"]);
        assert_eq!(of("RemoveContainer", 100 * MS, "b"), ["RemoveContainer 0 0 0 1 1"]);
        assert_eq!(of("RemoveContainer", 110 * MS, "a"), ["RemoveContainer 0 0 0 1 1"]);
    }

    #[test]
    fn the_first_call_of_a_method_is_not_counted() {
        let known = call("Status", Source::Inferred, 100 * MS, "a", &[]);
        let open = |at| call("", Source::Unknown, at, "a", &["Status", "Version"]);
        // The second begins before the first has ended.
        let seen = [known, open(105 * MS), open(120 * MS), call("Status", Source::Inferred, 140 * MS, "a", &[])];
        let log: Vec<Logged> = [101, 106, 121, 141].map(|at| logged("Status", at * MS, "a")).into();
        assert_eq!(compare(&seen, &log, 0, u64::MAX).late(), (2, 1));
    }

    #[test]
    fn candidates_have_to_hold_the_method() {
        let log = [logged("RemoveContainer", 102 * MS, "a")];
        let seen = [call("", Source::Unknown, 100 * MS, "a", &["StartContainer", "StopContainer"])];
        assert_eq!(rows(&seen, &log), ["(none of its candidates) 0 0 0 0 1", "RemoveContainer 0 0 0 1 0"]);
    }
}

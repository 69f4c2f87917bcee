//! Starts and lives that fail for real, on a real node, each with the verdict that is right.
//!
//! A case is data and a function that makes it happen; a file a family. A new one is an entry there, and where it needs
//! something of its node, a line in `stand.rs`.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cri::Pod;
use crate::tools::Containerd;

mod image;
mod judge;
mod life;
mod lifecycle;
mod network;
mod oci;
mod process;
mod registry;
mod runtime;
mod stand;

use judge::Judged;
use stand::Stand;

/// How long podlapse may take to see the last start settle.
const SETTLE: Duration = Duration::from_millis(2500);

/// A start that is made to fail, or that must not be taken for one that failed.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What podlapse is to say.
    expected: Expected,
    /// The same where containerd 2 says it another way.
    newer: Option<Expected>,
    /// Stage and reason of what goes wrong after the start, sorted.
    life: &'static [Right],
    newer_life: Option<&'static [Right]>,
    /// It breaks its node, or takes long.
    pub own_node: bool,
    make: Make,
}

/// Stage and reason of a verdict.
type Right = (&'static str, &'static str);
type Make = for<'a> fn(&'a mut Stand) -> Made<'a>;
/// The pod whose traces are judged.
type Made<'a> = Pin<Box<dyn Future<Output = Result<Pod>> + 'a>>;

/// What podlapse is to say of all starts of a case's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The verdicts, stage and reason, in the order of the starts.
    Verdicts(&'static [Right]),
    /// They are complete: none failed.
    Nothing,
    /// It goes on.
    InProgress,
}

const fn case(name: &'static str, expected: Expected, make: Make) -> Case {
    Case { name, expected, newer: None, life: &[], newer_life: None, own_node: false, make }
}

const fn fails(name: &'static str, verdicts: &'static [Right], make: Make) -> Case {
    case(name, Expected::Verdicts(verdicts), make)
}

const fn works(name: &'static str, make: Make) -> Case {
    case(name, Expected::Nothing, make)
}

const fn goes_on(name: &'static str, make: Make) -> Case {
    case(name, Expected::InProgress, make)
}

/// The starts are good ones; what is wrong comes after them.
const fn lives(name: &'static str, life: &'static [Right], make: Make) -> Case {
    then(works(name, make), life)
}

/// And that goes wrong after the start.
const fn then(case: Case, life: &'static [Right]) -> Case {
    Case { life, ..case }
}

/// On a node of its own.
const fn alone(case: Case) -> Case {
    Case { own_node: true, ..case }
}

/// And another verdict with containerd 2.
const fn newer(case: Case, verdicts: &'static [Right]) -> Case {
    Case { newer: Some(Expected::Verdicts(verdicts)), ..case }
}

/// And something else after the start with containerd 2.
const fn newer_life(case: Case, life: &'static [Right]) -> Case {
    Case { newer_life: Some(life), ..case }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let families =
        [network::CASES, image::CASES, oci::CASES, process::CASES, runtime::CASES, life::CASES, lifecycle::CASES];
    families.into_iter().flatten()
}

/// The cases of these names; all where there are none.
pub fn named(names: &[String]) -> Result<Vec<&'static Case>> {
    if let Some(unknown) = names.iter().find(|name| all().all(|case| case.name != **name)) {
        bail!("no case {unknown:?}; --list has them");
    }
    Ok(all().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name)).collect())
}

/// The nodes that it happens on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Kind {
    /// The nodes' containerd
    #[arg(long, value_enum, default_value_t)]
    pub containerd: Containerd,
    /// Their OCI runtime: runc, crun, runc-new or crun-new; runc where it is empty
    #[arg(long, default_value = "", hide_default_value = true)]
    pub runtime: String,
}

/// What was found.
#[derive(Debug)]
pub struct Row {
    /// The case.
    pub case: &'static Case,
    /// What podlapse was to say of the starts.
    pub expected: Expected,
    /// And of what came after them.
    life: &'static [Right],
    /// What podlapse said, of the starts and then of what came after them.
    pub found: Vec<Found>,
    /// What it says when every text is blank.
    pub blanked: Vec<Found>,
    /// The traces of its pod, in the order of the starts.
    pub traces: Vec<Value>,
    /// What else is wrong.
    pub wrong: Option<String>,
}

/// One verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its stage.
    pub stage: String,
    /// Its reason.
    pub reason: String,
    /// How sure.
    pub confidence: String,
    /// From the start's first sign to the one that decided; after a start, from the event to when it was known.
    pub after: Duration,
}

impl Row {
    /// Stage and reason of all that is right.
    fn right(&self) -> impl Iterator<Item = Right> {
        let starts = match self.expected {
            Expected::Verdicts(right) => right,
            Expected::Nothing | Expected::InProgress => &[],
        };
        starts.iter().chain(self.life).copied()
    }

    /// Whether all is as expected.
    pub fn ok(&self) -> bool {
        let found = self.found.iter().map(|it| format!("{} {}", it.stage, it.reason));
        self.wrong.is_none() && found.eq(self.right().map(|(stage, reason)| format!("{stage} {reason}")))
    }

    /// Whether each stage is right with every text blank; None where no verdict is expected.
    fn right_when_blank(&self) -> Option<bool> {
        self.right().next()?;
        Some(self.right().map(|(stage, _)| stage).eq(self.blanked.iter().map(|found| &*found.stage)))
    }
}

impl fmt::Display for Row {
    /// One line a verdict: case, expected, found, confidence, time, ok.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut right: Vec<String> = self.right().map(|(stage, reason)| format!("{stage} {reason}")).collect();
        if right.is_empty() {
            right.push("no verdict".into());
        }
        let ok = if self.ok() { "ok" } else { "WRONG" };
        for line in 0..right.len().max(self.found.len()).max(1) {
            let name = if line == 0 { self.case.name } else { "" };
            let right = right.get(line).map_or("", String::as_str);
            let (found, confidence, after) = match self.found.get(line) {
                Some(it) => (
                    format!("{} {}", it.stage, it.reason),
                    it.confidence.as_str(),
                    format!("{:.3} s", it.after.as_secs_f64()),
                ),
                None => ("no verdict".into(), "", String::new()),
            };
            writeln!(f, "{name:24} {right:62} {found:62} {confidence:9} {after:>9} {ok}")?;
        }
        self.wrong.as_ref().map_or(Ok(()), |wrong| writeln!(f, "  {wrong}"))
    }
}

/// How many cases with a verdict there are, and of how many each stage is right with every text blank.
pub fn right_when_blank(rows: &[Row]) -> (usize, usize) {
    let right: Vec<bool> = rows.iter().filter_map(Row::right_when_blank).collect();
    (right.len(), right.iter().filter(|right| **right).count())
}

/// Makes them happen, one after another, before a podlapse that watches; those that need it on nodes of their own.
pub async fn run(cases: &[&'static Case], kind: &Kind) -> Result<Vec<Row>> {
    let (alone, together): (Vec<_>, Vec<_>) = cases.iter().copied().partition(|case| case.own_node);
    let mut rows = Vec::new();
    for group in std::iter::once(together).chain(alone.into_iter().map(|case| vec![case])) {
        if !group.is_empty() {
            rows.extend(on_one_node(&group, kind).await?);
        }
    }
    Ok(rows)
}

async fn on_one_node(cases: &[&'static Case], kind: &Kind) -> Result<Vec<Row>> {
    let mut stand = Stand::start(kind).await?;
    let mut made = Vec::new();
    for case in cases {
        let pod = (case.make)(&mut stand).await;
        made.push((*case, pod.with_context(|| format!("case {} did not happen", case.name))));
    }
    tokio::time::sleep(SETTLE).await;
    let (traces, judged, blanked) = stand.stop()?;
    Ok(made.into_iter().map(|(case, pod)| row(case, kind, pod, &traces, [&judged, &blanked])).collect())
}

fn row(case: &'static Case, kind: &Kind, pod: Result<Pod>, traces: &[Value], [judged, blanked]: [&Judged; 2]) -> Row {
    let newer = kind.containerd == Containerd::V21;
    let expected = case.newer.filter(|_| newer).unwrap_or(case.expected);
    let life = case.newer_life.filter(|_| newer).unwrap_or(case.life);
    let (uid, mut wrong) = match &pod {
        Ok(pod) => (pod.uid.as_str(), None),
        Err(error) => ("", Some(format!("{error:#}"))),
    };
    let own: Vec<_> = traces.iter().filter(|trace| trace["pod"]["uid"] == uid).collect();
    if own.is_empty() {
        wrong = wrong.or_else(|| Some("podlapse saw no start of its pod".into()));
    }
    let outcome = match expected {
        Expected::Verdicts(_) => None,
        Expected::Nothing => Some("complete"),
        Expected::InProgress => Some("in_progress"),
    };
    if let Some(outcome) = outcome.filter(|outcome| own.iter().any(|trace| trace["outcome"] != *outcome)) {
        let outcomes: Vec<_> = own.iter().map(|trace| &trace["outcome"]).collect();
        wrong = wrong.or_else(|| Some(format!("not every start is {outcome}: {outcomes:?}")));
    }
    // What only follows from another start says so.
    let alone = |trace: &&&Value| {
        let cause = &trace["verdict"]["is_consequence_of"];
        trace["verdict"]["reason"] == "name_reserved" && traces.iter().all(|other| other["trace_id"] != *cause)
    };
    if let Some(trace) = own.iter().find(alone) {
        wrong = wrong.or_else(|| Some(format!("the cause is not named: {}", trace["verdict"])));
    }
    // One story a pod: each start knows those before it.
    for (at, trace) in own.iter().enumerate() {
        let known = trace["attempts"].as_array().map_or(&[][..], Vec::as_slice);
        let earlier = own[..at].iter().map(|trace| &trace["trace_id"]);
        if !known.iter().map(|attempt| &attempt["trace_id"]).eq(earlier) {
            wrong = wrong.or_else(|| Some(format!("start {at} does not know those before it: {known:?}")));
        }
    }
    let mut found: Vec<Found> = own.iter().filter_map(|trace| found(trace)).collect();
    found.extend(judged.of(uid).1);
    let (starts, after) = blanked.of(uid);
    let blanked = starts.into_iter().chain(after).collect();
    let traces = own.into_iter().cloned().collect();
    Row { case, expected, life, found, blanked, traces, wrong }
}

/// The verdict of a trace.
fn found(trace: &Value) -> Option<Found> {
    let verdict = trace.get("verdict")?;
    let text = |key: &str| verdict[key].as_str().unwrap_or("?").to_owned();
    let after = Duration::from_nanos(trace["total_ns"].as_u64().unwrap_or_default());
    Some(Found { stage: text("stage"), reason: text("reason"), confidence: text("confidence"), after })
}

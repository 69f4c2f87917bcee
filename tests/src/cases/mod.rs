//! Starts that fail for real, on a real node, each with the verdict that is right.
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

mod blank;
mod image;
mod lifecycle;
mod network;
mod oci;
mod process;
mod registry;
mod runtime;
mod stand;

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
    /// It breaks its node, or takes long.
    pub own_node: bool,
    make: Make,
}

type Make = for<'a> fn(&'a mut Stand) -> Made<'a>;
/// The pod whose traces are judged.
type Made<'a> = Pin<Box<dyn Future<Output = Result<Pod>> + 'a>>;

/// What podlapse is to say of all starts of a case's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The verdicts, stage and reason, in the order of the starts.
    Verdicts(&'static [(&'static str, &'static str)]),
    /// Nothing failed.
    Nothing,
    /// It failed after its start, which podlapse does not follow yet: nothing wrong is said.
    NotYet(&'static str),
}

const fn fails(name: &'static str, verdicts: &'static [(&'static str, &'static str)], make: Make) -> Case {
    Case { name, expected: Expected::Verdicts(verdicts), newer: None, own_node: false, make }
}

const fn works(name: &'static str, make: Make) -> Case {
    Case { name, expected: Expected::Nothing, newer: None, own_node: false, make }
}

const fn not_yet(name: &'static str, what: &'static str, make: Make) -> Case {
    Case { name, expected: Expected::NotYet(what), newer: None, own_node: false, make }
}

/// On a node of its own.
const fn alone(case: Case) -> Case {
    Case { own_node: true, ..case }
}

/// And another verdict with containerd 2.
const fn newer(case: Case, verdicts: &'static [(&'static str, &'static str)]) -> Case {
    Case { newer: Some(Expected::Verdicts(verdicts)), ..case }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [network::CASES, image::CASES, oci::CASES, process::CASES, runtime::CASES, lifecycle::CASES].into_iter().flatten()
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
    /// What podlapse was to say.
    pub expected: Expected,
    /// What podlapse said.
    pub found: Vec<Found>,
    /// The stages that it says when every text is blank.
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
    /// From the start's first sign to the one that decided.
    pub after: Duration,
}

impl Row {
    /// Whether all is as expected.
    pub fn ok(&self) -> bool {
        let found = |found: &[Found]| found.iter().map(|it| (it.stage.clone(), it.reason.clone())).collect::<Vec<_>>();
        let right = match self.expected {
            Expected::Verdicts(right) => {
                right.iter().map(|(stage, reason)| ((*stage).into(), (*reason).into())).collect()
            }
            Expected::Nothing | Expected::NotYet(_) => Vec::new(),
        };
        self.wrong.is_none() && found(&self.found) == right
    }

    /// Whether each stage is right with every text blank; None where no verdict is expected.
    fn right_when_blank(&self) -> Option<bool> {
        let Expected::Verdicts(right) = self.expected else { return None };
        Some(right.iter().map(|(stage, _)| *stage).eq(self.blanked.iter().map(|found| &*found.stage)))
    }
}

impl fmt::Display for Row {
    /// One line a verdict: case, expected, found, confidence, time, ok.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right: Vec<String> = match self.expected {
            Expected::Verdicts(right) => right.iter().map(|(stage, reason)| format!("{stage} {reason}")).collect(),
            Expected::Nothing => vec!["no verdict".into()],
            Expected::NotYet(what) => vec![format!("not yet: {what}")],
        };
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
    let (traces, blanked) = stand.stop()?;
    Ok(made.into_iter().map(|(case, pod)| row(case, kind, pod, &traces, &blanked)).collect())
}

fn row(case: &'static Case, kind: &Kind, pod: Result<Pod>, traces: &[Value], blanked: &[(String, Found)]) -> Row {
    let expected = case.newer.filter(|_| kind.containerd == Containerd::V21).unwrap_or(case.expected);
    let (uid, mut wrong) = match &pod {
        Ok(pod) => (pod.uid.as_str(), None),
        Err(error) => ("", Some(format!("{error:#}"))),
    };
    let own: Vec<_> = traces.iter().filter(|trace| trace["pod"]["uid"] == uid).collect();
    if own.is_empty() {
        wrong = wrong.or_else(|| Some("podlapse saw no start of its pod".into()));
    }
    let complete = own.iter().all(|trace| trace["outcome"] == "complete");
    if expected == Expected::Nothing && !complete {
        let outcomes: Vec<_> = own.iter().map(|trace| &trace["outcome"]).collect();
        wrong = wrong.or_else(|| Some(format!("not every start is complete: {outcomes:?}")));
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
    let found = own.iter().filter_map(|trace| found(trace)).collect();
    let blanked = blanked.iter().filter(|(of, _)| of == uid).map(|(_, found)| found.clone()).collect();
    let traces = own.into_iter().cloned().collect();
    Row { case, expected, found, blanked, traces, wrong }
}

/// The verdict of a trace.
fn found(trace: &Value) -> Option<Found> {
    let verdict = trace.get("verdict")?;
    let text = |key: &str| verdict[key].as_str().unwrap_or("?").to_owned();
    let after = Duration::from_nanos(trace["total_ns"].as_u64().unwrap_or_default());
    Some(Found { stage: text("stage"), reason: text("reason"), confidence: text("confidence"), after })
}

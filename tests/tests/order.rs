//! One start seen by strace and by podlapse at once: the same calls of the same threads in the same order, and the
//! edges of the trace are instants among them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use podlapse::record::{Event, Sys};
use podlapse::recording::Reader;
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::strace::Strace;
use podlapse_tests::{Cri, Node, Options, podlapse as run, trace};
use serde_json::Value;

/// What strace is asked for. podlapse does not tell execve from execveat, nor the ways to make a process apart: they are
/// `exec` and `clone` here. What makes a thread is left out.
const CALLS: &str = "execve,execveat,clone,clone3,fork,vfork,setns,unshare,pivot_root";

/// One call by either observer; times are CLOCK_MONOTONIC.
#[derive(Debug, Clone)]
struct Seen {
    thread: u32,
    call: String,
    failed: bool,
    /// strace: the stop before the call. podlapse: the call's entry; of an exec or clone that succeeded its own instant.
    start: i128,
    /// The call's end; of podlapse's exec and clone that instant again.
    end: i128,
}

/// A clone that makes a thread.
const THREAD: &str = "thread";

/// Adds to a wall time to get a monotonic one.
type Offset = i128;

/// The calls of a recording that succeeded or failed up to an instant, and the difference of its clocks.
fn recorded(file: &Path) -> Result<(Vec<Seen>, Offset)> {
    let (mut reader, mut calls, mut offset) = (Reader::open(file)?, Vec::new(), None);
    while let Some(record) = reader.read()? {
        let at = i128::from(record.at.0);
        let mut add = |call: &str, start, failed| {
            calls.push(Seen { thread: record.tid.0, call: call.to_owned(), failed, start, end: at });
        };
        match &record.event {
            Event::Clock { realtime } => offset = offset.or(Some(at - i128::from(*realtime))),
            Event::Exec(_) => add("exec", at, false),
            Event::NewTask(_) => add("clone", at, false),
            Event::Syscall(call) => {
                let name = match call.sys {
                    Sys::Execve | Sys::Execveat => "exec",
                    Sys::Clone | Sys::Clone3 => "clone",
                    Sys::Setns | Sys::Unshare | Sys::PivotRoot => call.sys.name(),
                    _ => continue,
                };
                add(name, i128::from(call.enter.0), call.ret < 0);
            }
            _ => {}
        }
    }
    Ok((calls, offset.context("the recording has no pair of clocks")?))
}

/// Reads `strace -f -ttt -T`: `TID SECONDS.MICROSECONDS call(…) = RESULT <SECONDS>`, or in two lines where another
/// thread came between.
fn straced(log: &str, offset: Offset) -> Result<Vec<Seen>> {
    let mut open: BTreeMap<u32, (String, i128)> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let head = || {
            let (thread, rest) = line.split_once(' ')?;
            let (time, rest) = rest.trim_start().split_once(' ')?;
            Some((thread.parse::<u32>().ok()?, nanoseconds(time)? + offset, rest))
        };
        let (thread, at, rest) = head().with_context(|| format!("strace wrote {line:?}"))?;
        // An end, a signal, or a thread that strace let go before it had looked at what it was calling.
        if rest.starts_with("+++") || rest.starts_with("---") || rest == "???( <detached ...>" {
            continue;
        }
        let (call, start) = match rest.strip_prefix("<... ") {
            Some(_) => open.remove(&thread).with_context(|| format!("resumed, but not begun: {line:?}"))?,
            None if rest.contains("CLONE_THREAD") => (THREAD.to_owned(), at),
            None => (rest.split_once('(').with_context(|| format!("strace wrote {line:?}"))?.0.to_owned(), at),
        };
        if rest.ends_with("<unfinished ...>") {
            open.insert(thread, (call, start));
            continue;
        }
        let ended = || {
            let (_, result) = rest.rsplit_once(" = ")?;
            let duration = result.rsplit_once('<')?.1.strip_suffix('>')?;
            Some((result.starts_with('-'), nanoseconds(duration)?))
        };
        let (failed, duration) = ended().with_context(|| format!("strace wrote {line:?}"))?;
        let call = match call.as_str() {
            THREAD => continue,
            "execve" | "execveat" => "exec".to_owned(),
            "clone3" | "fork" | "vfork" => "clone".to_owned(),
            _ => call,
        };
        calls.push(Seen { thread, call, failed, start, end: start + duration });
    }
    calls.sort_by_key(|seen| seen.start);
    Ok(calls)
}

/// `1767225600.123456`
fn nanoseconds(seconds: &str) -> Option<i128> {
    let (whole, fraction) = seconds.split_once('.')?;
    let fraction: i128 = format!("{fraction:0<9}").parse().ok()?;
    Some(whole.parse::<i128>().ok()? * 1_000_000_000 + fraction)
}

/// Each thread's calls in its order, by both: pairs of the same call.
fn pair<'a>(strace: &'a [Seen], podlapse: &'a [Seen]) -> Result<Vec<(&'a Seen, &'a Seen)>> {
    let by_thread = |calls: &'a [Seen]| {
        let mut threads: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
        calls.iter().for_each(|seen| threads.entry(seen.thread).or_default().push(seen));
        threads
    };
    let (theirs, ours) = (by_thread(strace), by_thread(podlapse));
    let mut pairs = Vec::new();
    for thread in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
        let of = |threads: &BTreeMap<u32, Vec<&'a Seen>>| threads.get(thread).cloned().unwrap_or_default();
        let (theirs, ours) = (of(&theirs), of(&ours));
        let names = |calls: &[&Seen]| calls.iter().map(|seen| (seen.call.clone(), seen.failed)).collect::<Vec<_>>();
        if names(&theirs) != names(&ours) {
            bail!("thread {thread}: strace saw {theirs:#?}, podlapse {ours:#?}");
        }
        pairs.extend(theirs.into_iter().zip(ours));
    }
    Ok(pairs)
}

/// Of two calls that followed each other for strace, the first one ended first for podlapse.
fn same_order(pairs: &[(&Seen, &Seen)]) -> Result<()> {
    for (first, ours_first) in pairs {
        for (second, ours_second) in pairs.iter().filter(|(second, _)| first.end < second.start) {
            ensure!(ours_first.end <= ours_second.start, "{first:?} was before {second:?}, but not for podlapse");
        }
    }
    Ok(())
}

/// Edges of the trace that are calls of the kind that strace saw.
fn edges(trace: &Value) -> Result<Vec<(String, i128)>> {
    let mut edges = Vec::new();
    for span in trace::spans(trace) {
        let stage = span["stage"].as_str().context("no stage")?;
        let last = stage.rsplit('.').next().unwrap_or_default();
        let words: Vec<&str> = stage.split('.').collect();
        let plugin = matches!(words.as_slice(), ["sandbox", "cni"] | ["sandbox", "cni", _]);
        let process = plugin || matches!(words.as_slice(), [.., "oci", "create" | "start"] | [.., "shim"]);
        let start = process || ["netns", "daemon", "self_clone", "namespaces", "pivot"].contains(&last);
        // A call that answered before the entrypoint ran cuts what is below it.
        let cut = trace::parent(trace, span).is_some_and(|parent| parent["end_ns"] == span["end_ns"]);
        let end = !cut && (stage == "container.exec" || stage.ends_with(".oci.start"));
        let wanted = [("start_ns", start), ("end_ns", end)];
        for (edge, _) in wanted.iter().filter(|(_, wanted)| *wanted) {
            edges.push((format!("{stage} {edge}"), trace::monotonic(trace, &span[*edge])?.into()));
        }
    }
    Ok(edges)
}

fn print(pairs: &[(&Seen, &Seen)], edges: usize) -> Result<()> {
    let mut by_call: BTreeMap<&str, Vec<i128>> = BTreeMap::new();
    for (theirs, ours) in pairs {
        by_call.entry(&theirs.call).or_default().push(ours.start - theirs.start);
        by_call.entry("all").or_default().push(ours.start - theirs.start);
    }
    let mut out = std::io::stderr();
    writeln!(out, "\n{} calls and {edges} edges; podlapse − strace, µs:", pairs.len())?;
    writeln!(out, "call         calls      min   median      p99      max")?;
    for (call, mut values) in by_call {
        values.sort_unstable();
        let count = values.len();
        let at = |percent: usize| values[(count * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
        writeln!(out, "{call:<11} {count:>6} {:>8.1} {:>8.1} {:>8.1} {:>8.1}", at(0), at(50), at(99), at(100))?;
    }
    Ok(())
}

#[tokio::test]
async fn strace_sees_the_same() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let (file, log) = (folder.path().join("start.plr"), folder.path().join("strace.log"));
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let podlapse = run::attach(&node, &["record", name], &["--containers", "1", "-o", "json"])?;
    let strace = Strace::attach(node.containerd_pid()?, CALLS, &log)?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    strace.detach()?;
    ensure!(ended.status.success(), "record ended with {}:\n{}", ended.status, ended.stderr);
    let traces = ended.traces()?;
    ensure!(traces.len() == 1 && traces[0]["outcome"] == "complete", "{traces:?}");
    let trace = &traces[0];
    trace::sound(trace)?;

    let (mut ours, offset) = recorded(&file)?;
    let mut theirs = straced(&std::fs::read_to_string(&log)?, offset)?;
    // From the request to the entrypoint; what strace saw after it podlapse need not have waited for.
    let (from, to) = (
        i128::from(trace::monotonic(trace, &Value::from(0))?),
        i128::from(trace::monotonic(trace, &trace["total_ns"])?),
    );
    for calls in [&mut ours, &mut theirs] {
        calls.retain(|seen| (from..=to).contains(&seen.start));
    }
    let pairs = pair(&theirs, &ours)?;
    for call in ["exec", "clone", "setns", "unshare", "pivot_root"] {
        ensure!(pairs.iter().any(|(theirs, _)| theirs.call == call), "strace saw no {call}");
    }
    same_order(&pairs)?;
    let instants: BTreeSet<i128> = pairs.iter().flat_map(|(_, ours)| [ours.start, ours.end]).collect();
    let edges = edges(trace)?;
    for (edge, at) in &edges {
        ensure!(instants.contains(at), "{edge} is at none of the calls");
    }
    print(&pairs, edges.len())?;
    node.stop()
}

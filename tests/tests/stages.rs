//! `podlapse stages` on real starts: its numbers are those of the traces, another implementation reads its logs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::durations::{are_those_of, near};
use podlapse_tests::{Cri, Node, Options, podlapse};
use serde_json::Value;

/// Starts in the recording, and how many of them at once.
const STARTS: usize = 24;
const AT_ONCE: usize = 4;

async fn start_pods(node: &Node) -> Result<()> {
    let cri = Cri::connect(&node.socket()).await?;
    for round in 0..STARTS / AT_ONCE {
        let mut starts = tokio::task::JoinSet::new();
        for number in 0..AT_ONCE {
            let pod = Pod::new(&format!("many-{round}-{number}"), "default")?.on_node(node.cgroup());
            let mut cri = cri.clone();
            starts.spawn(async move { cri.start_pod(&pod, &[Container::new("app")]).await });
        }
        while let Some(started) = starts.join_next().await {
            started??;
        }
    }
    Ok(())
}

fn stages(file: &Path, options: &[&str]) -> Result<Vec<u8>> {
    let file = file.to_str().context("a temporary path is UTF-8")?;
    let ended = podlapse::run(&[&["stages", "--from", file], options].concat())?;
    ensure!(ended.status.success(), "stages ended with {}:\n{}", ended.status, ended.stderr);
    Ok(ended.stdout)
}

/// What PyPI's hdrhistogram reads in a log: the same counts and quantiles.
fn another_implementation_agrees(log: &Path, document: &Value) -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_log.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(log).env("PYTHONPATH", podlapse_tests::tools::python()?).stdin(Stdio::null());
    let output = python.output().context("cannot run python3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout)?;
    let rows = document["rows"].as_array().context("no rows")?;
    let measured = rows.iter().filter(|row| row["count"] != 0);
    ensure!(measured.clone().count() == read.len(), "{} rows, {} histograms", rows.len(), read.len());
    for row in measured {
        let tag = format!("stage={};outcome=complete", row["stage"].as_str().context("no stage")?);
        let other = read.get(&tag).with_context(|| format!("no histogram {tag}"))?;
        ensure!(other["count"] == row["count"], "{tag}: {other} and {row}");
        for name in ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"] {
            let (a, b) = (other[name].as_u64().context("no number")?, row[name].as_u64().context("no number")?);
            ensure!(near(a, b), "{tag}: {name} is {a} and {b}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_numbers_of_the_traces() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("starts.plr");
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let count = STARTS.to_string();
    let live = podlapse::attach(&node, &["stages"], &["--count", &count, "-o", "json"])?;
    let record = podlapse::attach(&node, &["record", name], &["--containers", "1", "--next", &count, "-o", "json"])?;
    start_pods(&node).await?;
    let recorded = record.traces()?;
    ensure!(recorded.len() == STARTS, "{} traces", recorded.len());

    let live = live.wait(Duration::from_secs(90))?;
    ensure!(live.status.success(), "stages ended with {}:\n{}", live.status, live.stderr);
    let live: Value = serde_json::from_slice(&live.stdout)?;
    ensure!(live["starts"]["complete"] == STARTS, "live: {}", live["starts"]);

    let replayed = String::from_utf8(podlapse::replay(&file, &["-o", "json"])?)?;
    let traces = replayed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let document: Value = serde_json::from_slice(&stages(&file, &["-o", "json"])?)?;
    are_those_of(&document, &traces)?;

    let log = folder.path().join("starts.hlog");
    std::fs::write(&log, stages(&file, &["-o", "hdr"])?)?;
    let from_log: Value = serde_json::from_slice(&stages(&log, &["-o", "json"])?)?;
    ensure!(from_log["rows"] == document["rows"], "a log says other than its recording");
    another_implementation_agrees(&log, &document)?;
    println!("{}", String::from_utf8(stages(&file, &[])?)?);
    node.stop()
}

/// A terminal of its own, whose screen is read as text.
fn on_a_terminal(node: &Node, options: &str) -> Result<(std::process::Child, PathBuf)> {
    let typescript = node.dir().join("typescript");
    let podlapse = podlapse::binary()?;
    let line = format!(
        "stty cols 140 rows 20; exec {} stages --socket {} {options}",
        podlapse.display(),
        node.socket().display()
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--flush", "--return", "--command", &line]).arg(&typescript);
    script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((node.spawn_beside(&mut script).context("cannot run script")?, typescript))
}

fn wait_for(typescript: &Path, text: &str) -> Result<String> {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(typescript) {
            file.read_to_end(&mut bytes)?;
        }
        let seen = String::from_utf8_lossy(&bytes).into_owned();
        if seen.contains(text) {
            return Ok(seen);
        }
        ensure!(std::time::Instant::now() < deadline, "the terminal does not show {text:?}: {seen}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test]
async fn a_table_that_refreshes_until_interrupted() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (mut terminal, typescript) = on_a_terminal(&node, "")?;
    wait_for(&typescript, "no pod start is over yet")?;
    let mut cri = Cri::connect(&node.socket()).await?;
    for number in 1..=2 {
        let pod = Pod::new(&format!("pod-{number}"), "default")?.on_node(node.cgroup());
        cri.start_pod(&pod, &[Container::new("app")]).await?;
        wait_for(&typescript, &format!("complete: {number} start"))?;
    }
    // Ctrl-C, as typed.
    terminal.stdin.take().context("no keyboard")?.write_all(b"\x03")?;
    ensure!(terminal.wait()?.success(), "stages did not end well");
    let seen = wait_for(&typescript, "container.start.runtime")?;
    let last = seen.rsplit("\x1b[J").next().context("nothing was drawn again")?;
    ensure!(last.contains("complete: 2 starts") && last.contains("container.start.runtime"), "the end shows {last}");
    ensure!(!last.contains("\x1b["), "the end is plain: {last}");
    node.stop()
}

#[tokio::test]
async fn nothing_seen_is_a_failure() -> Result<()> {
    let node = Node::start(Options::default())?;
    let stages = podlapse::attach(&node, &["stages"], &["--duration", "1s"])?;
    let ended = stages.wait(Duration::from_secs(30))?;
    ensure!(ended.status.code() == Some(1) && ended.stdout.is_empty(), "ended with {}", ended.status);
    ensure!(ended.stderr.contains("no pod start was over"), "{}", ended.stderr);
    node.stop()
}

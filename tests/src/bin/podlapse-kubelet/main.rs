//! What `cargo xtask test-kubelet` runs: podlapse attaches to a node whose kubelet has run for a minute.
//!
//! kubelet keeps one connection for each service of the CRI, and a method that it called before the attach is from
//! then on only a place in its header table. What podlapse makes of it is compared with what containerd logs: each
//! call by method, id and time. Beside kubelet a second client polls, ctr reads the containerd API, a pod with secrets
//! comes and goes, and kubelet itself is killed and started again.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use podlapse_tests::kubelet::{self, Watch};
use podlapse_tests::machine::Machine;
use podlapse_tests::secrets::{self, holds_none, recording_holds_none};
use podlapse_tests::tools::{Containerd, Tools};
use podlapse_tests::{Cri, Node, Options, calls, podlapse, trace};
use serde_json::Value;

use crate::truth::clock_offset;

mod truth;
mod verdict;

/// How long, and what to keep.
#[derive(Debug, Parser)]
struct Args {
    /// Seconds that kubelet runs before podlapse attaches
    #[arg(long, default_value_t = 60)]
    before: u64,
    /// Keep the recording and containerd's log in this folder
    #[arg(long)]
    keep: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match test(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("podlapse-kubelet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn test(args: &Args) -> Result<bool> {
    let machine = Machine::now()?;
    let mut node = Node::start(Options::default())?;
    let (dir, cgroup) = (node.dir().to_path_buf(), node.cgroup().to_owned());
    log_each_call(&mut node)?;
    node.start_kubelet()?;
    say("kubelet runs; starting pods");
    let mut watch = Watch::on(&node).await?;
    node.put_static_pod("old", &kubelet::web("old"))?;
    node.put_static_pod("failing", &kubelet::failing("failing"))?;
    node.put_static_pod("unpullable", &kubelet::unpullable("unpullable"))?;
    watch.running("old", 2).await?;
    // One that comes and goes: kubelet has called every method that a pod's life takes.
    node.put_static_pod("gone", &kubelet::web("gone"))?;
    watch.running("gone", 2).await?;
    node.remove_static_pod("gone")?;
    tokio::time::sleep(Duration::from_secs(args.before)).await;
    watch.gone("gone").await?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kubelet.plr");
    let seen = while_recorded(&mut node, &mut watch, &file).await;
    if let Some(keep) = &args.keep {
        for from in [&file, &node.log(), &dir.join("kubelet.log")] {
            std::fs::copy(from, keep.join(from.file_name().context("a file has a name")?))?;
        }
    }
    let Recorded { ended, attached, detached } = seen?;

    let log = truth::read(&node.log(), clock_offset())?;
    let verdict = verdict::compare(&calls::of(&file)?, &log, attached, detached);
    verdict.print();
    println!("not seen are podlapse's own calls, by which it learns what exists");
    println!("recording: {} bytes; {} not decoded", std::fs::metadata(&file)?.len(), calls::undecoded(&file)?);
    let traces = ended.traces()?;
    let mut problems = Vec::new();
    let mut check = |what: &str, result: Result<()>| {
        println!("{what}: {}", if result.is_ok() { "yes" } else { "NO" });
        problems.extend(result.err().map(|error| format!("{what}: {error:#}")));
    };
    check("every name is right", right(&verdict));
    for pod in ["fresh", "after"] {
        check(&format!("the start of {pod} is complete, its calls named"), whole(&traces, pod));
    }
    check("kubelet's CreateContainerConfigError is told", is_unmade(&traces));
    let secrets: Vec<&str> = secrets::SECRETS.into_iter().chain(kubelet::SECRETS).collect();
    check("stdout holds no secret", holds_none("stdout", &ended.stdout, &secrets));
    check("stderr holds no secret", holds_none("stderr", ended.stderr.as_bytes(), &secrets));
    check("the recording and what is made of it hold no secret", recording_holds_none(&file, "fresh-node1", &secrets));
    check("the replay is the live run", replays(&file, &ended.stdout));
    node.stop()?;
    check("the machine is as it was", machine.check(&dir, &cgroup));
    problems.iter().for_each(|problem| println!("problem: {problem}"));
    Ok(problems.is_empty())
}

/// containerd logs the calls that change nothing only at this level.
fn log_each_call(node: &mut Node) -> Result<()> {
    let config = node.dir().join("containerd.toml");
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(&config, text.replace("level = \"debug\"", "level = \"trace\""))?;
    node.restart_containerd()?;
    Ok(())
}

/// A run of podlapse, and between which times it saw everything.
struct Recorded {
    ended: podlapse::Ended,
    attached: u64,
    detached: u64,
}

async fn while_recorded(node: &mut Node, watch: &mut Watch, file: &Path) -> Result<Recorded> {
    use podlapse_tests::cri::MonotonicNs;

    let name = file.to_str().context("a temporary path is UTF-8")?;
    let options = ["--next", "100000", "--restarts", "--timeout", "1h", "-o", "json"];
    let podlapse = podlapse::attach(node, &["record", name], &options)?;
    let attached = MonotonicNs::now().0;
    say("podlapse is attached; a new pod comes");
    node.put_static_pod("fresh", &kubelet::web("fresh"))?;
    watch.running("fresh", 2).await?;
    let mut ctr = Tools::find(Containerd::default())?.ctr(&node.socket());
    ensure!(ctr.args(["containers", "ls"]).output()?.status.success(), "ctr cannot list containers");
    watch.inspect().await?;
    // For its probes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    say("the new pod goes, which takes kubelet a minute or two");
    node.remove_static_pod("fresh")?;
    watch.gone("fresh").await?;
    // Its own lists are to show it, too.
    tokio::time::sleep(Duration::from_secs(4)).await;
    say("kubelet is killed and comes again, and so does a pod");
    node.kill_kubelet()?;
    // Not beside kubelet, which ends every pod that it does not know.
    secrets::a_pod_full_of_secrets(node, &mut Cri::connect(&node.socket()).await?).await?;
    node.start_kubelet()?;
    node.put_static_pod("after", &kubelet::web("after"))?;
    watch.running("after", 2).await?;
    say("a pod comes whose container kubelet does not make");
    node.put_static_pod("unmade", &kubelet::unmade("unmade"))?;
    // kubelet tries again after ten seconds or a little more.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let detached = MonotonicNs::now().0;
    podlapse.interrupt()?;
    Ok(Recorded { ended: podlapse.wait(Duration::from_secs(60))?, attached, detached })
}

fn right(verdict: &verdict::Verdict) -> Result<()> {
    ensure!(verdict.wrong().is_empty(), "{} are wrong", verdict.wrong().len());
    let (late, open) = verdict.late();
    // What is ambiguous may be one call in a thousand.
    ensure!(open * 1000 <= late, "{open} of {late} calls are ambiguous");
    let unnamed = verdict.unnamed(&["StartContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"]);
    ensure!(unnamed.is_empty(), "calls without a name: {}", unnamed.join(", "));
    Ok(())
}

/// The pod's start has all that a start has, an init container and two more.
fn whole(traces: &[Value], pod: &str) -> Result<()> {
    let name = Node::static_pod_name(pod);
    let own = |trace: &&Value| trace["pod"]["name"] == name && trace["kind"] == "pod";
    let trace = traces.iter().find(own).with_context(|| format!("no trace of {name}"))?;
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    for (method, count) in [("RunPodSandbox", 1), ("CreateContainer", 3), ("StartContainer", 3)] {
        let calls = trace::calls(trace, method);
        ensure!(calls.len() == count, "{} calls of {method}, not {count}", calls.len());
    }
    let kinds: Vec<_> =
        trace["containers"].as_array().into_iter().flatten().map(|it| (&it["name"], &it["kind"])).collect();
    ensure!(kinds.len() == 3 && kinds[0].0 == "init" && kinds[0].1 == "init", "containers {kinds:?}");
    Ok(())
}

/// The pod whose container must not run as root.
fn is_unmade(traces: &[Value]) -> Result<()> {
    let name = Node::static_pod_name("unmade");
    let trace =
        traces.iter().find(|trace| trace["pod"]["name"] == name).with_context(|| format!("no trace of {name}"))?;
    let verdict = &trace["verdict"];
    println!("{name}: {verdict}");
    ensure!(verdict["reason"] == "no_create_container", "{} {verdict}", trace["outcome"]);
    ensure!(verdict["kubelet"] == "CreateContainerConfigError" && verdict["confidence"] == "inferred", "{verdict}");
    Ok(())
}

fn replays(file: &Path, live: &[u8]) -> Result<()> {
    ensure!(podlapse::replay(file, &["-o", "json"])? == live, "they differ");
    Ok(())
}

fn say(what: &str) {
    eprintln!("test-kubelet: {what}");
}

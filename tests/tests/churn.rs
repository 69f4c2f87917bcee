//! Pods that come and go side by side, on a node that soon uses each pid again: every trace is of its own pod alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse::record::Event;
use podlapse_tests::churn::{self, Churn, FailedPod};
use podlapse_tests::witness::{Seen, Witness};
use podlapse_tests::{Node, Options, calls, podlapse as run, trace};
use serde_json::Value;

const CHURN: Churn = Churn { workers: 10, pods: 5, failing: 5 };

/// Of the node's pid namespace: some three times what ten starts use at a time, threads included.
const PID_MAX: &str = "1500";

/// `kernel.pid_max` is a pid namespace's own since Linux 6.14; before, the machine's is left alone.
fn reuse_pids(node: &Node) -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut version = release.split(['.', '-']).map(|part| part.trim().parse::<u32>().unwrap_or(0));
    if (version.next(), version.next()) < (Some(6), Some(14)) {
        return Ok(false);
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/pid_max")?;
    let script = format!("echo {PID_MAX} > /proc/sys/kernel/pid_max");
    let status = node.spawn(Command::new("sh").args(["-c", &script]))?.wait()?;
    ensure!(status.success(), "cannot make pid_max small: {status}");
    ensure!(std::fs::read_to_string("/proc/sys/kernel/pid_max")? == machine, "the machine's pid_max changed");
    Ok(true)
}

/// A process of a start by pid, program and action.
type Part = (u64, String, String);

/// What the trace calls processes of one container, against what these wrote down themselves.
fn processes_are_its_own(trace: &Value, witness: &BTreeMap<&str, Vec<&Seen>>) -> Result<()> {
    let sandbox = trace["sandbox"]["id"].as_str().context("no sandbox id")?;
    let containers = trace["containers"].as_array().context("no containers")?;
    let mut parts: BTreeMap<&str, BTreeSet<Part>> = BTreeMap::new();
    for span in trace::spans(trace).iter().filter(|span| !span["process"].is_null()) {
        let stage = span["stage"].as_str().context("no stage")?;
        let pid = span["process"]["pid"].as_u64().context("no pid")?;
        let of = match trace::parent(trace, span).and_then(|call| call["attributes"]["container"].as_str()) {
            Some(name) if !stage.starts_with("sandbox.") => {
                let found = containers.iter().find(|container| container["name"] == name);
                found.and_then(|container| container["id"].as_str()).context("a call of no container")?
            }
            _ => sandbox,
        };
        let (program, action) = match stage {
            "container.exec" => {
                let inits: Vec<_> = containers.iter().map(|container| &container["pid"]).collect();
                ensure!(inits.contains(&&span["process"]["pid"]), "{span} is none of {inits:?}");
                continue;
            }
            _ if stage.ends_with(".shim") || stage.ends_with(".shim.daemon") => {
                let args = span["process"]["args"].as_array().context("no args")?;
                ensure!(args.windows(2).any(|pair| pair[0] == "-id" && pair[1] == of), "{span} is not of {of}");
                continue;
            }
            _ if stage.ends_with(".oci.create") => ("runc", "create"),
            _ if stage.ends_with(".oci.start") => ("runc", "start"),
            _ => (stage.strip_prefix("sandbox.cni.").with_context(|| format!("whose is {span}?"))?, "ADD"),
        };
        parts.entry(of).or_default().insert((pid, program.to_owned(), action.to_owned()));
    }
    let ids = containers.iter().filter_map(|container| container["id"].as_str()).chain([sandbox]);
    for id in ids {
        let real = witness.get(id).map(Vec::as_slice).unwrap_or_default();
        let real = real.iter().filter(|seen| ["ADD", "create", "start"].contains(&seen.action.as_str()));
        let real: BTreeSet<Part> =
            real.map(|seen| (seen.pid.into(), seen.program.clone(), seen.action.clone())).collect();
        ensure!(!real.is_empty(), "no process wrote down that it was of {id}");
        let seen = parts.remove(id).unwrap_or_default();
        ensure!(seen == real, "processes of {id}: {seen:?} in the trace, really {real:?}");
    }
    ensure!(parts.is_empty(), "processes of other containers: {parts:?}");
    Ok(())
}

/// containerd's log says which shim serves which sandbox.
fn shim_is_its_own(trace: &Value, log: &str) -> Result<()> {
    let (sandbox, pid) = (trace["sandbox"]["id"].as_str().context("no sandbox id")?, &trace["sandbox"]["shim_pid"]);
    let line = log.lines().find(|line| line.contains("starting signal loop") && line.contains(sandbox));
    let line = line.with_context(|| format!("containerd's log has no shim of {sandbox}"))?;
    ensure!(line.contains(&format!(" pid={pid} ")), "shim {pid} of {sandbox}, but: {line}");
    Ok(())
}

fn failed_on_its_own(trace: &Value, pod: &FailedPod) -> Result<()> {
    ensure!(trace["outcome"] == "failed", "outcome {}", trace["outcome"]);
    ensure!(trace["sandbox"]["id"] == pod.sandbox, "sandbox {}", trace["sandbox"]);
    ensure!(trace["containers"][0]["id"] == pod.container, "containers {}", trace["containers"]);
    let message = trace["verdict"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("/no/entrypoint"), "verdict {}", trace["verdict"]);
    Ok(())
}

/// Pids that more than one process of the recording had.
fn reused(recording: &Path) -> Result<usize> {
    let mut uses: BTreeMap<u32, usize> = BTreeMap::new();
    for record in calls::records(recording)? {
        if let Event::NewTask(task) = record?.event {
            *uses.entry(task.child.0).or_default() += 1;
        }
    }
    Ok(uses.values().filter(|uses| **uses > 1).count())
}

#[tokio::test]
async fn fifty_pods_ten_at_a_time() -> Result<()> {
    let options = Options { pid_namespace: true, ..Options::default() };
    let mut node = Node::start(options)?;
    let witness = Witness::on(&mut node, options.containerd)?;
    let small = reuse_pids(&node)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("churn.plr");
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let next = CHURN.starts().to_string();
    let podlapse = run::attach(&node, &["record", name], &["--next", &next, "-o", "json"])?;
    let churned = churn::run(&node, CHURN).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    ensure!(ended.status.success(), "record ended with {}:\n{}", ended.status, ended.stderr);
    let traces = ended.traces()?;
    ensure!(traces.len() == CHURN.starts(), "{} traces", traces.len());

    let (seen, log) = (witness.seen()?, std::fs::read_to_string(node.log())?);
    let mut by_id: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    seen.iter().for_each(|seen| by_id.entry(&seen.id).or_default().push(seen));
    let of = |uid: &str| traces.iter().find(|trace| trace["pod"]["uid"] == uid).context("a start was missed");
    for pod in &churned.ran {
        let trace = of(&pod.uid)?;
        let own = || {
            trace::sound(trace)?;
            ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
            trace::belongs(trace, pod)?;
            trace::names_no_other(trace, pod.ids(), churned.ids())?;
            processes_are_its_own(trace, &by_id)?;
            shim_is_its_own(trace, &log)
        };
        own().with_context(|| format!("pod {}/{} {}", pod.namespace, pod.name, pod.uid))?;
    }
    for pod in &churned.failed {
        let trace = of(&pod.uid)?;
        trace::sound(trace)?;
        failed_on_its_own(trace, pod)?;
        trace::names_no_other(trace, pod.ids(), churned.ids())?;
        processes_are_its_own(trace, &by_id)?;
        shim_is_its_own(trace, &log)?;
    }

    ensure!(run::replay(&file, &["-o", "json"])? == ended.stdout, "the replay differs from the live run");
    let reused = reused(&file)?;
    ensure!(!small || reused > 100, "only {reused} pids were used again");
    let size = std::fs::metadata(&file)?.len();
    writeln!(std::io::stderr(), "\n{} starts, {reused} pids used again, {size} bytes recorded", traces.len())?;
    node.stop()
}

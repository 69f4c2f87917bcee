//! A runtime, a client and podlapse itself that are killed in the middle of starts: no trace is wrong, nothing hangs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podlapse_tests::bpf::{self, Object};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use serde_json::Value;
use tokio::task::JoinSet;

/// Starts at a time.
const STARTS: usize = 20;
/// All starts until something is interrupted.
const ALL: [&str; 4] = ["--next", "1000", "-o", "json"];

/// As kubelet does: after a failure another sandbox, which is another attempt.
async fn start_with_retries(socket: &Path, mut pod: Pod) -> Result<StartedPod> {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let started = async { Cri::connect(socket).await?.start_pod(&pod, &[Container::new("app")]).await };
        match started.await {
            Ok(started) => return Ok(started),
            Err(error) => ensure!(Instant::now() < deadline, "pod {} does not start: {error:#}", pod.name),
        }
        pod.attempt += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn starts(node: &Node) -> Result<JoinSet<Result<Vec<StartedPod>>>> {
    let mut starts = JoinSet::new();
    for number in 0..STARTS {
        let pod = Pod::new(&format!("web-{number}"), "shop")?.on_node(node.cgroup());
        let socket = node.socket();
        starts.spawn(async move { Ok(vec![start_with_retries(&socket, pod).await?]) });
    }
    Ok(starts)
}

/// Four at a time, until `stop`.
fn one_after_another(node: &Node, stop: &Arc<AtomicBool>) -> Result<JoinSet<Result<Vec<StartedPod>>>> {
    let mut starts = JoinSet::new();
    for worker in 0..4 {
        let (socket, cgroup, stop) = (node.socket(), node.cgroup().to_owned(), stop.clone());
        starts.spawn(async move {
            let mut started = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let pod = Pod::new(&format!("web-{worker}-{}", started.len()), "shop")?.on_node(&cgroup);
                started.push(start_with_retries(&socket, pod).await?);
            }
            Ok(started)
        });
    }
    Ok(starts)
}

async fn all(mut starts: JoinSet<Result<Vec<StartedPod>>>) -> Result<BTreeMap<String, StartedPod>> {
    let mut pods = BTreeMap::new();
    while let Some(started) = starts.join_next().await {
        pods.extend(started??.into_iter().map(|pod| (pod.uid.clone(), pod)));
    }
    Ok(pods)
}

/// Nothing in a trace is another pod's, and a complete one is as the CRI says. Gives the pods with a complete one.
fn none_is_wrong(traces: &[Value], pods: &BTreeMap<String, StartedPod>) -> Result<Vec<String>> {
    let mut complete = Vec::new();
    for trace in traces {
        trace::sound(trace)?;
        let uid = trace["pod"]["uid"].as_str().context("a trace of no pod")?;
        let pod = pods.get(uid).with_context(|| format!("a trace of pod {uid}, which was never started"))?;
        // Absent is unknown: podlapse came in the middle.
        for (known, real) in [("name", pod.name.as_str()), ("namespace", "shop")] {
            let known = &trace["pod"][known];
            ensure!(*known == real || (known.is_null() && trace["outcome"] == "partial"), "{}", trace["pod"]);
        }
        trace::names_no_other(trace, pod.ids(), pods.values().flat_map(StartedPod::ids))?;
        if trace["outcome"] == "complete" {
            trace::belongs(trace, pod)?;
            complete.push(uid.to_owned());
        } else if trace["sandbox"]["id"] == pod.id {
            // Its attempt that went well in the end.
            ensure!(trace["outcome"] == "partial", "{} of {}: {trace:#}", trace["outcome"], pod.name);
        }
    }
    Ok(complete)
}

fn reasons(traces: &[Value]) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for trace in traces {
        let reason = trace["verdict"]["reason"].as_str().or(trace["outcome"].as_str()).unwrap_or("?");
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

/// What was interrupted ends well when it saw anything.
fn interrupted(running: podlapse::Running) -> Result<(Vec<Value>, String)> {
    running.interrupt()?;
    let ended = running.wait(Duration::from_secs(30))?;
    ensure!(ended.status.success(), "podlapse ended with {}:\n{}", ended.status, ended.stderr);
    Ok((ended.traces()?, ended.stderr))
}

async fn a_sandbox_is_asked_for(node: &Node) -> Result<()> {
    let log = node.log();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string(&log)?.contains("RunPodSandbox") {
        ensure!(Instant::now() < deadline, "containerd's log has no RunPodSandbox");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_is_killed_in_the_middle_of_starts() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let file = node.dir().join("run.plr");
    let podlapse = podlapse::attach(&node, &["record", file.to_str().context("not UTF-8")?], &ALL)?;
    let starts = starts(&node)?;
    tokio::time::sleep(Duration::from_millis(400)).await;
    tokio::task::block_in_place(|| {
        node.kill_containerd()?;
        node.restart_containerd()
    })?;
    let pods = all(starts).await?;
    // The last of them settles.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (traces, said) = interrupted(podlapse)?;
    println!("{:?}", reasons(&traces));
    let complete = none_is_wrong(&traces, &pods)?;
    ensure!(complete.len() == STARTS, "{} of {STARTS} starts are complete: {:?}", complete.len(), reasons(&traces));
    let cut = traces.iter().filter(|trace| trace["verdict"]["reason"] == "runtime_restarted").count();
    ensure!(cut > 0, "no call was cut off: {:?}", reasons(&traces));
    ensure!(said.contains("ended; waiting for one") && said.contains("the runtime is back"), "{said}");
    let replayed = podlapse::replay(&file, &["-o", "json"])?;
    let replayed: Vec<Value> =
        std::str::from_utf8(&replayed)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(replayed == traces, "the replay differs");
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_restarts_again_and_again() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &ALL)?;
    let mut pods = BTreeMap::new();
    for round in 0..3 {
        node.kill_containerd()?;
        node.restart_containerd()?;
        if round == 1 {
            // Nothing in between.
            node.kill_containerd()?;
            node.restart_containerd()?;
        }
        let pod = Pod::new(&format!("web-{round}"), "shop")?.on_node(node.cgroup());
        let started = start_with_retries(&node.socket(), pod).await?;
        pods.insert(started.uid.clone(), started);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (traces, said) = interrupted(podlapse)?;
    let complete = none_is_wrong(&traces, &pods)?;
    ensure!(complete.len() == pods.len(), "{:?}\n{said}", reasons(&traces));
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_does_not_come_back() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &ALL)?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let socket = node.socket();
    let start =
        tokio::spawn(async move { Cri::connect(&socket).await?.start_pod(&pod, &[Container::new("app")]).await });
    a_sandbox_is_asked_for(&node).await?;
    node.kill_containerd()?;
    ensure!(start.await?.is_err(), "the start was over before containerd was killed");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (traces, said) = interrupted(podlapse)?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "failed", "{}", traces[0]["outcome"]);
    ensure!(traces[0]["verdict"]["reason"] == "runtime_restarted", "{}", traces[0]["verdict"]);
    ensure!(said.contains("ended; waiting for one that listens"), "{said}");
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_restarts_while_podlapse_attaches() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = podlapse::start(&node, &["trace"], &ALL)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    // It has found the socket, and loads its programs.
    while bpf::held(podlapse.pid())?.is_empty() {
        ensure!(Instant::now() < deadline, "podlapse loads no programs");
        std::thread::sleep(Duration::from_millis(1));
    }
    node.kill_containerd()?;
    node.restart_containerd()?;
    let podlapse = podlapse.attached()?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = start_with_retries(&node.socket(), pod).await?;
    let pods = BTreeMap::from([(started.uid.clone(), started)]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (traces, said) = interrupted(podlapse)?;
    ensure!(none_is_wrong(&traces, &pods)?.len() == 1, "{:?}\n{said}", reasons(&traces));
    node.stop()
}

fn gone(objects: &[Object]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    for object in objects {
        while bpf::exists(*object)? {
            ensure!(Instant::now() < deadline, "{object:?} is still in the kernel");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn podlapse_is_killed_in_the_middle_of_starts() -> Result<()> {
    let node = Node::start(Options::default())?;
    let first = podlapse::attach(&node, &["trace"], &ALL)?;
    let objects = bpf::held(first.pid())?;
    ensure!(objects.len() > 10, "podlapse holds {objects:?}");
    ensure!(bpf::exists(objects[0])?, "{:?} is not there", objects[0]);
    let stop = Arc::new(AtomicBool::new(false));
    let starts = one_after_another(&node, &stop)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.kill()?;
    let second = tokio::task::block_in_place(|| podlapse::attach(&node, &["trace"], &ALL))?;
    // One that begins now is whole; of those before, what was left.
    let last = start_with_retries(&node.socket(), Pod::new("last", "shop")?.on_node(node.cgroup())).await?;
    stop.store(true, Ordering::Relaxed);
    let mut pods = all(starts).await?;
    ensure!(pods.len() >= STARTS, "only {} starts", pods.len());
    let uid = last.uid.clone();
    pods.insert(uid.clone(), last);
    gone(&objects)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let objects = bpf::held(second.pid())?;
    let (traces, _) = interrupted(second)?;
    println!("{} starts: {:?}", pods.len(), reasons(&traces));
    ensure!(none_is_wrong(&traces, &pods)?.contains(&uid), "{:?}", reasons(&traces));
    gone(&objects)?;
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_killed_in_the_middle_of_its_starts() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &ALL)?;
    let mut client = Command::new(env!("CARGO_BIN_EXE_podlapse-node"))
        .args(["pod", "--count", "4", "--keep", "--namespace", "shop", "--name", "killed", "--socket"])
        .arg(node.socket())
        .args(["--cgroup", node.cgroup()])
        .stdout(Stdio::null())
        .spawn()?;
    a_sandbox_is_asked_for(&node).await?;
    client.kill()?;
    client.wait()?;
    let started = start_with_retries(&node.socket(), Pod::new("web", "shop")?.on_node(node.cgroup())).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (traces, said) = interrupted(podlapse)?;
    ensure!(!said.contains("runtime"), "{said}");
    let (own, cut): (Vec<&Value>, Vec<&Value>) = traces.iter().partition(|trace| trace["pod"]["uid"] == started.uid);
    ensure!(own.len() == 1 && own[0]["outcome"] == "complete", "{:?}", reasons(&traces));
    trace::belongs(own[0], &started)?;
    ensure!(!cut.is_empty(), "no start of the client was seen");
    for trace in cut {
        trace::sound(trace)?;
        trace::names_no_other(trace, [], started.ids())?;
        let reason = trace["verdict"]["reason"].as_str().unwrap_or_default();
        // What containerd was doing for it goes on until it notices; then its reply goes nowhere.
        ensure!(
            trace["outcome"] == "failed"
                && ["connection_closed", "client_cancel", "call_failed", "cni_killed"].contains(&reason),
            "{} {}",
            trace["outcome"],
            trace["verdict"]
        );
    }
    node.stop()
}

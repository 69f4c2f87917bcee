//! A connection as kubelet's: older than podlapse, one for everything, its methods mere indices. Every call on it has
//! to get its right name, or none.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::calls::{self, Seen, Source};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Every method is in the connection's header table afterwards.
async fn use_every_method(cri: &mut Cri, node: &Node) -> Result<()> {
    let pod = Pod::new("early", "shop")?.on_node(node.cgroup());
    let started = live(cri, &pod).await?;
    end(cri, &started, &pod).await
}

/// The life of a pod, as kubelet polls it.
async fn live(cri: &mut Cri, pod: &Pod) -> Result<StartedPod> {
    let image = podlapse_tests::image::BUSYBOX_IMAGE;
    cri.version().await.ok("Version")?;
    cri.status(false).await.ok("Status")?;
    ensure!(cri.has_image(image).await?, "no {image}");
    let started = cri.start_pod(pod, &[Container::init("prepare"), Container::new("app")]).await?;
    poll(cri).await?;
    for _ in 0..2 {
        cri.exec_sync(&started.containers[1].id, &["/bin/true"], 5).await.ok("ExecSync")?;
        poll(cri).await?;
    }
    Ok(started)
}

async fn poll(cri: &mut Cri) -> Result<()> {
    cri.list_pod_sandboxes().await.ok("ListPodSandbox")?;
    cri.list_containers().await.ok("ListContainers")?;
    Ok(())
}

/// Its end.
async fn end(cri: &mut Cri, started: &StartedPod, pod: &Pod) -> Result<()> {
    cri.stop_container(&started.containers[1].id, 1).await.ok("StopContainer")?;
    poll(cri).await?;
    cri.stop_pod_sandbox(&started.id).await.ok("StopPodSandbox")?;
    poll(cri).await?;
    for container in &started.containers {
        cri.remove_container(&container.id).await.ok("RemoveContainer")?;
        poll(cri).await?;
    }
    cri.remove_pod(&started.id, &pod.cgroup_parent).await?;
    // What is gone has to be missed twice.
    poll(cri).await?;
    poll(cri).await?;
    poll(cri).await
}

/// The start of a pod whose calls all had to be inferred.
fn whole(trace: &Value, pod: &StartedPod) -> Result<()> {
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    trace::belongs(trace, pod)?;
    for (method, count) in [("RunPodSandbox", 1), ("CreateContainer", 2), ("StartContainer", 2)] {
        let calls = trace::calls(trace, method);
        ensure!(calls.len() == count, "{} calls of {method}, not {count}", calls.len());
        for call in calls {
            ensure!(call["call"]["method_source"] == "inferred" && call["call"]["code"] == "OK", "{call}");
        }
    }
    ensure!(trace["containers"][0]["kind"] == "init", "{}", trace["containers"]);
    ensure!(trace["quality"]["inferred_methods"].as_u64() >= Some(5), "{}", trace["quality"]);
    let notes = trace["quality"]["notes"].to_string();
    ensure!(notes.contains("inferred: StartContainer: "), "the notes say nothing of it: {notes}");
    Ok(())
}

/// podlapse comes, a pod lives and ends, and the start settles: the pod, and its traces, which a replay gives too.
async fn recorded(cri: &mut Cri, node: &Node, file: &Path) -> Result<(StartedPod, Vec<Value>)> {
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let record = podlapse::attach(node, &["record", name], &["--next", "9", "-o", "json"])?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = live(cri, &pod).await?;
    end(cri, &started, &pod).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    record.interrupt()?;
    let ended = record.wait(Duration::from_secs(30))?;
    ensure!(ended.status.success(), "record ended with {}:\n{}", ended.status, ended.stderr);
    ensure!(podlapse::replay(file, &["-o", "json"])? == ended.stdout, "the replay differs from the live run");
    Ok((started, ended.traces()?))
}

/// Each call by itself has its name, the one that the client wrote.
fn all_named<'a>(seen: &'a [Seen], truth: impl Fn(&Seen) -> &'a str) -> Result<()> {
    let path = |call: &Seen| format!("/{}/{}", call.service, call.method);
    for call in seen {
        let truth = truth(call);
        let open = call.source == Source::Unknown;
        let right = truth.ends_with(&format!("Service/{}", call.method));
        ensure!(open || right, "stream {}: {truth}, not {}", call.key.stream, path(call));
        let method = truth.rsplit('/').next().unwrap_or_default();
        let candidate = call.candidates.is_empty() || call.candidates.contains(&method);
        ensure!(!open || candidate, "stream {}: {truth} is none of {:?}", call.key.stream, call.candidates);
    }
    let unknown: Vec<_> = seen.iter().filter(|call| call.source == Source::Unknown).collect();
    let names: Vec<_> = unknown.iter().map(|call| (truth(call), &call.candidates)).collect();
    println!("{} calls, {} inferred, unnamed: {names:?}", seen.len(), seen.len() - unknown.len());
    ensure!(unknown.is_empty(), "without a name: {names:?}");
    Ok(())
}

/// A client that hands calls on by gRPC's C core.
struct Core {
    python: Child,
    /// Its output: a call's path a line.
    paths: Lines<BufReader<ChildStdout>>,
}

impl Core {
    fn start(folder: &Path, socket: &Path) -> Result<(Core, PathBuf)> {
        let (script, own) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/core_client.py"), folder.join("core.sock"));
        let mut python = Command::new("python3");
        python.arg(script).arg(&own).arg(socket).env("PYTHONPATH", podlapse_tests::tools::python()?);
        let mut python = python.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run python3")?;
        let output = python.stdout.take().context("its output is a pipe")?;
        let mut paths = BufReader::new(output).lines();
        let ready = paths.next().context("the client ended")??;
        ensure!(ready == "ready", "the client says {ready:?}");
        Ok((Core { python, paths }, own))
    }

    /// The paths of its calls, in order.
    fn end(mut self) -> Result<Vec<String>> {
        let pid = Pid::from_raw(self.python.id().cast_signed()).context("the client has no pid")?;
        kill_process(pid, Signal::TERM)?;
        let paths = self.paths.by_ref().collect::<std::io::Result<_>>()?;
        self.python.wait()?;
        Ok(paths)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Nothing is left to do about a failure.
        _ = self.python.kill();
        _ = self.python.wait();
    }
}

/// Its header fields have another order and other indices than Go's.
#[tokio::test]
async fn a_connection_of_grpcs_c_core() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let (core, socket) = Core::start(folder.path(), &node.socket())?;
    let client = core.python.id();
    let mut cri = Cri::connect(&socket).await?;
    let old = cri.start_pod(&Pod::new("old", "shop")?.on_node(node.cgroup()), &[Container::new("app")]).await?;
    use_every_method(&mut cri, &node).await?;

    let file = folder.path().join("late.plr");
    let (started, traces) = recorded(&mut cri, &node, &file).await?;

    // One call after the other: the nth has the nth of the client's stream numbers.
    let paths = core.end()?;
    let mut seen = calls::of(&file)?;
    seen.retain(|call| call.client == Some(client));
    ensure!(seen.len() > 20, "{} calls of pid {client}", seen.len());
    all_named(&seen, |call| &paths[call.key.stream as usize / 2])?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    whole(&traces[0], &started)?;
    trace::names_no_other(&traces[0], started.ids(), old.ids())?;
    node.stop()
}

#[tokio::test]
async fn a_connection_that_is_older_than_podlapse() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (mut cri, paths) = Cri::connect_like_kubelet(&node.socket()).await?;
    let old = cri.start_pod(&Pod::new("old", "shop")?.on_node(node.cgroup()), &[Container::new("app")]).await?;
    use_every_method(&mut cri, &node).await?;
    let before = paths.lock().expect("no holder panics").len();

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("late.plr");
    let (started, traces) = recorded(&mut cri, &node, &file).await?;

    let truth: BTreeMap<u32, String> = paths.lock().expect("no holder panics").drain(before..).collect();
    let mine = Some(std::process::id());
    let mut seen = calls::of(&file)?;
    seen.retain(|call| call.client == mine && truth.contains_key(&call.key.stream));
    ensure!(seen.len() == truth.len(), "{} calls, not {}", seen.len(), truth.len());
    all_named(&seen, |call| &truth[&call.key.stream])?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    whole(&traces[0], &started)?;
    trace::names_no_other(&traces[0], started.ids(), old.ids())?;
    node.stop()
}

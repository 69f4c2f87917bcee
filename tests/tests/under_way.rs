//! A start that is under way when podlapse attaches: what hangs is shown, and what follows is told right.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::hold::Hold;
use podlapse_tests::{Containerd, Cri, Node, Options, podlapse, trace};
use serde_json::Value;
use tokio::task::JoinHandle;

/// Time for the list of what exists, and for a start to settle.
const SETTLED: Duration = Duration::from_secs(3);

fn start(node: &Node, pod: Pod) -> JoinHandle<Result<StartedPod>> {
    let socket = node.socket();
    tokio::spawn(async move { Cri::connect(&socket).await?.start_pod(&pod, &[Container::new("app")]).await })
}

/// What is known of the pod now; podlapse comes and goes.
async fn now(node: &Node) -> Result<Value> {
    let podlapse =
        tokio::task::block_in_place(|| podlapse::attach(node, &["trace"], &["--pod", "shop/web", "-o", "json"]))?;
    tokio::time::sleep(SETTLED).await;
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(30))?;
    let traces = ended.traces()?;
    ensure!(traces.len() == 1, "{} traces\n{}", traces.len(), ended.stderr);
    trace::sound(&traces[0])?;
    Ok(traces[0].clone())
}

/// What podlapse says of the pod that hangs, and goes on by `release` once podlapse is there. A replay says the same.
async fn recorded(node: &Node, release: impl FnOnce() -> Result<()>) -> Result<Vec<Value>> {
    let file = node.dir().join("run.plr");
    let name = file.to_str().context("not UTF-8")?;
    let options = ["--pod", "shop/web", "-o", "json"];
    let podlapse = tokio::task::block_in_place(|| podlapse::attach(node, &["record", name], &options))?;
    tokio::time::sleep(SETTLED).await;
    release()?;
    let ended = tokio::task::block_in_place(|| podlapse.wait(Duration::from_secs(60)))?;
    ensure!(podlapse::replay(&file, &["-o", "json"])? == ended.stdout, "the replay differs from the live run");
    let traces = ended.traces()?;
    traces.iter().try_for_each(trace::sound)?;
    Ok(traces)
}

/// The last line of a run that saw none of the starts that it was asked for.
fn nothing(node: &Node, which: &[&str]) -> Result<String> {
    let podlapse = podlapse::attach(node, &["trace"], &[which, &["--timeout", "3s"]].concat())?;
    let ended = podlapse.wait(Duration::from_secs(30))?;
    let out = String::from_utf8_lossy(&ended.stdout);
    ensure!(ended.status.code() == Some(1) && out.is_empty(), "{which:?} {}: {}{out}", ended.status, ended.stderr);
    Ok(ended.stderr.lines().last().unwrap_or_default().to_owned())
}

fn end_of(span: &Value) -> Option<u64> {
    span["end_ns"].as_u64()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_hangs() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    hold.hold("bridge", "ADD")?;
    let starting = start(&node, Pod::new("web", "shop")?.on_node(node.cgroup()));
    let plugin = tokio::task::block_in_place(|| hold.held("bridge", "ADD"))?;

    let hangs = now(&node).await?;
    ensure!(hangs["outcome"] == "in_progress", "{}", hangs["outcome"]);
    let [bridge] = trace::stage(&hangs, "sandbox.cni.bridge")[..] else { anyhow::bail!("{:?}", trace::names(&hangs)) };
    ensure!(bridge["process"]["pid"] == plugin && end_of(bridge).is_none(), "{bridge}");
    let notes = hangs["quality"]["notes"].to_string();
    ensure!(notes.contains("begins_in_the_middle") && notes.contains("request_not_seen"), "{notes}");
    ensure!(trace::stage(&hangs, "kubelet.gap").is_empty(), "a gap: {:?}", trace::names(&hangs));

    let said = tokio::task::block_in_place(|| nothing(&node, &["--next", "1"]))?;
    ensure!(said.contains("shop/web was under way before"), "{said}");

    let traces = recorded(&node, || hold.release("bridge", "ADD")).await?;
    let started = starting.await??;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    let whole = &traces[0];
    trace::belongs(whole, &started)?;
    ensure!(hangs["sandbox"]["id"] == started.id && hangs["pod"]["uid"] == started.uid, "{hangs}");
    ensure!(hangs["pod"]["name"] == "web" && hangs["pod"]["namespace"] == "shop", "{}", hangs["pod"]);
    ensure!(whole["outcome"] == "partial", "{} {}", whole["outcome"], whole["quality"]);

    // The call was open from before until its reply: what follows it is the first gap.
    let [sandbox] = trace::stage(whole, "sandbox")[..] else { anyhow::bail!("{:?}", trace::names(whole)) };
    let end = trace::monotonic(whole, &sandbox["end_ns"])?;
    ensure!(end >= started.run.start.0 && end <= started.run.end.0, "the reply is not at {end}: {:?}", started.run);
    for gap in trace::stage(whole, "kubelet.gap") {
        ensure!(gap["start_ns"].as_u64() >= end_of(sandbox), "{gap} is inside of {sandbox}");
    }
    for below in ["sandbox.cni", "sandbox.shim", "sandbox.oci.create", "sandbox.oci.start"] {
        let [span] = trace::stage(whole, below)[..] else { anyhow::bail!("{below}: {:?}", trace::names(whole)) };
        ensure!(span["parent"] == sandbox["id"], "{span}");
    }
    let said = tokio::task::block_in_place(|| nothing(&node, &["--pod", "shop/web"]))?;
    ensure!(said.contains("it ran before podlapse came"), "{said}");
    node.stop()
}

/// The OCI runtime's `start` hangs: the container is made, and its init waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_hangs() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut started = cri.start_pod(&pod, &[]).await?;
    hold.hold("runc", "start")?;
    let starting = {
        let (socket, sandbox) = (node.socket(), started.id.clone());
        tokio::spawn(async move {
            let mut cri = Cri::connect(&socket).await?;
            cri.start_container_in(&pod, &sandbox, &Container::new("app")).await
        })
    };
    tokio::task::block_in_place(|| hold.held("runc", "start"))?;

    let hangs = now(&node).await?;
    ensure!(hangs["outcome"] == "in_progress" && hangs["pod"]["uid"] == started.uid, "{hangs}");
    let [start] = trace::stage(&hangs, "container.start")[..] else { anyhow::bail!("{:?}", trace::names(&hangs)) };
    ensure!(end_of(start).is_none(), "{start}");
    ensure!(trace::stage(&hangs, "kubelet.gap").is_empty(), "a gap: {:?}", trace::names(&hangs));

    let traces = recorded(&node, || hold.release("runc", "start")).await?;
    started.containers.push(starting.await??);
    let [whole] = &traces[..] else { anyhow::bail!("{} traces", traces.len()) };
    trace::belongs(whole, &started)?;
    ensure!(whole["outcome"] == "partial", "{} {}", whole["outcome"], whole["verdict"]);
    ensure!(whole["containers"][0]["exec"]["path"] == "/bin/sleep", "{}", whole["containers"]);
    let [start] = trace::stage(whole, "container.start")[..] else { anyhow::bail!("{:?}", trace::names(whole)) };
    let (end, real) = (trace::monotonic(whole, &start["end_ns"])?, &started.containers[0].start);
    ensure!(end >= real.start.0 && end <= real.end.0, "the reply is not at {end}: {real:?}");
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_hangs_and_fails() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    hold.hold("bridge", "ADD")?;
    let starting = start(&node, Pod::new("web", "shop")?.on_node(node.cgroup()));
    let plugin = tokio::task::block_in_place(|| hold.held("bridge", "ADD"))?;
    let kill = || {
        let pid = rustix::process::Pid::from_raw(plugin.cast_signed()).context("no pid")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
    };
    let traces = recorded(&node, kill).await?;
    ensure!(starting.await?.is_err(), "the sandbox was made all the same");
    let [failed] = &traces[..] else { anyhow::bail!("{} traces", traces.len()) };
    ensure!(failed["outcome"] == "failed" && failed["pod"]["name"] == "web", "{failed}");
    ensure!(failed["verdict"]["stage"] == "sandbox.cni.bridge", "{}", failed["verdict"]);
    ensure!(failed["verdict"]["reason"] == "cni_killed", "{}", failed["verdict"]);
    node.stop()
}

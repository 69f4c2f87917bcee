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

    let file = node.dir().join("run.plr");
    let name = file.to_str().context("not UTF-8")?;
    let options = ["--pod", "shop/web", "-o", "json"];
    let podlapse = tokio::task::block_in_place(|| podlapse::attach(&node, &["record", name], &options))?;
    tokio::time::sleep(SETTLED).await;
    hold.release("bridge", "ADD")?;
    let started = starting.await??;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    let traces = ended.traces()?;
    ensure!(traces.len() == 1, "{} traces\n{}", traces.len(), ended.stderr);
    let whole = &traces[0];
    trace::sound(whole)?;
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
    ensure!(podlapse::replay(&file, &["-o", "json"])? == ended.stdout, "the replay differs from the live run");
    node.stop()
}

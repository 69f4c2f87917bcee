//! Many starts at once, and a start while the machine is busy with other things.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};

#[tokio::test]
async fn twenty_pods_at_once() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "--next", "20", "-o", "json"])?;
    let cri = Cri::connect(&node.socket()).await?;
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..20 {
        let pod = Pod::new(&format!("many-{number}"), "default")?.on_node(node.cgroup());
        let mut cri = cri.clone();
        starts.spawn(async move { cri.start_pod(&pod, &[Container::new("app")]).await });
    }
    let mut pods = Vec::new();
    while let Some(started) = starts.join_next().await {
        pods.push(started??);
    }
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 20, "{} traces", traces.len());

    let mut pids = BTreeSet::new();
    for pod in &pods {
        let trace = traces.iter().find(|trace| trace["pod"]["uid"] == pod.uid).context("a start was missed")?;
        trace::sound(trace)?;
        ensure!(trace["outcome"] == "complete", "{}: outcome {}", pod.name, trace["outcome"]);
        trace::belongs(trace, pod)?;
        trace::names_no_other(trace, pod.ids(), pods.iter().flat_map(StartedPod::ids))?;
        for plugin in ["loopback", "bridge", "host-local", "portmap"] {
            trace::only(trace, &format!("sandbox.cni.{plugin}"))?;
        }
        // A helper process is part of one start only.
        for stage in ["sandbox.shim", "sandbox.oci.create", "sandbox.oci.start", "container.start.oci.create"] {
            let span = trace::only(trace, stage)?;
            let pid = span["process"]["pid"].as_u64().context("no pid")?;
            ensure!(pids.insert(pid), "process {pid} is part of two starts");
        }
    }
    node.stop()
}

#[tokio::test]
async fn a_start_during_load() -> Result<()> {
    let node = Node::start(Options::default())?;
    // Processes come and go, files are copied, the socket is polled.
    let busy = "while :; do /bin/true; head -c 100000 /dev/zero > /dev/null; done";
    let mut load = Command::new("sh").args(["-c", busy]).stdin(Stdio::null()).spawn()?;
    let mut poller = Cri::connect(&node.socket()).await?;
    let polling = tokio::spawn(async move {
        loop {
            poller.list_containers().await.ok("ListContainers")?;
            poller.list_pod_sandboxes().await.ok("ListPodSandbox")?;
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "gives the task its type")]
        Ok::<(), anyhow::Error>(())
    });

    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("calm", "default")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces();
    polling.abort();
    load.kill()?;
    load.wait()?;

    let traces = traces?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "complete", "outcome {}", traces[0]["outcome"]);
    trace::belongs(&traces[0], &started)?;
    node.stop()
}

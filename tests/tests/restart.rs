//! A container's later attempt in a sandbox that runs, traced as a start of its own.

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use serde_json::Value;

fn is_the_restart(trace: &Value, started: &StartedPod, id: &str, pid: u32) -> Result<()> {
    trace::sound(trace)?;
    ensure!(trace["kind"] == "container" && trace["outcome"] == "complete", "{trace}");
    ensure!(trace["sandbox"]["id"] == started.id, "sandbox {}", trace["sandbox"]);
    ensure!(trace["pod"]["uid"] == started.uid, "pod {}", trace["pod"]);
    let sandbox = trace::names(trace).into_iter().filter(|stage| stage.starts_with("sandbox")).count();
    ensure!(sandbox == 0, "{:?}", trace::names(trace));
    let containers = trace["containers"].as_array().context("no containers")?;
    let (peers, own): (Vec<&Value>, Vec<&Value>) = containers.iter().partition(|it| it["peer"] == true);
    ensure!(own.len() == 1 && own[0]["id"] == id && own[0]["pid"] == pid && own[0]["attempt"] == 1, "{own:?}");
    ensure!(id != started.containers[0].id, "the id is the old one");
    ensure!(own[0]["exec"]["path"] == "/bin/sleep", "{}", own[0]);
    let peer = &started.containers[1];
    ensure!(peers.len() == 1 && peers[0]["id"] == peer.id && peers[0]["pid"] == peer.pid, "{peers:?}");
    ensure!(peers[0]["exec"].is_null(), "{}", peers[0]);
    for stage in ["container.create", "container.start", "container.start.oci.create", "container.exec"] {
        trace::only(trace, stage)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_next_attempt_of_a_killed_app() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let podlapse =
        podlapse::attach(&node, &["trace"], &["--pod", "shop/pair", "--next", "2", "--containers", "2", "-o", "json"])?;
    let pod = Pod::new("pair", "shop")?.on_node(node.cgroup());
    let containers = [Container::new("app"), Container::new("log")];
    let started = cri.start_pod(&pod, &containers).await?;
    let again = cri.restart_container(&pod, &started.id, &containers[0], &started.containers[0]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 2, "{} traces", traces.len());
    ensure!(traces[0]["kind"] == "pod" && traces[0]["outcome"] == "complete", "{}", traces[0]);
    is_the_restart(&traces[1], &started, &again.id, again.pid)?;
    node.stop()
}

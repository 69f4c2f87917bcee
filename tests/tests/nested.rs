//! podlapse and its node in a pid namespace with a `/proc` of its own.

use anyhow::{Result, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};

#[tokio::test]
async fn pids_are_those_of_podlapses_own_namespace() -> Result<()> {
    let node = Node::start(Options { pid_namespace: true, ..Options::default() })?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("nested", "default")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;

    ensure!(traces.len() == 1, "{} traces", traces.len());
    let trace = &traces[0];
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    // containerd runs in that namespace too: the pids that it reports are the ones to be seen.
    ensure!(trace["sandbox"]["pid"] == started.pid, "{}, not pid {}", trace["sandbox"], started.pid);
    let real = &started.containers[0];
    ensure!(trace["containers"][0]["pid"] == real.pid, "{}, not pid {}", trace["containers"][0], real.pid);
    ensure!(trace["containers"][0]["exec"]["path"] == "/bin/sleep", "{}", trace["containers"][0]);
    node.stop()
}

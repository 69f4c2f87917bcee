//! What follows the entrypoint's exec on a real node: a hook, probes, the first listen.

use std::fs::File;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, MonotonicNs, Pod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};

#[tokio::test]
async fn a_hook_a_probe_and_servers() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--next", "2", "--settle", "8s", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("server", "shop")?.on_node(node.cgroup());
    let web = Container::new("web").command(&["/bin/nc", "-l", "-p", "8080"]);
    let started = cri.start_pod(&pod, &[web]).await?;
    cri.exec_sync(&started.containers[0].id, &["/bin/sleep", "0.217"], 0).await.ok("ExecSync")?;
    cri.exec_sync(&started.containers[0].id, &["/bin/false"], 5).await.ok("ExecSync")?;
    cri.start_container_in(&pod, &started.id, &Container::new("quiet")).await?;
    // Here the server is a child, which nobody follows.
    let shell = Container::new("shell").command(&["/bin/sh", "-c", "/bin/nc -l -p 9090; /bin/true"]);
    let pod = Pod::new("child", "shop")?.on_node(node.cgroup());
    cri.start_pod(&pod, &[shell]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 2, "{} traces", traces.len());
    for trace in &traces {
        trace::sound(trace)?;
        ensure!(trace["outcome"] == "complete", "{}", trace["quality"]);
    }
    ensure!(traces[1]["containers"][0]["listen"]["port"] == 9090, "{}", traces[1]["containers"]);
    let it = &traces[0];

    let hook = trace::only(it, "poststart")?;
    ensure!(hook["attributes"]["exit_code"] == "0" && hook["attributes"]["container"] == "web", "{hook}");
    let lasted = hook["end_ns"].as_u64().context("no end")? - hook["start_ns"].as_u64().context("no start")?;
    ensure!(lasted >= 200_000_000, "the hook slept, and took {lasted} ns: {hook}");
    let probe = trace::only(it, "probe.exec")?;
    ensure!(probe["attributes"]["exit_code"] == "1", "{probe}");

    let containers = it["containers"].as_array().context("no containers")?;
    let ports: Vec<_> = containers.iter().map(|container| &container["listen"]["port"]).collect();
    ensure!(*ports[0] == 8080 && ports[1].is_null(), "ports {ports:?}");
    let listen = trace::only(it, "container.listen")?;
    ensure!(listen["attributes"]["container"] == "web", "{listen}");
    ensure!(containers[0]["exec"]["at_ns"].as_u64() <= listen["start_ns"].as_u64(), "{listen} before its exec");
    // What runs in a container keeps its arguments to itself.
    ensure!(!it.to_string().contains("0.217"), "the hook's command is in the trace");
    node.stop()
}

/// The driver connects as kubelet does, which is a client of the runtime, from the node's network.
#[tokio::test]
async fn tcp_probes() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--next", "1", "--containers", "2", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("server", "shop")?.on_node(node.cgroup());
    let late = "until [ -e /go ]; do /bin/sleep 0.05; done; /bin/nc -l -p 8080; /bin/sleep 1000";
    let started = cri.start_pod(&pod, &[Container::new("web").command(&["/bin/sh", "-c", late])]).await?;
    let (status, _) = cri.pod_sandbox_status(&started.id, false).await.ok("PodSandboxStatus")?;
    let address = status.status.and_then(|status| status.network).context("the pod has no network")?.ip;

    let network = format!("/proc/{}/ns/net", node.containerd_pid()?);
    let before = MonotonicNs::now();
    let refused = probe(&network, &address, Instant::now())?;
    ensure!(!refused, "somebody listens before he should");
    cri.exec_sync(&started.containers[0].id, &["/bin/sh", "-c", "echo > /go"], 10).await.ok("ExecSync")?;
    let accepted = probe(&network, &address, Instant::now() + Duration::from_secs(30))?;
    ensure!(accepted, "nobody listens on {address}");
    let after = MonotonicNs::now();
    cri.start_container_in(&pod, &started.id, &Container::new("second")).await?;

    let traces = podlapse.traces()?;
    let it = traces.first().context("no trace")?;
    trace::sound(it)?;
    ensure!(it["outcome"] == "complete" && it["pod"]["ip"] == address.as_str(), "{} {}", it["pod"], it["quality"]);
    let span = trace::only(it, "probe.connect")?;
    ensure!(span["attributes"]["port"] == "8080" && span["process"]["pid"] == std::process::id(), "{span}");
    let refused: u64 = span["attributes"]["refused"].as_str().context("no count")?.parse()?;
    ensure!(refused >= 1, "{span}");
    ensure!(span["parent"].is_null() && span["self_ns"] == 0, "{span}");
    let (first, last) = (trace::monotonic(it, &span["start_ns"])?, trace::monotonic(it, &span["end_ns"])?);
    ensure!(before.0 <= first && first < last && last <= after.0, "{first}..{last} is not in {before:?}..{after:?}");
    let listen = trace::only(it, "container.listen")?;
    ensure!(listen["start_ns"].as_u64() <= span["end_ns"].as_u64(), "accepted before {listen}: {span}");
    node.stop()
}

/// Connects from a network namespace until it is accepted, and at least once; whether it was.
fn probe(network: &str, address: &str, deadline: Instant) -> Result<bool> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd;
    let network = File::open(network)?;
    let attempts = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        loop {
            let accepted = TcpStream::connect((address, 8080)).is_ok();
            if accepted || Instant::now() >= deadline {
                return Ok(accepted);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // A thread of its own, which ends in the namespace that it entered.
    std::thread::scope(|scope| scope.spawn(attempts).join()).map_err(|_| anyhow::anyhow!("the probe panicked"))?
}

//! What follows the entrypoint's exec on a real node: a hook, a probe, the first listen.

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod};
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

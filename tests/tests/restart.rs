//! A container's later attempt in a sandbox that runs, traced as a start of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use rustix::process::{Pid, Signal, kill_process};
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

/// A server that answers inside the pod alone, and ends by SIGINT.
const SERVER: &str = "trap 'exit 3' INT; httpd -p 127.0.0.1:8080 -h /etc; while :; do sleep 0.1; done";

/// As on a node whose pod is half alive: one container goes and comes again, all else stays.
#[tokio::test]
async fn a_partial_restart() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let wanted = ["--pod", "shop/partial", "--next", "2", "--containers", "2", "-o", "json"];
    let podlapse = podlapse::attach(&node, &["trace"], &wanted)?;
    let pod = Pod::new("partial", "shop")?.on_node(node.cgroup());
    let server = Container::new("server").command(&["/bin/sh", "-c", SERVER]);
    let started = cri.start_pod(&pod, &[server.clone(), Container::new("log")]).await?;
    let ask = ["/bin/wget", "-q", "-O", "-", "http://127.0.0.1:8080/hostname"];
    let (answer, _) = cri.exec_sync(&started.containers[1].id, &ask, 5).await.ok("ExecSync")?;
    ensure!(answer.exit_code == 0, "the peer got no answer: {}", String::from_utf8_lossy(&answer.stderr));

    let main = Pid::from_raw(started.containers[0].pid.cast_signed()).context("the server has no pid")?;
    kill_process(main, Signal::INT)?;
    ensure!(cri.ended(&started.containers[0].id).await? == 3, "SIGINT is not what ended it");
    let mut next = server;
    next.attempt = 1;
    let again = cri.start_container_in(&pod, &started.id, &next).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 2, "{} traces", traces.len());
    let [first, second] = [&traces[0], &traces[1]];
    for (what, path) in [("pod UID", "/pod/uid"), ("sandbox", "/sandbox/id")] {
        ensure!(first.pointer(path) == second.pointer(path), "another {what}");
        ensure!(first.pointer(path).is_some_and(Value::is_string), "no {what}: {first}");
    }
    let of = |trace: &Value, name: &str| {
        let mut containers = trace["containers"].as_array().into_iter().flatten();
        containers.find(|it| it["name"] == name).cloned().with_context(|| format!("no {name} in {trace}"))
    };
    ensure!(of(first, "log")?["id"] == of(second, "log")?["id"], "the peer is another one");
    ensure!(of(second, "log")?["peer"] == true, "log is no peer");
    ensure!(of(first, "server")?["id"] == started.containers[0].id, "{first}");
    ensure!(of(second, "server")?["id"] == again.id && again.id != started.containers[0].id, "{second}");
    let attempts = second["attempts"].as_array().context("no attempts")?;
    ensure!(attempts.len() == 1 && attempts[0]["trace_id"] == first["trace_id"], "{attempts:?}");
    ensure!(attempts[0]["exit"]["code"] == 3 && attempts[0]["waited_ns"].is_u64(), "{attempts:?}");
    node.stop()
}

/// A sandbox that is ready, and a container that is tried again and again.
#[tokio::test]
async fn an_entrypoint_that_does_not_exist() -> Result<()> {
    const BETWEEN: Duration = Duration::from_secs(6);
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--pod", "shop/broken", "--next", "3", "-o", "json"])?;
    let pod = Pod::new("broken", "shop")?.on_node(node.cgroup());
    let (sandbox, _) = cri.run_pod_sandbox(&pod).await.ok("RunPodSandbox")?;
    for attempt in 0..3 {
        let mut container = Container::new("app").command(&["/does-not-exist"]);
        container.attempt = attempt;
        let (id, _) = cri.create_container(&sandbox, &pod, &container).await.ok("CreateContainer")?;
        ensure!(cri.start_container(&id).await.result.is_err(), "it started");
        if attempt < 2 {
            tokio::time::sleep(BETWEEN).await;
        }
    }
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 3, "{} traces", traces.len());
    for trace in &traces {
        let verdict = &trace["verdict"];
        ensure!(verdict["stage"] == "container.start.oci.create.lookpath", "{verdict}");
        ensure!(verdict["reason"] == "entrypoint_not_found" && verdict["confidence"] == "seen", "{verdict}");
        ensure!(trace["sandbox"]["id"] == sandbox, "sandbox {}", trace["sandbox"]);
    }
    let attempts = traces[2]["attempts"].as_array().context("no attempts")?;
    ensure!(attempts.len() == 2, "{attempts:?}");
    for (attempt, trace) in attempts.iter().zip(&traces) {
        ensure!(attempt["trace_id"] == trace["trace_id"], "{attempt}");
        ensure!(attempt["reason"] == "entrypoint_not_found", "{attempt}");
        let waited = attempt["waited_ns"].as_u64().context("it did not wait")?;
        ensure!(u128::from(waited) >= BETWEEN.as_nanos(), "{attempt}");
    }
    node.stop()
}

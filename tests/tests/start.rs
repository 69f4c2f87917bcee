//! One real start, traced: what the JSON must say of it, live and replayed.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use serde_json::Value;

async fn start(node: &Node, pod: Pod, containers: &[Container]) -> Result<StartedPod> {
    Cri::connect(&node.socket()).await?.start_pod(&pod, containers).await
}

/// What holds for every start of a pod with containers.
fn is_the_start_of(trace: &Value, pod: &StartedPod) -> Result<()> {
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    ensure!(trace["pod"]["name"] == pod.name, "pod {}", trace["pod"]);
    ensure!(trace["pod"]["namespace"] == pod.namespace, "pod {}", trace["pod"]);
    ensure!(trace["pod"]["uid"] == pod.uid, "pod {}", trace["pod"]);
    ensure!(trace["sandbox"]["id"] == pod.id, "sandbox {}, not {}", trace["sandbox"], pod.id);
    ensure!(trace["sandbox"]["pid"] == pod.pid, "sandbox {}, not pid {}", trace["sandbox"], pod.pid);

    let count = pod.containers.len();
    for (method, expected) in [("RunPodSandbox", 1), ("CreateContainer", count), ("StartContainer", count)] {
        let calls = trace::calls(trace, method);
        ensure!(calls.len() == expected, "{} calls of {method}, not {expected}", calls.len());
        ensure!(calls.iter().all(|span| span["call"]["code"] == "OK"), "{method}: {calls:?}");
    }

    let containers = trace["containers"].as_array().context("no containers")?;
    ensure!(containers.len() == count, "{} containers, not {count}", containers.len());
    for (seen, real) in containers.iter().zip(&pod.containers) {
        ensure!(seen["id"] == real.id && seen["name"] == real.name, "container {seen}, not {}", real.id);
        ensure!(seen["pid"] == real.pid, "container {seen}, not pid {}", real.pid);
        ensure!(seen["exec"]["path"] == "/bin/sleep", "exec {}", seen["exec"]);
        let path = seen["cgroup"]["path"].as_str().unwrap_or_default();
        ensure!(path.contains(&real.id), "cgroup {path}");
        let namespaces = seen["namespaces"].as_object().context("no namespaces")?;
        ensure!(namespaces.len() == 6, "namespaces {namespaces:?}");
    }

    // The OCI runtime: created and started once for pause and once for each container.
    trace::only(trace, "sandbox.shim")?;
    trace::only(trace, "sandbox.oci.create")?;
    trace::only(trace, "sandbox.oci.start")?;
    for stage in ["container.start.oci.create", "container.start.oci.start", "container.exec"] {
        let spans = trace::stage(trace, stage);
        ensure!(spans.len() == count, "{} spans of {stage}, not {count}: {:?}", spans.len(), trace::names(trace));
    }
    trace::only(trace, "sandbox.shim.daemon")?;
    for call in ["sandbox", "container.create"] {
        ensure!(!trace::stage(trace, &format!("{call}.fsync")).is_empty(), "no sync in {:?}", trace::names(trace));
    }
    for create in ["sandbox.oci.create", "container.start.oci.create"] {
        let parts = ["load", "namespaces", "cgroup_join", "init", "mounts", "pivot", "privileges", "finish"];
        for part in parts {
            let name = format!("{create}.{part}");
            let spans = trace::stage(trace, &name);
            ensure!(!spans.is_empty(), "no {name} in {:?}", trace::names(trace));
            for span in spans {
                let parent = trace::parent(trace, span).context("no parent")?;
                ensure!(parent["stage"] == create, "{name} is below {}", parent["stage"]);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_with_one_container() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut container = Container::new("app");
    container.limits.memory = 64 << 20;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = start(&node, pod, &[container]).await?;
    let traces = podlapse.traces()?;

    ensure!(traces.len() == 1, "{} traces", traces.len());
    let trace = &traces[0];
    is_the_start_of(trace, &started)?;
    for plugin in ["loopback", "bridge", "host-local", "portmap"] {
        let span = trace::only(trace, &format!("sandbox.cni.{plugin}"))?;
        ensure!(span["process"]["exit_code"] == 0, "{plugin}: {span}");
    }
    let host_local = trace::only(trace, "sandbox.cni.host-local")?;
    let parent = trace::parent(trace, host_local).context("host-local has no parent")?;
    ensure!(parent["stage"] == "sandbox.cni.bridge", "host-local is below {}", parent["stage"]);
    trace::only(trace, "sandbox.netns")?;
    // What the plugin does in the pod's network and on the node, and its delegate, are all that it does.
    let bridge = trace::only(trace, "sandbox.cni.bridge")?;
    ensure!(bridge["self_ns"] == 0, "time of bridge is left: {bridge}");
    ensure!(!trace::stage(trace, "sandbox.cni.bridge.netns").is_empty(), "{:?}", trace::names(trace));
    // The pod's own profile is the runtime's default.
    trace::only(trace, "sandbox.oci.create.seccomp")?;

    let limits = &trace["containers"][0]["cgroup"]["limits"];
    let memory = limits["memory.limit_in_bytes"].as_str().or(limits["memory.max"].as_str());
    ensure!(memory == Some("67108864"), "limits {limits}");
    // Containers of one pod share its network, IPC and UTS namespaces.
    for shared in ["net", "ipc", "uts"] {
        let (pod, container) = (&trace["sandbox"]["namespaces"], &trace["containers"][0]["namespaces"]);
        ensure!(pod[shared] == container[shared], "{shared}: {pod} and {container}");
    }
    node.stop()
}

#[tokio::test]
async fn a_pod_with_two_containers() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "2", "-o", "json"])?;
    let pod = Pod::new("pair", "shop")?.on_node(node.cgroup());
    let started = start(&node, pod, &[Container::new("one"), Container::new("two")]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    is_the_start_of(&traces[0], &started)?;
    node.stop()
}

#[tokio::test]
async fn a_pod_with_the_nodes_network() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut pod = Pod::new("proxy", "kube-system")?.on_node(node.cgroup());
    pod.host_network = true;
    let started = start(&node, pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    is_the_start_of(&traces[0], &started)?;
    ensure!(trace::stage(&traces[0], "sandbox.cni").is_empty(), "{:?}", trace::names(&traces[0]));
    node.stop()
}

#[tokio::test]
async fn a_recording_gives_the_same_bytes() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("start.plr");
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let podlapse = podlapse::attach(&node, &["record", name], &["--containers", "1", "-o", "json"])?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = start(&node, pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(std::time::Duration::from_secs(90))?;
    ensure!(ended.status.success(), "record ended with {}:\n{}", ended.status, ended.stderr);
    is_the_start_of(&ended.traces()?[0], &started)?;

    let replayed = podlapse::replay(&file, &["-o", "json"])?;
    ensure!(!replayed.is_empty() && replayed == ended.stdout, "the replay differs from the live run");
    let mode = std::fs::metadata(&file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "the recording has mode {mode:o}");
    node.stop()
}

/// The kernel runs an interpreter for it; what it runs itself is no plugin.
#[tokio::test]
async fn a_plugin_that_is_a_script() -> Result<()> {
    let node = Node::start(Options { script_plugin: true, ..Options::default() })?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = start(&node, pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;
    is_the_start_of(&traces[0], &started)?;
    let script = trace::only(&traces[0], "sandbox.cni.tune")?;
    ensure!(script["process"]["exit_code"] == 0, "{script}");
    let parent = trace::parent(&traces[0], script).context("the script has no parent")?;
    ensure!(parent["stage"] == "sandbox.cni", "{parent}");
    ensure!(script["attributes"]["ran"] == "cat 1, sed 1", "{script}");
    let plugins: Vec<_> = trace::names(&traces[0]).into_iter().filter(|name| name.contains("cni.")).collect();
    for name in ["cat", "sed", "sh"] {
        ensure!(plugins.iter().all(|plugin| *plugin != format!("sandbox.cni.{name}")), "{plugins:?}");
    }
    node.stop()
}

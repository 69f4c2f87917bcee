//! Every containerd with every OCI runtime: pods of all kinds, traced completely. One node and one podlapse for each
//! containerd; the pods start one after another.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use k8s_cri::v1::NamespaceMode;
use podlapse_tests::cri::{Container, Pod, StartedContainer, StartedPod};
use podlapse_tests::tools::Tools;
use podlapse_tests::{Containerd, Cri, Node, Options, podlapse, trace};
use serde_json::Value;

/// What the OCI runtime does for pause and for each container.
const OCI: [&str; 10] = [
    "rootfs",
    "oci.create",
    "oci.create.self_clone",
    "oci.create.cgroup_join",
    "oci.create.namespaces",
    "oci.create.mounts",
    "oci.create.limits",
    "oci.create.pivot",
    "oci.fifo_wait",
    "oci.start",
];
/// What only a pod with a network of its own has.
const NETWORK: [&str; 5] =
    ["sandbox.cni", "sandbox.cni.loopback", "sandbox.cni.bridge", "sandbox.cni.host-local", "sandbox.cni.portmap"];

/// Pods whose container is killed and started again once all have been started.
const RESTARTED: [&str; 2] = ["demo-runc", "demo-crun"];

/// A pod to start, and what the CRI said of it.
struct Case {
    pod: Pod,
    containers: Vec<Container>,
    started: Option<StartedPod>,
}

impl Case {
    fn new(node: &Node, name: &str, handler: &str, containers: Vec<Container>) -> Result<Self> {
        let mut pod = Pod::new(&format!("{name}-{handler}"), "shop")?.on_node(node.cgroup());
        pod.runtime_handler = handler.to_owned();
        Ok(Self { pod, containers, started: None })
    }
}

fn app() -> Vec<Container> {
    vec![Container::new("app")]
}

fn cases(node: &Node) -> Result<Vec<Case>> {
    let init_and_apps = || vec![Container::init("init"), Container::new("one"), Container::new("two").limited()];
    let mut cases = Vec::new();
    for handler in ["runc", "crun", "runc-new", "crun-new"] {
        cases.push(Case::new(node, "demo", handler, app())?);
        cases.push(Case::new(node, "init", handler, init_and_apps())?);
    }
    for handler in ["runc", "crun"] {
        let mut host = Case::new(node, "host", handler, app())?;
        host.pod.host_network = true;
        let mut shared = Case::new(node, "shared", handler, vec![Container::new("one"), Container::new("two")])?;
        shared.pod.pid_mode = NamespaceMode::Pod;
        let sidecar = vec![Container::new("sidecar"), Container::init("init"), Container::new("app")];
        cases.extend([host, shared, Case::new(node, "sidecar", handler, sidecar)?]);
    }
    for handler in ["crun", "runc-new"] {
        let mut mapped = Case::new(node, "mapped", handler, app())?;
        mapped.pod.user_namespace = true;
        cases.push(mapped);
    }
    Ok(cases)
}

async fn every_kind_of_pod(version: Containerd) -> Result<()> {
    let node = Node::start(Options::containerd(version))?;
    let mut cases = cases(&node)?;
    let next = (cases.len() + RESTARTED.len()).to_string();
    let podlapse = podlapse::attach(&node, &["trace"], &["--next", &next, "--restarts", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    for case in &mut cases {
        let started = cri.start_pod(&case.pod, &case.containers).await;
        case.started = Some(started.with_context(|| format!("containerd {version}, pod {}", case.pod.name))?);
    }
    let mut restarts = Vec::new();
    for name in RESTARTED {
        let case = cases.iter().find(|case| case.pod.name == name).context("no such pod")?;
        let started = case.started.as_ref().context("not started")?;
        let (container, running) = (&case.containers[0], &started.containers[0]);
        restarts.push((started, cri.restart_container(&case.pod, &started.id, container, running).await?));
    }
    let traces = podlapse.traces()?;
    ensure!(traces.len() == cases.len() + restarts.len(), "{} traces", traces.len());
    let trace_of = |kind: &str, uid: &str| traces.iter().find(|it| it["kind"] == kind && it["pod"]["uid"] == uid);
    for (started, again) in &restarts {
        let trace = trace_of("container", &started.uid).context("not traced")?;
        restart(started, again, trace).with_context(|| format!("containerd {version}, {} again", started.name))?;
    }
    for case in &cases {
        let trace = trace_of("pod", &case.pod.uid);
        let checked = trace.context("not traced").and_then(|trace| check(&node, version, case, trace));
        checked.with_context(|| format!("containerd {version}, pod {}", case.pod.name))?;
    }
    node.stop()
}

fn check(node: &Node, version: Containerd, case: &Case, trace: &Value) -> Result<()> {
    let started = case.started.as_ref().context("not started")?;
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    ensure!(trace["quality"]["notes"] == Value::Array(vec![]), "{}", trace["quality"]);
    ensure!(trace["pod"]["runtime_handler"] == case.pod.runtime_handler, "{}", trace["pod"]);
    identities(case, started, trace)?;
    namespaces(node, version, case, trace)?;
    stages(version, case, trace)
}

/// The same sandbox, a new container, nothing of the sandbox's own stages.
fn restart(started: &StartedPod, again: &StartedContainer, trace: &Value) -> Result<()> {
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "outcome {}, {}", trace["outcome"], trace["quality"]);
    ensure!(trace["sandbox"]["id"] == started.id, "sandbox {}", trace["sandbox"]);
    ensure!(again.id != started.containers[0].id, "the container is the old one");
    let container = &trace["containers"][0];
    ensure!(container["id"] == again.id && container["pid"] == again.pid && container["attempt"] == 1, "{container}");
    ensure!(container["exec"]["path"] == "/bin/sleep", "{container}");
    let of_sandbox = trace::names(trace).into_iter().find(|stage| stage.starts_with("sandbox"));
    ensure!(of_sandbox.is_none(), "{of_sandbox:?} in a start without a sandbox");
    OCI.iter().try_for_each(|stage| {
        let stage = format!("container.start.{stage}");
        ensure!(!trace::stage(trace, &stage).is_empty(), "no {stage} in {:?}", trace::names(trace));
        Ok(())
    })
}

/// The processes that the CRI reported, in the containers' order.
fn identities(case: &Case, started: &StartedPod, trace: &Value) -> Result<()> {
    let sandbox = &trace["sandbox"];
    ensure!(sandbox["id"] == started.id && sandbox["pid"] == started.pid, "{sandbox}, not {started:?}");
    let shim = fs::read_to_string(format!("/proc/{}/cmdline", sandbox["shim_pid"]))?;
    ensure!(shim.contains("containerd-shim-runc-v2") && shim.contains(&started.id), "shim_pid is of {shim:?}");

    let containers = trace["containers"].as_array().context("no containers")?;
    ensure!(containers.len() == case.containers.len(), "{} containers", containers.len());
    let mut before = 0;
    for ((seen, real), wanted) in containers.iter().zip(&started.containers).zip(&case.containers) {
        ensure!(seen["name"] == real.name && seen["id"] == real.id && seen["pid"] == real.pid, "{seen}, not {real:?}");
        ensure!(seen["exec"]["path"] == "/bin/sleep", "{seen}");
        let at = seen["exec"]["at_ns"].as_u64().context("no exec.at_ns")?;
        ensure!(before < at, "container {} entered before the one before it", real.name);
        before = at;
        if wanted.completes {
            ensure!(seen["kind"] == "init" && seen["exit"]["code"] == 0, "{seen}");
            before = seen["exit"]["at_ns"].as_u64().context("no exit.at_ns")?;
        } else {
            ensure!(seen["kind"] == "unknown" && seen["exit"].is_null(), "{seen}");
        }
        if wanted.limits.memory > 0 {
            let limits = &seen["cgroup"]["limits"];
            let (memory, cpu) = (&limits["memory.limit_in_bytes"], &limits["cpu.cfs_quota_us"]);
            let v1 = memory == "134217728" && cpu == "50000";
            ensure!(v1 || limits["memory.max"] == "134217728" && limits["cpu.max"] == "50000 100000", "{limits}");
        }
    }
    Ok(())
}

/// Shared with the pod, own, and the node's, each as the pod asked for it.
fn namespaces(node: &Node, version: Containerd, case: &Case, trace: &Value) -> Result<()> {
    let of_pod = &trace["sandbox"]["namespaces"];
    let of_node =
        |kind: &str| -> Result<u64> { Ok(fs::metadata(format!("/proc/{}/ns/{kind}", node.containerd_pid()?))?.ino()) };
    ensure!((of_pod["net"] == of_node("net")?) == case.pod.host_network, "net of {of_pod}");
    // containerd 1.6 knows no user namespaces of pods, and says nothing of what it was asked for.
    let mapped = case.pod.user_namespace && version != Containerd::V16;
    ensure!((of_pod["user"] == of_node("user")?) != mapped, "user of {of_pod}");
    let shared_pids = case.pod.pid_mode == NamespaceMode::Pod;
    for container in trace["containers"].as_array().into_iter().flatten() {
        let own = &container["namespaces"];
        for shared in ["net", "ipc", "uts", "user"] {
            ensure!(own[shared] == of_pod[shared], "{shared}: {own} and {of_pod}");
        }
        ensure!((own["pid"] == of_pod["pid"]) == shared_pids, "pid: {own} and {of_pod}");
        ensure!(own["mnt"] != of_pod["mnt"], "mnt: {own} and {of_pod}");
    }
    Ok(())
}

/// The stages that must be there, as often as they must, by the program that was asked for.
fn stages(version: Containerd, case: &Case, trace: &Value) -> Result<()> {
    let below = |name: &str, owners: usize| {
        let parents: std::collections::BTreeSet<u64> =
            trace::stage(trace, name).iter().filter_map(|span| span["parent"].as_u64()).collect();
        ensure!(
            parents.len() == owners,
            "{name} below {} spans, not {owners}: {:?}",
            parents.len(),
            trace::names(trace)
        );
        Ok(())
    };
    let count = case.containers.len();
    trace::only(trace, "kubelet.prepare")?;
    trace::only(trace, "sandbox.shim")?;
    for stage in OCI {
        below(&format!("sandbox.{stage}"), 1)?;
        below(&format!("container.start.{stage}"), count)?;
    }
    // containerd 2 starts further containers by the shim that it has.
    let starters = if version == Containerd::V21 { 0 } else { count };
    below("container.start.shim", starters)?;
    for stage in ["container.create", "container.start", "container.exec"] {
        ensure!(trace::stage(trace, stage).len() == count, "{stage}: {:?}", trace::names(trace));
    }
    for stage in NETWORK {
        let found = trace::stage(trace, stage).len();
        ensure!(found == usize::from(!case.pod.host_network), "{found} spans of {stage}");
    }
    // With a user namespace it comes with a process that containerd clones, or with the pod's first task.
    let mapped = case.pod.user_namespace && version != Containerd::V16;
    if !mapped {
        let found = trace::stage(trace, "sandbox.netns").len();
        ensure!(found == usize::from(!case.pod.host_network), "{found} spans of sandbox.netns");
    }

    let handlers = Tools::find(version)?.runtime_handlers();
    let program = handlers.iter().find(|(name, _)| *name == case.pod.runtime_handler).context("unknown handler")?;
    for span in trace::spans(trace) {
        if span["stage"].as_str().is_some_and(|stage| stage.ends_with("oci.create") || stage.ends_with("oci.start")) {
            ensure!(span["process"]["exe"].as_str() == program.1.to_str(), "{span}, not of {program:?}");
            ensure!(span["process"]["exit_code"] == 0, "{span}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn containerd_1_6() -> Result<()> {
    every_kind_of_pod(Containerd::V16).await
}

#[tokio::test]
async fn containerd_1_7() -> Result<()> {
    every_kind_of_pod(Containerd::V17).await
}

#[tokio::test]
async fn containerd_2_1() -> Result<()> {
    every_kind_of_pod(Containerd::V21).await
}

/// containerd 2 maps the ids of mounts, which runc 1.1 cannot do: a start that fails, with what was answered.
#[tokio::test]
async fn a_runtime_that_cannot_map_ids() -> Result<()> {
    let node = Node::start(Options::containerd(Containerd::V21))?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--next", "1", "-o", "json"])?;
    let mut case = Case::new(&node, "mapped", "runc", app())?;
    case.pod.user_namespace = true;
    let answer = Cri::connect(&node.socket()).await?.start_pod(&case.pod, &case.containers).await;
    let answer = answer.err().context("the start succeeds")?.to_string();
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "failed", "outcome {}", traces[0]["outcome"]);
    let call = &trace::calls(&traces[0], "StartContainer")[0]["call"];
    let message = call["message"].as_str().context("no message")?;
    ensure!(answer.contains(message) && message.contains("idmap"), "{call}, and the CRI answered {answer}");
    ensure!(traces[0]["containers"][0]["exec"].is_null(), "{}", traces[0]["containers"]);
    node.stop()
}

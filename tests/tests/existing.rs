//! Connections that are older than podlapse: a client's, the runtime's to its shims and the shims' to the runtime; also
//! where podlapse has neither the runtime's network nor its mounts, as in a pod.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::podlapse::cri::{CallEvent, Field, Protocol};
use ::podlapse::ids::Tgid;
use ::podlapse::record::{Event, Record, Role, Socket, SocketOp};
use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, calls, podlapse, trace};
use serde_json::Value;

fn records(file: &Path) -> Result<Vec<Record>> {
    calls::records(file)?.collect()
}

fn sockets(records: &[Record]) -> impl Iterator<Item = &Socket> {
    records.iter().filter_map(|record| match &record.event {
        Event::Socket(socket) => Some(socket),
        _ => None,
    })
}

/// Methods of calls on connections that were found, with the task that they name.
fn calls_on_found(records: &[Record], protocol: Protocol) -> Result<Vec<(String, Option<String>)>> {
    let found: Vec<_> = sockets(records).filter(|socket| socket.op == SocketOp::Found).map(|it| it.conn).collect();
    let mut events = Vec::new();
    calls::decode(records.iter().cloned().map(Ok), |event| events.push(event))?;
    let starts = events.iter().filter_map(|event| match event {
        CallEvent::Start(start) if start.protocol == protocol && found.contains(&start.key.conn) => Some(start),
        _ => None,
    });
    let task = |wanted| {
        events.iter().find_map(|event| match event {
            CallEvent::Request { key, fields, .. } if *key == wanted => {
                fields.text(Field::TaskId).or(fields.text(Field::ContainerId)).map(str::to_owned)
            }
            _ => None,
        })
    };
    Ok(starts.map(|start| (start.method.clone(), task(start.key))).collect())
}

/// A client and a pod that podlapse finds.
struct Before {
    node: Node,
    cri: Cri,
    pod: Pod,
    started: StartedPod,
}

async fn before(options: Options) -> Result<Before> {
    let node = Node::start(options)?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("old", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app"), Container::new("log")]).await?;
    Ok(Before { node, cri, pod, started })
}

/// On the old connections: a container of the old pod ends, another pod starts.
async fn afterwards(before: &mut Before) -> Result<StartedPod> {
    let Before { cri, started, node, .. } = before;
    cri.stop_container(&started.containers[0].id, 0).await.ok("StopContainer")?;
    let pod = Pod::new("new", "shop")?.on_node(node.cgroup());
    cri.start_pod(&pod, &[Container::new("app")]).await
}

fn all_are_found(records: &[Record], before: &Before, me: Tgid) -> Result<()> {
    let Before { node, started, .. } = before;
    let found: Vec<&Socket> = sockets(records).filter(|socket| socket.op == SocketOp::Found).collect();
    let socket = node.socket();
    let path = socket.to_str().context("not UTF-8")?;
    let of = |path: &str, peer| found.iter().any(|it| it.path == path && it.peer == Some(peer));
    ensure!(of(path, me), "the client's connection is not among {found:#?}");
    let shim = records.iter().find_map(|record| match &record.event {
        Event::Process(process) if process.role == Role::Shim && process.argv.contains(&started.id) => {
            Some(record.tgid)
        }
        _ => None,
    });
    let shim = shim.context("the old pod's shim is not told")?;
    ensure!(of(&format!("{path}.ttrpc"), shim), "the shim's connection is not among {found:#?}");
    // Its peer is who listened first: the starter of the shim, which has ended.
    ensure!(found.iter().any(|it| it.path.contains("/containerd/s/")), "no connection to a shim is among {found:#?}");

    let grpc = calls_on_found(records, Protocol::Grpc)?;
    for method in ["StopContainer", "RunPodSandbox", "CreateContainer", "StartContainer"] {
        ensure!(grpc.iter().any(|(name, _)| name == method), "no {method} in {grpc:?}");
    }
    let ttrpc = calls_on_found(records, Protocol::Ttrpc)?;
    let app = &started.containers[0].id;
    let kill = |(name, task): &(String, Option<String>)| name == "Kill" && task.as_ref() == Some(app);
    ensure!(ttrpc.iter().any(kill), "no Kill of {app} in {ttrpc:?}");
    ensure!(ttrpc.iter().any(|(name, _)| name == "Forward"), "no Forward in {ttrpc:?}");
    Ok(())
}

fn is_whole(traces: &[Value], started: &StartedPod) -> Result<()> {
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    trace::belongs(&traces[0], started)?;
    ensure!(traces[0]["outcome"] == "complete", "{} {}", traces[0]["outcome"], traces[0]["quality"]);
    Ok(())
}

#[tokio::test]
async fn of_a_client_and_of_shims() -> Result<()> {
    for options in [Options::default(), Options { pid_namespace: true, ..Options::default() }] {
        let mut before = before(options).await?;
        let file = before.node.dir().join("run.plr");
        let path = file.to_str().context("not UTF-8")?;
        let podlapse = podlapse::attach(&before.node, &["record", path], &["--containers", "1", "-o", "json"])?;
        let started = afterwards(&mut before).await?;
        is_whole(&podlapse.traces()?, &started)?;
        // This process is not visible in the node's pid namespace.
        if options.pid_namespace {
            let found = records(&file)?;
            let client = sockets(&found).find(|it| it.op == SocketOp::Found && it.path.ends_with("containerd.sock"));
            ensure!(client.context("no client is found")?.peer.is_none(), "{client:?}");
        } else {
            all_are_found(&records(&file)?, &before, Tgid(std::process::id()))?;
        }
        before.cri.remove_pod(&before.started.id, &before.pod.cgroup_parent).await?;
        before.node.stop()?;
    }
    Ok(())
}

#[tokio::test]
async fn without_the_runtimes_network_and_mounts() -> Result<()> {
    let mut before = before(Options::default()).await?;
    let elsewhere = tempfile::tempdir()?;
    let place = elsewhere.path().to_str().context("not UTF-8")?;
    let script = format!(
        "mount --bind {} {place} && exec \"$0\" record {place}/run.plr --socket {place}/containerd.sock \
         --next 2 --containers 1 -o json",
        before.node.dir().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script]).arg(podlapse::binary()?);
    let podlapse = podlapse::start_as(&before.node, command)?.attached()?;
    let started = afterwards(&mut before).await?;

    // The runtime that comes is known by the name that it binds, which is another than podlapse's.
    tokio::time::sleep(Duration::from_secs(3)).await;
    before.node.kill_containerd()?;
    let pid = before.node.restart_containerd()?;
    before.cri = Cri::connect(&before.node.socket()).await?;
    let pod = Pod::new("next", "shop")?.on_node(before.node.cgroup());
    let next = before.cri.start_pod(&pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 2, "{} traces", traces.len());
    is_whole(&traces[..1], &started)?;
    is_whole(&traces[1..], &next)?;
    let records = records(&before.node.dir().join("run.plr"))?;
    all_are_found(&records, &before, Tgid(std::process::id()))?;
    let of_next = records.iter().filter(|record| record.tgid == Tgid(pid)).cloned().collect::<Vec<_>>();
    let socket = before.node.socket();
    let bind = |it: &Socket| it.op == SocketOp::Bind && Path::new(&it.path) == socket;
    ensure!(sockets(&of_next).any(bind), "the next runtime's bind was not seen");
    before.node.stop()
}

#[tokio::test]
async fn where_k3s_has_its_socket() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/k3s/containerd && mount --bind {} /run/k3s/containerd && \
         exec \"$0\" trace --containers 1 -o json",
        node.dir().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(podlapse::binary()?).env_remove("PODLAPSE_SOCKET");
    let podlapse = podlapse::start_as(&node, command)?.attached()?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;
    is_whole(&traces, &started)?;
    ensure!(traces[0]["node"]["socket"] == "/run/k3s/containerd/containerd.sock", "{}", traces[0]["node"]);
    node.stop()
}

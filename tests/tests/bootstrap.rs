//! What exists before podlapse: it is listed, once, as records; and podlapse's own questions are none.

use ::podlapse::cri::CallEvent;
use ::podlapse::ids::{SandboxId, Tgid};
use ::podlapse::record::{
    ContainerState, Event, ListSource, Listed, ListedContainer, ListedSandbox, Listing, Record, Role, SocketOp,
};
use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::{Cri, Node, Options, calls, podlapse, trace};

struct Lists {
    sandboxes: Vec<(ListSource, ListedSandbox)>,
    containers: Vec<(ListSource, ListedContainer)>,
    ends: Vec<(ListSource, Option<String>)>,
}

fn lists(records: &[Record]) -> Result<Lists> {
    let mut lists = Lists { sandboxes: Vec::new(), containers: Vec::new(), ends: Vec::new() };
    for record in records {
        let Event::Listed(Listed { asked, source, what }) = &record.event else { continue };
        ensure!(*asked <= record.at, "answered before it was asked: {record:?}");
        match what {
            Listing::Sandbox(it) => lists.sandboxes.push((*source, it.clone())),
            Listing::Container(it) => lists.containers.push((*source, it.clone())),
            Listing::End { trouble } => lists.ends.push((*source, trouble.clone())),
        }
    }
    Ok(lists)
}

/// Neither a connection of podlapse's nor a byte on one; the tonic driver's calls are there, so that this can fail.
fn own_calls_are_none(records: &[Record]) -> Result<()> {
    let me = records.iter().find_map(|record| match &record.event {
        Event::Process(process) if process.role == Role::Myself => Some(record.tgid),
        _ => None,
    });
    let me = me.context("podlapse does not say who it is")?;
    let mut accepted = Vec::new();
    for record in records {
        if let Event::Socket(socket) = &record.event {
            ensure!(socket.peer != Some(me), "podlapse's own connection is recorded: {socket:?}");
            if matches!(socket.op, SocketOp::Accept | SocketOp::Connect | SocketOp::Found) {
                accepted.push(socket.conn);
            }
        }
    }
    for record in records {
        if let Event::Bytes(bytes) = &record.event {
            ensure!(accepted.contains(&bytes.conn), "bytes on a connection that nobody made: {bytes:?}");
        }
    }
    let mut methods = Vec::new();
    calls::decode(records.iter().cloned().map(Ok), |event| {
        if let CallEvent::Start(start) = event {
            methods.push(start.method);
        }
    })?;
    let called = |name: &str| methods.iter().any(|method| method == name);
    ensure!(called("RunPodSandbox"), "{methods:?}");
    for own in ["ListPodSandbox", "ListContainers", "Version"] {
        ensure!(!called(own), "podlapse's own {own} is recorded");
    }
    Ok(())
}

/// A node with a pod that runs, one of whose containers has ended and one is only created; then podlapse and a start.
async fn recorded(options: Options, bootstrap: &str) -> Result<(Vec<Record>, StartedPod, [String; 2])> {
    let node = Node::start(options)?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("old", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let done = cri.start_container_in(&pod, &started.id, &Container::init("done")).await?.id;
    let (made, _) = cri.create_container(&started.id, &pod, &Container::new("made")).await.ok("CreateContainer")?;

    let file = node.dir().join("run.plr");
    let path = file.to_str().context("not UTF-8")?;
    let options = ["--bootstrap", bootstrap, "--containers", "1", "-o", "json"];
    let podlapse = podlapse::attach(&node, &["record", path], &options)?;
    // The list comes beside the run.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let new = Pod::new("new", "shop")?.on_node(node.cgroup());
    let began = cri.start_pod(&new, &[Container::new("app")]).await?;
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    trace::belongs(&traces[0], &began)?;
    ensure!(traces[0]["outcome"] == "complete", "{}", traces[0]["quality"]);
    let replayed = podlapse::replay(&file, &["-o", "json"])?;
    let replayed: serde_json::Value = serde_json::from_slice(&replayed)?;
    ensure!(replayed == traces[0], "the replay differs");
    let records: Vec<Record> = calls::records(&file)?.collect::<Result<_>>()?;
    node.stop()?;
    Ok((records, started, [done, made]))
}

fn is_the_sandbox(listed: &ListedSandbox, started: &StartedPod) -> Result<()> {
    ensure!(listed.id.as_str() == started.id && listed.uid.as_str() == started.uid, "{listed:?}");
    ensure!(listed.ready == Some(true) && listed.pid == Some(Tgid(started.pid)), "{listed:?}, not {}", started.pid);
    ensure!(listed.cgroup.contains(&started.uid) && listed.cgroup.ends_with(&started.id), "{listed:?}");
    Ok(())
}

fn is_the_app(listed: &ListedContainer, started: &StartedPod) -> Result<()> {
    let real = &started.containers[0];
    ensure!(listed.id.as_str() == real.id && listed.sandbox == SandboxId(started.id.clone()), "{listed:?}");
    ensure!(listed.state == Some(ContainerState::Running) && listed.pid == Some(Tgid(real.pid)), "{listed:?}");
    ensure!(listed.cgroup.contains(&started.uid) && listed.cgroup.ends_with(&real.id), "{listed:?}");
    Ok(())
}

async fn the_runtime_is_asked(options: Options) -> Result<()> {
    let (records, started, [done, made]) = recorded(options, "cri").await?;
    own_calls_are_none(&records)?;
    let lists = lists(&records)?;
    ensure!(lists.ends == [(ListSource::Cri, None)], "{:?}", lists.ends);
    let [(ListSource::Cri, sandbox)] = &lists.sandboxes[..] else { anyhow::bail!("{:?}", lists.sandboxes) };
    is_the_sandbox(sandbox, &started)?;
    let names = (sandbox.name.as_str(), sandbox.namespace.as_str(), sandbox.attempt);
    ensure!(names == ("old", "shop", Some(0)) && sandbox.created.is_some(), "{sandbox:?}");
    ensure!(sandbox.ip.parse::<std::net::IpAddr>().is_ok(), "{sandbox:?}");
    let container = |id: &str| {
        let found = lists.containers.iter().find(|(source, it)| *source == ListSource::Cri && it.id.as_str() == id);
        found.map(|(_, it)| it).with_context(|| format!("no container {id} in {:?}", lists.containers))
    };
    ensure!(lists.containers.len() == 3, "{:?}", lists.containers);
    let app = container(&started.containers[0].id)?;
    is_the_app(app, &started)?;
    ensure!(app.name == "app" && app.attempt == Some(0) && app.image.contains("busybox"), "{app:?}");
    let done = container(&done)?;
    ensure!(done.state == Some(ContainerState::Exited) && done.exit_code == Some(0) && done.pid.is_none(), "{done:?}");
    let made = container(&made)?;
    ensure!(made.state == Some(ContainerState::Created) && made.exit_code.is_none() && made.pid.is_none(), "{made:?}");
    Ok(())
}

#[tokio::test]
async fn by_the_runtime() -> Result<()> {
    the_runtime_is_asked(Options::default()).await
}

#[tokio::test]
async fn by_the_runtime_in_another_pid_namespace() -> Result<()> {
    the_runtime_is_asked(Options { pid_namespace: true, ..Options::default() }).await
}

#[tokio::test]
async fn by_proc() -> Result<()> {
    let (records, started, _) = recorded(Options::default(), "proc").await?;
    own_calls_are_none(&records)?;
    let lists = lists(&records)?;
    ensure!(lists.ends == [(ListSource::Proc, None)], "{:?}", lists.ends);
    let [(ListSource::Proc, sandbox)] = &lists.sandboxes[..] else { anyhow::bail!("{:?}", lists.sandboxes) };
    is_the_sandbox(sandbox, &started)?;
    ensure!(sandbox.name.is_empty() && sandbox.attempt.is_none(), "{sandbox:?}");
    let [(ListSource::Proc, app)] = &lists.containers[..] else { anyhow::bail!("{:?}", lists.containers) };
    is_the_app(app, &started)?;
    ensure!(app.name.is_empty() && app.image.is_empty(), "{app:?}");
    Ok(())
}

#[tokio::test]
async fn by_nobody() -> Result<()> {
    let (records, ..) = recorded(Options::default(), "off").await?;
    own_calls_are_none(&records)?;
    let lists = lists(&records)?;
    ensure!(lists.ends.is_empty() && lists.sandboxes.is_empty() && lists.containers.is_empty());
    Ok(())
}

#[tokio::test]
async fn by_proc_until_the_runtime_answers() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("old", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let signal = |signal| -> Result<()> {
        let pid = rustix::process::Pid::from_raw(node.containerd_pid()?.cast_signed()).context("no pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    };
    signal(rustix::process::Signal::STOP)?;
    let file = node.dir().join("run.plr");
    let attached = podlapse::attach(&node, &["record", file.to_str().context("not UTF-8")?], &["-o", "json"]);
    // As long as it waits for one answer, and some more.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    signal(rustix::process::Signal::CONT)?;
    let podlapse = attached?;
    // As long as it pauses before it asks again.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let new = Pod::new("new", "shop")?.on_node(node.cgroup());
    cri.start_pod(&new, &[Container::new("app")]).await?;
    podlapse.traces()?;
    let records: Vec<Record> = calls::records(&file)?.collect::<Result<_>>()?;
    own_calls_are_none(&records)?;
    let lists = lists(&records)?;
    let [(ListSource::Cri, Some(trouble)), (ListSource::Proc, None), rest @ ..] = &lists.ends[..] else {
        anyhow::bail!("{:?}", lists.ends)
    };
    ensure!(trouble.contains("no answer"), "{trouble}");
    ensure!(rest.last() == Some(&(ListSource::Cri, None)), "{rest:?}");
    let sources: Vec<_> = lists.sandboxes.iter().map(|(source, _)| *source).collect();
    ensure!(sources == [ListSource::Proc, ListSource::Cri], "{:?}", lists.sandboxes);
    for (_, sandbox) in &lists.sandboxes {
        is_the_sandbox(sandbox, &started)?;
    }
    for (_, app) in &lists.containers {
        is_the_app(app, &started)?;
    }
    node.stop()
}

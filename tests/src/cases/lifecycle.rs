//! Lives that go wrong after the start, and starts that only look as if they failed.

use anyhow::{Result, ensure};
use k8s_cri::v1::NamespaceMode;

use super::stand::Stand;
use super::{Case, fails, not_yet, works};
use crate::cri::{Container, Pod};

pub(super) const CASES: &[Case] = &[
    fails("five-attempts", &[("container.start.oci.create.lookpath", "entrypoint_not_found"); 5], |on| {
        Box::pin(attempts(on))
    }),
    not_yet("shim-killed-running", "a shim dies while its containers run", |on| Box::pin(shim_killed(on))),
    not_yet("stop-ignored", "SIGTERM is ignored until SIGKILL", |on| Box::pin(stop_ignored(on))),
    works("crash-loop", |on| Box::pin(crash_loop(on))),
    works("host-network", |on| Box::pin(host_network(on))),
    works("restart", |on| Box::pin(restart(on))),
    works("init-container", |on| Box::pin(kinds(on))),
    works("shared-pids", |on| Box::pin(shared_pids(on))),
    works("exec-probe", |on| Box::pin(probe(on))),
    works("other-clients", |on| Box::pin(other_clients(on))),
];

/// A container whose entrypoint is missing, as often as kubelet would have tried within five minutes.
async fn attempts(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    for attempt in 0..5 {
        let app = Container { attempt, ..Container::new("app").command(&["/does-not-exist"]) };
        let call = on.cri.start_container_in(&pod, &started.id, &app).await;
        ensure!(call.is_err(), "StartContainer went well");
    }
    Ok(pod)
}

/// A container that ends with an error each time: each start is a good one.
async fn crash_loop(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    for attempt in 0..5 {
        let app = Container { attempt, ..Container::new("app").command(&["/bin/sh", "-c", "sleep 0.3; exit 7"]) };
        let app = on.cri.start_container_in(&pod, &started.id, &app).await?;
        ensure!(on.cri.ended(&app.id).await? == 7, "the app does not fail");
    }
    Ok(pod)
}

async fn shim_killed(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[Container::new("app")]).await?;
    // The start is to have settled.
    tokio::time::sleep(super::SETTLE).await;
    super::runtime::kill_shim(&started.id)?;
    Ok(pod)
}

async fn stop_ignored(on: &mut Stand) -> Result<Pod> {
    let deaf = Container::new("app").command(&["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    let (pod, started) = on.runs("", &[deaf]).await?;
    tokio::time::sleep(super::SETTLE).await;
    on.cri.stop_container(&started.containers[0].id, 1).await.ok("StopContainer")?;
    Ok(pod)
}

/// No network namespace is made, and no plugin runs.
async fn host_network(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("")?;
    pod.host_network = true;
    pod.pid_mode = NamespaceMode::Node;
    on.cri.start_pod(&pod, &[Container::new("app")]).await?;
    Ok(pod)
}

async fn restart(on: &mut Stand) -> Result<Pod> {
    let app = Container::new("app");
    let (pod, started) = on.runs("", std::slice::from_ref(&app)).await?;
    on.cri.restart_container(&pod, &started.id, &app, &started.containers[0]).await?;
    Ok(pod)
}

/// Init containers, a sidecar that runs on, and two apps.
async fn kinds(on: &mut Stand) -> Result<Pod> {
    let containers = [Container::init("init"), Container::new("sidecar"), Container::new("one"), Container::new("two")];
    Ok(on.runs("", &containers).await?.0)
}

async fn shared_pids(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("")?;
    pod.pid_mode = NamespaceMode::Pod;
    on.cri.start_pod(&pod, &[Container::new("one"), Container::new("two")]).await?;
    Ok(pod)
}

/// One that fails: the container is not ready, but it was started.
async fn probe(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[Container::new("app")]).await?;
    for command in [["/bin/true"], ["/bin/false"], ["/no/such/probe"]] {
        // The last one fails as a call.
        let _ = on.cri.exec_sync(&started.containers[0].id, &command, 5).await;
    }
    Ok(pod)
}

/// A client that asks for what is not there, and one that says nothing.
async fn other_clients(on: &mut Stand) -> Result<Pod> {
    drop(std::os::unix::net::UnixStream::connect(on.node.socket())?);
    let (pod, started) = on.runs("", &[Container::new("app")]).await?;
    let mut other = crate::Cri::connect(&on.node.socket()).await?;
    for id in ["0123456789ab", &started.id[..60]] {
        let _ = other.container_status(id, true).await;
        let _ = other.pod_sandbox_status(id, false).await;
    }
    let _ = other.unknown_method().await;
    on.list_with_ctr()?;
    Ok(pod)
}

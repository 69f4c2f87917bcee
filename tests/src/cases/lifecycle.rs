//! Starts that are tried again, and those that only look as if they failed.

use anyhow::{Result, ensure};
use k8s_cri::v1::NamespaceMode;

use super::stand::Stand;
use super::{Case, fails, goes_on, works};
use crate::cri::{Container, Pod};
use crate::image::BUSYBOX_IMAGE;

pub(super) const CASES: &[Case] = &[
    fails("five-attempts", &[("container.start.oci.create.lookpath", "entrypoint_not_found"); 5], |on| {
        Box::pin(attempts(on))
    }),
    works("host-network", |on| Box::pin(host_network(on))),
    works("init-container", |on| Box::pin(kinds(on))),
    works("shared-pids", |on| Box::pin(shared_pids(on))),
    works("user-namespace", |on| Box::pin(user_namespace(on))),
    works("exec-probe", |on| Box::pin(probe(on))),
    works("exec-probe-storm", |on| Box::pin(probe_storm(on))),
    works("image-by-digest", |on| Box::pin(by_digest(on))),
    fails("network-fails-twice", &[("sandbox.cni.fails-twice", "cni_failed")], |on| {
        Box::pin(on.no_sandbox("fails-twice"))
    }),
    goes_on("never-started", |on| Box::pin(never_started(on))),
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

/// No network namespace is made, and no plugin runs.
async fn host_network(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("")?;
    pod.host_network = true;
    pod.pid_mode = NamespaceMode::Node;
    on.cri.start_pod(&pod, &[Container::new("app")]).await?;
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

/// containerd 1.6 leaves it out, and with a later one runc 1.1 cannot do it.
async fn user_namespace(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("crun")?;
    pod.user_namespace = true;
    on.cri.start_pod(&pod, &[Container::new("app")]).await?;
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

/// More of them at once than the container has other calls.
async fn probe_storm(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[Container::new("app")]).await?;
    let mut probes = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (mut cri, id) = (on.cri.clone(), started.containers[0].id.clone());
        let command = if number % 2 == 0 { "/bin/true" } else { "/bin/false" };
        probes.spawn(async move { cri.exec_sync(&id, &[command], 30).await.ok("ExecSync").map(drop) });
    }
    while let Some(probe) = probes.join_next().await {
        probe??;
    }
    Ok(pod)
}

/// As kubelet names an image that it has.
async fn by_digest(on: &mut Stand) -> Result<Pod> {
    let image = on.cri.image_id(BUSYBOX_IMAGE).await?;
    ensure!(image.starts_with("sha256:"), "the id of {BUSYBOX_IMAGE} is no digest: {image}");
    Ok(on.runs("", &[Container { image, ..Container::new("app") }]).await?.0)
}

/// A container is created, and its start never asked for: nothing failed, and nothing is over.
async fn never_started(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    on.cri.create_container(&started.id, &pod, &Container::new("app")).await.ok("CreateContainer")?;
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

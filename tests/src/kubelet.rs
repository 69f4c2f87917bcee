//! Static pods for a node's kubelet, and waiting for what it does with them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_cri::v1;
use serde_json::{Value, json};

use crate::image::BUSYBOX_IMAGE;
use crate::{Cri, Node};

/// Each place has its own, so that a failure says where it came from.
pub const SECRETS: [&str; 7] = [
    "SECRET-KUBELET-ENV-31b7",
    "SECRET-KUBELET-ARGV-e05c",
    "SECRET-KUBELET-ANNOTATION-8d2a",
    "SECRET-KUBELET-PROBE-6f90",
    "SECRET-KUBELET-PROBE-OUTPUT-b41d",
    "SECRET-KUBELET-HOOK-02ce",
    REGISTRY_PASSWORD,
];

/// A registry that is not there, and what kubelet would say to it.
pub(crate) const REGISTRY: &str = "127.0.0.1:1";
pub(crate) const REGISTRY_PASSWORD: &str = "SECRET-KUBELET-AUTH-a7e3";

/// The namespace of all of them.
pub const NAMESPACE: &str = "shop";

/// An init container, then two containers: one with an exec probe and a PostStart hook, secrets in its environment, its
/// arguments, its annotations, the hook, the probe and what the probe prints; the other with a TCP probe.
pub fn web(name: &str) -> Value {
    let [env, argv, annotation, probe, output, hook, _] = SECRETS;
    let probe = format!("echo {output}; : {probe}");
    let app = json!({
        "name": "app",
        "image": BUSYBOX_IMAGE,
        "command": ["/bin/sh", "-c", format!("nc -l -p 8080 -k -e /bin/true & sleep 100000 # {argv}")],
        "env": [{ "name": "PASSWORD", "value": env }],
        "readinessProbe": { "exec": { "command": ["/bin/sh", "-c", probe] }, "periodSeconds": 2 },
        "lifecycle": { "postStart": { "exec": { "command": ["/bin/sh", "-c", format!(": {hook}")] } } },
        "resources": { "limits": { "memory": "64Mi", "cpu": "500m" } },
    });
    let log = json!({
        "name": "log",
        "image": BUSYBOX_IMAGE,
        "command": ["/bin/sleep", "100000"],
        "livenessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 3, "failureThreshold": 100 },
    });
    let init = json!({ "name": "init", "image": BUSYBOX_IMAGE, "command": ["/bin/sleep", "0.5"] });
    let mut pod = pod(name, &json!([app, log]));
    pod["metadata"]["annotations"] = json!({ "example.com/token": annotation });
    pod["spec"]["initContainers"] = json!([init]);
    pod
}

/// One container that ends by itself and is started again, later and later.
pub fn failing(name: &str) -> Value {
    let command = ["/bin/sh", "-c", "sleep 2; exit 3"];
    pod(name, &json!([{ "name": "app", "image": BUSYBOX_IMAGE, "command": command }]))
}

/// One container whose image is in a registry that is not there: kubelet pulls it again and again, with a password.
pub fn unpullable(name: &str) -> Value {
    pod(name, &json!([{ "name": "app", "image": format!("{REGISTRY}/private:1") }]))
}

/// One container that kubelet never makes: it must not run as root, and its image does.
pub fn unmade(name: &str) -> Value {
    let security = json!({ "runAsNonRoot": true });
    pod(name, &json!([{ "name": "app", "image": BUSYBOX_IMAGE, "securityContext": security }]))
}

/// Two containers that sleep; the first may have an exec probe every ten seconds.
pub fn plain(name: &str, probe: bool) -> Value {
    let sleep = |name: &str| json!({ "name": name, "image": BUSYBOX_IMAGE, "command": ["/bin/sleep", "100000"] });
    let mut first = sleep("app");
    if probe {
        first["readinessProbe"] = json!({ "exec": { "command": ["/bin/true"] }, "periodSeconds": 10 });
    }
    pod(name, &json!([first, sleep("log")]))
}

fn pod(name: &str, containers: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "containers": containers, "terminationGracePeriodSeconds": 1 },
    })
}

/// The node as a second client of the CRI sees it.
#[derive(Debug)]
pub struct Watch {
    cri: Cri,
}

impl Watch {
    /// Connects to the node's socket.
    pub async fn on(node: &Node) -> Result<Self> {
        Ok(Self { cri: Cri::connect(&node.socket()).await? })
    }

    /// Waits until so many containers of a static pod run.
    pub async fn running(&mut self, pod: &str, count: usize) -> Result<()> {
        self.until(&format!("{count} containers of {pod} to run"), Duration::from_secs(60), |_, containers| {
            let running = v1::ContainerState::ContainerRunning;
            containers.iter().filter(|it| is_of(&it.labels, pod) && it.state() == running).count() == count
        })
        .await
    }

    /// Waits until nothing of a static pod is left; kubelet removes sandboxes once a minute.
    pub async fn gone(&mut self, pod: &str) -> Result<()> {
        self.until(&format!("{pod} to be removed"), Duration::from_secs(240), |sandboxes, containers| {
            !sandboxes.iter().any(|it| is_of(&it.labels, pod)) && !containers.iter().any(|it| is_of(&it.labels, pod))
        })
        .await
    }

    /// Waits until so many containers of all pods run.
    pub async fn all_running(&mut self, count: usize, patience: Duration) -> Result<()> {
        self.until(&format!("{count} containers to run"), patience, |_, containers| {
            let running = v1::ContainerState::ContainerRunning;
            containers.iter().filter(|it| it.state() == running).count() >= count
        })
        .await
    }

    async fn until(
        &mut self,
        what: &str,
        patience: Duration,
        done: impl Fn(&[v1::PodSandbox], &[v1::Container]) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let (sandboxes, _) = self.cri.list_pod_sandboxes().await.ok("ListPodSandbox")?;
            let (containers, _) = self.cri.list_containers().await.ok("ListContainers")?;
            if done(&sandboxes, &containers) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let state: Vec<_> = containers.iter().map(|it| (&it.id, it.metadata.as_ref(), it.state())).collect();
                bail!("waited {patience:?} in vain for {what}; containers: {state:?}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What crictl would ask about one pod.
    pub async fn inspect(&mut self) -> Result<()> {
        self.cri.version().await.ok("Version")?;
        self.cri.status(true).await.ok("Status")?;
        let (sandboxes, _) = self.cri.list_pod_sandboxes().await.ok("ListPodSandbox")?;
        let sandbox = sandboxes.first().context("no sandbox to inspect")?;
        self.cri.pod_sandbox_status(&sandbox.id, true).await.ok("PodSandboxStatus")?;
        let (containers, _) = self.cri.list_containers().await.ok("ListContainers")?;
        for container in &containers {
            // It may be removed meanwhile.
            let _ = self.cri.container_status(&container.id, true).await;
        }
        Ok(())
    }
}

fn is_of(labels: &std::collections::HashMap<String, String>, pod: &str) -> bool {
    labels.get("io.kubernetes.pod.name").is_some_and(|name| *name == Node::static_pod_name(pod))
}

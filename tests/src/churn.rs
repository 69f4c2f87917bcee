//! Pods that come and go side by side: the load under which each sign has to find its own pod.
//!
//! Every worker starts a pod and removes it as soon as its containers run, again and again, always under one name with
//! a new UID; two workers use that name, in two namespaces. Some workers start a pod in between that cannot run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cri::{Container, Pod, StartedPod};
use crate::{Cri, Node};

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Churn {
    /// Pods that are started at a time.
    pub workers: usize,
    /// Pods of each worker, one after the other.
    pub pods: usize,
    /// Workers that also start one whose container has no entrypoint.
    pub failing: usize,
}

impl Churn {
    /// Starts of it, failing ones included.
    pub fn starts(&self) -> usize {
        self.workers * self.pods + self.failing
    }
}

/// What the CRI said about the pods.
#[derive(Debug, Default)]
pub struct Churned {
    /// They ran.
    pub ran: Vec<StartedPod>,
    /// They could not; their containers have no pid.
    pub failed: Vec<FailedPod>,
}

/// A pod whose container could not start.
#[derive(Debug, Clone)]
pub struct FailedPod {
    /// The pod's uid.
    pub uid: String,
    /// The sandbox's id.
    pub sandbox: String,
    /// The container's id.
    pub container: String,
}

impl FailedPod {
    /// Its uid, its sandbox and its container.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        [self.uid.as_str(), self.sandbox.as_str(), self.container.as_str()].into_iter()
    }
}

impl Churned {
    /// The ids of all of them.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.ran.iter().flat_map(StartedPod::ids).chain(self.failed.iter().flat_map(FailedPod::ids))
    }
}

/// Runs it to its end; no pod is left.
pub async fn run(node: &Node, churn: Churn) -> Result<Churned> {
    let cri = Cri::connect(&node.socket()).await?;
    // The node's own view of its processes, also where it has a pid namespace.
    let proc = PathBuf::from(format!("/proc/{}/root/proc", node.containerd_pid()?));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..churn.workers {
        let worker = Worker { number, churn, cri: cri.clone(), cgroup: node.cgroup().to_owned(), proc: proc.clone() };
        workers.spawn(worker.run());
    }
    let mut all = Churned::default();
    while let Some(done) = workers.join_next().await {
        let done = done??;
        all.ran.extend(done.ran);
        all.failed.extend(done.failed);
    }
    Ok(all)
}

struct Worker {
    number: usize,
    churn: Churn,
    cri: Cri,
    cgroup: String,
    proc: PathBuf,
}

impl Worker {
    async fn run(mut self) -> Result<Churned> {
        let mut done = Churned::default();
        for round in 0..self.churn.pods {
            if self.number < self.churn.failing && round == self.churn.pods / 2 {
                done.failed.push(self.failing().await?);
            }
            done.ran.push(self.running(1 + (self.number + round) % 2).await?);
        }
        Ok(done)
    }

    /// Workers 0 and n/2 have the same name, and so on.
    fn pod(&self) -> Result<Pod> {
        let half = self.churn.workers.div_ceil(2);
        let namespace = if self.number < half { "blue" } else { "green" };
        Ok(Pod::new(&format!("web-{}", self.number % half), namespace)?.on_node(&self.cgroup))
    }

    async fn running(&mut self, containers: usize) -> Result<StartedPod> {
        let pod = self.pod()?;
        let containers: Vec<Container> = (0..containers).map(|n| Container::new(&format!("app-{n}"))).collect();
        let started = self.cri.start_pod(&pod, &containers).await?;
        for container in &started.containers {
            self.entered(container.pid).await.with_context(|| format!("container {}", container.id))?;
        }
        self.cri.remove_pod(&started.id, &pod.cgroup_parent).await?;
        Ok(started)
    }

    /// StartContainer says OK before the entrypoint runs, and a pod that is removed by then has failed.
    async fn entered(&self, pid: u32) -> Result<()> {
        let cmdline = self.proc.join(format!("{pid}/cmdline"));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !std::fs::read(&cmdline).unwrap_or_default().starts_with(b"/bin/sleep\0") {
            ensure!(Instant::now() < deadline, "{} does not become /bin/sleep", cmdline.display());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn failing(&mut self) -> Result<FailedPod> {
        let pod = self.pod()?;
        crate::cgroup::create(&pod.cgroup_parent)?;
        let (sandbox, _) = self.cri.run_pod_sandbox(&pod).await.ok("RunPodSandbox")?;
        let broken = Container::new("app-0").command(&["/no/entrypoint"]);
        let (container, _) = self.cri.create_container(&sandbox, &pod, &broken).await.ok("CreateContainer")?;
        if self.cri.start_container(&container).await.result.is_ok() {
            bail!("a container without an entrypoint was started");
        }
        self.cri.remove_pod(&sandbox, &pod.cgroup_parent).await?;
        Ok(FailedPod { uid: pod.uid, sandbox, container })
    }
}

//! What a pod is made of, as kubelet would send it.

use std::collections::HashMap;
use std::fs;

use anyhow::Result;
use k8s_cri::v1;
use serde::Serialize;

use super::Times;
use crate::image::BUSYBOX_IMAGE;

/// A pod to start. Fields are as in `PodSandboxConfig`; labels and annotations are beside those
/// that kubelet always sets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Counts the sandboxes of one pod.
    pub attempt: u32,
    /// The pod's cgroup; empty leaves it to the runtime.
    pub cgroup_parent: String,
    /// The pod has the node's network.
    pub host_network: bool,
    /// Who shares pids with whom.
    pub pid_mode: v1::NamespaceMode,
    /// The pod has a user namespace of its own.
    pub user_namespace: bool,
    /// `runc` when empty; a node's are in [`crate::tools::Tools::runtime_handlers`].
    pub runtime_handler: String,
    /// Where the runtime writes container logs; empty for none.
    pub log_directory: String,
    /// More labels.
    pub labels: HashMap<String, String>,
    /// More annotations.
    pub annotations: HashMap<String, String>,
    /// Host and container TCP ports.
    pub ports: Vec<(u16, u16)>,
}

impl Pod {
    /// A pod with a new uid.
    pub fn new(name: &str, namespace: &str) -> Result<Self> {
        let uid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        Ok(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            uid: uid.trim().to_owned(),
            attempt: 0,
            cgroup_parent: String::new(),
            host_network: false,
            pid_mode: v1::NamespaceMode::Container,
            user_namespace: false,
            runtime_handler: String::new(),
            log_directory: String::new(),
            labels: HashMap::new(),
            annotations: HashMap::new(),
            ports: Vec::new(),
        })
    }

    /// Puts the pod below a node's cgroup, as kubelet does with the cgroupfs driver.
    pub fn on_node(mut self, node_cgroup: &str) -> Self {
        self.cgroup_parent = crate::node::pod_cgroup(node_cgroup, &self.uid);
        self
    }

    pub(super) fn config(&self) -> v1::PodSandboxConfig {
        let mut labels = self.labels.clone();
        labels.extend(identity(self));
        let mut annotations = self.annotations.clone();
        annotations.insert("kubernetes.io/config.source".into(), "api".into());
        let ports = self.ports.iter().map(|&(host, container)| v1::PortMapping {
            protocol: v1::Protocol::Tcp.into(),
            container_port: container.into(),
            host_port: host.into(),
            host_ip: String::new(),
        });
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: self.namespace.clone(),
                attempt: self.attempt,
            }),
            hostname: if self.host_network { String::new() } else { self.name.clone() },
            log_directory: self.log_directory.clone(),
            dns_config: Some(v1::DnsConfig {
                servers: vec!["10.96.0.10".into()],
                searches: vec![format!("{}.svc.cluster.local", self.namespace)],
                options: vec!["ndots:5".into()],
            }),
            port_mappings: ports.collect(),
            labels,
            annotations,
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    seccomp: Some(runtime_default()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            windows: None,
        }
    }

    fn namespaces(&self) -> v1::NamespaceOption {
        let network = if self.host_network { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
        v1::NamespaceOption {
            network: network.into(),
            pid: self.pid_mode.into(),
            ipc: v1::NamespaceMode::Pod.into(),
            userns_options: self.user_namespace.then(user_namespace),
            ..Default::default()
        }
    }
}

/// A container to start. Fields are as in `ContainerConfig`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Container {
    /// `metadata.name`.
    pub name: String,
    /// Counts the restarts.
    pub attempt: u32,
    /// An image that the runtime has.
    pub image: String,
    /// Overrides the image's entrypoint.
    pub command: Vec<String>,
    /// Arguments to it.
    pub args: Vec<String>,
    /// Where the entrypoint runs; the image's when empty.
    pub working_dir: String,
    /// Environment.
    pub envs: Vec<(String, String)>,
    /// More annotations.
    pub annotations: HashMap<String, String>,
    /// Resources.
    pub limits: Limits,
    /// It ends with 0 by itself before the next one is started, as an init container does.
    pub completes: bool,
}

/// Resource limits; 0 is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes.
    pub memory: i64,
    /// Microseconds of CPU in each period of 100 ms.
    pub cpu_quota: i64,
    /// Relative weight.
    pub cpu_shares: i64,
}

impl Container {
    /// A container that sleeps.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            attempt: 0,
            image: BUSYBOX_IMAGE.to_owned(),
            command: vec!["/bin/sleep".into()],
            args: vec!["2147483647".into()],
            working_dir: String::new(),
            envs: Vec::new(),
            annotations: HashMap::new(),
            limits: Limits { cpu_shares: 102, ..Limits::default() },
            completes: false,
        }
    }

    /// An init container: it lives as long as it takes to ask for its pid.
    pub fn init(name: &str) -> Self {
        Self { completes: true, ..Self::new(name).command(&["/bin/sleep", "0.5"]) }
    }

    /// With limits of 500m CPU and 128Mi.
    pub fn limited(mut self) -> Self {
        self.limits = Limits { memory: 128 << 20, cpu_quota: 50_000, cpu_shares: 512 };
        self
    }

    /// With another command.
    pub fn command(mut self, words: &[&str]) -> Self {
        self.command = words.iter().map(|&word| word.to_owned()).collect();
        self.args.clear();
        self
    }

    pub(super) fn config(&self, pod: &Pod) -> v1::ContainerConfig {
        let mut labels: HashMap<String, String> = identity(pod).into_iter().collect();
        labels.insert("io.kubernetes.container.name".into(), self.name.clone());
        let mut annotations = self.annotations.clone();
        annotations.insert("io.kubernetes.container.restartCount".into(), self.attempt.to_string());
        let Limits { memory, cpu_quota, cpu_shares } = self.limits;
        let log_path = match pod.log_directory.is_empty() {
            true => String::new(),
            false => format!("{}-{}.log", self.name, self.attempt),
        };
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: self.name.clone(), attempt: self.attempt }),
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: self.command.clone(),
            args: self.args.clone(),
            working_dir: self.working_dir.clone(),
            envs: self
                .envs
                .iter()
                .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone() })
                .collect(),
            labels,
            annotations,
            log_path,
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_period: if cpu_quota == 0 { 0 } else { 100_000 },
                    cpu_quota,
                    cpu_shares,
                    memory_limit_in_bytes: memory,
                    oom_score_adj: 1000,
                    ..Default::default()
                }),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(pod.namespaces()),
                    seccomp: Some(runtime_default()),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        }
    }
}

/// As kubelet allots them: 65536 ids from a multiple of that on.
fn user_namespace() -> v1::UserNamespace {
    let ids = vec![v1::IdMapping { host_id: 1 << 17, container_id: 0, length: 1 << 16 }];
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids }
}

fn runtime_default() -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        localhost_ref: String::new(),
    }
}

/// The labels by which kubelet knows its pods.
fn identity(pod: &Pod) -> [(String, String); 3] {
    [
        ("io.kubernetes.pod.name".into(), pod.name.clone()),
        ("io.kubernetes.pod.namespace".into(), pod.namespace.clone()),
        ("io.kubernetes.pod.uid".into(), pod.uid.clone()),
    ]
}

/// A pod that runs, with what the CRI said about it.
#[derive(Debug, Clone, Serialize)]
pub struct StartedPod {
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's uid.
    pub uid: String,
    /// The sandbox's id.
    pub id: String,
    /// The pause process's pid, as containerd sees it.
    pub pid: u32,
    /// RunPodSandbox.
    pub run: Times,
    /// In the order of their start.
    pub containers: Vec<StartedContainer>,
}

impl StartedPod {
    /// Its uid, its sandbox and its containers.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().map(|container| container.id.as_str());
        containers.chain([self.id.as_str(), self.uid.as_str()])
    }
}

/// A container that was started.
#[derive(Debug, Clone, Serialize)]
pub struct StartedContainer {
    /// The container's name.
    pub name: String,
    /// The container's id.
    pub id: String,
    /// Its first process, as containerd sees it; 0 when it had ended before it was asked for.
    pub pid: u32,
    /// CreateContainer.
    pub create: Times,
    /// StartContainer.
    pub start: Times,
}

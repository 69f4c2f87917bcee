//! kubelet's part on a whole node with the systemd driver: images for it, and pods in slices of PID 1's making.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use podlapse::probe::Backend;
use podlapse_tests::cri::{Container, Cri, Pod, pid_of};
use podlapse_tests::{image, payload, slice};
use serde_json::{Value, json};

/// Images and pods for a whole node.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Write the image archives `pause.tar` and `busybox.tar` to a folder
    Images {
        /// The folder
        dir: PathBuf,
        /// A static busybox
        #[arg(long)]
        busybox: PathBuf,
    },
    /// Compare the bytes that podlapse reads off this program's own sockets with what it sent
    Payload {
        /// How podlapse reads them
        #[arg(value_parser = ["tracepoint", "trampoline"])]
        backend: String,
    },
    /// Start a pod; one JSON object on stdout says what the CRI and /proc say of it
    Pod(Start),
}

#[derive(Debug, clap::Args)]
struct Start {
    /// The pod's name
    name: String,
    /// The CRI socket
    #[arg(long, default_value = "/run/containerd/containerd.sock")]
    socket: PathBuf,
    /// The runtime handler
    #[arg(long, default_value = "runc")]
    runtime: String,
    /// An init container, which ends with 0, comes before the others
    #[arg(long)]
    init: bool,
    /// App containers, of 500m and 128Mi each
    #[arg(long, default_value_t = 1)]
    apps: u32,
    /// Leave the pod running
    #[arg(long)]
    keep: bool,
    /// Over a connection like kubelet's that has been used for everything before; then make FILE, and go on when it is
    /// taken away
    #[arg(long, value_name = "FILE")]
    older: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Images { dir, busybox } => images(&dir, &busybox),
        Task::Payload { backend } => wait(payload(&backend)),
        Task::Pod(start) => wait(start.main()),
    };
    done.map_or_else(
        |error| {
            eprintln!("podlapse-guest: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn wait(task: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(task)
}

async fn payload(backend: &str) -> Result<()> {
    let backend = if backend == "trampoline" { Backend::Trampoline } else { Backend::Tracepoint };
    let verdict = payload::check(backend).await?;
    Ok(writeln!(std::io::stdout(), "{verdict}")?)
}

fn images(dir: &Path, busybox: &Path) -> Result<()> {
    image::write_pause(&dir.join("pause.tar"))?;
    image::write_busybox(&dir.join("busybox.tar"), busybox)
}

impl Start {
    async fn main(self) -> Result<()> {
        let Some(file) = &self.older else {
            let cri = Cri::connect(&self.socket).await?;
            return self.pod(cri, &self.name, self.keep, &mut std::io::stdout()).await;
        };
        let (cri, _) = Cri::connect_like_kubelet(&self.socket).await?;
        self.pod(cri.clone(), "older", false, &mut std::io::sink()).await?;
        fs::write(file, "")?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while file.exists() {
            ensure!(Instant::now() < deadline, "{} is not taken away", file.display());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.pod(cri, &self.name, self.keep, &mut std::io::stdout()).await
    }

    /// Starts a pod, and says what the CRI and /proc say of it.
    async fn pod(&self, mut cri: Cri, name: &str, keep: bool, out: &mut dyn Write) -> Result<()> {
        let mut pod = Pod::new(name, "default")?;
        pod.runtime_handler.clone_from(&self.runtime);
        pod.cgroup_parent = slice::of_pod(&pod.uid);
        slice::create(&pod.cgroup_parent)?;
        let (sandbox, _) = cri.run_pod_sandbox(&pod).await.ok("RunPodSandbox")?;
        let (status, _) = cri.pod_sandbox_status(&sandbox, true).await.ok("PodSandboxStatus")?;
        let pid = pid_of(status.info.into_iter().collect())?;

        let mut containers = Vec::new();
        if self.init {
            let init = Container::init("init").command(&["/bin/true"]);
            let init = cri.start_container_in(&pod, &sandbox, &init).await?;
            containers.push(json!({ "name": init.name, "id": init.id }));
        }
        for number in 1..=self.apps {
            let app = Container::new(&format!("app-{number}")).limited();
            let app = cri.start_container_in(&pod, &sandbox, &app).await?;
            containers.push(process(json!({ "name": app.name, "id": app.id }), app.pid)?);
        }
        let started = json!({ "name": pod.name, "uid": pod.uid, "containers": containers });
        let mut started = process(started, pid)?;
        started["id"] = sandbox.clone().into();
        writeln!(out, "{started}")?;
        if !keep {
            cri.list_containers().await.ok("ListContainers")?;
            cri.remove_pod(&sandbox, "").await?;
            slice::remove(&pod.cgroup_parent)?;
        }
        Ok(())
    }
}

/// Adds what `/proc` and the cgroup's files say of a container's process.
fn process(mut about: Value, pid: u32) -> Result<Value> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let cgroup = fs::read_to_string(proc.join("cgroup")).context("the container's process is gone")?;
    let cgroup = cgroup.lines().find_map(|line| line.strip_prefix("0::")).context("it is in no v2 cgroup")?;
    about["pid"] = pid.into();
    about["cgroup"] = cgroup.into();
    for file in ["cpu.max", "memory.max"] {
        let path = Path::new("/sys/fs/cgroup").join(cgroup.trim_start_matches('/')).join(file);
        about["limits"][file] = fs::read_to_string(&path)?.trim().into();
    }
    for key in ["net", "ipc", "uts", "pid", "mnt"] {
        let link = fs::read_link(proc.join("ns").join(key))?;
        let inode = link.to_string_lossy().trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>()?;
        about["namespaces"][key] = inode.into();
    }
    Ok(about)
}

//! A private node for a command, and sample pods on any CRI socket.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use k8s_cri::v1::NamespaceMode;
use podlapse_tests::cri::{Container, Cri, Pod, StartedPod};
use podlapse_tests::node::{Node, Options, janitor};
use podlapse_tests::signals;

/// Private nodes and sample pods.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Bring a node up, run a command beside it, take the node down.
    ///
    /// The command finds the node in PODLAPSE_SOCKET, PODLAPSE_CONTAINERD_PID, PODLAPSE_NODE_DIR and PODLAPSE_CGROUP;
    /// the word `{socket}` in it is replaced by the socket's path.
    Run(Run),
    /// Run sample pods on a CRI socket
    Pod(Pods),
    #[command(flatten)]
    Part(janitor::Role),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Sample pods to have on the node before the command starts
    #[arg(long, default_value_t = 0)]
    pods: u32,
    /// Containers of each of them
    #[arg(long, default_value_t = 1)]
    containers: u32,
    /// They have the node's network
    #[arg(long)]
    host_network: bool,
    #[command(flatten)]
    node: Options,
    /// The command
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// One JSON object a pod on stdout: ids, pids and the times of the calls.
#[derive(Debug, clap::Args)]
struct Pods {
    /// The CRI socket
    #[arg(long, env = "PODLAPSE_SOCKET")]
    socket: PathBuf,
    /// The pods' name; with --count, the first part of it
    #[arg(long, default_value = "sample")]
    name: String,
    /// The pods' namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Containers of each pod
    #[arg(long, default_value_t = 1)]
    containers: u32,
    /// Init containers before them, which end with 0
    #[arg(long, default_value_t = 0)]
    init: u32,
    /// A restartable init container before all others
    #[arg(long)]
    sidecar: bool,
    /// Each of the --containers has limits of 500m CPU and 128Mi
    #[arg(long)]
    limited: bool,
    /// Pods, started at once
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// The pods have the node's network
    #[arg(long)]
    host_network: bool,
    /// The containers of a pod share one process namespace
    #[arg(long)]
    share_pids: bool,
    /// The pods have user namespaces (containerd 1.7 or later)
    #[arg(long)]
    user_namespace: bool,
    /// Kill the last container's process and start the container's next attempt
    #[arg(long)]
    again: bool,
    /// The cgroup below which the pods' cgroups are
    #[arg(long, env = "PODLAPSE_CGROUP", default_value = "")]
    cgroup: String,
    /// The runtime handler: runc when empty; a private node has runc, crun, runc-new and crun-new
    #[arg(long, default_value = "")]
    runtime: String,
    /// Leave the pods running
    #[arg(long)]
    keep: bool,
    /// Print nothing
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Run(run) => run.main(),
        Task::Pod(pods) => tokio_main(pods.main()).map(|()| ExitCode::SUCCESS),
        Task::Part(role) => janitor::play(&role).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("podlapse-node: {error:#}");
        ExitCode::FAILURE
    })
}

fn tokio_main(future: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

impl Run {
    fn main(self) -> Result<ExitCode> {
        // Before any thread is made.
        let signals = Signals::block();
        eprintln!("podlapse-node: bringing a node up");
        let mut node = Node::start(self.node)?;
        eprintln!("podlapse-node: containerd {} serves {}", node.containerd_pid_inside(), node.socket().display());
        if self.pods > 0 {
            tokio_main(self.pods(&node).main())?;
        }
        let socket = node.socket();
        let words: Vec<OsString> = self
            .command
            .iter()
            .map(|word| if word == "{socket}" { socket.clone().into() } else { word.clone() })
            .collect();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("PODLAPSE_SOCKET", &socket)
            .env("PODLAPSE_CONTAINERD_PID", node.containerd_pid_inside().to_string())
            .env("PODLAPSE_NODE_DIR", node.dir())
            .env("PODLAPSE_CGROUP", node.cgroup());
        let mut child =
            node.spawn_beside(&mut command).with_context(|| format!("cannot run {}", words[0].to_string_lossy()))?;
        let code = signals.wait(&mut child, &mut node)?;
        eprintln!("podlapse-node: taking the node down");
        node.stop()?;
        Ok(code)
    }

    fn pods(&self, node: &Node) -> Pods {
        Pods {
            socket: node.socket(),
            name: "before".into(),
            namespace: "default".into(),
            containers: self.containers,
            count: self.pods,
            host_network: self.host_network,
            init: 0,
            sidecar: false,
            limited: false,
            share_pids: false,
            user_namespace: false,
            again: false,
            cgroup: node.cgroup().to_owned(),
            runtime: String::new(),
            keep: true,
            quiet: true,
        }
    }
}

impl Pods {
    fn containers(&self) -> Vec<Container> {
        let sidecar = self.sidecar.then(|| Container::new("sidecar"));
        let inits = (1..=self.init).map(|number| Container::init(&format!("init-{number}")));
        let apps = (1..=self.containers).map(|number| Container::new(&format!("app-{number}")));
        let apps = apps.map(|app| if self.limited { app.limited() } else { app });
        sidecar.into_iter().chain(inits).chain(apps).collect()
    }

    async fn main(self) -> Result<()> {
        let cri = Cri::connect(&self.socket).await?;
        let containers = self.containers();
        let mut starts = tokio::task::JoinSet::new();
        for number in 1..=self.count {
            let name = match self.count {
                1 => self.name.clone(),
                _ => format!("{}-{number}", self.name),
            };
            let mut pod = Pod::new(&name, &self.namespace)?;
            pod.host_network = self.host_network;
            pod.user_namespace = self.user_namespace;
            if self.share_pids {
                pod.pid_mode = NamespaceMode::Pod;
            }
            pod.runtime_handler.clone_from(&self.runtime);
            if !self.cgroup.is_empty() {
                pod = pod.on_node(&self.cgroup);
            }
            let (mut cri, containers) = (cri.clone(), containers.clone());
            let again = self.again;
            starts.spawn(async move { (start(&mut cri, &pod, &containers, again).await, pod.cgroup_parent) });
        }
        while let Some(start) = starts.join_next().await {
            let (started, cgroup) = start?;
            let started = started?;
            if !self.quiet {
                writeln!(std::io::stdout(), "{}", serde_json::to_string(&started)?)?;
            }
            if !self.keep {
                // StartContainer says OK before the entrypoint runs: a moment of life, for whoever watches.
                tokio::time::sleep(Duration::from_millis(300)).await;
                cri.clone().remove_pod(&started.id, &cgroup).await?;
            }
        }
        Ok(())
    }
}

async fn start(cri: &mut Cri, pod: &Pod, containers: &[Container], again: bool) -> Result<StartedPod> {
    let mut started = cri.start_pod(pod, containers).await?;
    if again {
        let (last, running) = containers.last().zip(started.containers.last()).context("no container to kill")?;
        let next = cri.restart_container(pod, &started.id, last, running).await?;
        started.containers.push(next);
    }
    Ok(started)
}

/// Signals that end the command, or say that it ended.
struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    fn block() -> Self {
        let all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD];
        Self { set: signals::block(&all) }
    }

    /// Waits for the command; what comes to this process alone goes on to it.
    fn wait(&self, child: &mut Child, node: &mut Node) -> Result<ExitCode> {
        loop {
            if let Some(status) = child.try_wait()? {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into());
            }
            if !node.is_up() {
                let _ = child.kill();
                child.wait()?;
                anyhow::bail!("the node went down while the command ran");
            }
            // SAFETY: both pointers are to live values of the right types.
            let (signal, info) = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                (libc::sigwaitinfo(&raw const self.set, &raw mut info), info)
            };
            // A Ctrl-C comes from the kernel and has reached the command as well.
            let sent = matches!(info.si_code, libc::SI_USER | libc::SI_QUEUE);
            if sent && matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP) {
                let pid = i32::try_from(child.id()).context("a pid fits")?;
                // SAFETY: a plain system call; the child is not waited for, so the pid is its own.
                unsafe { libc::kill(pid, signal) };
            }
        }
    }
}

//! A private node: containerd, runc, crun and CNI in namespaces of their own.
//!
//! ```text
//! this process ── pipe ── janitor (host's namespaces; removes cgroups and folder at the end)
//!                           └─ init (only with a pid namespace: its pid 1, own /proc)
//!                               └─ keeper (own mounts and network; subreaper)
//!                                   └─ containerd ── shims ── containers
//! ```
//!
//! The node lives as long as the pipe: when this process ends, however it does, the keeper reads
//! the end of file and ends what it started, and the janitor removes what they made.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::signals;
use crate::tools::Containerd;

mod config;
pub mod enter;
pub mod janitor;
mod keeper;
mod kubelet;

/// How a node differs from the usual one.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Options {
    /// The node runs in a pid namespace with its own `/proc`
    #[arg(long)]
    pub pid_namespace: bool,
    /// Its containerd
    #[arg(long, value_enum, default_value_t)]
    pub containerd: Containerd,
    /// The last CNI plugin is a shell script
    #[arg(long)]
    pub script_plugin: bool,
}

impl Options {
    /// A node with this containerd.
    pub fn containerd(containerd: Containerd) -> Self {
        Self { containerd, ..Self::default() }
    }

    /// As arguments of a program that reads them.
    fn arguments(self) -> Vec<&'static str> {
        let mut arguments = vec!["--containerd", self.containerd.name()];
        if self.pid_namespace {
            arguments.push("--pid-namespace");
        }
        if self.script_plugin {
            arguments.push("--script-plugin");
        }
        arguments
    }
}

/// What the keeper says on its stdout, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// containerd serves and has the images.
    Ready { dir: PathBuf, cgroup: String, containerd_pid: u32 },
    /// The reply to `restart`.
    Restarted { containerd_pid: u32 },
    /// The reply to `kill`.
    Killed,
    /// The reply to `kubelet` and `kill kubelet`.
    Kubelet { pid: u32 },
    /// What was asked for did not work.
    Failed { error: String },
}

/// A node that is up. Dropping it takes it down.
#[derive(Debug)]
pub struct Node {
    janitor: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    dir: PathBuf,
    cgroup: String,
    containerd_pid: u32,
    pid_namespace: bool,
}

impl Node {
    /// Brings a node up; containerd serves and has both sample images when this returns.
    pub fn start(options: Options) -> Result<Self> {
        let mut janitor = Command::new(program()?);
        janitor.arg("janitor").args(options.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Not in the terminal's foreground group: Ctrl-C is for the caller.
        janitor.process_group(0);
        let mut janitor = janitor.spawn().context("cannot run podlapse-node")?;
        let commands = janitor.stdin.take();
        let replies = BufReader::new(janitor.stdout.take().context("no pipe from the janitor")?);
        let mut node = Self {
            janitor,
            commands,
            replies,
            dir: PathBuf::new(),
            cgroup: String::new(),
            containerd_pid: 0,
            pid_namespace: options.pid_namespace,
        };
        match node.reply().context("the node does not come up")? {
            Message::Ready { dir, cgroup, containerd_pid } => {
                node.dir = dir;
                node.cgroup = cgroup;
                node.containerd_pid = containerd_pid;
                Ok(node)
            }
            Message::Failed { error } => bail!("the node does not come up: {error}"),
            other => bail!("the node's keeper answered out of turn: {other:?}"),
        }
    }

    /// The CRI socket, on a filesystem that every mount namespace of the machine sees.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// The node's folder: configuration, state, logs; gone when the node is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// containerd's log at debug level.
    pub fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// The cgroup below which the node's pods belong, as in kubelet's `cgroupRoot`.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// containerd's pid as processes of the node's own pid namespace see it.
    pub fn containerd_pid_inside(&self) -> u32 {
        self.containerd_pid
    }

    /// containerd's pid as this process sees it.
    pub fn containerd_pid(&self) -> Result<u32> {
        if !self.pid_namespace {
            return Ok(self.containerd_pid);
        }
        let config = self.dir.join("containerd.toml");
        enter::find_process(|args| {
            args.first().is_some_and(|arg| arg.ends_with("containerd"))
                && args.iter().any(|arg| Path::new(arg) == config)
        })
        .context("containerd does not run")
    }

    /// Ends containerd with SIGKILL; shims and containers stay, and nobody listens on the socket.
    pub fn kill_containerd(&mut self) -> Result<()> {
        let commands = self.commands.as_mut().context("the node is down")?;
        writeln!(commands, "kill")?;
        match self.reply()? {
            Message::Killed => Ok(()),
            other => bail!("the node's keeper answered out of turn: {other:?}"),
        }
    }

    /// Ends containerd, if it runs, and starts it again; shims and containers stay.
    pub fn restart_containerd(&mut self) -> Result<u32> {
        self.restart("restart")
    }

    /// The same, with the CRI switched off in its configuration.
    pub fn restart_without_cri(&mut self) -> Result<u32> {
        self.switch_cri(true)?;
        self.restart("restart without CRI")
    }

    /// The same, with the CRI again.
    pub fn restart_with_cri(&mut self) -> Result<u32> {
        self.switch_cri(false)?;
        self.restart("restart")
    }

    fn switch_cri(&self, off: bool) -> Result<()> {
        const ON: &str = "disabled_plugins = [\n";
        const OFF: &str = "disabled_plugins = [\n  \"io.containerd.grpc.v1.cri\",\n";
        let config = self.dir.join("containerd.toml");
        let text = fs::read_to_string(&config)?;
        let (from, to) = if off { (ON, OFF) } else { (OFF, ON) };
        ensure!(text.contains(from), "{} has no {from:?}", config.display());
        Ok(fs::write(&config, text.replacen(from, to, 1))?)
    }

    fn restart(&mut self, command: &str) -> Result<u32> {
        let commands = self.commands.as_mut().context("the node is down")?;
        writeln!(commands, "{command}")?;
        match self.reply()? {
            Message::Restarted { containerd_pid } => {
                self.containerd_pid = containerd_pid;
                Ok(containerd_pid)
            }
            Message::Failed { error } => bail!("containerd does not come back: {error}"),
            other => bail!("the node's keeper answered out of turn: {other:?}"),
        }
    }

    /// Starts kubelet; it is healthy when this returns.
    pub fn start_kubelet(&mut self) -> Result<u32> {
        self.kubelet("kubelet").context("kubelet does not come up")
    }

    /// Ends kubelet with SIGKILL; its pods run on.
    pub fn kill_kubelet(&mut self) -> Result<u32> {
        self.kubelet("kill kubelet").context("kubelet does not end")
    }

    fn kubelet(&mut self, command: &str) -> Result<u32> {
        writeln!(self.commands.as_mut().context("the node is down")?, "{command}")?;
        match self.reply()? {
            Message::Kubelet { pid } => Ok(pid),
            Message::Failed { error } => bail!(error),
            other => bail!("the node's keeper answered out of turn: {other:?}"),
        }
    }

    /// Gives kubelet a static pod, or another one of that name in its place.
    pub fn put_static_pod(&self, name: &str, manifest: &serde_json::Value) -> Result<()> {
        let whole = self.dir.join(format!("{name}.json"));
        fs::write(&whole, manifest.to_string())?;
        Ok(fs::rename(whole, self.manifest(name))?)
    }

    /// Takes a static pod away; kubelet ends it then.
    pub fn remove_static_pod(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.manifest(name))?)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        kubelet::manifests(&self.dir).join(format!("{name}.json"))
    }

    /// As kubelet names a static pod: the manifest's name and the node's.
    pub fn static_pod_name(name: &str) -> String {
        format!("{name}-{}", kubelet::NODE_NAME)
    }

    /// Starts a command in the node's mount, network and pid namespaces.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        use enter::Namespace::{Mount, Network, Pid};
        enter::spawn(self.containerd_pid()?, &[Mount, Network, Pid], command)
    }

    /// Starts a command beside the node: in its pid namespace with that namespace's `/proc`, else
    /// with the machine's own mounts and network. It ends when the node or this thread does.
    pub fn spawn_beside(&self, command: &mut Command) -> Result<Child> {
        use enter::Namespace::{Mount, Pid};
        signals::clear_in(command);
        if !self.pid_namespace {
            // SAFETY: between fork and exec a bare system call.
            unsafe {
                command.pre_exec(|| {
                    let signal = Some(rustix::process::Signal::TERM);
                    Ok(rustix::process::set_parent_process_death_signal(signal)?)
                });
            }
            return Ok(command.spawn()?);
        }
        let init = enter::find_process(|args| {
            args.iter().any(|arg| arg == "init") && args.iter().any(|arg| Path::new(arg) == self.dir)
        });
        enter::spawn(init.context("the node's init does not run")?, &[Mount, Pid], command)
    }

    /// Whether the node's janitor still runs.
    pub fn is_up(&mut self) -> bool {
        self.janitor.try_wait().is_ok_and(|status| status.is_none())
    }

    /// The janitor's pid.
    pub fn janitor_pid(&self) -> u32 {
        self.janitor.id()
    }

    /// Takes the node down and says what could not be removed.
    pub fn stop(mut self) -> Result<()> {
        self.down()
    }

    fn down(&mut self) -> Result<()> {
        if self.commands.take().is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = self.janitor.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                self.janitor.kill()?;
                break self.janitor.wait()?;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if status.success() || self.cgroup.is_empty() {
            return Ok(());
        }
        // The janitor was ended by someone else: its work is ours.
        janitor::clean(&self.dir, &self.cgroup)
    }

    fn reply(&mut self) -> Result<Message> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            bail!("the node's keeper ended; what it said is on stderr");
        }
        serde_json::from_str(&line).with_context(|| format!("the node's keeper said {line:?}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("podlapse-node: {error:#}");
        }
    }
}

/// The binary `podlapse-node`: this program, or the one that cargo built beside it.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    if own.file_name().is_some_and(|name| name == "podlapse-node") {
        return Ok(own);
    }
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("podlapse-node"));
    found
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("no podlapse-node near {}: cargo build -p podlapse-tests", own.display()))
}

fn say(message: &Message) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line)?;
    Ok(std::io::stdout().flush()?)
}

/// The cgroup of a pod as kubelet names it with the cgroupfs driver.
pub fn pod_cgroup(node_cgroup: &str, uid: &str) -> String {
    format!("{node_cgroup}/kubepods/burstable/pod{uid}")
}

/// Removes a folder that may be gone already.
fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

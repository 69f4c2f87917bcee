//! The keeper: makes the node's mounts and network, runs containerd, and ends all of it when its
//! stdin ends.

use std::ffi::CStr;
use std::fs;
use std::io::BufRead;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::kubelet::Kubelet;
use super::{Message, Options, config, say};
use crate::cri::Cri;
use crate::tools::Tools;
use crate::{cgroup, image, signals};

/// How long containerd may take to serve, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn main(dir: &Path, cgroup: &str, options: Options) -> Result<()> {
    // containerd and what it starts are to see an ordinary signal mask, not the janitor's.
    signals::clear();
    // Shims leave their parents; they are to come to this process, not to the machine's init.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let up = Tools::find(options.containerd).and_then(|tools| Ok((bring_up(dir, cgroup, &tools, options)?, tools)));
    let served = match up {
        Ok((containerd, tools)) => serve(dir, cgroup, &tools, containerd),
        Err(error) => say(&Message::Failed { error: format!("{error:#}") }),
    };
    cgroup::kill(cgroup)?;
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    served
}

fn bring_up(dir: &Path, cgroup: &str, tools: &Tools, options: Options) -> Result<Daemon> {
    cgroup::join(&format!("{cgroup}/system"))?;
    own_namespaces(dir).context("cannot make the node's mounts")?;
    run(tool(tools, "ip").args(["link", "set", "lo", "up"]))?;
    config::write(dir, tools, options)?;
    let containerd = Daemon::start(dir, tools)?;

    let archives = [dir.join("pause.tar"), dir.join("busybox.tar")];
    image::write_pause(&archives[0])?;
    image::write_busybox(&archives[1], &tools.busybox())?;
    for archive in &archives {
        run(tool(tools, "ctr")
            .arg("--address")
            .arg(containerd.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(archive))?;
        fs::remove_file(archive)?;
    }
    containerd.wait_for_cri()?;
    Ok(containerd)
}

/// Own mounts and network. containerd, CNI and runc write to fixed places below `/run` and
/// `/var/lib`, which need not exist on the machine: they get a tmpfs and an overlay.
fn own_namespaces(dir: &Path) -> Result<()> {
    // SAFETY: namespaces only; no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWNET)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    if let Some(unified) = cgroup::hybrid()? {
        unmount(&unified, UnmountFlags::DETACH)?;
    }
    tmpfs("/run")?;
    let over = dir.join("over");
    fs::create_dir(&over)?;
    tmpfs(&over)?;
    let (upper, work) = (over.join("upper"), over.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let data = format!("lowerdir=/var/lib,upperdir={},workdir={}\0", upper.display(), work.display());
    let data = CStr::from_bytes_with_nul(data.as_bytes())?;
    mount("overlay", "/var/lib", "overlay", MountFlags::empty(), Some(data))?;
    fs::create_dir_all("/var/lib/cni")?;
    tmpfs("/var/lib/cni")?;

    // An overlay cannot lie on an overlay, which the temporary folder is in a container.
    let root = dir.join("root");
    fs::create_dir(&root)?;
    if rustix::fs::statfs(&root)?.f_type == libc::OVERLAYFS_SUPER_MAGIC {
        tmpfs(&root)?;
    }
    Ok(())
}

pub(super) fn tmpfs(place: impl AsRef<Path>) -> Result<()> {
    let place = place.as_ref();
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))
        .with_context(|| format!("cannot mount a tmpfs on {}", place.display()))
}

/// Waits for commands until stdin ends.
fn serve(dir: &Path, cgroup: &str, tools: &Tools, mut containerd: Daemon) -> Result<()> {
    say(&Message::Ready { dir: dir.to_path_buf(), cgroup: cgroup.to_owned(), containerd_pid: containerd.child.id() })?;
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut kubelet: Option<Kubelet> = None;
    loop {
        match commands.recv_timeout(Duration::from_millis(200)) {
            Ok(command) if command == "restart" => {
                containerd.end()?;
                containerd = Daemon::start(dir, tools)?;
                containerd.wait_for_cri()?;
                say(&Message::Restarted { containerd_pid: containerd.child.id() })?;
            }
            Ok(command) if command == "restart without CRI" => {
                containerd.end()?;
                containerd = Daemon::start(dir, tools)?;
                say(&Message::Restarted { containerd_pid: containerd.child.id() })?;
            }
            Ok(command) if command == "kill" => {
                containerd.kill()?;
                say(&Message::Killed)?;
            }
            Ok(command) if command == "kubelet" => {
                let started = match Kubelet::start(dir, cgroup, tools) {
                    Ok(started) => Message::Kubelet { pid: kubelet.insert(started).pid() },
                    Err(error) => Message::Failed { error: format!("{error:#}") },
                };
                say(&started)?;
            }
            Ok(command) if command == "kill kubelet" => {
                let pid = kubelet.as_ref().map(Kubelet::pid).unwrap_or_default();
                kubelet.take().map_or(Ok(()), Kubelet::kill)?;
                say(&Message::Kubelet { pid })?;
            }
            Ok(command) => bail!("unknown command {command:?}"),
            Err(RecvTimeoutError::Timeout) => {
                let kubelet = kubelet.as_ref().and_then(|kubelet| Pid::from_raw(kubelet.pid().cast_signed()));
                reap_orphans(&[Some(containerd.pid()), kubelet]);
            }
            Err(RecvTimeoutError::Disconnected) => {
                if let Some(kubelet) = kubelet {
                    kubelet.kill()?;
                }
                return containerd.end();
            }
        }
    }
}

/// Waits for shims that ended. The daemons themselves belong to their [`Child`].
fn reap_orphans(daemons: &[Option<Pid>]) {
    loop {
        // SAFETY: waitid writes to the siginfo it is given; si_pid is valid after it, 0 for none.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            match libc::waitid(libc::P_ALL, 0, &raw mut info, options) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        match Pid::from_raw(pid) {
            Some(pid) if !daemons.contains(&Some(pid)) => {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            _ => return,
        }
    }
}

/// containerd, as it runs.
struct Daemon {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    fn start(dir: &Path, tools: &Tools) -> Result<Self> {
        let (socket, log) = (dir.join("containerd.sock"), dir.join("containerd.log"));
        let file = fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let child = tool(tools, "containerd")
            .arg("--config")
            .arg(dir.join("containerd.toml"))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot run containerd")?;
        let mut containerd = Self { child, socket, log };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&containerd.socket).is_err() {
            if let Some(status) = containerd.child.try_wait()? {
                bail!("containerd ended with {status}:\n{}", containerd.last_words());
            }
            if Instant::now() > deadline {
                bail!("containerd does not serve {}:\n{}", containerd.socket.display(), containerd.last_words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(containerd)
    }

    fn socket(&self) -> &Path {
        &self.socket
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The CRI plugin learns of images by events, a moment after their import.
    fn wait_for_cri(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let found = async {
                    let mut cri = Cri::connect(&self.socket).await?;
                    let pause = cri.has_image(image::PAUSE_IMAGE).await?;
                    anyhow::Ok(pause && cri.has_image(image::BUSYBOX_IMAGE).await?)
                };
                let error = match found.await {
                    Ok(true) => return Ok(()),
                    Ok(false) => "the images were imported, but the CRI does not list them".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                if Instant::now() > deadline {
                    bail!("{error}\n{}", self.last_words());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // Ended already is as good.
        let _ = kill_process(self.pid(), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

pub(super) fn tool(tools: &Tools, name: &str) -> Command {
    // Looked up here: `Command` searches the PATH of this process, not of the child.
    let found = std::env::split_paths(&tools.path()).map(|dir| dir.join(name)).find(|path| path.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| name.into()));
    command.env("PATH", tools.path()).env("LD_LIBRARY_PATH", tools.library_path());
    if let Some(dir) = tools.xtables() {
        command.env("XTABLES_LIBDIR", dir);
    }
    command
}

pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}",
            command.get_program().to_string_lossy(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

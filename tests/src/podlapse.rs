//! Runs podlapse's own binary beside a node.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Node;

/// What podlapse says on stderr once every hook is attached.
const ATTACHED: &str = "attached";

/// The process that takes podlapse's hooks away when podlapse has ended.
const DETACHES: &str = "podlapse-detach";

/// podlapse, built beside this test.
pub fn binary() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let found = test.ancestors().map(|dir| dir.join("podlapse")).find(|path| path.is_file());
    found.with_context(|| format!("no podlapse beside {}: run cargo build -p podlapse", test.display()))
}

/// A podlapse that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: JoinHandle<std::io::Result<Vec<u8>>>,
    stderr: JoinHandle<String>,
    lines: mpsc::Receiver<String>,
}

/// A podlapse that ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: String,
}

/// Starts podlapse on a node's socket and returns when its hooks are attached.
pub fn attach(node: &Node, subcommand: &[&str], options: &[&str]) -> Result<Running> {
    start(node, subcommand, options)?.attached()
}

/// A podlapse that attaches.
#[derive(Debug)]
pub struct Starting {
    running: Running,
}

/// Starts podlapse on a node's socket.
pub fn start(node: &Node, subcommand: &[&str], options: &[&str]) -> Result<Starting> {
    let mut command = Command::new(binary()?);
    command.args(subcommand).arg("--socket").arg(node.socket()).args(options);
    start_as(node, command)
}

/// Starts podlapse beside a node by a command that becomes it.
pub fn start_as(node: &Node, mut command: Command) -> Result<Starting> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = node.spawn_beside(&mut command).context("cannot run podlapse")?;

    let mut out = child.stdout.take().context("no pipe from podlapse")?;
    let stdout = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let (say, lines) = mpsc::channel();
    let err = BufReader::new(child.stderr.take().context("no pipe from podlapse")?);
    let stderr = std::thread::spawn(move || {
        let mut all = String::new();
        for line in err.lines().map_while(Result::ok) {
            all.push_str(&line);
            all.push('\n');
            // Nobody listens any more once podlapse is waited for.
            let _ = say.send(line);
        }
        all
    });
    Ok(Starting { running: Running { child, stdout, stderr, lines } })
}

impl Starting {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// The next line on its stderr with that in it.
    pub fn says(&self, text: &str, timeout: Duration) -> Result<String> {
        Ok(self.running.says(text, timeout)?.0)
    }

    /// Waits until its hooks are attached.
    pub fn attached(self) -> Result<Running> {
        let running = self.running;
        match running.says(ATTACHED, Duration::from_secs(30)) {
            Ok(_) => Ok(running),
            Err(_) => {
                running.interrupt()?;
                let ended = running.wait(Duration::from_secs(10))?;
                bail!("podlapse did not attach ({}):\n{}", ended.status, ended.stderr)
            }
        }
    }
}

/// Waits until nothing is attached any more, of any podlapse that has ended.
///
/// # Errors
/// When that does not happen within half a minute.
pub fn detached() -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while detaching()? {
        ensure!(Instant::now() < deadline, "{DETACHES} does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn detaching() -> Result<bool> {
    let processes = std::fs::read_dir("/proc").context("cannot list /proc")?;
    // A process that ends meanwhile has no name any more.
    let mut names = processes.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok());
    Ok(names.any(|name| name.trim_end() == DETACHES))
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line on its stderr with that in it, and when it came.
    ///
    /// # Errors
    /// When it does not come within `timeout`.
    pub fn says(&self, text: &str, timeout: Duration) -> Result<(String, Instant)> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).with_context(|| format!("podlapse does not say {text:?}"))?;
            if line.contains(text) {
                return Ok((line, Instant::now()));
            }
        }
    }

    /// Sends what Ctrl-C sends.
    pub fn interrupt(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        match rustix::process::kill_process(pid, rustix::process::Signal::INT) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => sent.context("cannot signal podlapse"),
        }
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) -> Result<Ended> {
        self.child.kill()?;
        self.wait(Duration::from_secs(10))
    }

    /// Waits for its end; kills it after `timeout`.
    pub fn wait(mut self, timeout: Duration) -> Result<Ended> {
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                let stderr = self.stderr.join().unwrap_or_default();
                bail!("podlapse did not end within {timeout:?}; it said:\n{stderr}");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let stdout = self.stdout.join().map_err(|_| anyhow::anyhow!("the reader of stdout panicked"))??;
        let stderr = self.stderr.join().map_err(|_| anyhow::anyhow!("the reader of stderr panicked"))?;
        Ok(Ended { status, stdout, stderr })
    }

    /// Waits for its end, which has to be a good one, and reads its traces.
    pub fn traces(self) -> Result<Vec<Value>> {
        let ended = self.wait(Duration::from_secs(90))?;
        ensure!(ended.status.success(), "podlapse ended with {}:\n{}", ended.status, ended.stderr);
        ended.traces()
    }
}

impl Ended {
    /// The traces on its stdout, one JSON object a line.
    pub fn traces(&self) -> Result<Vec<Value>> {
        let text = std::str::from_utf8(&self.stdout).context("stdout is not UTF-8")?;
        text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
    }
}

/// Runs podlapse to its end with no node.
pub fn run(arguments: &[&str]) -> Result<Ended> {
    let output = Command::new(binary()?).args(arguments).stdin(Stdio::null()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Ended { status: output.status, stdout: output.stdout, stderr })
}

/// `podlapse replay FILE` and its stdout.
pub fn replay(file: &Path, options: &[&str]) -> Result<Vec<u8>> {
    let file = file.to_str().context("the recording's path is not UTF-8")?;
    let ended = run(&[&["replay", file], options].concat())?;
    ensure!(ended.status.success(), "replay ended with {}:\n{}", ended.status, ended.stderr);
    Ok(ended.stdout)
}

//! `podlapse agent`: every start of this node, all the time: metrics and recent traces over HTTP, traces and events as
//! JSON Lines.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UnixListener};

use super::args::{Agent, Lines, Listen};
use super::live::{Kernel, options};
use super::output::OutputError;
use super::run::{Ending, Limits, Run, Sink};
use super::say::Say;
use super::{Done, Failure, output, stop};
use crate::agent::{LineFile, Listener, Progress, Shared, api_routes, metrics_routes, serve};
use crate::engine::{Config, Update};
use crate::export::{write_event_json, write_json};
use crate::ids::MonotonicNs;
use crate::lifecycle::Answered;
use crate::probe::{Options, ProbeError, Session};
use crate::recording::Selection;
use crate::trace::{LifeEvent, Trace};

/// How often a runtime that is not there is looked for, and how often that is said.
const LOOK: Duration = Duration::from_secs(2);
const SAY: Duration = Duration::from_secs(60);
/// How often an attach looks whether it is to stop.
const STOP: Duration = Duration::from_millis(100);

/// A port or socket that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error("cannot listen on {0}: {1}; choose another address, or `off`")]
    Listen(String, io::Error),
    #[error("cannot write to {}: {}", .0.display(), .1)]
    Lines(PathBuf, io::Error),
}

pub(super) async fn agent(args: &Agent) -> Result<Done, Failure> {
    let (stop, say) = (stop::on_signal().map_err(Failure::Signals)?, Say::service());
    let shared = Shared::new("podlapse attaches");
    // First what may be wrong with the command line.
    let mut feed = Feed { shared: Arc::clone(&shared), lines: Out::open(args)?, said: None, say, taken: 0 };
    let mut sockets = Vec::new();
    for (listen, routes) in [
        (&args.metrics_listen, metrics_routes(Arc::clone(&shared))),
        (&args.api_listen, api_routes(Arc::clone(&shared))),
    ] {
        if let Some(listener) = listener(listen).await? {
            say.line(&format!("listening on {}", listener.name().unwrap_or_else(|| listen.to_string())));
            sockets.push(SocketFile::of(listen));
            tokio::spawn(serve(listener, routes));
        }
    }
    let Some(mut kernel) = attached(args, &shared, &stop, say).await? else { return Ok(Done) };
    say.line(&format!("attached to {}", kernel.describe()));
    kernel.drop_privileges().map_err(Failure::Privileges)?;
    shared.lock().unready = None;
    let config = Config { settle_ns: args.settle.ns(), containers: None, stuck_after_ns: args.stuck_after.ns() };
    let selection = Selection { restarts: true, lifecycle: true, ..Selection::default() };
    let run = Run::new(config, selection, &mut feed, say);
    let (ending, summary) = run.drive(&mut kernel, Limits { stop, timeout: None, command: None }).await?;
    if let Ending::Failed(error) = ending {
        return Err(error.into());
    }
    say.line(&format!("ended; traces and events since the attach: {}", summary.taken));
    Ok(Done)
}

/// The file of a socket goes with the agent, however it ends.
struct SocketFile(Option<PathBuf>);

impl SocketFile {
    fn of(listen: &Listen) -> SocketFile {
        SocketFile(if let Listen::Unix(path) = listen { Some(path.clone()) } else { None })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Waits for a runtime and attaches; none where it was told to stop meanwhile.
async fn attached(args: &Agent, shared: &Shared, stop: &AtomicBool, say: Say) -> Result<Option<Session>, Failure> {
    let mut said: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        let options = Options { count_cost: args.bpf_stats, ..options(&args.attach) };
        let attached = tokio::select! {
            attached = Session::attach(options, || ()) => attached,
            () = stopped(stop) => return Ok(None),
        };
        match attached {
            Ok(session) => return Ok(Some(session)),
            Err(error @ (ProbeError::NoSocket(_) | ProbeError::Socket { .. })) => {
                if said.is_none_or(|said| said.elapsed() >= SAY) {
                    said = Some(Instant::now());
                    say.line(&format!("waiting for a runtime: {error}"));
                }
                shared.lock().unready = Some(error.to_string());
                shared.lock().alive = Some(Instant::now());
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = stopped(stop) => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Comes back when it was told to stop.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(STOP).await;
    }
}

async fn listener(listen: &Listen) -> Result<Option<Listener>, Failure> {
    let wrong = |error| AgentError::Listen(listen.to_string(), error);
    Ok(match listen {
        Listen::Off => None,
        Listen::Tcp(address) => Some(Listener::Tcp(TcpListener::bind(address).await.map_err(wrong)?)),
        Listen::Unix(path) => Some(Listener::Unix(unix(path).map_err(wrong)?)),
    })
}

/// A socket that only its owner may connect to. One that a podlapse left which was killed is replaced; one on which
/// somebody answers is not.
fn unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"));
    }
    if fs::symlink_metadata(path).is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())) {
        fs::remove_file(path)?;
    }
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    bound
}

/// Where JSON Lines go.
enum Out {
    Off,
    Stdout,
    File(LineFile),
}

impl Out {
    fn open(args: &Agent) -> Result<Out, AgentError> {
        Ok(match &args.lines {
            Lines::Off => Out::Off,
            Lines::Stdout => Out::Stdout,
            Lines::File(path) => {
                let file = LineFile::open(path, args.lines_max_size.0, args.lines_keep);
                Out::File(file.map_err(|error| AgentError::Lines(path.clone(), error))?)
            }
        })
    }
}

/// Takes all that the run tells.
struct Feed {
    shared: Arc<Shared>,
    lines: Out,
    /// When it was said last that lines are dropped.
    said: Option<Instant>,
    say: Say,
    taken: usize,
}

impl Feed {
    /// A file that takes nothing, on a full disk, ends nothing.
    fn line(&mut self, text: &[u8]) -> Result<(), OutputError> {
        match &mut self.lines {
            Out::Off => {}
            Out::Stdout => output::write(text)?,
            Out::File(file) => {
                if let Err(error) = file.write(text) {
                    self.shared.lock().metrics.line_dropped();
                    if self.said.is_none_or(|said| said.elapsed() >= SAY) {
                        self.said = Some(Instant::now());
                        self.say.line(&format!("lines are dropped, for the file of --lines takes none: {error}"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Sink for Feed {
    fn take(&mut self, trace: &Trace) -> Result<(), OutputError> {
        let mut text = Vec::new();
        write_json(&mut text, trace).map_err(OutputError::new)?;
        {
            let mut kept = self.shared.lock();
            kept.metrics.trace(trace);
            kept.stats.add(trace);
            kept.recent.add(trace, text.clone());
        }
        self.taken += 1;
        self.line(&text)
    }

    fn update(&mut self, update: &Update) {
        match update {
            Update::Started(_) => self.shared.lock().metrics.began(),
            Update::Withdrawn { .. } => self.shared.lock().metrics.withdrawn(),
            Update::Node(verdict) => self.shared.lock().metrics.node(verdict),
            Update::Stuck(_) | Update::Finished(_) | Update::Life(_) => {}
        }
    }

    fn watches(&self) -> bool {
        true
    }

    fn going(&mut self, progress: &Progress, answered: Vec<Answered>) {
        let mut kept = self.shared.lock();
        kept.alive = Some(Instant::now());
        answered.iter().for_each(|call| kept.metrics.call(call));
        kept.metrics.progress(progress);
    }

    fn event(&mut self, event: &LifeEvent, _first: MonotonicNs) -> Result<(), OutputError> {
        self.taken += 1;
        event.verdict.iter().for_each(|verdict| self.shared.lock().metrics.verdict(verdict));
        let mut text = Vec::new();
        write_event_json(&mut text, event).map_err(OutputError::new)?;
        self.line(&text)
    }

    fn taken(&self) -> usize {
        self.taken
    }

    fn is_stream(&self) -> bool {
        true
    }
}

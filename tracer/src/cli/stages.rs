//! `podlapse stages`: histograms of stages, of this node's starts, of recordings, or of logs of histograms.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::args::{Histograms, Stages};
use super::live::{self, Kernel};
use super::output::{self, OutputError};
use super::run::{Ending, Limits, Run, Sink};
use super::say::Say;
use super::source::NO_END;
use super::{Done, Failure, stop};
use crate::agent::{Address, get};
use crate::engine::Config;
use crate::export::{Charset, write_comparison, write_comparison_json, write_stages, write_stages_json};
use crate::recording::{ReadError, Reader, Selection};
use crate::stats::{By, LOG_MAGIC, LogError, Stats};
use crate::trace::Trace;

/// Largest log that is read.
const MAX_LOG: u64 = 256 * 1024 * 1024;

/// How long an agent may take for its log.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the table on the terminal is drawn again.
const REFRESH: Duration = Duration::from_secs(1);

/// Why a file gives no histograms.
#[derive(Debug, thiserror::Error)]
pub(super) enum StagesError {
    #[error("{}: {}", .0.display(), .1)]
    Recording(PathBuf, ReadError),
    #[error("{}: {}", .0.display(), .1)]
    Log(PathBuf, LogError),
    #[error("cannot read {}: {}", .0.display(), .1)]
    Open(PathBuf, std::io::Error),
    #[error("{} is larger than a log of histograms can be", .0.display())]
    TooLarge(PathBuf),
    #[error("{} was made without --by {}: make it again with it, or leave --by out", .0.display(), .1.name())]
    NotBrokenDown(PathBuf, By),
    #[error("what {0} says is no log of histograms: {1}")]
    Agent(Address, LogError),
    #[error("an agent keeps its histograms by plugin and handler, not by {}: leave --by out", .0.name())]
    NotKept(By),
    #[error("no pod start is over since the agent attached")]
    NothingKept,
}

pub(super) async fn stages(args: &Stages) -> Result<Done, Failure> {
    let mut sink = Table { stats: Stats::new(args.by), by: args.by, taken: 0, screen: None };
    match &args.compare[..] {
        [a, b] => return compare(args, a, b).await,
        _ if !args.agent.is_empty() => sink.stats = ask(&args.agent, args.by).await?,
        _ if args.from.is_empty() => live(args, &mut sink).await?,
        _ => sink.stats = load(&args.from, args.by).await?,
    }
    if sink.stats.is_empty() {
        return Err(match args {
            Stages { agent, .. } if !agent.is_empty() => StagesError::NothingKept.into(),
            Stages { from, .. } if !from.is_empty() => Failure::NothingRecorded,
            _ => Failure::NoStartOver(sink.stats.open),
        });
    }
    output::write(&text(args, &sink.stats)?)?;
    Ok(Done)
}

fn text(args: &Stages, stats: &Stats) -> Result<Vec<u8>, OutputError> {
    let mut text = Vec::new();
    let (charset, width) = output::screen();
    match args.output {
        Histograms::Table => write_stages(&mut text, stats, args.by, width, charset),
        Histograms::Json => write_stages_json(&mut text, stats, args.by),
        Histograms::Hdr => return Ok(stats.to_log()),
    }
    .map_err(OutputError::new)?;
    Ok(text)
}

async fn compare(args: &Stages, a: &Path, b: &Path) -> Result<Done, Failure> {
    let a = load(&[a.to_owned()], args.by).await?;
    let b = load(&[b.to_owned()], args.by).await?;
    if a.is_empty() || b.is_empty() {
        return Err(Failure::NothingRecorded);
    }
    let (mut text, (charset, width)) = (Vec::new(), output::screen());
    match args.output {
        Histograms::Json => write_comparison_json(&mut text, (&a, &b), args.by),
        Histograms::Table | Histograms::Hdr => write_comparison(&mut text, (&a, &b), args.by, width, charset),
    }
    .map_err(OutputError::new)?;
    output::write(&text)?;
    Ok(Done)
}

/// This node's starts from now on.
async fn live(args: &Stages, sink: &mut Table) -> Result<(), Failure> {
    let stop = stop::on_signal().map_err(Failure::Signals)?;
    let mut kernel = live::attach(&args.attach).await?;
    let watched = args.output == Histograms::Table && std::io::stdout().is_terminal();
    let say = if watched { Say::plain() } else { Say::live() };
    say.line(&format!("attached to {}; counting pod starts (Ctrl-C prints what is known)", kernel.describe()));
    kernel.drop_privileges().map_err(Failure::Privileges)?;
    sink.screen = watched.then(Screen::default);
    let selection = Selection { next: args.count, ..Selection::default() };
    let limits = Limits { stop, timeout: args.duration.map(|span| span.0), command: None };
    let run = Run::new(Config::default(), selection, sink, say);
    let (ending, _) = run.drive(&mut kernel, limits).await?;
    sink.hide()?;
    match ending {
        Ending::Failed(error) if sink.stats.is_empty() => Err(error.into()),
        Ending::Failed(error) => {
            say.line(&error.to_string());
            Ok(())
        }
        Ending::Done | Ending::EndOfRecording | Ending::Interrupted | Ending::TimedOut => Ok(()),
    }
}

/// What agents have kept until now.
async fn ask(agents: &[Address], by: Option<By>) -> Result<Stats, Failure> {
    if let Some(by) = by.filter(|by| by.is_kept()) {
        return Err(StagesError::NotKept(by).into());
    }
    let mut all = Stats::default();
    for agent in agents {
        let log = get(agent, "/api/v1/stages?format=hdr", PATIENCE, MAX_LOG as usize).await?;
        all.merge(&Stats::from_log(&log).map_err(|error| StagesError::Agent(agent.clone(), error))?);
    }
    Ok(all)
}

/// What files hold: of a recording every start of a pod. A signal ends podlapse at once, also while it waits for a pipe:
/// the half of it is no answer.
async fn load(files: &[PathBuf], by: Option<By>) -> Result<Stats, Failure> {
    let mut all = Stats::new(by);
    for file in files {
        let opened = File::open(file).map_err(|error| StagesError::Open(file.clone(), error))?;
        let mut input = BufReader::new(opened);
        let first = input.fill_buf().map_err(|error| StagesError::Open(file.clone(), error))?;
        let stats = if first.starts_with(LOG_MAGIC.as_bytes()) {
            read_log(file, input, by)?
        } else {
            replay(file, Box::new(input), by).await?
        };
        all.merge(&stats);
    }
    Ok(all)
}

fn read_log(file: &Path, input: impl Read, by: Option<By>) -> Result<Stats, StagesError> {
    let mut log = Vec::new();
    let read = input.take(MAX_LOG + 1).read_to_end(&mut log);
    read.map_err(|error| StagesError::Open(file.to_owned(), error))?;
    if log.len() as u64 > MAX_LOG {
        return Err(StagesError::TooLarge(file.to_owned()));
    }
    let stats = Stats::from_log(&log).map_err(|error| StagesError::Log(file.to_owned(), error))?;
    match by.filter(|by| by.is_kept()) {
        None => Ok(stats.without_groups()),
        kept if kept == stats.by() => Ok(stats),
        Some(by) => Err(StagesError::NotBrokenDown(file.to_owned(), by)),
    }
}

async fn replay(file: &Path, input: Box<dyn BufRead + Send>, by: Option<By>) -> Result<Stats, Failure> {
    let recording = |error| StagesError::Recording(file.to_owned(), error);
    let mut reader = Reader::new(input).map_err(recording)?;
    let (settle_ns, containers) = (reader.header().settle_ns, reader.header().containers);
    let config = Config { settle_ns, containers, ..Config::default() };
    let mut sink = Table { stats: Stats::new(by), by, taken: 0, screen: None };
    let limits = Limits { stop: Arc::default(), timeout: None, command: None };
    let run = Run::new(config, Selection::default(), &mut sink, Say::plain());
    let (ending, _) = run.drive(&mut reader, limits).await?;
    match ending {
        // A run that was killed is worth reading.
        Ending::Failed(error) if error.keeps_what_was_read() && !sink.stats.is_empty() => {
            Say::plain().line(&recording(error).to_string());
        }
        Ending::Failed(error) => return Err(recording(error).into()),
        Ending::EndOfRecording if !reader.is_ended() => Say::plain().line(&format!("{}: {NO_END}", file.display())),
        Ending::Done | Ending::EndOfRecording | Ending::Interrupted | Ending::TimedOut => {}
    }
    Ok(sink.stats)
}

/// Collects traces; shows them on a terminal meanwhile.
struct Table {
    stats: Stats,
    by: Option<By>,
    taken: usize,
    screen: Option<Screen>,
}

/// The table on a terminal.
#[derive(Default)]
struct Screen {
    lines: usize,
    drawn: Option<(Instant, usize)>,
}

impl Sink for Table {
    fn take(&mut self, trace: &Trace) -> Result<(), OutputError> {
        self.stats.add(trace);
        self.taken += 1;
        Ok(())
    }

    fn taken(&self) -> usize {
        self.taken
    }

    fn show(&mut self, held: &mut dyn Iterator<Item = &Trace>) -> Result<(), OutputError> {
        let due = |screen: &Screen| screen.drawn.is_none_or(|(at, _)| at.elapsed() >= REFRESH);
        let Some(screen) = self.screen.as_mut().filter(|screen| due(screen)) else { return Ok(()) };
        let held: Vec<&Trace> = held.collect();
        let known = self.taken + held.len();
        if screen.lines > 0 && screen.drawn.is_some_and(|(_, drawn)| drawn == known) {
            return Ok(());
        }
        let mut stats = self.stats.clone();
        held.iter().for_each(|trace| stats.add(trace));
        let size = terminal_size::terminal_size_of(std::io::stdout());
        let (width, height) = size.map_or((100, 24), |(width, height)| (width.0.into(), usize::from(height.0)));
        let mut table = Vec::new();
        write_stages(&mut table, &stats, self.by, Some(width), Charset::Unicode).map_err(OutputError::new)?;
        if stats.is_empty() {
            table.extend(b"no pod start is over yet\n");
        }
        // Lines are not wrapped meanwhile, so that each takes one row, and the last row is left to the cursor.
        let table = String::from_utf8_lossy(&table);
        let lines: Vec<&str> = table.lines().take(height.saturating_sub(1).max(1)).collect();
        let text = format!("{}\x1b[?7l{}\n\x1b[?7h", clear(screen.lines), lines.join("\n"));
        (screen.lines, screen.drawn) = (lines.len(), Some((Instant::now(), known)));
        output::write(text.as_bytes())
    }

    fn hide(&mut self) -> Result<(), OutputError> {
        match self.screen.as_mut().map(|screen| std::mem::take(&mut screen.lines)) {
            Some(lines) if lines > 0 => output::write(clear(lines).as_bytes()),
            _ => Ok(()),
        }
    }
}

/// Takes the last `lines` lines off the terminal.
fn clear(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}

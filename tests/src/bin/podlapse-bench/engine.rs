//! What the engine takes for the records of a recording: time on one core, and memory. `cargo xtask bench engine`.
//!
//! The recording is decoded into memory once and fed to fresh engines, round after round; reading and decoding the
//! file is timed apart. Time is that of this thread on its core, so that whatever else the machine does is left out but
//! for the caches that it takes away. Memory is the peak of a process that streams the file through an engine, less that of one that
//! only reads it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use podlapse::engine::{Config, Engine, Update};
use podlapse::record::{Event, Record};
use podlapse::recording::Reader;

/// On what, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A recording of `podlapse record`
    file: PathBuf,
    /// How long to measure each of the two
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only stream the file once and print this process's peak memory
    #[arg(long, hide = true)]
    stream: Option<Stream>,
}

/// What is done with a file's records.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stream {
    Read,
    Engine,
}

/// The measurement.
pub(crate) fn main(args: &Args) -> Result<()> {
    if let Some(what) = args.stream {
        stream(&args.file, what)?;
        println!("{}", peak_kib()?);
        return Ok(());
    }
    let (config, records) = load(&args.file)?;
    describe(&records);

    let time = Duration::from_secs_f64(args.seconds);
    let mut traces = 0;
    let fed = rounds(time, || traces = feed(&config, &records));
    let read = rounds(time, || stream(&args.file, Stream::Read).expect("the file was read before"));
    println!("traces         {traces:>12}");
    report("engine", records.len(), &fed);
    report("read + decode", records.len(), &read);
    let (with, without) = (peak_of(&args.file, Stream::Engine)?, peak_of(&args.file, Stream::Read)?);
    let engine = with.saturating_sub(without);
    println!("peak memory    {engine:>12} KiB of the engine: {with} with it, {without} without");
    Ok(())
}

fn load(file: &Path) -> Result<(Config, Vec<Record>)> {
    let mut reader = open(file)?;
    let config = config(&reader);
    let mut records = Vec::new();
    while let Some(record) = reader.read()? {
        records.push(record);
    }
    ensure!(!records.is_empty(), "{} holds no record", file.display());
    Ok((config, records))
}

fn open(file: &Path) -> Result<Reader> {
    Reader::open(file).with_context(|| format!("cannot measure with {}", file.display()))
}

/// As the run that was recorded had it.
fn config(reader: &Reader) -> Config {
    let header = reader.header();
    Config { settle_ns: header.settle_ns, containers: header.containers, stuck_after_ns: header.stuck_after_ns }
}

/// Feeds a fresh engine as the run loop does; the number of traces.
fn feed(config: &Config, records: &[Record]) -> usize {
    let (mut engine, mut updates, mut traces) = (Engine::new(config.clone()), Vec::new(), 0);
    for record in records {
        engine.feed(record, &mut updates);
        traces += updates.drain(..).filter(|update| matches!(update, Update::Finished(_))).count();
    }
    traces + engine.open().len()
}

fn stream(file: &Path, what: Stream) -> Result<()> {
    let mut reader = open(file)?;
    let mut engine = match what {
        Stream::Read => None,
        Stream::Engine => Some(Engine::new(config(&reader))),
    };
    let mut updates = Vec::new();
    while let Some(record) = reader.read()? {
        if let Some(engine) = &mut engine {
            engine.feed(&record, &mut updates);
            updates.clear();
        }
    }
    Ok(())
}

/// CPU seconds of each round, sorted.
fn rounds(time: Duration, mut round: impl FnMut()) -> Vec<f64> {
    // The first fills caches and the allocator.
    round();
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < time || times.is_empty() {
        let start = cpu_seconds();
        round();
        times.push(cpu_seconds() - start);
    }
    times.sort_by(f64::total_cmp);
    times
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn report(what: &str, records: usize, times: &[f64]) {
    let rate = |seconds: f64| records as f64 / seconds;
    let (slow, middle, fast) = (rate(times[times.len() - 1]), rate(times[times.len() / 2]), rate(times[0]));
    let count = times.len();
    println!("{what:<14} {middle:>12.0} records/s, median of {count} rounds ({slow:.0} to {fast:.0})");
}

fn describe(records: &[Record]) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *kinds.entry(kind(&record.event)).or_default() += 1;
    }
    println!("records        {:>12}", records.len());
    for (kind, count) in kinds {
        println!("  {kind:<12} {count:>12}");
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Bytes(_) => "bytes",
        Event::Socket(_) => "socket",
        Event::NewTask(_) => "new_task",
        Event::Exec(_) => "exec",
        Event::Exit(_) => "exit",
        Event::Syscall(_) => "syscall",
        Event::Cgroup(_) => "cgroup",
        Event::CgroupWrite(_) => "cgroup_write",
        Event::Process(_) => "process",
        Event::Listed(_) => "listed",
        Event::Waiting(_) => "waiting",
        Event::Tick => "tick",
        // A handful in a whole run.
        _ => "other",
    }
}

/// Peak memory of a process that does only that.
fn peak_of(file: &Path, what: Stream) -> Result<u64> {
    let what = what.to_possible_value().context("a stream has a name")?;
    let output =
        Command::new(std::env::current_exe()?).arg("engine").arg(file).args(["--stream", what.get_name()]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// `VmHWM` of this process.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(number.context("/proc/self/status has no VmHWM")?.parse()?)
}

//! `cargo xtask fuzz`: runs the fuzz targets (`tests/fuzz`), from the committed corpus on.
//!
//! What a run finds goes to `target/fuzz`, never into the checkout: `--keep` takes over what reaches new code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to run, and for how long.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Targets; all when none is named
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// Only the committed corpus and a second more for each target, as `cargo xtask test` does
    #[arg(long, conflicts_with = "seconds")]
    smoke: bool,
    /// Build with AddressSanitizer: slower, and only the libraries have code that it could find fault with
    #[arg(long, conflicts_with = "smoke")]
    address: bool,
    /// First write the seeds that recorded traffic gives into the committed corpus
    #[arg(long, conflicts_with = "smoke")]
    seeds: bool,
    /// Then take into the committed corpus what reaches code that it does not
    #[arg(long, conflicts_with = "smoke")]
    keep: bool,
}

/// One target's run.
struct Run {
    target: String,
    executions: u64,
    seconds: f64,
    /// The input that broke a property.
    finding: Option<PathBuf>,
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Fuzz])?;
    run(&workspace, args)
}

/// The smoke run of the gate; the tools must be in place.
pub(crate) fn smoke(workspace: &Workspace) -> Result<()> {
    run(workspace, &Args { smoke: true, ..Args::default() })
}

fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let package = workspace.root.join("tests/fuzz");
    let all = targets(&package)?;
    if let Some(unknown) = args.targets.iter().find(|target| !all.contains(target)) {
        bail!("there is no fuzz target {unknown}: {}", all.join(", "));
    }
    let chosen = if args.targets.is_empty() { &all } else { &args.targets };
    let built = build(workspace, args.address)?;
    if args.seeds {
        let mut cargo = workspace.cargo();
        cargo.env("RUSTFLAGS", "--cfg fuzzing").args(["run", "--quiet", "--example", "seeds"]);
        cargo
            .arg("--manifest-path")
            .arg(package.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(scratch(workspace).join("seeds"));
        sh::loud(cargo.arg("--").arg(package.join("corpus")))?;
    }
    println!("{:<10} {:>12} {:>8} {:>10}  new findings", "target", "executions", "seconds", "per second");
    let mut findings = Vec::new();
    for target in chosen {
        let run = fuzz(workspace, &built, target, args)?;
        let rate = run.executions as f64 / run.seconds;
        let found = if run.finding.is_some() { "1" } else { "none" };
        println!("{target:<10} {:>12} {:>8.1} {rate:>10.0}  {found}", run.executions, run.seconds);
        findings.extend(run.finding.map(|input| (run.target, input)));
    }
    for (target, input) in &findings {
        eprintln!(
            "fuzz: {target}: {} breaks it; `{} {}` shows how",
            input.display(),
            built.join(target).display(),
            input.display()
        );
    }
    if !findings.is_empty() {
        bail!("{} of {} targets have a finding", findings.len(), chosen.len());
    }
    Ok(())
}

/// The targets that the package names.
fn targets(package: &Path) -> Result<Vec<String>> {
    let dir = package.join("fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        targets.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

/// Builds all targets; gives their folder.
fn build(workspace: &Workspace, address: bool) -> Result<PathBuf> {
    let (sanitizer, dir) = if address { ("address", "build-address") } else { ("none", "build") };
    let dir = scratch(workspace).join(dir);
    let mut cargo = workspace.cargo();
    if address {
        // On a stable toolchain that is what allows the sanitizer; it is set for this build alone.
        cargo.env("RUSTC_BOOTSTRAP", "1");
    }
    cargo.env("CARGO_TERM_QUIET", "true").args(["fuzz", "build", "--fuzz-dir", "tests/fuzz", "--sanitizer", sanitizer]);
    sh::loud(cargo.arg("--target-dir").arg(&dir)).context(
        "the fuzz targets did not build: they need the crate registry, a C and a C++ compiler (package build-essential)",
    )?;
    Ok(dir.join(host()?).join("release"))
}

fn scratch(workspace: &Workspace) -> PathBuf {
    workspace.target().join("fuzz")
}

/// The compiler's own platform, for which cargo-fuzz builds.
fn host() -> Result<String> {
    let version = sh::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn fuzz(workspace: &Workspace, built: &Path, target: &str, args: &Args) -> Result<Run> {
    let seeds = workspace.root.join("tests/fuzz/corpus").join(target);
    let work = scratch(workspace).join(target);
    let (found, log) = (work.join("corpus"), work.join("log"));
    if args.smoke && found.exists() {
        fs::remove_dir_all(&found)?;
    }
    fs::create_dir_all(&found)?;
    let seconds = if args.smoke { 1 } else { args.seconds };
    let artifacts = format!("{}/finding-", work.display());
    let start = Instant::now();
    let mut fuzzer = Command::new(built.join(target));
    // A recording may unpack to much: 2 GiB and two minutes are beyond everything that is meant.
    fuzzer.args([&found, &seeds]).args([
        "-rss_limit_mb=2048",
        "-timeout=120",
        "-max_len=32768",
        "-print_final_stats=1",
    ]);
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={artifacts}"));
    let log_file = fs::File::create(&log)?;
    let status = fuzzer
        .stdin(Stdio::null())
        .stdout(log_file.try_clone()?)
        .stderr(log_file)
        .status()
        .with_context(|| format!("cannot run {}", sh::line(&fuzzer)))?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let executions = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
        .unwrap_or(0);
    let finding =
        text.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path.trim().into()));
    if !status.success() && finding.is_none() {
        bail!("fuzz target {target} ended with {status}: see {}", log.display());
    }
    if args.keep && status.success() {
        sh::output(Command::new(built.join(target)).arg("-merge=1").arg("-max_len=32768").args([&seeds, &found]))?;
    }
    Ok(Run { target: target.to_owned(), executions, seconds, finding })
}

//! Late attach, measured: cuts of recorded and of played traffic, a row a method. Fails when a name is wrong.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use podlapse_tests::late::{Cut, Damage, Score, Traffic, client};

/// Cut captured CRI traffic and score the names that podlapse gives to the rest
#[derive(Debug, Parser)]
struct Args {
    /// Folder with captures: NAME.jsonl, and NAME.truth.jsonl where the truth is known
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data"))]
    dir: PathBuf,
    /// Cut at every chunk and at random bytes inside frames, lose and double chunks
    #[arg(long)]
    thorough: bool,
    /// Which evidence counts
    #[arg(long, value_enum)]
    evidence: Option<Evidence>,
    /// Calls of the played client
    #[arg(long, default_value_t = 50_000)]
    calls: usize,
    /// Print each wrong name
    #[arg(long)]
    explain: bool,
}

/// Which evidence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Evidence {
    /// What the wire shows, whoever the client is
    Wire,
    /// That, and what kubelet is known never to do
    Habits,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let evidence = args.evidence.map_or(vec![Evidence::Wire, Evidence::Habits], |evidence| vec![evidence]);
    let mut failed = false;
    for file in captures(&args.dir)? {
        let traffic = Traffic::read(&file)?;
        for evidence in &evidence {
            let kubelet = *evidence == Evidence::Habits;
            // crictl is not kubelet: no habit of kubelet's may be put on it.
            if kubelet && !traffic.name.starts_with("kubelet") {
                continue;
            }
            for (mode, cuts) in modes(&traffic, args.thorough, kubelet) {
                let score = score(&traffic, &cuts);
                println!("{}, evidence {evidence:?}, {mode}, {} cuts", traffic.name, cuts.len());
                println!("{score}");
                if args.explain {
                    score.wrong.iter().take(40).for_each(|wrong| println!("wrong: {wrong}"));
                }
                failed |= score.wrong() > 0;
            }
        }
    }
    // Played traffic, of more calls than any test run has time for.
    let played = client::play(1, args.calls);
    let cuts: Vec<Cut> = (0..20).map(|n| Cut { chunk: n * played.chunks.len() / 20, ..Cut::default() }).collect();
    let score = score(&played, &cuts);
    println!("{}, {} calls, {} cuts\n{score}", played.name, args.calls, cuts.len());
    if args.explain {
        score.wrong.iter().take(40).for_each(|wrong| println!("wrong: {wrong}"));
    }
    failed |= score.wrong() > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn captures(dir: &PathBuf) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.to_string_lossy();
        if name.ends_with(".jsonl") && !name.ends_with(".truth.jsonl") {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("no capture (NAME.jsonl) in {}", dir.display());
    }
    files.sort();
    Ok(files)
}

/// The kinds of cuts, by name.
fn modes(traffic: &Traffic, thorough: bool, kubelet: bool) -> Vec<(&'static str, Vec<Cut>)> {
    let chunks = traffic.chunks.len();
    let at = |chunk| Cut { chunk, kubelet, ..Cut::default() };
    let mut modes = vec![("every 2 %", (0..50).map(|n| at(n * chunks / 50)).collect::<Vec<_>>())];
    if thorough {
        let every = |cut: &dyn Fn(usize) -> Cut| (0..chunks).map(cut).collect::<Vec<_>>();
        modes.push(("every chunk", every(&at)));
        modes.push(("inside frames", every(&|n| Cut { inside: Some(n as u64 + 1), ..at(n) })));
        modes.push(("1 % dropped", every(&|n| Cut { damage: Some((Damage::Dropped, n as u64)), ..at(n) })));
        modes.push(("1 % doubled", every(&|n| Cut { damage: Some((Damage::Doubled, n as u64)), ..at(n) })));
    }
    modes
}

/// All cuts, on all cores.
fn score(traffic: &Traffic, cuts: &[Cut]) -> Score {
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Score::default()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(cut) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let score = Score::of(traffic, cut);
                    sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(score);
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

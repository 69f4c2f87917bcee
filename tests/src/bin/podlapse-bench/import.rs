//! What podlapse costs an image import through the socket that it reads: imports with it and without it, interleaved
//! on one private node, and how many of the bytes crossed the ring.

use std::path::Path;
use std::time::{Duration, Instant};

use ::podlapse::record::Event;
use anyhow::{Context, Result, ensure};
use podlapse_tests::tools::{Containerd, Tools};
use podlapse_tests::{Node, Options, calls, image, podlapse};

use crate::statistics::{Random, median};

const IMAGE: &str = "localhost/podlapse-random:1";

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds; each has one import with podlapse and one without
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// Size of the image
    #[arg(long, default_value_t = 500)]
    mib: usize,
}

/// The measurement.
pub(crate) fn main(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.mib > 0, "a round imports something");
    let folder = tempfile::tempdir()?;
    let (archive, recording) = (folder.path().join("image.tar"), folder.path().join("import.plr"));
    image::write_random(&archive, IMAGE, args.mib << 20, 1)?;
    let node = Node::start(Options::default())?;
    // The first fills caches.
    import(&node, &archive)?;
    let (mut random, mut off, mut on) = (Random(0x9e37_79b9_7f4a_7c15), Vec::new(), Vec::new());
    let mut crossed = Crossed::default();
    for round in 0..args.rounds {
        let mut order = [false, true];
        random.shuffle(&mut order);
        for with in order {
            if with {
                on.push(recorded(&node, &archive, &recording)?);
                crossed = Crossed::of(&recording)?;
            } else {
                off.push(import(&node, &archive)?);
            }
        }
        eprintln!("bench: round {} of {}", round + 1, args.rounds);
    }
    node.stop()?;
    let ratios = on.iter().zip(&off).map(|(on, off)| on / off);
    let (on, off) = (median(on.iter().copied()), median(off.iter().copied()));
    println!("import of {} MiB: {off:.2} s without podlapse, {on:.2} s with it (medians of {})", args.mib, args.rounds);
    println!("ratio of the medians {:.3}, median of the rounds' ratios {:.3}", on / off, median(ratios));
    let share = 100.0 * crossed.bytes as f64 / (args.mib << 20) as f64;
    println!(
        "crossed the ring: {} bytes of payload in {} records, {share:.3} % of the image",
        crossed.bytes, crossed.records
    );
    Ok(())
}

/// Seconds of an import while podlapse records.
fn recorded(node: &Node, archive: &Path, recording: &Path) -> Result<f64> {
    let file = recording.to_str().context("a temporary path is UTF-8")?;
    let podlapse = podlapse::attach(node, &["record", file], &["--force", "--next", "1000", "--timeout", "1h"])?;
    let time = import(node, archive)?;
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(120))?;
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    podlapse::detached()?;
    Ok(time)
}

/// Seconds of an import; the image is removed again.
fn import(node: &Node, archive: &Path) -> Result<f64> {
    let tools = Tools::find(Containerd::default())?;
    let ctr = |args: &[&str], file: Option<&Path>| -> Result<()> {
        let output = node.spawn(tools.ctr(&node.socket()).args(args).args(file).stdout(std::process::Stdio::null()))?;
        let status = output.wait_with_output()?.status;
        ensure!(status.success(), "ctr {args:?} ended with {status}");
        Ok(())
    };
    let start = Instant::now();
    ctr(&["images", "import"], Some(archive))?;
    let time = start.elapsed();
    // With what it brought: the next import is to do all of it again.
    ctr(&["images", "rm", "--sync", IMAGE], None)?;
    Ok(time.as_secs_f64())
}

/// Payload in a recording: what the kernel's programs sent.
#[derive(Debug, Default)]
struct Crossed {
    records: usize,
    bytes: usize,
}

impl Crossed {
    fn of(recording: &Path) -> Result<Self> {
        let mut crossed = Self::default();
        for record in calls::records(recording)? {
            if let Event::Bytes(bytes) = record?.event {
                crossed.records += 1;
                crossed.bytes += bytes.data.len();
            }
        }
        Ok(crossed)
    }
}

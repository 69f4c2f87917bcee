//! A minute in the life of a full node in which nothing starts: a real kubelet asks for its pods again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::podlapse::record::Event;
use anyhow::{Context, Result, ensure};
use podlapse_tests::kubelet::{self, Watch};
use podlapse_tests::{Node, Options, calls, podlapse};

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pods of two containers; kubelet's own limit is 110
    #[arg(long, default_value_t = 110)]
    pods: usize,
    /// How many of them have an exec probe every ten seconds
    #[arg(long, default_value_t = 22)]
    probes: usize,
    /// For how long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Keep the recording there
    #[arg(long)]
    keep: Option<std::path::PathBuf>,
}

/// The measurement.
pub(crate) async fn main(args: &Args) -> Result<()> {
    ensure!(args.pods > 0 && args.probes <= args.pods, "there are no more probes than pods");
    let mut node = Node::start(Options::default())?;
    node.start_kubelet()?;
    let mut watch = Watch::on(&node).await?;
    let start = Instant::now();
    for number in 0..args.pods {
        let name = format!("pod-{number}");
        node.put_static_pod(&name, &kubelet::plain(&name, number < args.probes))?;
    }
    eprintln!("bench: starting {} pods", args.pods);
    watch.all_running(2 * args.pods, Duration::from_secs(900)).await?;
    eprintln!("bench: they run after {:.0} s", start.elapsed().as_secs_f64());
    drop(watch);
    // What the starts still cause is not polling.
    tokio::time::sleep(Duration::from_secs(20)).await;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("polling.plr");
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let podlapse = podlapse::attach(&node, &["record", name], &["--next", "1000000", "--timeout", "1h", "-o", "json"])?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    let traces = ended.traces()?;
    let size = std::fs::metadata(&file)?.len();
    if let Some(keep) = &args.keep {
        std::fs::copy(&file, keep)?;
    }
    node.stop()?;

    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for record in calls::records(&file)? {
        let (kind, bytes) = match &record?.event {
            Event::Bytes(bytes) => ("payload", bytes.data.len()),
            Event::Lost { count, .. } => ("lost", usize::try_from(*count)?),
            _ => ("signs", 0),
        };
        let entry = kinds.entry(kind).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
    }
    let of = |kind| kinds.get(kind).copied().unwrap_or_default();
    println!(
        "{} pods, {} containers, {} exec probes, {} s of polling",
        args.pods,
        2 * args.pods,
        args.probes,
        args.seconds
    );
    println!("recording  {:>10.2} MiB, of which {} starts", size as f64 / f64::from(1 << 20), traces.len());
    println!("payload    {:>10.2} MiB in {} records", of("payload").1 as f64 / f64::from(1 << 20), of("payload").0);
    println!("signs      {:>10} records", of("signs").0);
    let (calls, undecoded) = (calls::of(&file)?, calls::undecoded(&file)?);
    let unnamed = calls.iter().filter(|call| call.method.is_empty()).count();
    println!("calls      {:>10}, of which {unnamed} without a name", calls.len());
    println!("undecoded  {undecoded:>10} bytes");
    println!("lost       {:>10} records", of("lost").1);
    Ok(())
}

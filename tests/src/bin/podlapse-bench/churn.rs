//! A recording of many pods that come and go at once, for the engine to be measured with.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::churn::{self, Churn};
use podlapse_tests::{Node, Options, podlapse};

/// Where to, and how much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The recording; a file that is there is replaced
    file: PathBuf,
    /// Pods that are started at a time
    #[arg(long, default_value_t = 10)]
    workers: usize,
    /// Pods of each, one after the other
    #[arg(long, default_value_t = 5)]
    pods: usize,
}

/// Makes the recording.
pub(crate) async fn main(args: &Args) -> Result<()> {
    let churn = Churn { workers: args.workers, pods: args.pods, failing: 0 };
    let (file, next) = (args.file.to_str().context("FILE is not UTF-8")?, churn.starts().to_string());
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["record", file], &["--next", &next, "--force", "-o", "json"])?;
    churn::run(&node, churn).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    let traces = ended.traces()?;
    let complete = traces.iter().filter(|trace| trace["outcome"] == "complete").count();
    let lost: u64 = traces.iter().filter_map(|trace| trace["quality"]["lost_records"].as_u64()).sum();
    ensure!(complete == churn.starts() && lost == 0, "{complete} complete traces, {lost} lost\n{}", ended.stderr);
    println!("{complete} complete traces, {} at a time, {lost} lost records", args.workers);
    node.stop()
}

//! What `cargo xtask bench` runs: measurements on private nodes, as ratios within one run.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod start;
mod statistics;
mod strace;

/// Measurements of podlapse on private nodes.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What podlapse costs a pod start
    Start(start::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Cli::parse().what {
        What::Start(args) => start::main(&args).await,
    }
}

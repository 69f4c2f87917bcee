//! What `cargo xtask bench` runs: measurements on private nodes, as ratios within one run.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod churn;
mod engine;
mod import;
mod named;
mod polling;
mod start;
mod statistics;
mod unnamed;

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
    /// Record many pods that come and go at once
    Churn(churn::Args),
    /// What the engine takes for the records of a recording
    Engine(engine::Args),
    /// How much of a start has a name, for each containerd and OCI runtime
    Named(named::Args),
    /// What podlapse costs an image import through the socket
    Import(import::Args),
    /// How much a minute of a full node's polling is in a recording
    Polling(polling::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Cli::parse().what {
        What::Start(args) => start::main(&args).await,
        What::Churn(args) => churn::main(&args).await,
        What::Engine(args) => engine::main(&args),
        What::Named(args) => named::main(&args).await,
        What::Import(args) => import::main(&args),
        What::Polling(args) => polling::main(&args).await,
    }
}

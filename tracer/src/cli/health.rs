//! `podlapse health`: whether an agent lives, for probes in an image that has no shell and no curl.

use std::time::Duration;

use super::args::Health;
use super::{Done, Failure};
use crate::agent::get;

/// Longest wait for the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Largest answer: a line.
const MAX: usize = 64 * 1024;

pub(super) async fn health(args: &Health) -> Result<Done, Failure> {
    let path = if args.ready { "/readyz" } else { "/healthz" };
    get(&args.url, path, PATIENCE, MAX).await?;
    Ok(Done)
}

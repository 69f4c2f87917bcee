//! Starts and lives that fail for real: podlapse says at which stage and why, also from the kernel's signs alone.
//! `cargo xtask cases` has those, too, that need a node of their own.

use anyhow::{Result, ensure};
use podlapse_tests::cases::{self, Kind, Row};

#[tokio::test]
async fn on_one_node() -> Result<()> {
    let quick: Vec<_> = cases::all().filter(|case| !case.own_node).collect();
    let rows = cases::run(&quick, &Kind::default()).await?;
    let table: String = rows.iter().map(Row::to_string).collect();
    ensure!(rows.iter().all(Row::ok), "\n{table}");
    let (all, same) = cases::right_when_blank(&rows);
    ensure!(same * 10 >= all * 9, "without texts only {same} of {all} stages are right\n{table}");
    Ok(())
}

//! Starts and lives that fail for real, and what podlapse says of each: a table, a line a verdict.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use podlapse_tests::cases;

/// Make starts and pods that run fail on real nodes, and compare podlapse's verdicts with the right ones
#[derive(Debug, Parser)]
struct Args {
    /// Cases; all where there are none
    names: Vec<String>,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Judge each recording again with every text of a reply taken away, and count the stages that are still right
    #[arg(long)]
    blank: bool,
    #[command(flatten)]
    nodes: cases::Kind,
    /// Keep the traces in this folder: CASE-NUMBER.json
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let cases = cases::named(&args.names)?;
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(cases::run(&cases, &args.nodes))?;
    rows.iter().for_each(|row| print!("{row}"));
    if let Some(folder) = &args.keep {
        for (row, number, trace) in
            rows.iter().flat_map(|row| row.traces.iter().enumerate().map(move |(number, trace)| (row, number, trace)))
        {
            std::fs::write(folder.join(format!("{}-{number}.json", row.case.name)), trace.to_string())?;
        }
    }
    let right = rows.iter().filter(|row| row.ok()).count();
    println!("{right} of {} cases are right", rows.len());
    if args.blank {
        for row in &rows {
            let found: Vec<_> = row.blanked.iter().map(|it| format!("{} {}", it.stage, it.reason)).collect();
            println!("{:24} without texts: {}", row.case.name, found.join(", "));
        }
        let (all, same) = cases::right_when_blank(&rows);
        println!("without texts the stage is right in {same} of {all} cases, {} %", same * 100 / all.max(1));
    }
    Ok(if right == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `cargo xtask bench`: what podlapse costs and what it names, as ratios within one run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::setup::{self, Group};
use crate::sh;
use crate::workspace::Workspace;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Pod starts with podlapse and without it, interleaved, and some under strace
    Start {
        /// Arguments of podlapse-bench, as `-- --rounds 10`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// How much of a start has a name, and where the rest lies, for each containerd and OCI runtime
    Named {
        /// Arguments of podlapse-bench, as `-- --starts 3 --containerd 2.1`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// An import of 500 MiB by ctr through the traced socket, with podlapse and without it, interleaved
    Import {
        /// Arguments of podlapse-bench, as `-- --rounds 10`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// The recording of a minute in which kubelet polls 110 pods
    Polling {
        /// Arguments of podlapse-bench, as `-- --pods 30`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Records a second of the engine on one core, and its memory
    Engine {
        /// A recording; without one, 50 pods are started on a private node, 10 at a time, and recorded
        file: Option<PathBuf>,
    },
}

/// The task.
pub(crate) fn main(args: &Args) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::run(&workspace, &[Group::Build, Group::Node])?;
    if matches!(args.what, What::Polling { .. }) {
        setup::run(&workspace, &[Group::Kubelet])?;
    }
    eprintln!("bench: building podlapse with optimisations");
    sh::loud(workspace.cargo().args(["build", "--quiet", "--release", "-p", "podlapse", "-p", "podlapse-tests"]))?;
    let bench = |what| {
        let mut bench = Command::new(workspace.released("podlapse-bench"));
        bench.arg(what).env("PODLAPSE_TOOLS", &workspace.tools);
        bench
    };
    match &args.what {
        What::Start { arguments } => sh::show(bench("start").args(arguments)),
        What::Named { arguments } => sh::show(bench("named").args(arguments)),
        What::Import { arguments } => sh::show(bench("import").args(arguments)),
        What::Polling { arguments } => sh::show(bench("polling").args(arguments)),
        What::Engine { file: Some(file) } => sh::show(bench("engine").arg(file)),
        What::Engine { file: None } => {
            let file = workspace.released("churn.plr");
            sh::show(bench("churn").arg(&file))?;
            sh::show(bench("engine").arg(&file))
        }
    }
}

//! How much of a start has a name, and where the rest lies, for each containerd and OCI runtime.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::{Containerd, Cri, Node, Options, podlapse, trace};
use serde_json::Value;

use crate::statistics::median;
use crate::unnamed;

/// What to start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Starts of each pod
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// Only these containerds
    #[arg(long, value_enum)]
    containerd: Vec<Containerd>,
    /// Only these runtime handlers
    #[arg(long, default_values = ["runc", "runc-new", "crun"])]
    runtime: Vec<String>,
    /// Only pieces above this share of a start, in percent
    #[arg(long, default_value_t = 2.0)]
    above: f64,
}

/// A pod whose starts are measured.
const PODS: [&str; 2] = ["demo", "init + two apps"];

/// The measurement.
pub(crate) async fn main(args: &Args) -> Result<()> {
    ensure!(args.starts > 0, "a share needs at least one start");
    println!("containerd  runtime   pod              starts  median ms   named %: median (min to max)");
    println!(
        "    unnamed pieces above {} % of the start, by their median share: parent: last sign before, first after",
        args.above
    );
    let all = Containerd::value_variants();
    for &version in if args.containerd.is_empty() { all } else { &args.containerd } {
        let node = Node::start(Options::containerd(version))?;
        for runtime in &args.runtime {
            let traces = starts(&node, runtime, args.starts).await?;
            for pod in PODS {
                let of_pod: Vec<&Value> = traces.iter().filter(|(name, _)| *name == pod).map(|(_, it)| it).collect();
                report(version, runtime, pod, &of_pod, args.above)?;
            }
        }
        node.stop()?;
    }
    Ok(())
}

fn containers(pod: &str) -> Vec<Container> {
    if pod == PODS[0] {
        return vec![Container::new("app")];
    }
    // It ends at once: how long an init container works is no part of what is measured.
    vec![Container::init("init").command(&["/bin/true"]), Container::new("one"), Container::new("two")]
}

/// The traces of `count` starts of each pod, after one of each that nobody looks at.
async fn starts(node: &Node, runtime: &str, count: usize) -> Result<Vec<(&'static str, Value)>> {
    let mut cri = Cri::connect(&node.socket()).await?;
    for pod in PODS {
        one_start(node, &mut cri, runtime, pod).await?;
    }
    let next = (count * PODS.len()).to_string();
    let podlapse = podlapse::attach(node, &["trace"], &["--next", &next, "-o", "json"])?;
    let mut uids = BTreeMap::new();
    for _ in 0..count {
        for pod in PODS {
            uids.insert(one_start(node, &mut cri, runtime, pod).await?, pod);
        }
    }
    let traces = podlapse.traces()?;
    podlapse::detached()?;
    let named = traces.into_iter().map(|trace| {
        let uid = trace["pod"]["uid"].as_str().context("no pod.uid")?;
        Ok((*uids.get(uid).context("a trace of another pod")?, trace))
    });
    named.collect()
}

async fn one_start(node: &Node, cri: &mut Cri, runtime: &str, name: &str) -> Result<String> {
    let mut pod = Pod::new("named", "default")?.on_node(node.cgroup());
    pod.runtime_handler = runtime.to_owned();
    let started = cri.start_pod(&pod, &containers(name)).await?;
    // StartContainer says OK before the entrypoint runs.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    cri.remove_pod(&started.id, &pod.cgroup_parent).await?;
    Ok(pod.uid)
}

fn report(version: Containerd, runtime: &str, pod: &str, traces: &[&Value], above: f64) -> Result<()> {
    let mut shares = Vec::new();
    let mut totals = Vec::new();
    let mut pieces: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for trace in traces {
        trace::sound(trace)?;
        ensure!(trace["outcome"] == "complete", "a start is {}: {}", trace["outcome"], trace["quality"]);
        let number = |name: &str| trace[name].as_u64().with_context(|| format!("no {name}"));
        let (total, named) = (number("total_ns")? as f64, number("named_ns")? as f64);
        totals.push(total);
        shares.push(100.0 * named / total);
        for (piece, time) in unnamed::pieces(trace)? {
            pieces.entry(piece).or_default().push(100.0 * time as f64 / total);
        }
    }
    let range = |values: &[f64]| {
        (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max))
    };
    let (low, high) = range(&shares);
    println!(
        "{version:<11} {runtime:<9} {pod:<16} {:>6} {:>10.1}   {:.1} ({low:.1} to {high:.1})",
        traces.len(),
        median(totals.iter().copied()) / 1e6,
        median(shares.iter().copied()),
    );
    // A piece that a start has not is 0 there.
    let padded = |mut values: Vec<f64>| {
        values.resize(traces.len(), 0.0);
        median(values.into_iter())
    };
    let mut pieces: Vec<(f64, String)> = pieces.into_iter().map(|(piece, values)| (padded(values), piece)).collect();
    pieces.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (share, piece) in pieces.into_iter().filter(|(share, _)| *share > above) {
        println!("    {share:>5.1} %  {piece}");
    }
    Ok(())
}

//! What podlapse costs a pod start: starts with it and without it, interleaved on one private node.
//!
//! A start's time is the sum of RunPodSandbox, CreateContainer and StartContainer on the client's clock. Conditions
//! take turns in random order within each round; the interval of a ratio of medians comes from resampling rounds.

use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::strace::Strace;
use podlapse_tests::{Cri, Node, Options, podlapse};

use crate::statistics::{Random, median};

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds; each has one block of every condition
    #[arg(long, default_value_t = 60)]
    rounds: u32,
    /// Starts of a block
    #[arg(long, default_value_t = 5)]
    block: u32,
    /// Rounds that also have a block under `strace -f`
    #[arg(long, default_value_t = 6)]
    strace: u32,
}

/// Beside what a start is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Off,
    /// Nothing again: what the method itself finds between two equal things.
    Control,
    On,
    Strace,
}

/// The syscalls that podlapse's signs come from.
const TRACED: &str = "read,write,readv,writev,sendmsg,recvmsg,sendto,recvfrom,accept4,accept,connect,close,dup,dup2,\
dup3,bind,listen,clone,clone3,vfork,fork,execve,execveat,exit_group,setns,unshare,pivot_root,mount,umount2,fsopen,\
fsconfig,fsmount,move_mount,open_tree,mount_setattr,mkdir,mkdirat,rmdir,openat,openat2,kill,tgkill";

type Blocks = BTreeMap<Condition, Vec<Vec<f64>>>;

/// The measurement.
pub(crate) async fn main(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.block > 0, "a round has at least one start");
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..5 {
        one_start(&node, &mut cri).await?;
    }
    let mut blocks = Blocks::new();
    for round in 0..args.rounds {
        let mut order = vec![Condition::Off, Condition::Control, Condition::On];
        if round < args.strace {
            order.push(Condition::Strace);
        }
        random.shuffle(&mut order);
        for condition in order {
            let starts = block(&node, &mut cri, condition, args.block).await?;
            blocks.entry(condition).or_default().push(starts);
        }
        if std::io::stderr().is_terminal() || round % 10 == 9 {
            eprintln!("bench: round {} of {}", round + 1, args.rounds);
        }
    }
    let programs = program_time(&node, &mut cri, 20).await?;
    node.stop()?;
    report(&blocks, &mut random);
    println!("BPF programs: {:.2} ms a start, {:.0} runs a start, by bpf_stats", programs.0 / 1e6, programs.1);
    Ok(())
}

async fn block(node: &Node, cri: &mut Cri, condition: Condition, starts: u32) -> Result<Vec<f64>> {
    let on = match condition {
        Condition::On => Some(attach(node)?),
        Condition::Off | Condition::Control | Condition::Strace => None,
    };
    let strace = match condition {
        Condition::Strace => Some(Strace::attach(node.containerd_pid()?, TRACED, Path::new("/dev/null"))?),
        Condition::Off | Condition::Control | Condition::On => None,
    };
    let mut times = Vec::new();
    for _ in 0..starts {
        times.push(one_start(node, cri).await?);
    }
    drop(strace);
    if let Some(podlapse) = on {
        detach(podlapse, starts as usize)?;
    }
    Ok(times)
}

fn attach(node: &Node) -> Result<podlapse::Running> {
    podlapse::attach(node, &["trace"], &["--next", "1000000", "--timeout", "1h", "-o", "json"])
}

/// A run that missed a start is no run.
fn detach(podlapse: podlapse::Running, starts: usize) -> Result<()> {
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(30))?;
    let traces = ended.traces()?;
    ensure!(traces.len() == starts, "podlapse saw {} starts of {starts}:\n{}", traces.len(), ended.stderr);
    // The next block is not to pay for this one's hooks.
    podlapse::detached()
}

async fn one_start(node: &Node, cri: &mut Cri) -> Result<f64> {
    let pod = Pod::new("bench", "default")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    cri.remove_pod(&started.id, &pod.cgroup_parent).await?;
    Ok(time(&started))
}

fn time(pod: &StartedPod) -> f64 {
    let calls = pod.containers.iter().flat_map(|container| [container.create, container.start]).chain([pod.run]);
    calls.map(|call| (call.end.0 - call.start.0) as f64).sum()
}

/// Nanoseconds and runs of podlapse's programs a start, with the kernel's own statistics on.
async fn program_time(node: &Node, cri: &mut Cri, starts: u32) -> Result<(f64, f64)> {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
    let before = fs::read_to_string(SWITCH).with_context(|| format!("cannot read {SWITCH}"))?;
    fs::write(SWITCH, "1").with_context(|| format!("cannot write {SWITCH}"))?;
    let podlapse = attach(node)?;
    let measured = async {
        let first = programs(podlapse.pid())?;
        for _ in 0..starts {
            one_start(node, cri).await?;
        }
        let last = programs(podlapse.pid())?;
        Ok::<_, anyhow::Error>(((last.0 - first.0) / f64::from(starts), (last.1 - first.1) / f64::from(starts)))
    }
    .await;
    fs::write(SWITCH, before.trim())?;
    detach(podlapse, starts as usize)?;
    measured
}

/// Sums `run_time_ns` and `run_cnt` over the programs that a process holds.
fn programs(pid: u32) -> Result<(f64, f64)> {
    let (mut time, mut count) = (0.0, 0.0);
    let dir = format!("/proc/{pid}/fdinfo");
    for entry in fs::read_dir(Path::new(&dir)).with_context(|| format!("cannot list {dir}"))? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<f64>().ok())
        };
        time += field("run_time_ns").unwrap_or_default();
        count += field("run_cnt").unwrap_or_default();
    }
    ensure!(count > 0.0, "podlapse {pid} holds no program that ran");
    Ok((time, count))
}

fn report(blocks: &Blocks, random: &mut Random) {
    println!("condition   starts   median ms   ratio to off   95 % interval");
    let off = &blocks[&Condition::Off];
    for (condition, rounds) in blocks {
        let starts: usize = rounds.iter().map(Vec::len).sum();
        let middle = median(rounds.iter().flatten().copied()) / 1e6;
        let name = format!("{condition:?}").to_lowercase();
        if *condition == Condition::Off {
            println!("{name:<11} {starts:>6} {middle:>11.2}");
            continue;
        }
        // A condition of the first rounds alone is held against those rounds alone.
        let pairs: Vec<(&Vec<f64>, &Vec<f64>)> = rounds.iter().zip(off).collect();
        let ratio = ratio(&pairs);
        let mut resampled: Vec<f64> = (0..2000)
            .map(|_| {
                let drawn: Vec<_> = (0..pairs.len()).map(|_| pairs[random.below(pairs.len())]).collect();
                self::ratio(&drawn)
            })
            .collect();
        resampled.sort_by(f64::total_cmp);
        let (low, high) = (resampled[50], resampled[1949]);
        println!("{name:<11} {starts:>6} {middle:>11.2} {ratio:>14.3}   {low:.3} to {high:.3}");
    }
}

fn ratio(pairs: &[(&Vec<f64>, &Vec<f64>)]) -> f64 {
    let with = median(pairs.iter().flat_map(|(with, _)| with.iter().copied()));
    let without = median(pairs.iter().flat_map(|(_, without)| without.iter().copied()));
    with / without
}

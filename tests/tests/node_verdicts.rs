//! What is wrong with a node is said while it lasts, and when it is over; starts of that time carry it.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::podlapse::{Ended, Running};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet, block_in_place};

/// Longest wait for what podlapse is to say.
const PATIENCE: Duration = Duration::from_secs(60);

/// podlapse beside the node, which records into its folder.
fn record(node: &Node, options: &[&str]) -> Result<Running> {
    let file = node.dir().join("run.plr");
    let name = file.to_str().context("not UTF-8")?;
    let options = [&["-o", "json"], options].concat();
    block_in_place(|| podlapse::attach(node, &["record", name], &options))
}

/// The next line about the node.
fn says(podlapse: &Running, what: &str) -> Result<String> {
    let (line, _) = block_in_place(|| podlapse.says(&format!("node: {what}"), PATIENCE))?;
    println!("{line}");
    Ok(line)
}

fn about_the_node(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.split_once("node: ")).map(|(_, what)| what).collect()
}

/// A replay says the same of the node, and prints the same.
fn is_replayed(node: &Node, ended: &Ended) -> Result<()> {
    let file = node.dir().join("run.plr");
    let replay = podlapse::run(&["replay", file.to_str().context("not UTF-8")?, "-o", "json"])?;
    ensure!(replay.stdout == ended.stdout, "the replay differs");
    let (live, again) = (about_the_node(&ended.stderr), about_the_node(&replay.stderr));
    ensure!(live == again && !live.is_empty(), "live: {live:#?}\nreplay: {again:#?}");
    Ok(())
}

fn interrupted(podlapse: Running) -> Result<Ended> {
    podlapse.interrupt()?;
    block_in_place(|| podlapse.wait(PATIENCE))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no pid")?;
    Ok(kill_process(pid, signal)?)
}

/// Starts a pod, and stops the runtime in the middle of it.
fn stop_in_a_start(node: &Node) -> Result<JoinHandle<Result<StartedPod>>> {
    let (socket, pod) = (node.socket(), Pod::new("web", "shop")?.on_node(node.cgroup()));
    let start =
        tokio::spawn(async move { Cri::connect(&socket).await?.start_pod(&pod, &[Container::new("app")]).await });
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(node.log())?.contains("RunPodSandbox") {
        ensure!(Instant::now() < deadline, "containerd's log has no RunPodSandbox");
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(node.containerd_pid()?, Signal::STOP)?;
    Ok(start)
}

/// Asks for the lists each second, as kubelet's PLEG does.
async fn poll(node: &Node) -> Result<JoinHandle<()>> {
    let mut cri = Cri::connect(&node.socket()).await?;
    Ok(tokio::spawn(async move {
        loop {
            cri.list_pod_sandboxes().await;
            cri.list_containers().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_stands_still() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = record(&node, &[])?;
    let polls = poll(&node).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let start = stop_in_a_start(&node)?;
    let line = says(&podlapse, "cri_list_slow: ")?;
    let me = format!("(pid {}) sent, and reads no call, for 1", std::process::id());
    ensure!(line.contains("the runtime is stopped by signal 19, which ") && line.contains(&me), "{line}");
    ensure!(line.contains("RunPodSandbox of shop/web is open for 1"), "{line}");
    signal(node.containerd_pid()?, Signal::CONT)?;
    says(&podlapse, "cri_list_slow is over: ")?;
    start.await??;
    let ended = block_in_place(|| podlapse.wait(PATIENCE))?;
    polls.abort();
    let traces = ended.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    let verdicts = traces[0]["node"]["verdicts"].as_array().context("no verdicts")?;
    ensure!(verdicts.len() == 1 && verdicts[0]["reason"] == "cri_list_slow", "{verdicts:?}");
    ensure!(verdicts[0]["since"]["time"].is_string() && verdicts[0]["next_check"].is_string(), "{verdicts:?}");
    is_replayed(&node, &ended)?;
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_killed() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = record(&node, &["--next", "100"])?;
    let old = node.containerd_pid()?;
    let start = stop_in_a_start(&node)?;
    node.kill_containerd()?;
    let line = says(&podlapse, "runtime_restarted: ")?;
    ensure!(
        line.contains(&format!("containerd (pid {old}) was ended by signal 9, which podlapse-node (pid ")),
        "{line}"
    );
    ensure!(
        line.contains("; calls that were cut off: 1; nobody serves its socket (cut off: 1 RunPodSandbox)"),
        "{line}"
    );
    ensure!(start.await?.is_err(), "the start went well");
    let new = node.restart_containerd()?;
    let line = says(&podlapse, "runtime_restarted is over: ")?;
    ensure!(line.contains(&format!("; pid {new} serves its socket after ")), "{line}");

    // An ordinary stop.
    let newest = node.restart_containerd()?;
    let line = says(&podlapse, "runtime_restarted: ")?;
    ensure!(
        line.contains(&format!("containerd (pid {new}) exited with 0 after signal 15, which podlapse-node")),
        "{line}"
    );
    let line = says(&podlapse, "runtime_restarted is over: ")?;
    ensure!(line.contains(&format!("; pid {newest} serves its socket after ")), "{line}");
    let ended = interrupted(podlapse)?;
    is_replayed(&node, &ended)?;
    node.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_cri() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = record(&node, &[])?;
    node.restart_without_cri()?;
    let mut cri = Cri::connect(&node.socket()).await?;
    ensure!(cri.version().await.result.is_err(), "the CRI is there");
    let line = says(&podlapse, "cri_unavailable: ")?;
    ensure!(line.contains("does not have runtime.v1.RuntimeService"), "{line}");
    ensure!(line.contains("UNIMPLEMENTED: unknown service runtime.v1.RuntimeService"), "{line}");
    node.restart_with_cri()?;
    let mut cri = Cri::connect(&node.socket()).await?;
    cri.version().await.ok("Version")?;
    says(&podlapse, "cri_unavailable is over: ")?;
    let ended = interrupted(podlapse)?;
    is_replayed(&node, &ended)?;
    node.stop()
}

/// Mounts in the node's own mount namespace.
fn mounts(node: &Node, count: usize) -> Result<()> {
    let namespace = File::open(format!("/proc/{}/ns/mnt", node.containerd_pid()?))?;
    let entered = std::thread::spawn(move || -> Result<()> {
        // SAFETY: this thread alone gets its own working directory; it uses no other's.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Mount))?;
        let place = "/run/many";
        if count == 0 {
            return Ok(unmount(place, UnmountFlags::DETACH)?);
        }
        fs::create_dir_all(place)?;
        mount("tmpfs", place, "tmpfs", MountFlags::empty(), None)?;
        for number in 0..count {
            let leak = format!("{place}/{number}");
            fs::create_dir(&leak)?;
            mount_bind(&leak, &leak)?;
        }
        Ok(())
    });
    entered.join().map_err(|_| anyhow!("the thread panicked"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_table_that_leaks() -> Result<()> {
    let node = Node::start(Options::default())?;
    mounts(&node, 5000)?;
    let podlapse = record(&node, &["--containers", "1"])?;
    let line = says(&podlapse, "mount_table_large: the runtime's mount table has ")?;
    let count = line.split(" has ").nth(1).and_then(|rest| rest.split(' ').next()).context("no count")?;
    ensure!((5000..5200).contains(&count.parse::<u64>()?), "{line}");
    let mut cri = Cri::connect(&node.socket()).await?;
    cri.start_pod(&Pod::new("web", "shop")?.on_node(node.cgroup()), &[Container::new("app")]).await?;
    let ended = block_in_place(|| podlapse.wait(PATIENCE))?;
    let traces = ended.traces()?;
    let reasons: Vec<&Value> = traces.iter().map(|trace| &trace["node"]["verdicts"][0]["reason"]).collect();
    ensure!(reasons == ["mount_table_large"], "{reasons:?}");
    is_replayed(&node, &ended)?;
    mounts(&node, 0)?;
    node.stop()
}

/// More clients that ask without a pause, and at length, than the machine has processors: most of their calls are read and
/// not answered yet when the runtime stops.
#[tokio::test(flavor = "multi_thread")]
async fn polls_that_are_open() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let podlapse = record(&node, &[])?;
    let mut polls = JoinSet::new();
    for _ in 0..32 {
        let (mut cri, id) = (Cri::connect(&node.socket()).await?, started.containers[0].id.clone());
        polls.spawn(async move { while cri.container_status(&id, true).await.result.is_ok() {} });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let runtime = node.containerd_pid()?;
    signal(runtime, Signal::STOP)?;
    let line = says(&podlapse, "cri_list_slow: the runtime is stopped by signal 19")?;
    ensure!(line.contains("polls that are open: ") && !line.contains("polls that are open: 0"), "{line}");
    signal(runtime, Signal::CONT)?;
    let line = says(&podlapse, "cri_list_slow is over: ContainerStatus is answered within ")?;
    ensure!(line.contains("the slowest answer took 1"), "no answer was late: {line}");
    polls.shutdown().await;
    let ended = interrupted(podlapse)?;
    is_replayed(&node, &ended)?;
    node.stop()
}

//! A start that hangs: whose process holds it, and what that one waits for, is told while it hangs.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod, StartedPod};
use podlapse_tests::hold::Hold;
use podlapse_tests::image::BUSYBOX_IMAGE;
use podlapse_tests::podlapse::Running;
use podlapse_tests::{Containerd, Cri, Node, Options, podlapse, trace};
use serde_json::Value;
use tokio::task::{JoinHandle, block_in_place};

/// The name in the node's CNI configuration.
const NETWORK: &str = "podlapse";

/// Longest wait for what podlapse is to say.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(node: &Node) -> Result<JoinHandle<Result<StartedPod>>> {
    let (socket, pod) = (node.socket(), Pod::new("web", "shop")?.on_node(node.cgroup()));
    Ok(tokio::spawn(async move { Cri::connect(&socket).await?.start_pod(&pod, &[Container::new("app")]).await }))
}

/// podlapse beside the node, which records into its folder.
fn record(node: &Node, options: &[&str]) -> Result<Running> {
    let file = node.dir().join("run.plr");
    let name = file.to_str().context("not UTF-8")?;
    let options = [&["--pod", "shop/web", "-o", "json"], options].concat();
    block_in_place(|| podlapse::attach(node, &["record", name], &options))
}

/// Ends it while the start hangs: what it printed, which a replay prints, too.
fn interrupted(node: &Node, podlapse: Running) -> Result<Value> {
    // Twice at once, as timeout(1) does.
    podlapse.interrupt()?;
    podlapse.interrupt()?;
    let ended = block_in_place(|| podlapse.wait(PATIENCE))?;
    ensure!(podlapse::replay(&node.dir().join("run.plr"), &["-o", "json"])? == ended.stdout, "the replay differs");
    let traces = ended.traces()?;
    ensure!(traces.len() == 1, "{} traces\n{}", traces.len(), ended.stderr);
    trace::sound(&traces[0])?;
    Ok(traces[0].clone())
}

/// The trace of a start that is stuck in a `stage` whose own process is `pid`, a shell script that waits for a child.
fn names(trace: &Value, stage: &str, pid: u32) -> Result<()> {
    let (waiting, verdict) = (&trace["waiting"], &trace["verdict"]);
    ensure!(trace["outcome"] == "in_progress" && waiting["stage"] == stage, "{} {waiting}", trace["outcome"]);
    let processes = waiting["processes"].as_array().context("no processes")?;
    let own = processes.iter().find(|it| it["pid"] == pid).with_context(|| format!("no {pid} in {waiting}"))?;
    ensure!(own["age_ns"].is_u64() && own["seen_ns"].is_u64(), "{waiting}");
    // Each twentieth of a second the script runs for a moment.
    let sleeps = own["syscall"] == "wait4" && own["wchan"] == "do_wait" && own["syscall_number"].is_u64();
    ensure!(if own["state"] == "S" { sleeps } else { own["state"] == "R" || own["state"] == "D" }, "{own}");
    ensure!(waiting["last_sign"]["what"].is_string(), "{waiting}");
    ensure!(verdict["reason"] == "stuck" && verdict["stage"] == stage, "{verdict}");
    let first = format!("(pid {})", processes[0]["pid"]);
    ensure!(verdict["culprit"].as_str().is_some_and(|it| it.ends_with(&first)), "{verdict}");
    ensure!(verdict["evidence"].to_string().contains(&format!("(pid {pid}, ")), "{verdict}");
    Ok(())
}

/// The stage's own process is `pid`.
fn is_own(trace: &Value, pid: u32) -> Result<()> {
    let own = &trace["waiting"]["processes"][0];
    ensure!(own["pid"] == pid, "{own} is not {pid}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_hangs() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    hold.hold("bridge", "ADD")?;
    let podlapse = record(&node, &[])?;
    let begun = Instant::now();
    let starting = start(&node)?;
    let plugin = block_in_place(|| hold.held("bridge", "ADD"))?;

    let (line, at) = block_in_place(|| podlapse.says(" in sandbox.cni.bridge: ", PATIENCE))?;
    println!("named {:.2} s after its start began: {line}", (at - begun).as_secs_f64());
    ensure!(!starting.is_finished(), "it does not hang");
    let bridge = "shop/web, 10.";
    ensure!(line.contains(bridge), "{line}");
    ensure!(line.contains("in sandbox.cni.bridge: bridge (pid "), "{line}");
    ensure!(line.contains(&format!("(pid {plugin}, 10.")), "the plugin is {plugin}: {line}");

    let stuck = interrupted(&node, podlapse)?;
    names(&stuck, "sandbox.cni.bridge", plugin)?;
    is_own(&stuck, plugin)?;
    hold.release("bridge", "ADD")?;
    starting.await??;
    node.stop()
}

/// A plugin in Go has many threads: told is the one that waits for something, here for a lock that another process has.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_waits_for_a_lock() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = record(&node, &["--stuck-after", "3s"])?;
    let mut holder = Command::new("sh");
    let folder = format!("/var/lib/cni/networks/{NETWORK}");
    // The lock of host-local's store (containernetworking/plugins, plugins/ipam/host-local/backend/disk/lock.go).
    holder.args(["-c", &format!("mkdir -p {folder} && touch {folder}/lock && exec flock -F {folder}/lock sleep 600")]);
    let mut holder = node.spawn(&mut holder)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let starting = start(&node)?;
    let (line, _) = block_in_place(|| podlapse.says(" in sandbox.cni.host-local: ", PATIENCE))?;
    println!("{line}");
    ensure!(line.contains("host-local (pid ") && line.contains(" waits in flock ("), "{line}");
    let stuck = interrupted(&node, podlapse)?;
    let [own] = &stuck["waiting"]["processes"].as_array().context("no processes")?[..] else {
        anyhow::bail!("{}", stuck["waiting"]);
    };
    ensure!(own["syscall"] == "flock" && own["comm"] == "host-local", "{own}");
    holder.kill()?;
    holder.wait()?;
    starting.await??;
    node.stop()
}

/// What hangs since before podlapse came is told at once, with its own age.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_hung_before() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    hold.hold("bridge", "ADD")?;
    let (began, starting) = (Instant::now(), start(&node)?);
    let plugin = block_in_place(|| hold.held("bridge", "ADD"))?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = began.elapsed();

    let podlapse = record(&node, &["--stuck-after", "2s"])?;
    let (line, _) = block_in_place(|| podlapse.says(" in sandbox.cni.bridge: ", PATIENCE))?;
    println!("{line}");
    ensure!(line.contains(&format!("(pid {plugin}, ")), "the plugin is {plugin}: {line}");
    let stuck = interrupted(&node, podlapse)?;
    names(&stuck, "sandbox.cni.bridge", plugin)?;
    let age = stuck["waiting"]["processes"][0]["age_ns"].as_u64().map(Duration::from_nanos);
    ensure!(age >= Some(before - Duration::from_secs(1)), "{age:?} after {before:?}");
    hold.release("bridge", "ADD")?;
    starting.await??;
    node.stop()
}

/// An OCI hook hangs, and the runtime's create with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_hangs() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    let hook = hold.hook("createRuntime")?;
    hold.hold(hook, "createRuntime")?;
    let podlapse = record(&node, &["--stuck-after", "1s"])?;
    let starting = start(&node)?;
    let pid = block_in_place(|| hold.held(hook, "createRuntime"))?;
    let (line, _) = block_in_place(|| podlapse.says(" in sandbox.oci.create.hooks: ", PATIENCE))?;
    println!("{line}");
    let stuck = interrupted(&node, podlapse)?;
    names(&stuck, "sandbox.oci.create.hooks", pid)?;
    is_own(&stuck, pid)?;
    hold.release(hook, "createRuntime")?;
    starting.await??;
    node.stop()
}

/// What is called in the place of the OCI runtime hangs: whoever it is, the shim waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_oci_runtime_hangs() -> Result<()> {
    for action in ["create", "start"] {
        let mut node = Node::start(Options::default())?;
        let hold = Hold::on(&mut node, Containerd::default())?;
        hold.hold("runc", action)?;
        let podlapse = record(&node, &["--stuck-after", "1s"])?;
        let starting = start(&node)?;
        let pid = block_in_place(|| hold.held("runc", action))?;
        let stage = format!("sandbox.oci.{action}");
        let (line, _) = block_in_place(|| podlapse.says(&format!(" in {stage}: "), PATIENCE))?;
        println!("{line}");
        names(&interrupted(&node, podlapse)?, &stage, pid)?;
        hold.release("runc", action)?;
        starting.await??;
        node.stop()?;
    }
    Ok(())
}

/// What nobody waited for long enough is told at the end alone.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_it_too() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let hold = Hold::on(&mut node, Containerd::default())?;
    hold.hold("bridge", "ADD")?;
    let podlapse = block_in_place(|| podlapse::attach(&node, &["trace"], &["--stuck-after", "0s"]))?;
    let starting = start(&node)?;
    let plugin = block_in_place(|| hold.held("bridge", "ADD"))?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    podlapse.interrupt()?;
    let ended = block_in_place(|| podlapse.wait(PATIENCE))?;
    let text = String::from_utf8(ended.stdout)?.replace('\n', " ");
    ensure!(text.contains(" in sandbox.cni.bridge: bridge (pid "), "{text}");
    ensure!(text.contains(&format!("(pid {plugin}, ")), "{text}");
    ensure!(!text.contains("stuck in") && !ended.stderr.contains("waits for"), "{text} {}", ended.stderr);
    hold.release("bridge", "ADD")?;
    starting.await??;
    node.stop()
}

/// As kubelet does where a ConfigMap is missing: it finds the image, and makes no container, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_makes_no_container() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = record(&node, &["--stuck-after", "3s"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    cri.run_pod_sandbox(&pod).await.ok("RunPodSandbox")?;
    let tries = tokio::spawn(async move {
        while cri.has_image(BUSYBOX_IMAGE).await.is_ok_and(|found| found) {
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
    });
    let (line, _) = block_in_place(|| podlapse.says("(no_create_container: no CreateContainer came for ", PATIENCE))?;
    println!("{line}");
    let stuck = interrupted(&node, podlapse)?;
    tries.abort();
    let verdict = &stuck["verdict"];
    println!("{verdict}");
    ensure!(verdict["reason"] == "no_create_container" && verdict["confidence"] == "inferred", "{verdict}");
    ensure!(verdict["kubelet"] == "CreateContainerConfigError" && verdict["stage"] == "kubelet.gap", "{verdict}");
    ensure!(
        verdict["evidence"].to_string().contains(&format!("ImageStatus of {BUSYBOX_IMAGE} was asked ")),
        "{verdict}"
    );
    node.stop()
}

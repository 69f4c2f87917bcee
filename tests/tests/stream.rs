//! Traces come while podlapse runs, each once.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::{Cri, Node, Options, podlapse};
use serde_json::Value;

#[tokio::test]
async fn a_trace_is_printed_when_it_is_final() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let folder = tempfile::tempdir()?;
    let (out, file) = (folder.path().join("out.json"), folder.path().join("run.plr"));
    let mut command = Command::new("sh");
    let script = format!("exec \"$0\" record {} --next 2 -o json --settle 500ms >{}", file.display(), out.display());
    command.args(["-c", &script]).arg(podlapse::binary()?).env("PODLAPSE_SOCKET", node.socket());
    let podlapse = podlapse::start_as(&node, command)?.attached()?;

    let pod = Pod::new("first", "shop")?.on_node(node.cgroup());
    let first = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&out)?.is_empty() {
        ensure!(Instant::now() < deadline, "nothing is printed while podlapse waits for the second start");
        std::thread::sleep(Duration::from_millis(100));
    }
    let early = fs::read_to_string(&out)?;
    let pod = Pod::new("second", "shop")?.on_node(node.cgroup());
    let second = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    ensure!(ended.status.success(), "{}\n{}", ended.status, ended.stderr);

    let all = fs::read_to_string(&out)?;
    ensure!(all.starts_with(&early) && early.ends_with('\n'), "{early}");
    let traces: Vec<Value> = all.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let [one, two] = &traces[..] else { anyhow::bail!("{} traces", traces.len()) };
    ensure!(one["pod"]["uid"] == first.uid && two["pod"]["uid"] == second.uid, "{all}");
    ensure!(one["outcome"] == "complete" && two["outcome"] == "complete", "{all}");
    let again = podlapse::replay(&file, &["-o", "json"])?;
    ensure!(String::from_utf8(again).context("not UTF-8")? == all, "the recording replays to other traces");
    node.stop()
}

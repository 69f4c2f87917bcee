//! Other clients on the traced socket: their payload stays in the kernel once podlapse knows what they are.

use std::collections::BTreeMap;
use std::time::Duration;

use ::podlapse::ids::ConnId;
use ::podlapse::record::Event;
use anyhow::{Context, Result, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::tools::{Containerd, Tools};
use podlapse_tests::{Cri, Node, Options, calls, image, podlapse, trace};
use rustix::process::{Pid, Signal, kill_process};

const BALLAST: u64 = 64 << 20;

/// `tracer_ebpf::shared::AHEAD`.
const AHEAD: u64 = 1 << 20;

#[tokio::test]
async fn an_image_import_over_the_traced_socket() -> Result<()> {
    import_beside_a_start(false).await
}

/// As on a machine on which podlapse gets no processor while the import runs.
#[tokio::test]
async fn an_image_import_while_podlapse_stands_still() -> Result<()> {
    import_beside_a_start(true).await
}

async fn import_beside_a_start(stopped: bool) -> Result<()> {
    let node = Node::start(Options::default())?;
    let archive = node.dir().join("ballast.tar");
    image::write_random(&archive, "localhost/podlapse-ballast:1", BALLAST as usize, 1)?;
    let file = node.dir().join("import.plr");
    let path = file.to_str().context("the recording's path is not UTF-8")?;
    let podlapse = podlapse::attach(&node, &["record", path], &["--containers", "1", "-o", "json"])?;
    let pid = Pid::from_raw(podlapse.pid().cast_signed()).context("podlapse has no pid")?;

    if stopped {
        kill_process(pid, Signal::STOP)?;
    }
    let tools = Tools::find(Containerd::default())?;
    let import = tools.ctr(&node.socket()).args(["images", "import"]).arg(&archive).output();
    let import = import.context("cannot run ctr")?;
    ensure!(import.status.success(), "ctr: {}", String::from_utf8_lossy(&import.stderr));
    if stopped {
        kill_process(pid, Signal::CONT)?;
    }
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("after", "default")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(90))?;
    let (traces, stderr) = (ended.traces()?, ended.stderr);
    ensure!(ended.status.success(), "podlapse ended with {}:\n{stderr}", ended.status);

    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "complete", "{}", traces[0]["quality"]);
    trace::belongs(&traces[0], &started)?;

    let mut payload: BTreeMap<ConnId, u64> = BTreeMap::new();
    for record in calls::records(&file)? {
        if let Event::Bytes(bytes) = record?.event {
            *payload.entry(bytes.conn).or_default() += bytes.data.len() as u64;
        }
    }
    let total: u64 = payload.values().sum();
    println!("{total} bytes crossed the ring while {BALLAST} were imported: {stderr}");
    // What crosses is what the runtime may read ahead of podlapse, and what goes back.
    ensure!(total < 2 * AHEAD, "{total} bytes crossed the ring: {payload:?}");
    let said = format!("{total} bytes off the runtime's sockets; connections of other clients that were muted: 1");
    ensure!(stderr.contains(&said), "{stderr}");
    node.stop()
}

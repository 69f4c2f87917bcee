//! Secrets on the socket and in processes reach no output, no log and no recording.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::secrets::{SECRETS, a_pod_full_of_secrets, holds_none, recording_holds_none};
use podlapse_tests::{Node, Options, podlapse};

#[tokio::test]
async fn no_secret_leaves() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("secrets.plr");
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let podlapse = podlapse::attach(&node, &["record", name], &["--next", "2", "-o", "json"])?;
    a_pod_full_of_secrets(&node).await?;
    // One start is there, a second never comes: the recording holds all of the pod's life.
    std::thread::sleep(Duration::from_secs(3));
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(30))?;

    let traces = ended.traces()?;
    ensure!(traces.len() == 1 && traces[0]["pod"]["name"] == "vault", "traces: {traces:?}");
    holds_none("stdout", &ended.stdout, &SECRETS)?;
    holds_none("stderr", ended.stderr.as_bytes(), &SECRETS)?;
    recording_holds_none(&file, "vault", &SECRETS)?;
    node.stop()
}

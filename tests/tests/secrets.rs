//! Secrets on the socket and in processes reach no output, no log and no recording.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use podlapse_tests::podlapse::Ended;
use podlapse_tests::secrets::{SECRETS, a_pod_full_of_secrets, holds_none, recording_holds_none};
use podlapse_tests::{Cri, Node, Options, podlapse};

/// Records the pod's whole life.
async fn recorded(node: &Node, cri: &mut Cri, file: &Path) -> Result<Ended> {
    let name = file.to_str().context("a temporary path is UTF-8")?;
    let podlapse = podlapse::attach(node, &["record", name], &["--next", "2", "-o", "json"])?;
    a_pod_full_of_secrets(node, cri).await?;
    // One start is there, a second never comes: the recording holds all of the pod's life.
    tokio::time::sleep(Duration::from_secs(3)).await;
    podlapse.interrupt()?;
    podlapse.wait(Duration::from_secs(30))
}

fn nothing_holds_any(ended: &Ended, file: &Path) -> Result<()> {
    holds_none("stdout", &ended.stdout, &SECRETS)?;
    holds_none("stderr", ended.stderr.as_bytes(), &SECRETS)?;
    recording_holds_none(file, "vault", &SECRETS)
}

#[tokio::test]
async fn no_secret_leaves() -> Result<()> {
    let node = Node::start(Options::default())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("secrets.plr");
    let ended = recorded(&node, &mut Cri::connect(&node.socket()).await?, &file).await?;
    let traces = ended.traces()?;
    ensure!(traces.len() == 1 && traces[0]["pod"]["name"] == "vault", "traces: {traces:?}");
    nothing_holds_any(&ended, &file)?;
    node.stop()
}

/// On kubelet's old connection no method has a name at first, and what a message holds is found out from its form.
#[tokio::test]
async fn no_secret_leaves_a_connection_that_is_older_than_podlapse() -> Result<()> {
    let node = Node::start(Options::default())?;
    let (mut cri, _) = Cri::connect_like_kubelet(&node.socket()).await?;
    a_pod_full_of_secrets(&node, &mut cri).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("secrets.plr");
    let ended = recorded(&node, &mut cri, &file).await?;
    nothing_holds_any(&ended, &file)?;
    ensure!(podlapse::replay(&file, &["-o", "json"])? == ended.stdout, "the replay differs from the live run");
    node.stop()
}

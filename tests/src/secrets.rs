//! Secrets in every place of the CRI that can hold one, and looking for them where none may be.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_cri::v1;

use crate::cri::{Container, Pod};
use crate::tools::{Containerd, Tools};
use crate::{Cri, Node, podlapse};

/// Each place has its own, so that a failure says where it came from.
pub const SECRETS: [&str; 8] = [
    "SECRET-ENV-7d1f",
    "SECRET-ARGV-2c90",
    "SECRET-ANNOTATION-5b3e",
    "SECRET-POD-ANNOTATION-0a4d",
    "SECRET-EXEC-91fe",
    "SECRET-EXEC-OUTPUT-44aa",
    "SECRET-AUTH-c817",
    "SECRET-LABEL-6f02",
];

/// A pod with [`SECRETS`] lives and dies; crictl's and ctr's questions about it are asked.
pub async fn a_pod_full_of_secrets(node: &Node, cri: &mut Cri) -> Result<()> {
    let [env, argv, annotation, pod_annotation, exec, output, auth, label] = SECRETS;
    let credentials = v1::AuthConfig {
        username: "user".into(),
        password: auth.into(),
        identity_token: auth.into(),
        ..Default::default()
    };
    // No registry is there: the call fails, its request is on the socket all the same.
    let url = format!("127.0.0.1:1/{}:1", "private");
    let pull = cri.pull_image(&url, Some(credentials)).await;
    ensure!(pull.result.is_err(), "an image came out of nowhere");

    let mut pod = Pod::new("vault", "secure")?.on_node(node.cgroup());
    pod.annotations.insert("example.com/token".into(), pod_annotation.into());
    pod.labels.insert("example.com/label".into(), label.into());
    let mut container = Container::new("app").command(&["/bin/sh", "-c", &format!("sleep 1000 # {argv}")]);
    container.envs.push(("PASSWORD".into(), env.into()));
    container.annotations.insert("example.com/token".into(), annotation.into());
    let started = cri.start_pod(&pod, &[container]).await?;

    let id = &started.containers[0].id;
    cri.container_status(id, true).await.ok("ContainerStatus")?;
    cri.pod_sandbox_status(&started.id, true).await.ok("PodSandboxStatus")?;
    let probe = format!("echo {output}; : {exec}");
    let (reply, _) = cri.exec_sync(id, &["/bin/sh", "-c", &probe], 10).await.ok("ExecSync")?;
    ensure!(String::from_utf8_lossy(&reply.stdout).contains(output), "the exec did not print its secret");

    let info = Tools::find(Containerd::default())?.ctr(&node.socket()).args(["c", "info", id]).output();
    let info = info.context("cannot run ctr")?;
    ensure!(String::from_utf8_lossy(&info.stdout).contains(env), "ctr did not print the secret");
    cri.remove_pod(&started.id, &pod.cgroup_parent).await
}

/// Fails when one of the secrets is among the bytes.
pub fn holds_none(what: &str, bytes: &[u8], secrets: &[&str]) -> Result<()> {
    for secret in secrets {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        ensure!(!found, "{what} holds {secret}");
    }
    Ok(())
}

/// Fails when one of the secrets is in a recording or in anything that podlapse makes of it. `name` is in it: that of
/// a pod, so that the right bytes are looked at.
pub fn recording_holds_none(file: &Path, name: &str, secrets: &[&str]) -> Result<()> {
    let recording = std::fs::read(file)?;
    holds_none("the recording's file", &recording, secrets)?;
    let records = uncompressed(&recording)?;
    let named = records.windows(name.len()).any(|window| window == name.as_bytes());
    ensure!(named, "the recording does not name the pod: this test looks at the wrong bytes");
    holds_none("the recording", &records, secrets)?;
    for (what, options) in [
        ("the replayed waterfall", &["--all"][..]),
        ("the replayed traces", &["--all", "-o", "json"]),
        ("Perfetto's file", &["--all", "-o", "perfetto"]),
    ] {
        holds_none(what, &podlapse::replay(file, options)?, secrets)?;
    }
    let path = file.to_str().context("a temporary path is UTF-8")?;
    for format in ["table", "json", "hdr"] {
        let stages = podlapse::run(&["stages", "--from", path, "--by", "image", "-o", format])?;
        holds_none("stages", &stages.stdout, secrets)?;
        holds_none("what stages says", stages.stderr.as_bytes(), secrets)?;
    }
    Ok(())
}

/// What a recording's zstd frames hold, behind its two lines of text.
fn uncompressed(file: &[u8]) -> Result<Vec<u8>> {
    let mut lines = file.splitn(3, |byte| *byte == b'\n');
    let body = lines.nth(2).context("the recording has no body")?;
    zstd::decode_all(body).context("the recording's body does not decompress")
}

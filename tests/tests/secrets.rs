//! Secrets on the socket and in processes reach no output, no log and no recording.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_cri::v1;
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::tools::{Containerd, Tools};
use podlapse_tests::{Cri, Node, Options, podlapse};

/// Each place has its own, so that a failure says where it came from.
const SECRETS: [&str; 8] = [
    "SECRET-ENV-7d1f",
    "SECRET-ARGV-2c90",
    "SECRET-ANNOTATION-5b3e",
    "SECRET-POD-ANNOTATION-0a4d",
    "SECRET-EXEC-91fe",
    "SECRET-EXEC-OUTPUT-44aa",
    "SECRET-AUTH-c817",
    "SECRET-LABEL-6f02",
];

async fn a_pod_full_of_secrets(node: &Node) -> Result<()> {
    let [env, argv, annotation, pod_annotation, exec, output, auth, label] = SECRETS;
    let mut cri = Cri::connect(&node.socket()).await?;
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

    let tools = Tools::find(Containerd::default())?;
    let mut ctr = Command::new("ctr");
    ctr.env("PATH", tools.path()).env("LD_LIBRARY_PATH", tools.library_path());
    ctr.arg("-a").arg(node.socket()).args(["-n", "k8s.io", "c", "info", id]);
    let info = ctr.output().context("cannot run ctr")?;
    ensure!(String::from_utf8_lossy(&info.stdout).contains(env), "ctr did not print the secret");
    cri.remove_pod(&started.id, &pod.cgroup_parent).await
}

fn holds_none(what: &str, bytes: &[u8]) -> Result<()> {
    for secret in SECRETS {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        ensure!(!found, "{what} holds {secret}");
    }
    Ok(())
}

/// What a recording's zstd frames hold, behind its two lines of text.
fn uncompressed(file: &[u8]) -> Result<Vec<u8>> {
    let mut lines = file.splitn(3, |byte| *byte == b'\n');
    let body = lines.nth(2).context("the recording has no body")?;
    zstd::decode_all(body).context("the recording's body does not decompress")
}

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
    holds_none("stdout", &ended.stdout)?;
    holds_none("stderr", ended.stderr.as_bytes())?;
    let recording = std::fs::read(&file)?;
    holds_none("the recording's file", &recording)?;
    let records = uncompressed(&recording)?;
    let named = records.windows(5).any(|window| window == b"vault");
    ensure!(named, "the recording does not name the pod: this test looks at the wrong bytes");
    holds_none("the recording", &records)?;
    holds_none("the replayed waterfall", &podlapse::replay(&file, &[])?)?;
    holds_none("Perfetto's file", &podlapse::replay(&file, &["-o", "perfetto"])?)?;
    for format in ["table", "json", "hdr"] {
        let stages = podlapse::run(&["stages", "--from", name, "--by", "image", "-o", format])?;
        ensure!(stages.status.success(), "stages ended with {}:\n{}", stages.status, stages.stderr);
        holds_none("stages", &stages.stdout)?;
    }
    node.stop()
}

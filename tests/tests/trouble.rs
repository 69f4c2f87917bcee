//! What goes wrong around podlapse: it says so, ends as it should, and leaves nothing behind.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use ::podlapse::ids::{MonotonicNs, Tgid, Tid};
use ::podlapse::record::{Event, Record};
use ::podlapse::recording::{Header, ReadError, Reader, Selection, Writer};
use anyhow::{Context, Result, bail, ensure};
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::podlapse::{self, Ended};
use podlapse_tests::{Cri, Node, Options, trace};

fn fails(arguments: &[&str], code: i32, says: &[&str]) -> Result<Ended> {
    let ended = podlapse::run(arguments)?;
    ensure!(ended.status.code() == Some(code), "{arguments:?}: {}\n{}", ended.status, ended.stderr);
    for word in says {
        ensure!(ended.stderr.contains(word), "{arguments:?} does not say {word:?}:\n{}", ended.stderr);
    }
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    Ok(ended)
}

#[test]
fn a_socket_that_is_none() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned).context("not UTF-8");
    let (absent, plain, dead) = (path("absent.sock")?, path("plain")?, path("dead.sock")?);
    std::fs::write(&plain, "")?;
    drop(UnixListener::bind(&dead)?);
    fails(&["trace", "--socket", &absent], 1, &["absent.sock"])?;
    fails(&["trace", "--socket", &plain], 1, &["plain", "socket"])?;
    fails(&["trace", "--socket", &dead], 1, &["dead.sock"])?;
    Ok(())
}

#[test]
fn few_file_descriptors() -> Result<()> {
    let doctor = |limit: &str| {
        let script = format!("{limit} && exec \"$0\" doctor --hooks");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(podlapse::binary()?).output().context("cannot run sh")
    };
    // A low soft limit is podlapse's to raise; a low hard one is for the user to hear of.
    let soft = doctor("ulimit -Sn 64")?;
    ensure!(soft.status.success(), "{}", String::from_utf8_lossy(&soft.stdout));
    let hard = doctor("ulimit -n 20")?;
    let text = String::from_utf8_lossy(&hard.stdout).to_lowercase();
    ensure!(hard.status.code() == Some(1) && text.contains("too many open files"), "{}\n{text}", hard.status);
    Ok(())
}

/// A recording whose writer was killed between two frames is not taken for a whole one.
#[test]
fn a_recording_without_its_end() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let header = Header {
        tool: "test".into(),
        created: "2026-01-01T00:00:00Z".into(),
        arguments: Vec::new(),
        node: None,
        settle_ns: 0,
        stuck_after_ns: 0,
        containers: None,
        selection: Selection::default(),
    };
    let path = folder.path().join("start.plr");
    let file = path.to_str().context("not UTF-8")?;
    let mut writer = Writer::create(&path, false, &header)?;
    writer.write(&mut Record { at: MonotonicNs(1), tgid: Tgid(0), tid: Tid(0), event: Event::Tick })?;
    writer.flush()?;
    let says = "recording has no end: it is still being written, or was cut off";
    for command in [&["replay", file][..], &["stages", "--from", file]] {
        fails(command, 1, &[says])?;
    }
    writer.finish()?;
    let ended = fails(&["replay", file], 1, &[])?;
    ensure!(!ended.stderr.contains("has no end"), "{}", ended.stderr);
    let body = std::fs::read(&path)?.split_off("podlapse-recording 1".len());
    std::fs::write(&path, [b"podlapse-recording 5000000000", &body[..]].concat())?;
    fails(&["replay", file], 1, &["format version 5000000000", "made by a newer podlapse"])?;
    Ok(())
}

#[tokio::test]
async fn no_such_start_within_the_timeout() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--pod", "shop/other", "--timeout", "3s"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(30))?;
    ensure!(ended.status.code() == Some(1), "{}", ended.status);
    ensure!(ended.stdout.is_empty(), "{}", String::from_utf8_lossy(&ended.stdout));
    ensure!(ended.stderr.contains("shop/other"), "{}", ended.stderr);
    node.stop()
}

#[tokio::test]
async fn an_interrupt_prints_what_is_known() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "2", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("half", "shop")?.on_node(node.cgroup());
    // The pod's second container never comes.
    let started = cri.start_pod(&pod, &[Container::new("one")]).await?;
    std::thread::sleep(Duration::from_millis(500));
    podlapse.interrupt()?;
    let ended = podlapse.wait(Duration::from_secs(30))?;
    let traces = ended.traces()?;
    ensure!(traces.len() == 1 && traces[0]["pod"]["uid"] == started.uid, "{traces:?}\n{}", ended.stderr);
    node.stop()
}

#[tokio::test]
async fn a_runtime_that_restarts() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json", "--timeout", "60s"])?;
    node.restart_containerd()?;
    std::thread::sleep(Duration::from_secs(2));
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("after", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(90))?;
    for said in ["the runtime's process", "the runtime is back"] {
        ensure!(ended.stderr.contains(said), "podlapse does not say {said:?}:\n{}", ended.stderr);
    }
    let traces = ended.traces()?;
    ensure!(traces.len() == 1 && traces[0]["pod"]["uid"] == started.uid, "{traces:?}");
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "complete", "outcome {}", traces[0]["outcome"]);
    node.stop()
}

/// Bytes that no CRI client sends, beside a start that has to be traced all the same.
#[tokio::test]
async fn garbage_on_the_socket() -> Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut noise: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 70_000],
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        [PREFACE, &[0; 5]].concat(),
        // A HEADERS frame whose block is no HPACK.
        [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]].concat(),
        // A frame of 16 MiB that never comes.
        [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
    ];
    noise.push((0..=255).cycle().take(33_333).collect());
    for bytes in &noise {
        let mut stream = UnixStream::connect(node.socket())?;
        // The server may hang up in the middle.
        let _ = stream.write_all(bytes);
    }
    // An unknown method and a message of 16 MiB come from clients that speak the protocol.
    let mut cri = Cri::connect(&node.socket()).await?;
    let unknown = cri.unknown_method().await;
    ensure!(unknown.result.is_err_and(|status| status.code() == tonic::Code::Unimplemented), "NoSuchMethod is known");
    let mut huge = Pod::new("huge", "shop")?.on_node(node.cgroup());
    huge.annotations.insert("huge".into(), "x".repeat((16 << 20) - 4096));
    let refused = cri.run_pod_sandbox(&huge).await;
    if let Ok(id) = &refused.result {
        cri.remove_pod(id, "").await?;
    }

    let pod = Pod::new("calm", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[Container::new("app")]).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    ensure!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let traces = ended.traces()?;
    let names: Vec<_> = traces.iter().map(|trace| &trace["pod"]["name"]).collect();
    let ours = traces.iter().any(|trace| trace["pod"]["uid"] == started.uid);
    // The huge pod's sandbox may be the start that podlapse was told to wait for.
    ensure!(ours || refused.result.is_ok(), "traces of {names:?}\n{}", ended.stderr);
    node.stop()
}

/// A disk that is full already, and one that becomes full in the middle of a frame.
#[tokio::test]
async fn a_recording_on_a_full_disk() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let folder = tempfile::tempdir()?;
    let script = format!(
        "mount -t tmpfs -o size=32k tmpfs {disk} && cd {disk} && head -c 32768 /dev/zero >fill
         \"$0\" record start.plr --next 1; echo \"ended with $?\" >&2; ls >&2; rm fill
         \"$0\" record start.plr --next 1 --containers 9; echo \"ended with $?\" >&2; cp start.plr {out}",
        disk = folder.path().join("disk").display(),
        out = folder.path().join("start.plr").display(),
    );
    std::fs::create_dir(folder.path().join("disk"))?;
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(podlapse::binary()?).env("PODLAPSE_SOCKET", node.socket());
    let podlapse = podlapse::start_as(&node, command)?.attached()?;
    let pod = Pod::new("web", "shop")?.on_node(node.cgroup());
    let containers: Vec<_> = (0..9).map(|number| Container::new(&format!("app{number}"))).collect();
    cri.start_pod(&pod, &containers).await?;
    let ended = podlapse.wait(Duration::from_secs(60))?;
    let (first, second) = ended.stderr.split_once("ended with 1\nfill\n").with_context(|| ended.stderr.clone())?;
    ensure!(first.contains("no space left for a recording at start.plr"), "{first}");
    ensure!(second.contains("no space left for the recording: ") && second.contains("ended with 1"), "{second}");
    let file = folder.path().join("start.plr");
    let mut reader = Reader::open(&file)?;
    let error = loop {
        match reader.read() {
            Ok(Some(_)) => {}
            Ok(None) => bail!("all {} records are there", reader.records()),
            Err(error) => break error,
        }
    };
    let ReadError::Truncated { records, bytes } = error else { bail!("{error}") };
    ensure!(records > 0 && bytes > 0, "{error}");
    fails(&["replay", file.to_str().context("not UTF-8")?, "--from", "1h"], 1, &[&error.to_string()])?;
    node.stop()
}

//! A node works, and leaves the machine as it was, however it ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use podlapse_tests::cri::{Container, Cri, Pod, StartedPod};
use podlapse_tests::machine::Machine;
use podlapse_tests::{Containerd, Node, Options};

const PROGRAM: &str = env!("CARGO_BIN_EXE_podlapse-node");

#[test]
fn a_node_with_pods_leaves_nothing() -> Result<()> {
    let before = Machine::now()?;
    let node = Node::start(Options::default())?;
    let (dir, cgroup) = (node.dir().to_path_buf(), node.cgroup().to_owned());
    let started = run_pod(&node, |_| ())?;
    assert_eq!(started.containers.len(), 2);
    let times = [started.run, started.containers[0].create, started.containers[0].start];
    assert!(times.iter().all(|call| call.start < call.end), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[0].end <= pair[1].start), "{times:?}");
    node.stop()?;
    before.check(&dir, &cgroup)
}

#[test]
fn every_containerd_with_every_runtime() -> Result<()> {
    for &version in Containerd::value_variants() {
        let before = Machine::now()?;
        let node = Node::start(Options::containerd(version))?;
        let (dir, cgroup) = (node.dir().to_path_buf(), node.cgroup().to_owned());
        run_pod(&node, |pod| pod.host_network = true)?;
        for handler in ["runc", "crun", "runc-new", "crun-new"] {
            run_pod(&node, |pod| pod.runtime_handler = handler.into())
                .with_context(|| format!("containerd {version} with {handler}"))?;
        }
        block_on(async {
            let (reply, _) = Cri::connect(&node.socket()).await?.version().await.ok("Version")?;
            let runs = reply.runtime_version;
            // sid moves on.
            let wanted = if version == Containerd::V21 { "2." } else { version.name() };
            assert!(runs.starts_with(wanted), "containerd {version} says it is {runs}");
            Ok(())
        })?;
        node.stop()?;
        before.check(&dir, &cgroup)?;
    }
    Ok(())
}

#[test]
fn containers_outlive_a_restart_of_containerd() -> Result<()> {
    let mut node = Node::start(Options::default())?;
    let old = node.containerd_pid()?;
    let started = run_pod(&node, |_| ())?;
    assert_ne!(node.restart_containerd()?, old);
    block_on(async {
        let mut cri = Cri::connect(&node.socket()).await?;
        let (sandboxes, _) = cri.list_pod_sandboxes().await.ok("ListPodSandbox")?;
        assert_eq!(sandboxes.iter().map(|it| &it.id).collect::<Vec<_>>(), [&started.id]);
        let id = &started.containers[0].id;
        let (reply, _) = cri.exec_sync(id, &["/bin/echo", "hello"], 10).await.ok("ExecSync")?;
        assert_eq!(reply.stdout, b"hello\n");
        Ok(())
    })?;
    node.stop()
}

#[test]
fn a_pid_namespace_has_its_own_pids() -> Result<()> {
    let before = Machine::now()?;
    let node = Node::start(Options { pid_namespace: true, ..Options::default() })?;
    let (dir, cgroup) = (node.dir().to_path_buf(), node.cgroup().to_owned());
    let started = run_pod(&node, |_| ())?;
    assert!(started.pid < 1000, "pause has pid {} in a new pid namespace", started.pid);
    assert_ne!(node.containerd_pid()?, node.containerd_pid_inside());
    let mut cat = Command::new("cat");
    cat.arg(format!("/proc/{}/comm", started.pid)).stdout(Stdio::piped());
    let output = node.spawn_beside(&mut cat)?.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pause\n");
    node.stop()?;
    before.check(&dir, &cgroup)
}

#[test]
fn a_command_runs_in_the_node() -> Result<()> {
    let node = Node::start(Options::default())?;
    run_pod(&node, |_| ())?;
    let mut ls = Command::new("ls");
    ls.arg("/sys/class/net").arg("/run/netns").stdout(Stdio::piped());
    let output = node.spawn(&mut ls)?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("cni-"), "no network namespace of the pod in {text}");
    node.stop()
}

#[test]
fn a_killed_node_leaves_nothing() -> Result<()> {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT] {
        for options in [&["--pods", "1"][..], &["--pods", "1", "--pid-namespace"]] {
            let before = Machine::now()?;
            let mut run = Command::new(PROGRAM)
                .arg("run")
                .args(options)
                .args(["--", "sh", "-c", "echo $PODLAPSE_NODE_DIR $PODLAPSE_CGROUP; exec sleep 600"])
                .stdout(Stdio::piped())
                .spawn()?;
            let mut line = String::new();
            let stdout = run.stdout.take().context("no pipe")?;
            BufReader::new(stdout).read_line(&mut line)?;
            let (dir, cgroup) = line.trim().split_once(' ').context("the command printed nothing")?;
            // SAFETY: a plain system call; the process is not waited for, so the pid is its own.
            unsafe { libc::kill(i32::try_from(run.id())?, signal) };
            let deadline = Instant::now() + Duration::from_secs(30);
            while run.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    run.kill()?;
                    bail!("signal {signal} does not end the node with {options:?}");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            before
                .check_soon(dir.as_ref(), cgroup)
                .with_context(|| format!("after signal {signal} with {options:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_killed_janitor_leaves_nothing() -> Result<()> {
    let before = Machine::now()?;
    let mut node = Node::start(Options::default())?;
    let (dir, cgroup) = (node.dir().to_path_buf(), node.cgroup().to_owned());
    run_pod(&node, |_| ())?;
    // SAFETY: a plain system call; the janitor is not waited for, so the pid is its own.
    unsafe { libc::kill(i32::try_from(node.janitor_pid())?, libc::SIGKILL) };
    let deadline = Instant::now() + Duration::from_secs(10);
    while node.is_up() {
        if Instant::now() > deadline {
            bail!("the janitor outlives SIGKILL");
        }
    }
    node.stop()?;
    before.check_soon(&dir, &cgroup)
}

fn run_pod(node: &Node, change: impl FnOnce(&mut Pod)) -> Result<StartedPod> {
    block_on(async {
        let mut cri = Cri::connect(&node.socket()).await?;
        let mut pod = Pod::new("web", "shop")?.on_node(node.cgroup());
        change(&mut pod);
        let mut limited = Container::new("second");
        limited.limits.memory = 64 << 20;
        limited.limits.cpu_quota = 50_000;
        cri.start_pod(&pod, &[Container::new("first"), limited]).await
    })
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

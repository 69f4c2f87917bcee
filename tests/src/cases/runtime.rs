//! Shim and containerd that die, names that are taken, sandboxes that are gone.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::stand::Stand;
use super::{Case, alone, fails, newer, then};
use crate::cri::{Container, Pod};
use crate::node::enter::find_process;

pub(super) const CASES: &[Case] = &[
    fails("name-taken", &[("sandbox.cni.sleeps", "client_deadline"), ("sandbox", "name_reserved")], |on| {
        Box::pin(twice(on))
    }),
    fails("deadline-and-retries", &[("sandbox.cni.sleeps", "client_deadline"); 3], |on| Box::pin(retries(on))),
    then(
        newer(
            fails("pause-died", &[("container.create", "sandbox_exited")], |on| Box::pin(pause_died(on))),
            &[("container.start", "sandbox_exited")],
        ),
        &[("sandbox.run", "sandbox_exited")],
    ),
    then(
        fails("shim-killed-in-create", &[("container.start.oci.create", "shim_died")], |on| Box::pin(shim_killed(on))),
        &[("sandbox.run", "shim_died")],
    ),
    alone(fails("containerd-killed-in-create", &[("container.start.oci.create.hooks", "runtime_restarted")], |on| {
        Box::pin(containerd_killed(on, false))
    })),
    alone(fails("left-in-created", &[("container.start.oci.fifo_wait", "runtime_restarted")], |on| {
        Box::pin(containerd_killed(on, true))
    })),
];

const DEADLINE: Duration = Duration::from_secs(2);

/// The same sandbox is asked for while it is being made.
async fn twice(on: &mut Stand) -> Result<Pod> {
    let pod = on.pod("sleeps")?;
    let (mut first, mut second) = (on.cri.with_deadline(DEADLINE), on.cri.clone());
    let again = async {
        tokio::time::sleep(DEADLINE / 4).await;
        second.run_pod_sandbox(&pod).await
    };
    let (first, second) = tokio::join!(first.run_pod_sandbox(&pod), again);
    ensure!(first.result.is_err() && second.result.is_err(), "RunPodSandbox went well");
    Ok(pod)
}

/// The client gives up each time, as kubelet does with a network that hangs.
async fn retries(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("sleeps")?;
    for attempt in 0..3 {
        pod.attempt = attempt;
        let call = on.cri.with_deadline(DEADLINE / 2).run_pod_sandbox(&pod).await;
        ensure!(call.result.is_err(), "RunPodSandbox went well");
        tokio::time::sleep(DEADLINE / 4).await;
    }
    Ok(pod)
}

async fn pause_died(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    kill(started.pid, Signal::KILL)?;
    gone(started.pid).await?;
    // containerd has to hear of it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while on
        .cri
        .list_pod_sandboxes()
        .await
        .ok("ListPodSandbox")?
        .0
        .iter()
        .any(|it| it.id == started.id && it.state == 0)
    {
        ensure!(Instant::now() < deadline, "containerd does not hear of the end of pause");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let created = on.cri.start_container_in(&pod, &started.id, &Container::new("app")).await;
    created.err().context("the container was started")?;
    Ok(pod)
}

/// The shim dies while the hook of a container waits.
async fn shim_killed(on: &mut Stand) -> Result<Pod> {
    let (pod, sandbox, held) = held(on).await?;
    kill_shim(&sandbox)?;
    let started = held.await?;
    fs::remove_file(on.waits())?;
    ensure!(started, "StartContainer went well");
    Ok(pod)
}

/// containerd dies while the hook of a container waits, or after runc create and before it asks for runc start.
async fn containerd_killed(on: &mut Stand, created: bool) -> Result<Pod> {
    let (pod, _, held) = held(on).await?;
    if created {
        let hook: u32 = fs::read_to_string(on.waits())?.trim().parse()?;
        let status = fs::read_to_string(format!("/proc/{hook}/status"))?;
        let create = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("the hook has no parent")?;
        kill(on.node.containerd_pid()?, Signal::STOP)?;
        fs::remove_file(on.waits())?;
        until("runc create does not end", || !Path::new(&format!("/proc/{}", create.trim())).exists()).await?;
    }
    on.node.kill_containerd()?;
    ensure!(held.await?, "StartContainer went well");
    if !created {
        fs::remove_file(on.waits())?;
    }
    Ok(pod)
}

/// A pod, its sandbox's id, and a StartContainer whose hook waits: whether it fails.
async fn held(on: &mut Stand) -> Result<(Pod, String, tokio::task::JoinHandle<bool>)> {
    let (pod, started) = on.runs("hook-waits", &[]).await?;
    let (id, _) = on.cri.create_container(&started.id, &pod, &Container::new("app")).await.ok("CreateContainer")?;
    fs::write(on.waits(), "")?;
    let mut cri = on.cri.clone();
    let call = tokio::spawn(async move { cri.start_container(&id).await.result.is_err() });
    until("the hook does not run", || fs::read_to_string(on.waits()).is_ok_and(|text| text.ends_with('\n'))).await?;
    Ok((pod, started.id, call))
}

/// Of that sandbox.
pub(super) fn kill_shim(sandbox: &str) -> Result<()> {
    let is = |args: &[String]| args[0].contains("containerd-shim") && args.iter().any(|arg| arg == sandbox);
    kill(find_process(is).context("the shim does not run")?, Signal::KILL)
}

/// Waits until a process is gone.
pub(super) async fn gone(pid: u32) -> Result<()> {
    until("a process does not end", || !Path::new(&format!("/proc/{pid}")).exists()).await
}

pub(super) fn kill(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no pid")?;
    Ok(kill_process(pid, signal)?)
}

async fn until(what: &str, is: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is() {
        ensure!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

//! Lives that go wrong after the start, and those that only look as if they did.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_cri::v1::NamespaceMode;
use rustix::process::Signal;

use super::runtime::{gone, kill, kill_shim};
use super::stand::Stand;
use super::{Case, Right, lives, newer_life, works};
use crate::cri::{Container, Limits, Pod, StartedPod};

/// The runtime ends what the shim had started; containerd 2 leaves it to itself.
const WITHOUT_SHIM: &[Right] = &[("container.run", "shim_died"), ("sandbox.run", "shim_died")];
const STICKS: &[Right] = &[("sandbox.stop.cni", "cni_del_failed"), ("sandbox.stop.cni.sticks", "cni_del_failed")];

pub(super) const CASES: &[Case] = &[
    lives("app-oom", &[("container.run", "oom_killed")], |on| Box::pin(app_oom(on, "exec tail /dev/zero"))),
    lives("child-oom", &[("container.run", "oom_killed")], |on| {
        Box::pin(app_oom(on, "sleep 3; tail /dev/zero; exec sleep 1000"))
    }),
    lives("app-exits-3", &[("container.run", "exited_with_error")], |on| Box::pin(app_exits(on, 3))),
    lives("app-killed", &[("container.run", "killed")], |on| Box::pin(app_killed(on))),
    lives("app-crashes", &[("container.run", "crashed")], |on| Box::pin(app_crashes(on))),
    lives("crash-loop", &[("container.run", "exited_with_error"); 5], |on| Box::pin(crash_loop(on))),
    lives("restart", &[("container.run", "killed")], |on| Box::pin(restart(on))),
    lives("stop-ignored", &[("container.stop", "grace_exceeded")], |on| Box::pin(stop(on, "trap '' TERM", 1))),
    lives("poststart-fails", &[("poststart", "poststart_failed")], |on| Box::pin(post_start(on))),
    lives("pause-killed", &[("sandbox.run", "sandbox_exited")], |on| Box::pin(pause_killed(on))),
    newer_life(
        lives("shim-killed-running", WITHOUT_SHIM, |on| Box::pin(shim_killed(on))),
        &[("sandbox.run", "shim_died")],
    ),
    lives("cni-del-fails", STICKS, |on| Box::pin(cni_del_fails(on))),
    works("app-exits-0", |on| Box::pin(app_exits(on, 0))),
    works("stop-graceful", |on| Box::pin(stop(on, "trap 'exit 0' TERM", 30))),
    works("whole-life", |on| Box::pin(whole_life(on))),
];

/// What happens once the start has settled.
async fn running(on: &mut Stand, container: Container) -> Result<(Pod, StartedPod)> {
    let (pod, started) = on.runs("", &[container]).await?;
    tokio::time::sleep(super::SETTLE).await;
    Ok((pod, started))
}

fn shell(script: &str) -> Container {
    Container::new("app").command(&["/bin/sh", "-c", script])
}

async fn app_oom(on: &mut Stand, script: &str) -> Result<Pod> {
    let limits = Limits { memory: 32 << 20, ..Limits::default() };
    let hungry = Container { limits, ..shell(&script.replace("tail", "/bin/busybox tail")) };
    let (pod, started) = on.runs("", &[]).await?;
    let (id, _) = on.cri.create_container(&started.id, &pod, &hungry).await.ok("CreateContainer")?;
    on.cri.start_container(&id).await.ok("StartContainer")?;
    if script.starts_with("exec") {
        on.cri.ended(&id).await?;
    } else {
        tokio::time::sleep(Duration::from_secs(6)).await;
        let (status, _) = on.cri.container_status(&id, false).await.ok("ContainerStatus")?;
        ensure!(status.status.is_some_and(|status| status.finished_at == 0), "the container ended with its child");
    }
    Ok(pod)
}

async fn app_exits(on: &mut Stand, code: i32) -> Result<Pod> {
    let (pod, started) = on.runs("", &[shell(&format!("sleep 3; exit {code}"))]).await?;
    ensure!(on.cri.ended(&started.containers[0].id).await? == code, "the app's exit code");
    Ok(pod)
}

async fn app_killed(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = running(on, Container::new("app")).await?;
    kill(started.containers[0].pid, Signal::KILL)?;
    on.cri.ended(&started.containers[0].id).await?;
    Ok(pod)
}

/// Init of its own pid namespace would not hear its own signal; in the pod's it is no init.
async fn app_crashes(on: &mut Stand) -> Result<Pod> {
    let mut pod = on.pod("")?;
    pod.pid_mode = NamespaceMode::Pod;
    let started = on.cri.start_pod(&pod, &[shell("sleep 3; kill -SEGV $$")]).await?;
    ensure!(on.cri.ended(&started.containers[0].id).await? == 139, "the app does not crash");
    Ok(pod)
}

/// A container that ends with an error each time: each start is a good one.
async fn crash_loop(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    for attempt in 0..5 {
        let app = Container { attempt, ..shell("sleep 0.3; exit 7") };
        let app = on.cri.start_container_in(&pod, &started.id, &app).await?;
        ensure!(on.cri.ended(&app.id).await? == 7, "the app does not fail");
    }
    Ok(pod)
}

async fn restart(on: &mut Stand) -> Result<Pod> {
    let app = Container::new("app");
    let (pod, started) = running(on, app.clone()).await?;
    on.cri.restart_container(&pod, &started.id, &app, &started.containers[0]).await?;
    Ok(pod)
}

async fn stop(on: &mut Stand, trap: &str, grace: i64) -> Result<Pod> {
    let (pod, started) = running(on, shell(&format!("{trap}; while :; do sleep 0.2; done"))).await?;
    on.cri.stop_container(&started.containers[0].id, grace).await.ok("StopContainer")?;
    Ok(pod)
}

/// kubelet runs the hook when the container was started, and stops the container when the hook failed.
async fn post_start(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[shell("trap 'exit 0' TERM; while :; do sleep 0.2; done")]).await?;
    let id = &started.containers[0].id;
    let (hook, _) = on.cri.exec_sync(id, &["/bin/sh", "-c", "exit 4"], 0).await.ok("ExecSync")?;
    ensure!(hook.exit_code == 4, "the hook does not fail");
    on.cri.stop_container(id, 30).await.ok("StopContainer")?;
    Ok(pod)
}

async fn shim_killed(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = running(on, Container::new("app")).await?;
    kill_shim(&started.id)?;
    on.cri.ended(&started.containers[0].id).await?;
    if !on.is_newer() {
        gone(started.containers[0].pid).await?;
        gone(started.pid).await?;
    }
    Ok(pod)
}

async fn pause_killed(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = running(on, Container::new("app")).await?;
    kill(started.pid, Signal::KILL)?;
    gone(started.pid).await?;
    Ok(pod)
}

async fn cni_del_fails(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("sticks", &[Container::new("app")]).await?;
    tokio::time::sleep(super::SETTLE).await;
    let call = on.cri.stop_pod_sandbox(&started.id).await;
    ensure!(call.result.is_err(), "StopPodSandbox went well");
    Ok(pod)
}

/// As kubelet ends a pod.
async fn whole_life(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = running(on, shell("trap 'exit 0' TERM; while :; do sleep 0.2; done")).await?;
    on.cri.stop_container(&started.containers[0].id, 30).await.ok("StopContainer")?;
    on.cri.stop_pod_sandbox(&started.id).await.ok("StopPodSandbox")?;
    on.cri.remove_container(&started.containers[0].id).await.ok("RemoveContainer")?;
    on.cri.remove_pod_sandbox(&started.id).await.ok("RemovePodSandbox")?;
    Ok(pod)
}

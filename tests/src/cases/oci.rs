//! runc: what keeps a container from being created.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::stand::Stand;
use super::{Case, fails};
use crate::cri::{Container, Limits, Pod};
use crate::image::BROKEN_IMAGE;

pub(super) const CASES: &[Case] = &[
    fails("handler-unknown", &[("sandbox", "runtime_handler_unknown")], |on| Box::pin(on.no_sandbox("kata-qemu"))),
    fails("entrypoint-missing", &[("container.start.oci.create.lookpath", "entrypoint_not_found")], |on| {
        Box::pin(entrypoint(on, "/does-not-exist"))
    }),
    fails("entrypoint-not-in-path", &[("container.start.oci.create.lookpath", "entrypoint_not_found")], |on| {
        Box::pin(entrypoint(on, "no-such-program"))
    }),
    fails("entrypoint-not-executable", &[("container.start.oci.create.lookpath", "entrypoint_not_executable")], |on| {
        Box::pin(entrypoint(on, "/plain"))
    }),
    fails("working-dir-missing", &[("container.start.oci.create", "working_dir_missing")], |on| {
        Box::pin(working_dir(on))
    }),
    fails("memory-limit-low", &[("container.start.oci.create", "init_oom")], |on| Box::pin(memory(on))),
    fails("init-oom", &[("container.start.oci.create", "init_oom")], |on| Box::pin(hook(on, "hook-starves"))),
    fails("hook-fails", &[("container.start.oci.create.hooks", "hook_failed")], |on| Box::pin(hook(on, "hook-fails"))),
    fails("hook-hangs", &[("container.start.oci.create.hooks", "client_deadline")], |on| Box::pin(hangs(on))),
    fails("cgroup-frozen", &[("container.start.oci.create", "cgroup_frozen")], |on| Box::pin(frozen(on))),
    fails("one-of-two", &[("container.start.oci.create.lookpath", "entrypoint_not_found")], |on| {
        Box::pin(one_of_two(on))
    }),
];

fn broken(entrypoint: &str) -> Container {
    Container { image: BROKEN_IMAGE.into(), ..Container::new("app").command(&[entrypoint]) }
}

async fn entrypoint(on: &mut Stand, path: &str) -> Result<Pod> {
    on.no_container("", &broken(path)).await
}

/// A file is where the folder should be: runc makes one that is missing.
async fn working_dir(on: &mut Stand) -> Result<Pod> {
    on.no_container("", &Container { working_dir: "/etc/passwd".into(), ..Container::new("app") }).await
}

/// The limit is below what init uses already.
async fn memory(on: &mut Stand) -> Result<Pod> {
    let limits = Limits { memory: 64 << 10, ..Limits::default() };
    on.no_container("", &Container { limits, ..Container::new("app") }).await
}

async fn hook(on: &mut Stand, handler: &str) -> Result<Pod> {
    on.no_container(handler, &Container::new("app")).await
}

/// The client gives up before the hook ends; then it is let go.
async fn hangs(on: &mut Stand) -> Result<Pod> {
    std::fs::write(on.waits(), "")?;
    let pod = given_up(on, "hook-waits").await;
    std::fs::remove_file(on.waits())?;
    pod
}

/// Init's cgroup is frozen while it is set up, as by a tool that pauses what it finds.
async fn frozen(on: &mut Stand) -> Result<Pod> {
    let pod = given_up(on, "hook-freezes").await?;
    for group in std::fs::read_dir(Path::new("/sys/fs/cgroup/freezer").join(pod.cgroup_parent.trim_start_matches('/')))?
    {
        let state = group?.path().join("freezer.state");
        if state.exists() {
            std::fs::write(state, "THAWED")?;
        }
    }
    Ok(pod)
}

async fn given_up(on: &mut Stand, handler: &str) -> Result<Pod> {
    let (pod, started) = on.runs(handler, &[]).await?;
    let mut hasty = on.cri.with_deadline(Duration::from_secs(2));
    let (id, _) = hasty.create_container(&started.id, &pod, &Container::new("app")).await.ok("CreateContainer")?;
    ensure!(hasty.start_container(&id).await.result.is_err(), "StartContainer went well");
    Ok(pod)
}

async fn one_of_two(on: &mut Stand) -> Result<Pod> {
    let (pod, started) = on.runs("", &[Container::new("good")]).await?;
    let bad = on.cri.start_container_in(&pod, &started.id, &broken("/does-not-exist")).await;
    bad.err().context("StartContainer went well")?;
    Ok(pod)
}

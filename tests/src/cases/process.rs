//! Init's own end: an entrypoint that the kernel does not run.

use anyhow::Result;

use super::stand::Stand;
use super::{Case, fails, not_yet};
use crate::cri::{Container, Limits, Pod};
use crate::image::BROKEN_IMAGE;

pub(super) const CASES: &[Case] = &[
    fails("format-wrong", &[("container.exec", "exec_failed")], |on| Box::pin(exec_fails(on, "/garbage"))),
    fails("interpreter-missing", &[("container.exec", "exec_failed")], |on| Box::pin(exec_fails(on, "/orphan"))),
    not_yet("app-oom", "the kernel kills the app for memory", |on| Box::pin(app_oom(on))),
];

/// StartContainer says OK all the same.
async fn exec_fails(on: &mut Stand, entrypoint: &str) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    let broken = Container { image: BROKEN_IMAGE.into(), ..Container::new("app").command(&[entrypoint]) };
    let (id, _) = on.cri.create_container(&started.id, &pod, &broken).await.ok("CreateContainer")?;
    on.cri.start_container(&id).await.ok("StartContainer")?;
    on.cri.ended(&id).await?;
    Ok(pod)
}

async fn app_oom(on: &mut Stand) -> Result<Pod> {
    let limits = Limits { memory: 32 << 20, ..Limits::default() };
    let hungry = Container { limits, ..Container::new("app").command(&["/bin/busybox", "tail", "/dev/zero"]) };
    let (pod, started) = on.runs("", &[]).await?;
    let (id, _) = on.cri.create_container(&started.id, &pod, &hungry).await.ok("CreateContainer")?;
    on.cri.start_container(&id).await.ok("StartContainer")?;
    on.cri.ended(&id).await?;
    Ok(pod)
}

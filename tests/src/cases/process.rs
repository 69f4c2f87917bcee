//! Init's own end: an entrypoint that the kernel does not run.

use anyhow::Result;

use super::stand::Stand;
use super::{Case, fails, then};
use crate::cri::{Container, Pod};
use crate::image::BROKEN_IMAGE;

pub(super) const CASES: &[Case] = &[
    then(fails("format-wrong", NOT_RUN, |on| Box::pin(exec_fails(on, "/garbage"))), NOT_RUN),
    then(fails("interpreter-missing", NOT_RUN, |on| Box::pin(exec_fails(on, "/orphan"))), NOT_RUN),
];

/// The start has the verdict, and so has init's end.
const NOT_RUN: &[(&str, &str)] = &[("container.exec", "exec_failed")];

/// StartContainer says OK all the same.
async fn exec_fails(on: &mut Stand, entrypoint: &str) -> Result<Pod> {
    let (pod, started) = on.runs("", &[]).await?;
    let broken = Container { image: BROKEN_IMAGE.into(), ..Container::new("app").command(&[entrypoint]) };
    let (id, _) = on.cri.create_container(&started.id, &pod, &broken).await.ok("CreateContainer")?;
    on.cri.start_container(&id).await.ok("StartContainer")?;
    on.cri.ended(&id).await?;
    Ok(pod)
}

//! Images: the sandbox's, and the containers'.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::registry::{Answer, listen};
use super::stand::Stand;
use super::{Case, alone, fails};
use crate::cri::Pod;
use crate::image;

pub(super) const CASES: &[Case] = &[
    fails("pull-refused", &[("image.pull", "registry_unreachable")], |on| Box::pin(pull(on, 5001, None))),
    fails("pull-not-found", &[("image.pull", "image_not_found")], |on| {
        Box::pin(pull(on, 5002, Some(Answer::NotFound)))
    }),
    fails("pull-auth", &[("image.pull", "image_auth")], |on| Box::pin(pull(on, 5003, Some(Answer::Unauthorized)))),
    fails("pull-hangs", &[("image.pull", "client_deadline")], |on| Box::pin(pull(on, 5004, Some(Answer::Nothing)))),
    fails("pause-unreachable", &[("sandbox", "pause_image_unreachable")], |on| Box::pin(pause(on, None))),
    alone(fails("pause-missing", &[("sandbox", "pause_image_missing")], |on| {
        Box::pin(pause(on, Some(Answer::NotFound)))
    })),
    alone(fails("pause-auth", &[("sandbox", "pause_image_auth")], |on| {
        Box::pin(pause(on, Some(Answer::Unauthorized)))
    })),
];

/// A container's image is not there, and its registry does not give it.
async fn pull(on: &mut Stand, port: u16, answer: Option<Answer>) -> Result<Pod> {
    if let Some(answer) = answer {
        listen(&on.node, port, answer)?;
    }
    let (pod, _) = on.runs("", &[]).await?;
    let image = format!("127.0.0.1:{port}/shop/app:1");
    let pulled = on.cri.with_deadline(Duration::from_secs(2)).pull_image_for(&image, &pod).await;
    ensure!(pulled.result.is_err(), "PullImage went well");
    Ok(pod)
}

/// The sandbox's image is taken away, and what should be its registry answers so.
async fn pause(on: &mut Stand, answer: Option<Answer>) -> Result<Pod> {
    if let Some(answer) = answer {
        // The port that a name without one stands for.
        listen(&on.node, 80, answer)?;
    }
    on.remove_image(image::PAUSE_IMAGE).await?;
    let pod = on.no_sandbox("").await;
    on.import(image::PAUSE_IMAGE, image::write_pause).await?;
    pod
}

//! CNI: configuration, plugins, addresses.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::stand::Stand;
use super::{Case, fails};
use crate::cri::Pod;

pub(super) const CASES: &[Case] = &[
    fails("no-cni-config", &[("sandbox", "no_cni_config")], |on| Box::pin(on.no_sandbox("no-config"))),
    fails("plugin-missing", &[("sandbox.cni", "plugin_missing")], |on| Box::pin(on.no_sandbox("no-plugin"))),
    fails("ipam-missing", &[("sandbox.cni.bridge", "plugin_missing")], |on| Box::pin(on.no_sandbox("no-ipam"))),
    fails("ipam-exhausted", &[("sandbox.cni.host-local", "ipam_exhausted")], |on| Box::pin(exhausted(on))),
    fails("plugin-fails", &[("sandbox.cni.fails", "cni_failed")], |on| Box::pin(on.no_sandbox("fails"))),
    fails("plugin-no-json", &[("sandbox.cni.chats", "cni_bad_output")], |on| Box::pin(on.no_sandbox("chats"))),
    fails("plugin-killed", &[("sandbox.cni.crashes", "cni_killed")], |on| Box::pin(on.no_sandbox("crashes"))),
    fails("plugin-sleeps", &[("sandbox.cni.sleeps", "client_deadline")], |on| Box::pin(sleeps(on))),
];

/// The only address is taken.
async fn exhausted(on: &mut Stand) -> Result<Pod> {
    on.runs("one-address", &[]).await?;
    on.no_sandbox("one-address").await
}

/// The client gives up before the plugin does anything.
async fn sleeps(on: &mut Stand) -> Result<Pod> {
    let pod = on.pod("sleeps")?;
    let call = on.cri.with_deadline(Duration::from_secs(2)).run_pod_sandbox(&pod).await;
    ensure!(call.result.is_err(), "RunPodSandbox went well");
    Ok(pod)
}

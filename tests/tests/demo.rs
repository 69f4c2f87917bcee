//! `cargo xtask demo`, the README's first command.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use podlapse_tests::machine::Machine;
use podlapse_tests::trace;
use serde_json::Value;

#[test]
fn the_demo_prints_one_trace_and_leaves_the_machine_as_it_was() -> Result<()> {
    let before = Machine::now()?;
    let mut demo = Command::new(env!("CARGO"));
    demo.args(["xtask", "demo", "-o", "json"]).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let output = demo.stdin(Stdio::null()).output().context("cannot run cargo")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the demo ended with {}:\n{stderr}", output.status);

    let traces: Value = serde_json::from_slice(&output.stdout).context("stdout is not one JSON object")?;
    trace::sound(&traces)?;
    ensure!(traces["outcome"] == "complete", "outcome {}, {}", traces["outcome"], traces["quality"]);
    let socket = traces["node"]["socket"].as_str().context("no node.socket")?;
    let dir = Path::new(socket).parent().context("the socket has no folder")?;
    let path = traces["sandbox"]["cgroup"]["path"].as_str().context("no sandbox.cgroup.path")?;
    let cgroup = path.trim_start_matches('/').split('/').next().context("an empty cgroup path")?;
    before.check(dir, &format!("/{cgroup}"))
}

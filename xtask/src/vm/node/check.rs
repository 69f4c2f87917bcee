//! A trace against what the node itself says of the pod: `podlapse-guest`'s object.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Everything agrees; the share of the start that has a name.
pub(super) fn start(trace: &Value, truth: &Value) -> Result<String> {
    let quality = &trace["quality"];
    ensure!(trace["outcome"] == "complete", "its outcome is {}: {quality}", trace["outcome"]);
    ensure!(quality["lost_records"] == 0 && quality["undecoded_bytes"] == 0, "not everything was seen: {quality}");
    ensure!(trace["pod"]["uid"] == truth["uid"], "it is of pod {}, not {}", trace["pod"], truth["uid"]);
    let total = trace["total_ns"].as_u64().context("no total_ns")?;
    let named = trace["named_ns"].as_u64().context("no named_ns")?;
    let stages = list(trace, "stages")?;
    let sum: u64 = stages.iter().filter_map(|stage| stage["self_ns"].as_u64()).sum();
    ensure!(sum == total, "its stages sum up to {sum}, its total is {total}");

    process(&trace["sandbox"], truth).context("its sandbox")?;
    let (containers, real) = (list(trace, "containers")?, list(truth, "containers")?);
    ensure!(containers.len() == real.len(), "{} containers, not {}", containers.len(), real.len());
    for (container, real) in containers.iter().zip(real) {
        let name = real["name"].as_str().unwrap_or("?");
        process(container, real).with_context(|| format!("its container {name}"))?;
        ensure!(container["name"] == real["name"], "its container {name} is called {}", container["name"]);
        ensure!((container["kind"] == "init") == (name == "init"), "its container {name} is {}", container["kind"]);
    }
    ensure!(stages.iter().any(|stage| stage["stage"] == "kubelet.prepare"), "no kubelet.prepare");
    joins(trace, "sandbox", 1)?;
    joins(trace, "container.start", real.len())?;
    labels(trace, "container.start", real.len())?;
    Ok(format!("named {:.1} % of {:.1} s", named as f64 * 100.0 / total as f64, total as f64 / 1e9))
}

/// No method's name was on the wire any more.
pub(super) fn late(trace: &Value) -> Result<()> {
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let calls: Vec<&Value> =
            list(trace, "spans")?.iter().map(|span| &span["call"]).filter(|call| call["method"] == method).collect();
        ensure!(calls.len() == 1, "{} calls of {method}, not 1", calls.len());
        ensure!(calls[0]["method_source"] == "inferred", "{method} was read: {}", calls[0]);
    }
    Ok(())
}

/// The identity chain of the pod as it runs now.
pub(super) fn pods(document: &Value, truth: &Value) -> Result<()> {
    let pod = list(document, "pods")?.iter().find(|pod| pod["uid"] == truth["uid"]);
    let pod = pod.with_context(|| format!("no pod {}", truth["uid"]))?;
    let [sandbox] = &list(pod, "sandboxes")?[..] else { bail!("not one sandbox: {}", pod["sandboxes"]) };
    process(sandbox, truth).context("its sandbox")?;
    let containers = list(sandbox, "containers")?;
    for real in list(truth, "containers")? {
        let container = containers.iter().find(|container| container["id"] == real["id"]);
        let container = container.with_context(|| format!("no container {}", real["id"]))?;
        // The init container has ended, and its cgroup went with it.
        if !real["pid"].is_null() {
            process(container, real).with_context(|| format!("its container {}", real["name"]))?;
        }
    }
    Ok(())
}

/// Ids, pid, namespaces, cgroup and limits. A process that has ended has but its id.
fn process(seen: &Value, real: &Value) -> Result<()> {
    ensure!(seen["id"] == real["id"], "id {}, not {}", seen["id"], real["id"]);
    let path = seen["cgroup"]["path"].as_str().context("no cgroup.path")?;
    let scope = format!("/cri-containerd-{}.scope", real["id"].as_str().context("no id")?);
    ensure!(path.ends_with(&scope), "cgroup {path}, not {scope}");
    let Some(pid) = real["pid"].as_u64() else { return Ok(()) };
    ensure!(seen["pid"] == pid, "pid {}, not {pid}", seen["pid"]);
    // crun puts the process one level deeper.
    let below = real["cgroup"].as_str().context("no cgroup")?;
    ensure!(below == path || below.strip_prefix(path) == Some("/container"), "cgroup {path}, not {below}");
    for (key, inode) in real["namespaces"].as_object().context("no namespaces")? {
        ensure!(seen["namespaces"][key] == *inode, "{key}: {}, not {inode}", seen["namespaces"][key]);
    }
    for (file, value) in real["limits"].as_object().context("no limits")? {
        let written = &seen["cgroup"]["limits"][file];
        ensure!(written == value, "{file}: {written}, not {value}");
    }
    Ok(())
}

/// Each runtime create below `call` waited for PID 1 to make and fill the cgroup.
fn joins(trace: &Value, call: &str, count: usize) -> Result<()> {
    let spans = list(trace, "spans")?;
    let stage = format!("{call}.oci.create.cgroup_join");
    let joins: Vec<&Value> = spans.iter().filter(|span| span["stage"] == stage.as_str()).collect();
    ensure!(joins.len() == count, "{} spans of {stage}, not {count}", joins.len());
    for join in joins {
        ensure!(join["attributes"]["cgroup_manager"] == "pid 1", "not joined by PID 1: {join}");
        let parent = spans.iter().find(|span| span["id"] == join["parent"]);
        let parent = parent.map_or(&Value::Null, |span| &span["stage"]);
        ensure!(*parent == format!("{call}.oci.create"), "{stage} is below {parent}");
    }
    Ok(())
}

/// The node has AppArmor, and the runtime a profile of its own for containers: each init takes its label.
fn labels(trace: &Value, call: &str, count: usize) -> Result<()> {
    let stage = format!("{call}.oci.create.lsm");
    let labels: Vec<&Value> = list(trace, "spans")?.iter().filter(|span| span["stage"] == stage.as_str()).collect();
    ensure!(labels.len() == count, "{} spans of {stage}, not {count}", labels.len());
    for label in labels {
        ensure!(label["end_ns"].as_u64() > label["start_ns"].as_u64(), "no time passes in {label}");
    }
    Ok(())
}

fn list<'a>(object: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    object[key].as_array().with_context(|| format!("no list {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> (Value, Value) {
        let limits = json!({ "cpu.max": "50000 100000" });
        let truth = json!({ "id": "1a", "pid": 7, "cgroup": "/p.slice/cri-containerd-1a.scope", "limits": limits,
            "namespaces": { "net": 3 } });
        let seen = json!({ "id": "1a", "pid": 7, "namespaces": { "net": 3, "mnt": 4 },
            "cgroup": { "path": "/p.slice/cri-containerd-1a.scope", "limits": { "cpu.max": "50000 100000" } } });
        (seen, truth)
    }

    #[test]
    fn a_process_agrees() {
        let (seen, truth) = pod();
        process(&seen, &truth).unwrap();
    }

    #[test]
    fn a_process_that_differs() {
        for (path, value) in [
            ("/pid", json!(8)),
            ("/id", json!("1b")),
            ("/namespaces/net", json!(4)),
            ("/cgroup/path", json!("/p.slice")),
            ("/cgroup/limits/cpu.max", json!("max 100000")),
        ] {
            let (mut seen, truth) = pod();
            *seen.pointer_mut(path).unwrap() = value;
            assert!(process(&seen, &truth).is_err(), "{path}");
        }
    }
}

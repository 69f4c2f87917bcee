//! Kinds of containers and pods on a real node: init, sidecar and apps, shared pids, limits, and what the shim said.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_cri::v1::NamespaceMode;
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::{Cri, Node, Options, podlapse, trace};
use serde_json::Value;

fn names_and_kinds(trace: &Value) -> Vec<(&str, &str)> {
    let containers = trace["containers"].as_array().map_or(&[][..], Vec::as_slice);
    containers.iter().filter_map(|it| Some((it["name"].as_str()?, it["kind"].as_str()?))).collect()
}

#[tokio::test]
async fn init_sidecar_and_two_apps() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "4", "--settle", "30s", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let pod = Pod::new("four", "shop")?.on_node(node.cgroup());
    let mut started = cri.start_pod(&pod, &[]).await?;
    let init = Container::new("init").command(&["/bin/true"]);
    let (id, _) = cri.create_container(&started.id, &pod, &init).await.ok("CreateContainer")?;
    cri.start_container(&id).await.ok("StartContainer")?;
    ensure!(cri.ended(&id).await? == 0, "the init container failed");
    for name in ["sidecar", "one", "two"] {
        let container = cri.start_container_in(&pod, &started.id, &Container::new(name)).await?;
        started.containers.push(container);
    }
    let traces = podlapse.traces()?;
    ensure!(traces.len() == 1, "{} traces", traces.len());
    trace::sound(&traces[0])?;
    ensure!(traces[0]["outcome"] == "complete", "{}", traces[0]["quality"]);
    let kinds = [("init", "init"), ("sidecar", "unknown"), ("one", "unknown"), ("two", "unknown")];
    ensure!(names_and_kinds(&traces[0]) == kinds, "{:?}", names_and_kinds(&traces[0]));
    ensure!(traces[0]["containers"][0]["exit"]["code"] == 0, "{}", traces[0]["containers"][0]);
    // The kernel and the shims tell the same.
    ensure!(traces[0]["quality"]["notes"] == serde_json::json!([]), "{}", traces[0]["quality"]);
    for container in traces[0]["containers"].as_array().context("no containers")? {
        let calls = container["task_calls"].as_array().context("no task_calls")?;
        // containerd waits and starts at once: which of the two comes first is open.
        let start = calls.iter().find(|call| call["method"] == "Start").context("no Start")?;
        let create = &calls[0];
        ensure!(create["method"] == "Create" && create["pid"] == container["pid"], "{calls:?}");
        ensure!(start["pid"] == container["pid"], "{calls:?}");
        ensure!(create["end_ns"].as_u64() <= start["start_ns"].as_u64(), "{calls:?}");
        ensure!(start["start_ns"].as_u64() <= container["exec"]["at_ns"].as_u64(), "{container}");
    }
    node.stop()
}

#[tokio::test]
async fn a_shared_process_namespace() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "2", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut pod = Pod::new("shared", "shop")?.on_node(node.cgroup());
    pod.pid_mode = NamespaceMode::Pod;
    let started = cri.start_pod(&pod, &[Container::new("one"), Container::new("two")]).await?;
    let traces = podlapse.traces()?;
    let trace = &traces[0];
    trace::sound(trace)?;
    ensure!(trace["outcome"] == "complete", "{}", trace["quality"]);
    let pid = &trace["sandbox"]["namespaces"]["pid"];
    for (seen, real) in trace["containers"].as_array().context("no containers")?.iter().zip(&started.containers) {
        ensure!(seen["pid"] == real.pid, "{seen}, not {}", real.pid);
        ensure!(!pid.is_null() && seen["namespaces"]["pid"] == *pid, "{seen}, not in {pid}");
        let link = fs::read_link(format!("/proc/{}/ns/pid", real.pid))?;
        ensure!(link.to_string_lossy() == format!("pid:[{pid}]"), "{} is not {pid}", link.display());
    }
    node.stop()
}

/// A tmpfs, as kubelet mounts one for a secret; taken away when dropped.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: std::path::PathBuf) -> Result<Self> {
        fs::create_dir_all(&path)?;
        // By mount(8), as kubelet does.
        let status = std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&path).status()?;
        ensure!(status.success(), "mount: {status}");
        Ok(Self(path))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[tokio::test]
async fn volumes_that_kubelet_mounts() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    // The client is there before podlapse is, as kubelet is.
    cri.version().await.ok("Version")?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let pod = Pod::new("disks", "shop")?.on_node(node.cgroup());
    let volumes = node.dir().join("pods").join(&pod.uid).join("volumes");
    let cache = Tmpfs::mount(volumes.join("kubernetes.io~empty-dir/cache"))?;
    let token = Tmpfs::mount(volumes.join("kubernetes.io~projected/token"))?;
    // Nobody's volume.
    let other = Tmpfs::mount(node.dir().join("pods/other"))?;
    cri.start_pod(&pod, &[Container::new("app")]).await?;
    let traces = podlapse.traces();
    drop((cache, token, other));
    let trace = &traces?[0];
    trace::sound(trace)?;
    let prepare = trace::only(trace, "kubelet.prepare")?;
    let spans = trace::stage(trace, "kubelet.prepare.volume");
    let names: Vec<_> = spans.iter().map(|span| (&span["name"], &span["attributes"]["plugin"])).collect();
    let wanted = [("cache", "kubernetes.io~empty-dir"), ("token", "kubernetes.io~projected")];
    ensure!(names.iter().zip(wanted).all(|((name, plugin), it)| (*name == it.0) && (*plugin == it.1)), "{names:?}");
    ensure!(names.len() == 2, "{names:?}");
    for span in &spans {
        ensure!(span["parent"] == prepare["id"], "{span} is not below {prepare}");
    }
    node.stop()
}

/// What a file of a v1 or v2 cgroup holds; the first word where it is not there.
fn cgroup_file(controller: &str, path: &str, file: &str) -> Result<String> {
    let root = Path::new("/sys/fs/cgroup");
    let v1 = root.join(controller).join(path.trim_start_matches('/')).join(file);
    let v2 = root.join(path.trim_start_matches('/')).join(file);
    let text = fs::read_to_string(&v1).or_else(|_| fs::read_to_string(&v2));
    Ok(text.with_context(|| format!("neither {} nor {}", v1.display(), v2.display()))?.trim().to_owned())
}

#[tokio::test]
async fn limits_as_the_cgroup_files_say() -> Result<()> {
    let node = Node::start(Options::default())?;
    let podlapse = podlapse::attach(&node, &["trace"], &["--containers", "1", "-o", "json"])?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let mut container = Container::new("app");
    (container.limits.memory, container.limits.cpu_quota) = (128 << 20, 50_000);
    let pod = Pod::new("small", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&pod, &[container]).await?;
    let traces = podlapse.traces()?;
    let app = &traces[0]["containers"][0];
    let (path, limits) = (app["cgroup"]["path"].as_str().context("no path")?, &app["cgroup"]["limits"]);
    let wanted = match limits["cpu.max"].is_null() {
        true => [("cpu", "cpu.cfs_quota_us", "50000"), ("memory", "memory.limit_in_bytes", "134217728")],
        false => [("cpu", "cpu.max", "50000 100000"), ("memory", "memory.max", "134217728")],
    };
    for (controller, file, value) in wanted {
        ensure!(limits[file] == value, "{file}: {limits}");
        ensure!(cgroup_file(controller, path, file)? == value, "{file}");
        let writes = app["cgroup"]["writes"].as_array().context("no writes")?;
        let write = writes.iter().find(|it| it["file"] == file).with_context(|| format!("no write of {file}"))?;
        ensure!(write["comm"] == "runc" && write["value"] == value, "{write}");
        let at = write["at_ns"].as_u64();
        ensure!(at < app["exec"]["at_ns"].as_u64(), "{write} after {}", app["exec"]);
        let create = trace::only(&traces[0], "container.start.oci.create")?;
        ensure!(write["pid"] == create["process"]["pid"], "{write}, not by {create}");
        ensure!(create["start_ns"].as_u64() < at && at < create["end_ns"].as_u64(), "{write} outside of {create}");
    }
    // Everything that was written still holds.
    for (file, value) in limits.as_object().context("no limits")? {
        let controller = file.split('.').next().unwrap_or_default();
        ensure!(cgroup_file(controller, path, file)? == *value, "{file}: {value}");
    }
    ensure!(app["oom_score_adj"].is_number(), "{app}");
    ensure!(traces[0]["sandbox"]["cgroup"]["limits"]["cpu.shares"].is_string() || !limits["cpu.max"].is_null());
    ensure!(started.containers[0].id == app["id"], "{app}");
    node.stop()
}

//! `podlapse pods` on real nodes: every field against the CRI's verbose status, `/proc` and the cgroup files, read here
//! by other means; every part of the chain leads back to its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_cri::v1;
use podlapse_tests::cri::{Container, Pod};
use podlapse_tests::image::BUSYBOX_IMAGE;
use podlapse_tests::podlapse::{self, Ended};
use podlapse_tests::tools::{Containerd, Tools};
use podlapse_tests::{Cri, Node, Options};
use serde_json::{Value, json};

const PODS: usize = 30;

/// What the verbose status holds and nobody may see.
const SECRET: &str = "s3cr3t-4711";

/// Runs `podlapse pods -o json` and reads its document, which has to keep its contract.
fn pods(arguments: &[&str]) -> Result<Value> {
    let ended = podlapse::run(&[&["pods", "-o", "json"], arguments].concat())?;
    ensure!(ended.status.success(), "{arguments:?}: {}\n{}", ended.status, ended.stderr);
    document(&ended)
}

fn document(ended: &Ended) -> Result<Value> {
    let value: Value = serde_json::from_slice(&ended.stdout)?;
    static SCHEMA: LazyLock<Result<jsonschema::Validator, String>> = LazyLock::new(|| {
        let schema = serde_json::from_str(include_str!("../../docs/pods-v1.schema.json")).map_err(|e| e.to_string())?;
        jsonschema::draft202012::new(&schema).map_err(|e| e.to_string())
    });
    let validator = SCHEMA.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    ensure!(errors.is_empty(), "against the schema: {errors:#?}");
    Ok(value)
}

/// `podlapse pods` finds nothing: exit code 1, nothing on stdout, all of `says` on stderr.
fn fails(arguments: &[&str], says: &[&str]) -> Result<()> {
    let ended = podlapse::run(&[&["pods", "-o", "json"], arguments].concat())?;
    ensure!(ended.status.code() == Some(1), "{arguments:?}: {}\n{}", ended.status, ended.stderr);
    ensure!(ended.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stdout));
    for word in says {
        ensure!(ended.stderr.contains(word), "{arguments:?} does not say {word:?}:\n{}", ended.stderr);
    }
    Ok(())
}

/// All kinds of pods: hosts' networks, shared pids, limits, two runtimes, both QoS classes, one name in two namespaces.
async fn many(node: &Node, cri: &mut Cri, count: usize) -> Result<()> {
    for number in 0..count {
        let namespace = if number % 2 == 0 { "shop" } else { "bank" };
        let mut pod = Pod::new(&format!("web-{}", number / 2), namespace)?.on_node(node.cgroup());
        if number % 4 == 3 {
            pod.cgroup_parent = pod.cgroup_parent.replace("burstable", "besteffort");
        }
        pod.host_network = number % 7 == 0;
        pod.annotations.insert("token".into(), SECRET.into());
        if number % 5 == 0 {
            pod.pid_mode = v1::NamespaceMode::Pod;
        }
        if number % 4 == 1 {
            pod.runtime_handler = "crun".into();
        }
        let mut limited = Container::new("limited").command(&["/bin/sh", "-c", "exec sleep 2147483647", SECRET]);
        limited.envs.push(("TOKEN".into(), SECRET.into()));
        limited.limits.memory = 128 << 20;
        limited.limits.cpu_quota = 50_000;
        let family = Container::new("family").command(&["/bin/sh", "-c", "sleep 2147483647 & wait"]);
        let containers = match number % 3 {
            0 => vec![limited, family],
            1 => vec![limited],
            _ => vec![family],
        };
        cri.start_pod(&pod, &containers).await?;
    }
    Ok(())
}

/// What is not simply running: a pod whose predecessor of the same name is still there, one whose sandbox was replaced,
/// one with a container that ended, its second attempt, and one that was never started.
async fn odd(node: &Node, cri: &mut Cri) -> Result<()> {
    let app = || Container::new("app");
    for _ in 0..2 {
        let again = Pod::new("again", "shop")?.on_node(node.cgroup());
        let started = cri.start_pod(&again, &[app()]).await?;
        cri.remove_pod(&started.id, &again.cgroup_parent).await?;
    }
    let old = Pod::new("again", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&old, &[app()]).await?;
    cri.stop_pod_sandbox(&started.id).await.ok("StopPodSandbox")?;
    cri.start_pod(&Pod::new("again", "shop")?.on_node(node.cgroup()), &[app()]).await?;

    let mut replaced = Pod::new("replaced", "shop")?.on_node(node.cgroup());
    let started = cri.start_pod(&replaced, &[app()]).await?;
    cri.stop_pod_sandbox(&started.id).await.ok("StopPodSandbox")?;
    replaced.attempt = 1;
    let mut second = app();
    second.attempt = 1;
    cri.start_pod(&replaced, std::slice::from_ref(&second)).await?;

    let pod = Pod::new("restarts", "shop")?.on_node(node.cgroup());
    let short = app().command(&["/bin/sh", "-c", "exit 3"]);
    let started = cri.start_pod(&pod, &[Container::new("stays")]).await?;
    // A process that an exec left behind is no child of the first one's.
    let left = ["/bin/sh", "-c", "sleep 2147483647 >/dev/null 2>&1 &"];
    cri.exec_sync(&started.containers[0].id, &left, 10).await.ok("ExecSync")?;
    let (id, _) = cri.create_container(&started.id, &pod, &short).await.ok("CreateContainer")?;
    cri.start_container(&id).await.ok("StartContainer")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (status, _) = cri.container_status(&id, false).await.ok("ContainerStatus")?;
        let exited: i32 = v1::ContainerState::ContainerExited.into();
        if status.status.is_some_and(|status| status.state == exited) {
            break;
        }
        ensure!(Instant::now() < deadline, "container {id} does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (id, _) = cri.create_container(&started.id, &pod, &second).await.ok("CreateContainer")?;
    cri.start_container(&id).await.ok("StartContainer")?;
    cri.create_container(&started.id, &pod, &Container::new("created")).await.ok("CreateContainer")?;
    Ok(())
}

/// Gives the image a digest, as one has that came from a registry.
async fn digest(node: &Node, cri: &mut Cri) -> Result<()> {
    let tools = Tools::find(Containerd::default())?;
    let ctr = |words: &[&str]| -> Result<String> {
        let program = std::env::split_paths(&tools.path()).map(|dir| dir.join("ctr")).find(|path| path.is_file());
        let output = Command::new(program.context("no ctr")?)
            .env("LD_LIBRARY_PATH", tools.library_path())
            .arg("--address")
            .arg(node.socket())
            .args(["--namespace", "k8s.io", "images"])
            .args(words)
            .output()?;
        ensure!(output.status.success(), "ctr: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let list = ctr(&["ls"])?;
    let line = list.lines().find(|line| line.starts_with(BUSYBOX_IMAGE)).context("ctr lists no busybox")?;
    let digest = line.split_whitespace().find(|word| word.starts_with("sha256:")).context("ctr prints no digest")?;
    let name = format!("{}@{digest}", BUSYBOX_IMAGE.rsplit_once(':').context("no tag")?.0);
    ctr(&["tag", BUSYBOX_IMAGE, &name])?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !cri.has_image(&name).await? {
        ensure!(Instant::now() < deadline, "the CRI does not learn of {name}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The pods of a runtime as they have to be listed: from the CRI, `/proc` and the cgroup files.
struct Expected {
    runtime: Value,
    /// podlapse's pid of the runtime's pid of a container.
    translate: fn(u64, &str) -> Result<u64>,
}

impl Expected {
    async fn new(node: &Node, cri: &mut Cri, translate: fn(u64, &str) -> Result<u64>) -> Result<Expected> {
        let (version, _) = cri.version().await.ok("Version")?;
        let runtime = json!({
            "socket": node.socket(), "name": version.runtime_name, "version": version.runtime_version,
            "pid": node.containerd_pid()?,
        });
        Ok(Expected { runtime, translate })
    }

    async fn pods(&self, cri: &mut Cri) -> Result<Vec<Value>> {
        let (sandboxes, _) = cri.list_pod_sandboxes().await.ok("ListPodSandbox")?;
        let (mut containers, _) = cri.list_containers().await.ok("ListContainers")?;
        containers.sort_by_key(|container| container.created_at);
        let mut pods: BTreeMap<(String, String, String), Value> = BTreeMap::new();
        let mut in_order = sandboxes;
        in_order.sort_by_key(|sandbox| sandbox.metadata.as_ref().map(|meta| meta.attempt));
        for listed in in_order {
            let meta = listed.metadata.clone().context("a sandbox without metadata")?;
            let (reply, _) = cri.pod_sandbox_status(&listed.id, true).await.ok("PodSandboxStatus")?;
            let info: Value = serde_json::from_str(&reply.info["info"])?;
            let mut sandbox = self.sandbox(&listed, &reply.status.context("no status")?, &info)?;
            for container in containers.iter().filter(|container| container.pod_sandbox_id == listed.id) {
                let (reply, _) = cri.container_status(&container.id, true).await.ok("ContainerStatus")?;
                let info: Value = serde_json::from_str(&reply.info["info"])?;
                let own = self.container(container, &reply.status.context("no status")?, &info, &sandbox)?;
                sandbox["containers"].as_array_mut().context("no array")?.push(own);
            }
            let parent = info["config"]["linux"]["cgroup_parent"].as_str().context("no cgroup_parent")?;
            let class = ["burstable", "besteffort"].into_iter().find(|class| parent.contains(class));
            let key = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
            let pod = pods.entry(key).or_insert_with(|| {
                json!({
                    "namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "qos": class,
                    "runtime": self.runtime, "sandboxes": [], "notes": [],
                })
            });
            if sandbox.get("pid").is_some() {
                let limits = limits(|_| Ok(parent.to_owned()))?;
                pod["cgroup"] = json!({ "path": parent, "limits": limits });
            }
            pod["sandboxes"].as_array_mut().context("no array")?.push(sandbox);
        }
        Ok(pods.into_values().collect())
    }

    fn sandbox(&self, listed: &v1::PodSandbox, status: &v1::PodSandboxStatus, info: &Value) -> Result<Value> {
        let mut sandbox = json!({
            "id": listed.id,
            "attempt": status.metadata.as_ref().context("no metadata")?.attempt,
            "state": if status.state == 0 { "ready" } else { "notready" },
            "created_at": time(status.created_at),
            "image": info["image"],
            "containers": [],
        });
        if !status.runtime_handler.is_empty() {
            sandbox["runtime_handler"] = json!(status.runtime_handler);
        }
        if let Some(network) = status.network.as_ref().filter(|network| !network.ip.is_empty()) {
            sandbox["ips"] = json!([network.ip]);
        }
        if status.state == 0 {
            self.process(&mut sandbox, info, &listed.id, None)?;
        }
        Ok(sandbox)
    }

    fn container(
        &self,
        listed: &v1::Container,
        status: &v1::ContainerStatus,
        info: &Value,
        sandbox: &Value,
    ) -> Result<Value> {
        let meta = status.metadata.as_ref().context("no metadata")?;
        let state = ["created", "running", "exited", "unknown"][usize::try_from(status.state)?];
        let mut container = json!({
            "id": listed.id, "name": meta.name, "attempt": meta.attempt, "state": state,
            "created_at": time(status.created_at),
            "image": status.image.as_ref().context("no image")?.image,
            "image_id": if status.image_id.is_empty() { &listed.image_ref } else { &status.image_id },
            "image_digest": status.image_ref.rsplit('@').next(),
        });
        for (key, ns) in [("started_at", status.started_at), ("finished_at", status.finished_at)] {
            if ns != 0 {
                container[key] = json!(time(ns));
            }
        }
        if state == "exited" {
            container["exit_code"] = json!(status.exit_code);
        }
        if state == "running" {
            self.process(&mut container, info, &listed.id, Some(sandbox))?;
        }
        Ok(container)
    }

    /// What `/proc` and the cgroup files say of the process that the verbose status names.
    fn process(&self, of: &mut Value, info: &Value, id: &str, sandbox: Option<&Value>) -> Result<()> {
        let pid = (self.translate)(info["pid"].as_u64().context("no pid in info")?, id)?;
        let proc = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).context("cannot read /proc");
        let shim = parent(pid)?;
        let shim_args = fs::read_to_string(format!("/proc/{shim}/cmdline"))?;
        ensure!(shim_args.contains("containerd-shim"), "the parent of {pid} is {shim_args}");
        let (own, node) = (namespaces(pid)?, namespaces(shim)?);
        let shared = |other: &BTreeMap<&'static str, u64>| -> Vec<&str> {
            NAMESPACES.into_iter().filter(|name| own.get(name) == other.get(name)).collect()
        };
        of["pid"] = json!(pid);
        of["shim_pid"] = json!(shim);
        of["oom_score_adj"] = json!(proc("oom_score_adj")?.trim().parse::<i64>()?);
        of["shared_with_node"] = json!(shared(&node));
        if let Some(sandbox) = sandbox {
            let pause = sandbox["pid"].as_u64().context("a container runs without its sandbox")?;
            of["shared_with_sandbox"] = json!(shared(&namespaces(pause)?));
        }
        of["namespaces"] = json!(own);
        let groups = proc("cgroup")?;
        let path = |controller: &str| -> Result<String> {
            let line = groups.lines().find(|line| {
                line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller))
            });
            Ok(line.and_then(|line| line.splitn(3, ':').nth(2)).context("no such controller")?.to_owned())
        };
        let own = if unified() { path("")? } else { path("pids")? };
        ensure!(own.ends_with(id) || own.contains(&format!("-{id}.scope")), "{own} is not the cgroup of {id}");
        of["cgroup"] = json!({ "path": own, "limits": limits(path)? });
        Ok(())
    }
}

const NAMESPACES: [&str; 6] = ["net", "ipc", "uts", "pid", "mnt", "user"];

fn namespaces(pid: u64) -> Result<BTreeMap<&'static str, u64>> {
    let inode = |name: &'static str| {
        let link = fs::read_link(format!("/proc/{pid}/ns/{name}"))?.to_string_lossy().into_owned();
        let inode = link.split(['[', ']']).nth(1).context("no inode")?.parse()?;
        Ok((name, inode))
    };
    NAMESPACES.into_iter().map(inode).collect()
}

fn parent(pid: u64) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("no PPid")?;
    Ok(line.trim().parse()?)
}

fn unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The limit files of the cgroup whose path `path` gives for a controller.
fn limits(path: impl Fn(&str) -> Result<String>) -> Result<BTreeMap<String, String>> {
    const V1: [(&str, &str); 4] = [
        ("cpu", "cpu.cfs_burst_us cpu.cfs_period_us cpu.cfs_quota_us cpu.idle cpu.shares"),
        ("cpuset", "cpuset.cpus cpuset.mems"),
        ("memory", "memory.limit_in_bytes memory.memsw.limit_in_bytes memory.soft_limit_in_bytes"),
        ("pids", "pids.max"),
    ];
    const V2: &str = "cpu.idle cpu.max cpu.max.burst cpu.weight cpuset.cpus cpuset.mems io.max io.weight memory.high \
        memory.low memory.max memory.min memory.oom.group memory.swap.high memory.swap.max pids.max";
    let mut limits = BTreeMap::new();
    let mut add = |dir: String, files: &str| {
        for file in files.split(' ') {
            if let Ok(value) = fs::read_to_string(format!("{dir}/{file}")) {
                limits.insert(file.to_owned(), value.trim_end().to_owned());
            }
        }
    };
    if unified() {
        add(format!("/sys/fs/cgroup{}", path("")?), V2);
    } else {
        for (controller, files) in V1 {
            add(format!("/sys/fs/cgroup/{controller}{}", path(controller)?), files);
        }
    }
    ensure!(!limits.is_empty(), "no limit files");
    Ok(limits)
}

/// RFC 3339, by another program.
fn time(ns: i64) -> String {
    let seconds = ns.unsigned_abs() / 1_000_000_000;
    let date = Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    format!("{date}.{:09}Z", ns.unsigned_abs() % 1_000_000_000)
}

fn untranslated(pid: u64, _: &str) -> Result<u64> {
    Ok(pid)
}

/// The process in a container's cgroup whose second pid is `inner`.
fn translated(inner: u64, id: &str) -> Result<u64> {
    let matches = |pid: u64| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        groups.contains(id) && line.split_whitespace().nth(1) == Some(&inner.to_string())
    };
    let processes = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<u64> = processes.filter(|pid| matches(*pid)).collect();
    match found[..] {
        [one] => Ok(one),
        _ => bail!("{found:?} are the processes of {id} with pid {inner} inside"),
    }
}

/// The first difference of two values, by its path.
fn difference(path: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            let null = Value::Null;
            let at = |map: &serde_json::Map<String, Value>, key: &String| map.get(key).cloned().unwrap_or(null.clone());
            keys.into_iter().find_map(|key| difference(&format!("{path}/{key}"), &at(x, key), &at(y, key)))
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).enumerate().find_map(|(at, (x, y))| difference(&format!("{path}/{at}"), x, y))
        }
        _ => (a != b).then(|| format!("{path}: podlapse says {a}, it is {b}")),
    }
}

fn agree(listed: &Value, expected: &[Value]) -> Result<()> {
    if let Some(difference) = difference("/pods", &listed["pods"], &json!(expected)) {
        bail!("{difference}");
    }
    Ok(())
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Each sandbox of a document, with its pod.
fn sandboxes(document: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    array(&document["pods"]).iter().flat_map(|pod| array(&pod["sandboxes"]).iter().map(move |sandbox| (pod, sandbox)))
}

/// A query gives this pod alone, with this sandbox and these containers.
fn leads_to(
    socket: &str,
    query: [&str; 2],
    kind: &str,
    pod: &Value,
    sandbox: &Value,
    containers: &[Value],
) -> Result<()> {
    let found = pods(&[&["--socket", socket], &query[..]].concat())?;
    let mut sandbox = sandbox.clone();
    sandbox["containers"] = json!(containers);
    let mut pod = pod.clone();
    pod["sandboxes"] = json!([sandbox]);
    ensure!(found["match"]["kind"] == kind, "{query:?}: {}", found["match"]);
    agree(&found, &[pod]).with_context(|| format!("{query:?}"))
}

#[tokio::test]
async fn thirty_pods_agree_with_all_that_is_known() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    digest(&node, &mut cri).await?;
    many(&node, &mut cri, PODS).await?;
    odd(&node, &mut cri).await?;
    let socket = node.socket().to_str().context("not UTF-8")?.to_owned();

    let listed = pods(&["--socket", &socket])?;
    let expected = Expected::new(&node, &mut cri, untranslated).await?;
    let pods_there = expected.pods(&mut cri).await?;
    agree(&listed, &pods_there)?;
    ensure!(listed["runtimes"] == json!([expected.runtime]), "{}", listed["runtimes"]);
    ensure!(listed["notes"] == json!([]), "{}", listed["notes"]);
    // Thirty, two named `again`, `replaced`, `restarts`; the pods that were removed are gone.
    ensure!(array(&listed["pods"]).len() == PODS + 4, "{} pods", array(&listed["pods"]).len());
    written_limits(&listed)?;
    every_part_leads_back(&socket, &listed)?;
    names(&socket, &listed)?;
    prefixes(&socket, &listed)?;
    without_the_cri(&socket, &listed)?;
    without_root(&socket)?;
    for_people(&socket, &listed)?;

    node.stop()?;
    fails(&["--socket", &socket], &["does not exist", &socket])
}

/// 500m and 128Mi are in the files as they were asked for.
fn written_limits(listed: &Value) -> Result<()> {
    let containers: Vec<&Value> = sandboxes(listed).flat_map(|(_, sandbox)| array(&sandbox["containers"])).collect();
    let limited: Vec<_> = containers.iter().filter(|own| own["name"] == "limited").collect();
    ensure!(limited.len() == PODS * 2 / 3, "{} limited containers", limited.len());
    for container in limited {
        let limits = &container["cgroup"]["limits"];
        let (cpu, memory) = match unified() {
            true => (limits["cpu.max"].clone(), &limits["memory.max"]),
            false => {
                let text = |file: &str| limits[file].as_str().unwrap_or_default().to_owned();
                let cpu = format!("{} {}", text("cpu.cfs_quota_us"), text("cpu.cfs_period_us"));
                (json!(cpu), &limits["memory.limit_in_bytes"])
            }
        };
        ensure!(cpu == "50000 100000" && memory == "134217728", "{limits}");
    }
    Ok(())
}

/// From every process, container, sandbox, shim and cgroup to exactly its own pod.
fn every_part_leads_back(socket: &str, listed: &Value) -> Result<()> {
    for (pod, sandbox) in sandboxes(listed) {
        let all = array(&sandbox["containers"]);
        let to = |query: [&str; 2], kind: &str, containers: &[Value]| {
            leads_to(socket, query, kind, pod, sandbox, containers)
        };
        let id = sandbox["id"].as_str().context("no id")?;
        to(["--container", id], "sandbox", all)?;
        if let (Some(pid), Some(shim)) = (sandbox["pid"].as_u64(), sandbox["shim_pid"].as_u64()) {
            to(["--pid", &pid.to_string()], "sandbox", all)?;
            to(["--pid", &shim.to_string()], "shim", all)?;
            to(["--cgroup", sandbox["cgroup"]["path"].as_str().context("no path")?], "sandbox", all)?;
        }
        for container in all {
            let own = std::slice::from_ref(container);
            to(["--container", container["id"].as_str().context("no id")?], "container", own)?;
            let Some(path) = container["cgroup"]["path"].as_str() else { continue };
            let mount = if unified() { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/pids" };
            let dir = format!("{mount}{path}");
            let two = ["family", "stays"].iter().any(|name| container["name"] == *name);
            to(["--cgroup", if two { &dir } else { path }], "container", own)?;
            let members = fs::read_to_string(format!("{dir}/cgroup.procs"))?;
            ensure!(!two || members.lines().count() == 2, "{members}");
            for pid in members.lines() {
                let kind = if container["pid"] == pid.parse::<u64>()? { "init" } else { "process" };
                to(["--pid", pid], kind, own)?;
            }
        }
    }
    for pod in array(&listed["pods"]) {
        let Some(path) = pod["cgroup"]["path"].as_str() else { continue };
        let found = pods(&["--socket", socket, "--cgroup", path])?;
        ensure!(found["match"]["kind"] == "pod", "{}", found["match"]);
        agree(&found, std::slice::from_ref(pod)).with_context(|| path.to_owned())?;
    }
    let ours = std::process::id().to_string();
    fails(&["--socket", socket, "--pid", &ours], &["belongs to no pod"])?;
    fails(&["--socket", socket, "--pid", "4194305"], &["no process 4194305"])?;
    fails(&["--socket", socket, "--cgroup", "/kubepods"], &["/kubepods"])
}

fn names(socket: &str, listed: &Value) -> Result<()> {
    let by = |text: &str| -> Result<Vec<Value>> {
        let found = pods(&["--socket", socket, "--pod", text])?;
        ensure!(found["match"] == json!({ "kind": "pod" }), "{}", found["match"]);
        Ok(array(&found["pods"]).to_vec())
    };
    let where_ = |is: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        array(&listed["pods"]).iter().filter(|pod| is(pod)).cloned().collect()
    };
    ensure!(by("shop/web-3")? == where_(&|pod| pod["namespace"] == "shop" && pod["name"] == "web-3"));
    let both = by("web-3")?;
    ensure!(both.len() == 2 && both == where_(&|pod| pod["name"] == "web-3"), "{both:?}");
    // A name that was used again: one entry a UID, and nothing of one in the other.
    let again = by("shop/again")?;
    ensure!(again.len() == 2 && again[0]["uid"] != again[1]["uid"], "{again:?}");
    let mut states: Vec<_> = again.iter().map(|pod| pod["sandboxes"][0]["state"].clone()).collect();
    states.sort_by_key(ToString::to_string);
    ensure!(states == ["notready", "ready"], "{states:?}");
    for pod in &again {
        let uid = pod["uid"].as_str().context("no uid")?;
        ensure!(by(uid)? == std::slice::from_ref(pod), "{uid}");
    }
    let replaced = by("replaced")?;
    ensure!(replaced.len() == 1 && array(&replaced[0]["sandboxes"]).len() == 2, "{replaced:?}");
    fails(&["--socket", socket, "--pod", "shop/nothing"], &["no pod shop/nothing"])
}

fn prefixes(socket: &str, listed: &Value) -> Result<()> {
    let ids: Vec<&str> = sandboxes(listed)
        .flat_map(|(_, sandbox)| [sandbox].into_iter().chain(array(&sandbox["containers"])))
        .filter_map(|own| own["id"].as_str())
        .collect();
    let with = |prefix: &str| ids.iter().filter(|id| id.starts_with(prefix)).copied().collect::<Vec<_>>();
    let first = ids.first().context("no ids")?;
    let short = (1..=64).map(|len| &first[..len]).find(|prefix| with(prefix).len() == 1).context("no prefix")?;
    let found = pods(&["--socket", socket, "--container", short])?;
    ensure!(found["pods"][0]["sandboxes"][0]["id"] == *first, "{found}");
    // More than sixteen ids: two of them begin alike.
    let many = ids.iter().map(|id| &id[..1]).find(|prefix| with(prefix).len() > 1).context("no common prefix")?;
    fails(&["--socket", socket, "--container", many], &with(many))?;
    fails(&["--socket", socket, "--container", "xyz"], &["xyz"])
}

/// What `/proc` alone knows is the same.
fn without_the_cri(socket: &str, listed: &Value) -> Result<()> {
    let running = |document: &Value| -> BTreeSet<String> {
        let of = |of: &Value, uid: &Value, sandbox: &Value| {
            let keys = ["id", "pid", "shim_pid", "namespaces", "shared_with_node", "oom_score_adj", "cgroup"];
            let own: Vec<&Value> = keys.map(|key| &of[key]).into();
            json!([uid, sandbox, own, of["shared_with_sandbox"]]).to_string()
        };
        sandboxes(document)
            .flat_map(|(pod, sandbox)| {
                let all = [sandbox].into_iter().chain(array(&sandbox["containers"]));
                all.filter(|own| own.get("pid").is_some()).map(|own| of(own, &pod["uid"], &sandbox["id"]))
            })
            .collect()
    };
    let alone = pods(&["--socket", socket, "--bootstrap", "proc"])?;
    let (alone_running, listed_running) = (running(&alone), running(listed));
    let apart: Vec<_> = alone_running.symmetric_difference(&listed_running).collect();
    ensure!(apart.is_empty(), "{apart:#?}");
    ensure!(alone["runtimes"] == json!([{ "socket": socket }]), "{}", alone["runtimes"]);
    Ok(())
}

/// Anyone may read cgroup paths; the namespaces of others, and the runtime's socket, are root's.
fn without_root(socket: &str) -> Result<()> {
    let nobody = |arguments: &[&str]| -> Result<Ended> {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]).arg(podlapse::binary()?);
        let output = setpriv.args(["pods", "-o", "json", "--socket", socket]).args(arguments).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Ended { status: output.status, stdout: output.stdout, stderr })
    };
    let refused = nobody(&[])?;
    ensure!(refused.status.code() == Some(1) && refused.stderr.contains("run podlapse as root"), "{}", refused.stderr);
    let alone = document(&nobody(&["--bootstrap", "proc"])?)?;
    let of_root: Vec<_> = sandboxes(&alone).filter(|(_, sandbox)| sandbox.get("pid").is_some()).collect();
    ensure!(of_root.len() == PODS + 3, "{} sandboxes", of_root.len());
    ensure!(of_root.iter().all(|(_, sandbox)| sandbox.get("namespaces").is_none()), "{alone}");
    ensure!(alone["notes"][0].as_str().is_some_and(|note| note.contains("run podlapse as root")), "{}", alone["notes"]);
    Ok(())
}

#[tokio::test]
async fn other_containerds_agree_too() -> Result<()> {
    for containerd in [Containerd::V17, Containerd::V21] {
        let node = Node::start(Options::containerd(containerd))?;
        let mut cri = Cri::connect(&node.socket()).await?;
        digest(&node, &mut cri).await?;
        many(&node, &mut cri, 6).await?;
        odd(&node, &mut cri).await?;
        let socket = node.socket().to_str().context("not UTF-8")?.to_owned();
        let listed = pods(&["--socket", &socket])?;
        let expected = Expected::new(&node, &mut cri, untranslated).await?.pods(&mut cri).await?;
        agree(&listed, &expected).with_context(|| format!("containerd {containerd}"))?;
        without_the_cri(&socket, &listed)?;
        node.stop()?;
    }
    Ok(())
}

/// The table has a line each and fits; the detail has the whole chain; a secret is nowhere.
fn for_people(socket: &str, listed: &Value) -> Result<()> {
    ensure!(!listed.to_string().contains(SECRET), "a secret is in the JSON");
    let text = |arguments: &[&str]| -> Result<String> {
        let ended = podlapse::run(&[&["pods", "--socket", socket], arguments].concat())?;
        ensure!(ended.status.success(), "{arguments:?}: {}\n{}", ended.status, ended.stderr);
        let text = String::from_utf8(ended.stdout)?;
        ensure!(!text.contains(SECRET) && !ended.stderr.contains(SECRET), "a secret is in {text}");
        ensure!(!text.contains('\x1b'), "colour, and no terminal: {text}");
        Ok(text)
    };
    let table = text(&[])?;
    let lines = sandboxes(listed).map(|(_, sandbox)| 1 + array(&sandbox["containers"]).len()).sum::<usize>();
    ensure!(table.lines().count() == 1 + lines, "{lines} lines and a head:\n{table}");
    ensure!(table.lines().all(|line| line.len() <= 100), "{table}");
    ensure!(table.lines().any(|line| line.contains("500m") && line.contains("128Mi")), "{table}");
    let detail = text(&["--pod", "shop/web-0"])?;
    let sandbox = sandboxes(listed).find(|(pod, _)| pod["namespace"] == "shop" && pod["name"] == "web-0");
    let (pod, sandbox) = sandbox.context("no shop/web-0")?;
    let container = &sandbox["containers"][0];
    for part in [&pod["uid"], &sandbox["id"], &sandbox["image"], &container["id"], &container["cgroup"]["path"]] {
        ensure!(detail.contains(part.as_str().context("no text")?), "{part} is not in\n{detail}");
    }
    for part in [&container["pid"], &container["shim_pid"], &container["namespaces"]["mnt"]] {
        ensure!(detail.contains(&part.to_string()), "{part} is not in\n{detail}");
    }
    Ok(())
}

/// Two runtimes, one of them in a pid namespace, with a pod of the same name and the same UID each.
#[tokio::test]
async fn ids_carry_their_runtime() -> Result<()> {
    let nodes = [
        Node::start(Options::default())?,
        Node::start(Options { pid_namespace: true, ..Options::containerd(Containerd::V21) })?,
    ];
    let translate = [untranslated, translated];
    let twin = Pod::new("twin", "shop")?;
    let (mut expected, mut sockets) = (Vec::new(), Vec::new());
    for (node, translate) in nodes.iter().zip(translate) {
        let mut cri = Cri::connect(&node.socket()).await?;
        digest(node, &mut cri).await?;
        let pod = twin.clone().on_node(node.cgroup());
        cri.start_pod(&pod, &[Container::new("app"), Container::new("side")]).await?;
        expected.extend(Expected::new(node, &mut cri, translate).await?.pods(&mut cri).await?);
        sockets.push(node.socket().to_str().context("not UTF-8")?.to_owned());
    }
    expected.sort_by_key(|pod| pod["runtime"]["socket"].to_string());
    let both = ["--socket", &sockets[0], "--socket", &sockets[1]];
    let listed = pods(&both)?;
    agree(&listed, &expected)?;
    for (pod, sandbox) in sandboxes(&listed) {
        for container in array(&sandbox["containers"]) {
            let pid = container["pid"].to_string();
            let found = pods(&[&both[..], &["--pid", &pid]].concat())?;
            ensure!(found["pods"][0]["runtime"] == pod["runtime"], "{pid}: {}", found["pods"][0]["runtime"]);
            ensure!(found["pods"][0]["sandboxes"][0]["containers"] == json!([container]), "{pid}: {found}");
        }
    }
    // The other runtime's process is nobody's, and it is said whose.
    let foreign =
        listed["pods"].as_array().and_then(|all| all.iter().find(|pod| pod["runtime"]["socket"] == *sockets[1]));
    let container = &foreign.context("no second pod")?["sandboxes"][0]["containers"][0];
    let id = container["id"].as_str().context("no id")?;
    fails(&["--socket", &sockets[0], "--pid", &container["pid"].to_string()], &[id, "--bootstrap proc"])?;
    // Inside the pid namespace its own pids count, and of the other node nothing is visible.
    let mut inside = Command::new(podlapse::binary()?);
    inside.args(["pods", "-o", "json", "--socket", &sockets[1]]).stdout(std::process::Stdio::piped());
    let output = nodes[1].spawn_beside(&mut inside)?.wait_with_output()?;
    let inside: Value = serde_json::from_slice(&output.stdout)?;
    let mut cri = Cri::connect(&nodes[1].socket()).await?;
    let own = &inside["pods"][0]["sandboxes"][0]["containers"][0];
    let (status, _) = cri.container_status(id, true).await.ok("ContainerStatus")?;
    let info: Value = serde_json::from_str(&status.info["info"])?;
    ensure!(own["id"] == id && own["pid"] == info["pid"], "{own}, but inside it is {}", info["pid"]);
    ensure!(own["namespaces"] == container["namespaces"], "{own}");
    // One that is down does not hide the other, but it is no success.
    let [up, down] = nodes;
    down.stop()?;
    let half = podlapse::run(&[&["pods", "-o", "json"], &both[..]].concat())?;
    ensure!(half.status.code() == Some(1) && half.stderr.contains(&sockets[1]), "{}\n{}", half.status, half.stderr);
    let half = document(&half)?;
    ensure!(array(&half["pods"]).len() == 1 && half["pods"][0]["runtime"]["socket"] == *sockets[0], "{half}");
    up.stop()
}

/// Pods come and go while they are listed: what stays is listed whole, and nothing else is claimed.
#[tokio::test]
async fn pods_that_vanish() -> Result<()> {
    let node = Node::start(Options::default())?;
    let mut cri = Cri::connect(&node.socket()).await?;
    let stays = Pod::new("stays", "shop")?.on_node(node.cgroup());
    let stays = cri.start_pod(&stays, &[Container::new("app")]).await?;
    let socket = node.socket().to_str().context("not UTF-8")?.to_owned();
    let listings = std::thread::spawn(move || (0..40).map(|_| pods(&["--socket", &socket])).collect::<Vec<_>>());
    let mut gone = BTreeSet::new();
    while !listings.is_finished() {
        let pod = Pod::new("goes", "shop")?.on_node(node.cgroup());
        let started = cri.start_pod(&pod, &[Container::new("a"), Container::new("b")]).await?;
        cri.remove_pod(&started.id, &pod.cgroup_parent).await?;
        gone.insert(started.uid);
    }
    let listings = listings.join().map_err(|_| anyhow::anyhow!("a listing panicked"))?;
    let mut seen = BTreeSet::new();
    for listed in listings {
        let listed = listed?;
        for (pod, sandbox) in sandboxes(&listed) {
            let uid = pod["uid"].as_str().context("no uid")?;
            if uid == stays.uid {
                ensure!(sandbox["containers"][0]["pid"] == stays.containers[0].pid, "{pod}");
            } else {
                seen.insert(uid.to_owned());
            }
        }
        ensure!(array(&listed["pods"]).iter().any(|pod| pod["uid"] == stays.uid), "{listed}");
    }
    ensure!(seen.is_subset(&gone), "{seen:?} are none of {gone:?}");
    println!("{} pods went while 40 listings were made, {} of them were listed", gone.len(), seen.len());
    node.stop()
}

#[test]
fn sockets_that_are_no_runtime() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned).context("not UTF-8");
    let (absent, plain, dead, garbage) = (path("absent")?, path("plain")?, path("dead")?, path("garbage")?);
    fs::write(&plain, "")?;
    drop(UnixListener::bind(&dead)?);
    let listener = UnixListener::bind(&garbage)?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whatever becomes of the bytes is podlapse's to find out.
            let _ = stream.and_then(|mut stream| std::io::Write::write_all(&mut stream, &[0xff; 4096]));
        }
    });
    fails(&["--socket", &absent], &["absent", "does not exist"])?;
    fails(&["--socket", &plain], &["plain", "not a socket"])?;
    fails(&["--socket", &dead], &["dead", "nobody listens"])?;
    fails(&["--socket", &garbage], &["garbage", "--bootstrap proc"])
}

//! The node of the cases: runtime handlers with networks, hooks and runtimes that fail, and a podlapse that watches.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Kind;
use super::judge::{self, Judged};
use crate::cri::{Container, Pod, StartedPod};
use crate::podlapse::{self, Running};
use crate::tools::{Containerd, Tools};
use crate::{Cri, Node, Options, cgroup, image};

/// Handlers with a network of their own: the plugins of its list; of no list where there are none.
const NETWORKS: &[(&str, &str)] = &[
    ("no-config", ""),
    ("no-plugin", r#"{ "type": "absent" }"#),
    ("no-ipam", r#"{ "type": "bridge", "bridge": "cases0", "ipam": { "type": "absent-ipam" } }"#),
    (
        "one-address",
        r#"{ "type": "bridge", "bridge": "cases1", "ipam": { "type": "host-local",
             "ranges": [[{ "subnet": "10.89.0.0/24", "rangeStart": "10.89.0.7", "rangeEnd": "10.89.0.7" }]] } }"#,
    ),
    ("sleeps", r#"{ "type": "sleeps" }"#),
    ("chats", r#"{ "type": "chats" }"#),
    ("crashes", r#"{ "type": "crashes" }"#),
    ("fails", r#"{ "type": "fails" }"#),
    ("fails-twice", r#"{ "type": "fails-twice" }"#),
    ("sticks", r#"{ "type": "sticks" }"#),
];

/// What those plugins do when they are to add a pod; they do nothing when they are to take it away.
const PLUGINS: &[(&str, &str)] = &[
    ("sleeps", "exec sleep 1000"),
    ("chats", "echo network is up"),
    ("crashes", "kill -KILL $$"),
    ("fails", r#"echo '{ "cniVersion": "0.4.0", "code": 100, "msg": "no such tenant" }'; exit 1"#),
];

/// And these when they are to do either.
const BOTH_WAYS: &[(&str, &str)] = &[
    ("fails-twice", r#"echo '{ "cniVersion": "0.4.0", "code": 100, "msg": "no such tenant" }'; exit 1"#),
    (
        "sticks",
        r#"if [ "$CNI_COMMAND" = ADD ]; then
           echo '{ "cniVersion": "0.4.0", "interfaces": [{ "name": "eth0", "sandbox": "'"$CNI_NETNS"'" }],
                   "ips": [{ "version": "4", "interface": 0, "address": "10.90.0.7/24" }] }'
           else echo '{ "cniVersion": "0.4.0", "code": 100, "msg": "no such device" }'; exit 1; fi"#,
    ),
];

/// Handlers whose containers have an OCI hook, and what it does.
const HOOKS: &[(&str, &str)] = &[
    ("hook-fails", "echo no driver >&2; exit 3"),
    // Until the test removes the file.
    ("hook-waits", "echo $$ > WAITS; while [ -e WAITS ]; do sleep 0.05; done"),
    ("hook-freezes", "echo FROZEN > /sys/fs/cgroup/freezer$(group freezer)/freezer.state"),
    // Init goes on with what it has.
    ("hook-starves", "cd /sys/fs/cgroup/memory$(group memory); cat memory.usage_in_bytes > memory.limit_in_bytes"),
];

/// A container's hook reads the container's state, in which init's pid is; `group` gives its cgroup.
const HOOK: &str = r#"state=$(cat)
case $state in *'"container"'*) ;; *) exit 0 ;; esac
pid=$(echo "$state" | tr -d ' \n' | sed 's/.*"pid":\([0-9]*\).*/\1/')
group() { sed -n "s/.*:$1://p" /proc/$pid/cgroup; }
"#;

/// The node, and what runs on it.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) node: Node,
    pub(super) cri: Cri,
    tools: Tools,
    podlapse: Running,
    recording: PathBuf,
    kind: Kind,
    /// Pods made so far.
    pods: u32,
}

impl Stand {
    /// The node is up and podlapse attached when this returns.
    pub(super) async fn start(kind: &Kind) -> Result<Stand> {
        let mut node = Node::start(Options::containerd(kind.containerd))?;
        let tools = Tools::find(kind.containerd)?;
        prepare(&mut node, &tools, kind)?;
        let recording = node.dir().join("cases.plr");
        let file = recording.to_str().context("the node's folder is not UTF-8")?;
        let options = ["--next", "1000", "--restarts", "-o", "json"];
        let podlapse = podlapse::attach(&node, &["record", file], &options)?;
        let cri = Cri::connect(&node.socket()).await?;
        let mut stand = Stand { node, cri, tools, podlapse, recording, kind: kind.clone(), pods: 0 };
        stand.import(image::BROKEN_IMAGE, image::write_broken).await?;
        Ok(stand)
    }

    /// The traces of all starts, and the verdicts with the texts of replies and without.
    pub(super) fn stop(self) -> Result<(Vec<Value>, Judged, Judged)> {
        self.podlapse.interrupt()?;
        let mut traces = self.podlapse.traces()?;
        traces.sort_by_key(|trace| {
            trace["start"]["monotonic_ns"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
        });
        let (judged, blanked) = (judge::judge(&self.recording, true)?, judge::judge(&self.recording, false)?);
        self.node.stop()?;
        Ok((traces, judged, blanked))
    }

    /// containerd 2.
    pub(super) fn is_newer(&self) -> bool {
        self.kind.containerd == Containerd::V21
    }

    /// Another pod, with its cgroup.
    pub(super) fn pod(&mut self, handler: &str) -> Result<Pod> {
        self.pods += 1;
        let mut pod = Pod::new(&format!("pod-{}", self.pods), "cases")?.on_node(self.node.cgroup());
        pod.runtime_handler = if handler.is_empty() { self.kind.runtime.clone() } else { handler.to_owned() };
        cgroup::create(&pod.cgroup_parent)?;
        Ok(pod)
    }

    /// A pod with these containers runs.
    pub(super) async fn runs(&mut self, handler: &str, containers: &[Container]) -> Result<(Pod, StartedPod)> {
        let pod = self.pod(handler)?;
        let started = self.cri.start_pod(&pod, containers).await?;
        Ok((pod, started))
    }

    /// The sandbox of a pod cannot be made.
    pub(super) async fn no_sandbox(&mut self, handler: &str) -> Result<Pod> {
        let pod = self.pod(handler)?;
        let call = self.cri.run_pod_sandbox(&pod).await;
        ensure!(call.result.is_err(), "RunPodSandbox went well");
        Ok(pod)
    }

    /// A container cannot be started in a pod that runs.
    pub(super) async fn no_container(&mut self, handler: &str, container: &Container) -> Result<Pod> {
        let (pod, started) = self.runs(handler, &[]).await?;
        let started = self.cri.start_container_in(&pod, &started.id, container).await;
        ensure!(started.is_err(), "StartContainer went well");
        Ok(pod)
    }

    /// Where the hook that waits writes its pid; it goes on when the file is gone.
    pub(super) fn waits(&self) -> PathBuf {
        self.node.dir().join("cases/waits")
    }

    /// Gives the runtime an image; it lists it when this returns.
    pub(super) async fn import(&mut self, name: &str, write: fn(&Path) -> Result<()>) -> Result<()> {
        let archive = self.node.dir().join("image.tar");
        write(&archive)?;
        let archive = archive.to_str().context("the node's folder is not UTF-8")?;
        self.ctr(&["images", "import", archive])?;
        self.has_image(name, true).await
    }

    /// Takes an image away from the runtime.
    pub(super) async fn remove_image(&mut self, name: &str) -> Result<()> {
        self.ctr(&["images", "rm", name])?;
        self.has_image(name, false).await
    }

    /// Another client on the same socket, of another API.
    pub(super) fn list_with_ctr(&self) -> Result<()> {
        self.ctr(&["containers", "list"])
    }

    fn ctr(&self, arguments: &[&str]) -> Result<()> {
        let mut ctr = self.tools.ctr(&self.node.socket());
        let output = self.node.spawn(ctr.args(arguments).stdout(std::process::Stdio::null()))?.wait_with_output()?;
        ensure!(output.status.success(), "ctr {arguments:?}: {}", output.status);
        Ok(())
    }

    /// The CRI learns of images by events.
    async fn has_image(&mut self, name: &str, wanted: bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.cri.has_image(name).await? != wanted {
            ensure!(Instant::now() < deadline, "the CRI does not learn of {name}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// Puts the handlers in place, and containerd under them by a restart.
fn prepare(node: &mut Node, tools: &Tools, kind: &Kind) -> Result<()> {
    let plugin = match kind.containerd {
        Containerd::V16 | Containerd::V17 => "io.containerd.grpc.v1.cri",
        Containerd::V21 => "io.containerd.cri.v1.runtime",
    };
    let [default, ..] = tools.runtime_handlers();
    let program = tools.runtime_handlers().into_iter().find(|(name, _)| *name == kind.runtime).unwrap_or(default).1;
    let runtime = |handler: &str, key: &str, path: &Path| {
        let table = format!("plugins.\"{plugin}\".containerd.runtimes.{handler}");
        let table =
            format!("\n[{table}]\n  runtime_type = \"io.containerd.runc.v2\"\n  {key} = {path:?}\n[{table}.options]");
        format!("{table}\n  BinaryName = {program:?}\n")
    };
    let folder = node.dir().join("cases");
    fs::create_dir(&folder)?;
    let plugins = folder.join("plugins");
    fs::create_dir(&plugins)?;
    for plugin in fs::read_dir(tools.cni())? {
        let plugin = plugin?;
        symlink(plugin.path(), plugins.join(plugin.file_name()))?;
    }
    for (name, add) in PLUGINS {
        script(&plugins.join(name), &format!("[ \"$CNI_COMMAND\" = ADD ] || exit 0\ncat >/dev/null\n{add}"))?;
    }
    for (name, does) in BOTH_WAYS {
        script(&plugins.join(name), &format!("cat >/dev/null\n{does}"))?;
    }
    let config = node.dir().join("containerd.toml");
    let (real, own) = (format!("bin_dir = {:?}", tools.cni()), format!("bin_dir = {plugins:?}"));
    let mut text = fs::read_to_string(&config)?.replace(&real, &own);
    for (handler, list) in NETWORKS {
        let dir = folder.join(handler);
        fs::create_dir(&dir)?;
        if !list.is_empty() {
            let list = format!("{{ \"cniVersion\": \"0.4.0\", \"name\": \"{handler}\", \"plugins\": [{list}] }}");
            fs::write(dir.join("10.conflist"), list)?;
        }
        text += &runtime(handler, "cni_conf_dir", &dir);
    }
    for (handler, what) in HOOKS {
        let (hook, spec) = (folder.join(handler), folder.join(format!("{handler}.json")));
        let what = what.replace("WAITS", &folder.join("waits").to_string_lossy());
        script(&hook, &format!("{HOOK}{what}"))?;
        fs::write(&spec, with_hook(tools, node, &hook)?.to_string())?;
        text += &runtime(handler, "base_runtime_spec", &spec);
    }
    if kind.containerd == Containerd::V21 {
        text += &plain_http(&folder.join("hosts"))?;
    }
    fs::write(&config, text)?;
    node.restart_containerd()?;
    Ok(())
}

/// containerd 2 speaks TLS to a registry on the node, too, unless it is told not to.
fn plain_http(folder: &Path) -> Result<String> {
    for host in ["localhost", "127.0.0.1:5002", "127.0.0.1:5003", "127.0.0.1:5004"] {
        fs::create_dir_all(folder.join(host))?;
        fs::write(folder.join(host).join("hosts.toml"), format!("server = \"http://{host}\"\n"))?;
    }
    Ok(format!("\n[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = {folder:?}\n"))
}

/// containerd's own default spec, and a hook.
fn with_hook(tools: &Tools, node: &Node, hook: &Path) -> Result<Value> {
    let output = tools.ctr(&node.socket()).args(["oci", "spec"]).output()?;
    let mut spec: Value = serde_json::from_slice(&output.stdout).context("ctr oci spec")?;
    spec["hooks"] = json!({ "createRuntime": [{ "path": hook }] });
    Ok(spec)
}

fn script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

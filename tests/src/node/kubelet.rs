//! kubelet beside a node's containerd: without an API server, it runs what lies in a folder of manifests.
//!
//! Outside these namespaces it would set sysctls of the whole machine and tidy up `/var/log/pods` and cgroups that it
//! does not know. Here the sysctls are files of the node, `/var/log` is a tmpfs, and its cgroup root is the node's.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::mount_bind;
use serde_json::json;

use super::keeper::{run, tmpfs, tool};
use crate::kubelet::{REGISTRY, REGISTRY_PASSWORD};
use crate::tools::{self, Tools};

/// The node's name and address, of which kubelet has to have some.
pub(super) const NODE_NAME: &str = "node1";
const ADDRESS: &str = "10.198.0.1";
const HEALTH: u16 = 10248;

/// kubelet's own folder, on the node's overlay; registries' passwords are read from it.
const ROOT: &str = "/var/lib/kubelet";

/// What kubelet writes where the machine has something else (`setupKernelTunables` of its container manager).
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// kubelet may start slowly on a busy machine: it walks all cgroups first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where static pods are put.
pub(super) fn manifests(dir: &Path) -> PathBuf {
    dir.join("kubelet/manifests")
}

/// kubelet, as it runs.
pub(super) struct Kubelet {
    child: Child,
}

impl Kubelet {
    /// Starts it; it is healthy when this returns.
    pub(super) fn start(dir: &Path, cgroup: &str, tools: &Tools) -> Result<Self> {
        let program = tools::kubelet()?;
        let (own, config) = (dir.join("kubelet"), dir.join("kubelet/config.json"));
        if !own.exists() {
            prepare(dir, tools).context("cannot prepare the node for kubelet")?;
            fs::write(&config, configuration(dir, cgroup).to_string())?;
        }
        let log = File::options().create(true).append(true).open(dir.join("kubelet.log"))?;
        let mut command = Command::new(program);
        command.arg("--config").arg(config).arg("--container-runtime=remote");
        command.arg(format!("--container-runtime-endpoint=unix://{}", dir.join("containerd.sock").display()));
        command.arg(format!("--hostname-override={NODE_NAME}")).arg(format!("--node-ip={ADDRESS}")).arg("--v=2");
        // It looks for a cloud otherwise.
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("PATH", tools.path());
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let mut kubelet = Self { child: child.context("cannot run kubelet")? };
        let deadline = Instant::now() + PATIENCE;
        while !healthy() {
            let words = || last_words(dir);
            if let Some(status) = kubelet.child.try_wait()? {
                bail!("kubelet ended with {status}:\n{}", words());
            }
            if Instant::now() > deadline {
                kubelet.kill()?;
                bail!("kubelet does not become healthy:\n{}", words());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(kubelet)
    }

    /// Its pid.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL; its pods run on.
    pub(super) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Everything outside the node's folder that it would write to.
fn prepare(dir: &Path, tools: &Tools) -> Result<()> {
    fs::create_dir_all(manifests(dir))?;
    for (name, value) in SYSCTLS {
        let real = Path::new("/proc/sys").join(name);
        if real.exists() {
            let own = dir.join("kubelet").join(name.replace('/', "."));
            fs::write(&own, value)?;
            mount_bind(&own, &real).with_context(|| format!("cannot cover {}", real.display()))?;
        }
    }
    tmpfs("/var/log")?;
    fs::create_dir_all(ROOT)?;
    let credentials = json!({ "auths": { REGISTRY: { "username": "user", "password": REGISTRY_PASSWORD } } });
    fs::write(Path::new(ROOT).join("config.json"), credentials.to_string())?;
    run(tool(tools, "ip").args(["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"]))
}

fn configuration(dir: &Path, cgroup: &str) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": manifests(dir),
        "fileCheckFrequency": "1s",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%" },
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "maxPods": 250,
        "resolvConf": "/dev/null",
        "volumePluginDir": dir.join("kubelet/volume-plugins"),
        "address": Ipv4Addr::LOCALHOST,
        "healthzBindAddress": Ipv4Addr::LOCALHOST,
        "healthzPort": HEALTH,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    })
}

fn healthy() -> bool {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, HEALTH))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    asked().is_ok_and(|reply| reply.ends_with("\r\n\r\nok"))
}

fn last_words(dir: &Path) -> String {
    let log = fs::read_to_string(dir.join("kubelet.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

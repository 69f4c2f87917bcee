//! A start as containerd 1.6.20 with runc 1.1.5 and the bridge plugins does it (FACTS Part 0), at chosen times.

use super::dsl::{RUNTIME, Stream, id};
use crate::cri::Field;
use crate::record::{CgroupOp, Sys};

/// Flags as the runtimes pass them.
pub(super) const NEWNET: u64 = 0x4000_0000;
const NEW_REST: u64 = 0x0002_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000;
const BIND: u64 = 0x1000;
/// Options of prctl(2), and SECCOMP_SET_MODE_FILTER.
const SUBREAPER: u64 = 36;
const KEEPCAPS: u64 = 8;
const SECCOMP: u64 = 22;
const MODE_FILTER: u64 = 1;
const EFAULT: i64 = -14;
const SHIM: &str = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address /run/containerd/containerd.sock";
const RUNC: &str = "runc --root /run/containerd/runc/k8s.io --log /run/b/log.json --log-format json";

/// A pod to start.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: &'static str,
    /// What its ids begin with.
    pub(super) digits: String,
    pub(super) uid: String,
    /// Its sandbox's id.
    pub(super) sandbox: String,
    /// First of its pids.
    pub(super) pids: u32,
    pub(super) host_network: bool,
}

impl Pod {
    pub(super) fn new(name: &'static str, digit: &str, pids: u32) -> Pod {
        let uid = format!("{digit}0000000-0000-4000-8000-000000000000");
        Pod { name, digits: digit.to_owned(), uid, sandbox: id(&format!("{digit}a")), pids, host_network: false }
    }

    /// Cgroup path of a container.
    pub(super) fn cgroup(&self, container: &str) -> String {
        format!("/kubepods/burstable/pod{}/{container}", self.uid)
    }

    /// Environment of a plugin.
    pub(super) fn env(&self, command: &str) -> Vec<(String, String)> {
        let args = format!(
            "K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_NAMESPACE=default;IgnoreUnknown=1;K8S_POD_UID={}",
            self.name, self.sandbox, self.uid
        );
        let pairs = [
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", self.sandbox.clone()),
            ("CNI_NETNS", format!("/var/run/netns/cni-{}", self.digits)),
            ("CNI_ARGS", args),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
    }

    pub(super) fn request(&self) -> Vec<(Field, &str)> {
        vec![
            (Field::PodName, self.name),
            (Field::PodNamespace, "default"),
            (Field::PodUid, &self.uid),
            (Field::CgroupParent, "/kubepods/burstable/podx"),
        ]
    }
}

/// RunPodSandbox, 0 to 76 000.
pub(super) fn sandbox(s: &mut Stream, pod: &Pod) {
    let request = pod.request();
    s.call((0, 76_000), "RunPodSandbox", &request, &[(Field::SandboxId, &pod.sandbox)]);
    sandbox_signs(s, pod);
}

/// What happens inside RunPodSandbox.
pub(super) fn sandbox_signs(s: &mut Stream, pod: &Pod) {
    if !pod.host_network {
        network(s, pod);
    }
    shim(s, pod, 41_000, &pod.sandbox, pod.pids + 10);
    s.fork(41_900, pod.pids + 10, pod.pids + 11);
    s.exec(42_000, pod.pids + 10, pod.pids + 11, &format!("{SHIM} -id {}", pod.sandbox));
    s.sys((43_500, 43_510), (pod.pids + 11, pod.pids + 912), Sys::Prctl, SUBREAPER, [""; 3]);
    oci(s, pod, 44_000, &pod.sandbox, pod.pids + 20, "/pause", !pod.host_network);
}

/// The network namespace and the plugins, 1 000 to 40 000.
pub(super) fn network(s: &mut Stream, pod: &Pod) {
    let (tid, netns) = (pod.pids + 900, format!("/var/run/netns/cni-{}", pod.digits));
    s.sys((1_000, 1_500), (RUNTIME, tid), Sys::Unshare, NEWNET, [""; 3]);
    s.sys((1_600, 1_700), (RUNTIME, tid), Sys::Mount, BIND, ["/proc/1/task/1/ns/net", &netns, "none"]);
    let env = pod.env("ADD");
    s.cni((3_000, 6_000), RUNTIME, pod.pids + 1, "loopback", &env);
    s.cni((3_100, 30_000), RUNTIME, pod.pids + 2, "bridge", &env);
    s.visit((8_000, 14_000), (pod.pids + 2, pod.pids + 2), 77);
    // Another thread of it, made inside, on the node and back.
    s.visit((10_000, 11_000), (pod.pids + 2, pod.pids + 902), 77);
    s.cni((20_000, 25_000), pod.pids + 2, pod.pids + 3, "host-local", &env);
    s.visit((26_000, 27_000), (pod.pids + 2, pod.pids + 903), 77);
    s.cni((31_000, 40_000), RUNTIME, pod.pids + 4, "portmap", &env);
    s.process((33_000, 34_000), pod.pids + 4, pod.pids + 5, "iptables -t nat -S");
}

/// A shim starter of `id` at `at`, 2 ms.
fn shim(s: &mut Stream, _pod: &Pod, at: u64, id: &str, pid: u32) {
    let command = format!("{SHIM} -publish-binary /usr/bin/containerd -id {id} start");
    s.process((at, at + 2_000), RUNTIME, pid, &command);
}

/// Rootfs, `runc create` and `runc start` of `id` from `at` on, 30 ms; pids from `pid` on.
pub(super) fn oci(s: &mut Stream, pod: &Pod, at: u64, id: &str, pid: u32, entrypoint: &str, net: bool) {
    let shim = pod.pids + 11;
    let (create, stage0, stage1, init, start) = (pid, pid + 1, pid + 2, pid + 3, pid + 4);
    let bundle = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}");
    let cgroup = pod.cgroup(id);

    s.sys((at + 200, at + 400), (shim, shim), Sys::Mount, 0, ["overlay", &format!("{bundle}/rootfs"), "overlay"]);
    s.fork(at + 900, shim, create);
    let command = format!("{RUNC} create --bundle {bundle} --pid-file {bundle}/init.pid {id}");
    s.exec(at + 1_000, shim, create, &command);
    s.fork(at + 3_000, create, stage0);
    s.exec(at + 3_200, create, stage0, "/proc/self/exe: runc init");
    s.cgroup(at + 3_500, create, CgroupOp::Mkdir, &cgroup, None);
    s.cgroup(at + 3_900, create, CgroupOp::Attach, &cgroup, Some(stage0));
    s.write((at + 3_800, at + 3_900), create, id, "cgroup.procs", "1");
    s.exec(at + 4_200, create, stage0, "/dev/fd/6: runc init");
    s.fork(at + 5_000, create, stage1);
    if net {
        s.sys((at + 5_100, at + 5_200), (stage1, stage1), Sys::Setns, NEWNET, [""; 3]);
    }
    s.sys((at + 5_300, at + 5_900), (stage1, stage1), Sys::Unshare, NEW_REST, [""; 3]);
    s.fork(at + 6_000, create, init);
    s.exit(at + 6_100, stage1, 0);
    s.exit(at + 6_200, stage0, 0);
    for (from, target) in [(9_000, "/proc"), (9_400, "/dev"), (10_000, "/sys")] {
        s.sys((at + from, at + from + 200), (init, init), Sys::Mount, 0, ["none", target, "tmpfs"]);
    }
    s.sys((at + 10_300, at + 10_310), (init, init), Sys::Mknodat, 0, ["/dev/null", "", ""]);
    s.write((at + 11_000, at + 11_100), create, id, "memory.max", "134217728\n");
    s.write((at + 11_200, at + 11_300), create, id, "cpu.max", "50000 100000");
    s.sys((at + 12_000, at + 12_100), (init, init), Sys::PivotRoot, 0, [".", ".", ""]);
    s.sys((at + 12_200, at + 12_600), (init, init), Sys::Umount2, 0, [".", "", ""]);
    s.sys((at + 13_000, at + 13_100), (init, init), Sys::Mount, BIND, ["/dev/null", "/proc/kcore", ""]);
    let state = format!("/run/containerd/runc/k8s.io/{id}/state.json");
    s.sys((at + 13_300, at + 13_310), (create, create + 900), Sys::Renameat, 0, ["/run/tmp", &state, ""]);
    s.sys((at + 13_500, at + 13_510), (init, init), Sys::Prctl, KEEPCAPS, [""; 3]);
    s.sys((at + 13_600, at + 13_610), (init, init), Sys::Capset, 0, [""; 3]);
    s.failing_sys((at + 13_700, at + 13_705), (init, init), Sys::Seccomp, MODE_FILTER, [""; 3], EFAULT);
    s.sys((at + 15_000, at + 15_200), (init, init), Sys::Prctl, SECCOMP, [""; 3]);
    s.exit(at + 16_000, create, 0);
    s.task((at + 100, at + 17_000), "Create", id, init);

    s.task((at + 18_000, at + 24_000), "Start", id, init);
    s.fork(at + 18_900, shim, start);
    s.exec(at + 19_000, shim, start, &format!("{RUNC} start {id}"));
    s.exec_in_container(at + 22_000, shim, init, entrypoint, pod.pids);
    s.exit(at + 23_000, start, 0);
}

/// CreateContainer and StartContainer of `name` from `at` on, 52 ms.
pub(super) fn container(s: &mut Stream, pod: &Pod, at: u64, name: &str, entrypoint: &str) {
    attempt(s, pod, at, name, entrypoint, 0);
}

/// The same for any attempt of a container.
pub(super) fn attempt(s: &mut Stream, pod: &Pod, at: u64, name: &str, entrypoint: &str, attempt: u32) {
    let (id, pid) = create_attempt(s, pod, at, name, attempt);
    s.call((at + 10_000, at + 52_000), "StartContainer", &[(Field::ContainerId, &id)], &[]);
    shim(s, pod, at + 11_000, &id, pid + 10);
    oci(s, pod, at + 15_000, &id, pid, entrypoint, true);
}

/// CreateContainer alone, 8 ms; the id and the first pid of the container.
pub(super) fn create_container(s: &mut Stream, pod: &Pod, at: u64, name: &str) -> (String, u32) {
    create_attempt(s, pod, at, name, 0)
}

fn create_attempt(s: &mut Stream, pod: &Pod, at: u64, name: &str, attempt: u32) -> (String, u32) {
    let number = name.bytes().map(u32::from).sum::<u32>() % 10;
    let id = id(&format!("{}{}{number}", pod.digits, ["c", "d", "e"][attempt as usize]));
    let request = [
        (Field::SandboxId, pod.sandbox.as_str()),
        (Field::ContainerName, name),
        (Field::ContainerAttempt, &attempt.to_string()),
        (Field::Image, "docker.io/library/busybox:1"),
        (Field::PodName, pod.name),
        (Field::PodNamespace, "default"),
        (Field::PodUid, &pod.uid),
    ];
    s.call((at, at + 8_000), "CreateContainer", &request, &[(Field::ContainerId, &id)]);
    (id, pod.pids + 100 + 20 * number + 400 * attempt)
}

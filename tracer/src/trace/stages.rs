//! The registry of stages: every name that a span, a verdict or a metric may carry. A new stage is one line here.

use std::borrow::Cow;

/// What the edges of a stage are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edges {
    /// Start and end of a call on the socket. Its self time is reported as its `.runtime` stage.
    Call,
    /// Kernel or ttrpc signs on both sides.
    Signs,
    /// What remains inside a call.
    Remainder,
    /// Between signs of others; what happens inside is not seen.
    Gap,
    /// One instant.
    Point,
}

/// One stage.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Dotted name; a leading `*` stands for each call stage, a trailing `*` for a name that the node gives.
    pub pattern: &'static str,
    /// Its edges.
    pub edges: Edges,
    /// What it is, in a line.
    pub doc: &'static str,
}

const fn stage(pattern: &'static str, edges: Edges, doc: &'static str) -> Stage {
    Stage { pattern, edges, doc }
}

/// All stages, in the order of a start.
pub const STAGES: &[Stage] = &[
    stage("kubelet.prepare", Edges::Gap, "pod cgroup made or first volume mounted, no CRI call yet"),
    stage("kubelet.prepare.volume", Edges::Signs, "one mount by kubelet, or for it, onto a volume of the pod"),
    stage("kubelet.gap", Edges::Gap, "between two CRI calls of one pod"),
    stage("kubelet.queue", Edges::Signs, "waiting behind another pod's pull, on a connection that pulls in turn"),
    stage("sandbox", Edges::Call, "RunPodSandbox, request to response"),
    stage(
        "sandbox.netns",
        Edges::Signs,
        "unshare(NEWNET) to the bind mount of the namespace's path; pinns, clone to exit",
    ),
    stage("sandbox.cni", Edges::Signs, "first CNI plugin's clone to the last one's exit"),
    stage(
        "sandbox.cni.*",
        Edges::Signs,
        "one CNI plugin process, clone to exit; below it a delegate, its time in the pod's network (`.netns`) and on the node (`.host`)",
    ),
    stage(
        "sandbox.cni_next",
        Edges::Signs,
        "a CNI plugin's exit to the next one's clone: the runtime hands the result on",
    ),
    stage("image.pull", Edges::Call, "PullImage, request to response"),
    stage("container.create", Edges::Call, "CreateContainer, request to response"),
    stage("container.start", Edges::Call, "StartContainer, request to response"),
    stage("*.shim", Edges::Signs, "shim starter's clone, or conmon's, to its exit, which says that the daemon runs"),
    stage("*.shim.daemon", Edges::Signs, "shim daemon's clone to its being the reaper of its children"),
    stage("*.shim.connect", Edges::Signs, "shim starter's exit to the runtime's Task/Create request"),
    stage("*.task.request", Edges::Signs, "Task/Create request to the shim's mount, or runtime create"),
    stage("*.rootfs", Edges::Signs, "mount of the root file system by the shim"),
    stage("*.oci.create", Edges::Signs, "runtime create, clone to exit"),
    stage(
        "*.oci.create.load",
        Edges::Signs,
        "runtime create reads the bundle and prepares its state, to init's first sign",
    ),
    stage("*.oci.create.self_clone", Edges::Signs, "the runtime seals and re-executes its own binary"),
    stage("*.oci.create.cgroup_join", Edges::Signs, "the cgroup made, or asked of PID 1, to the last attach"),
    stage("*.oci.create.bootstrap", Edges::Signs, "init's first process gets its orders, to its first namespace"),
    stage("*.oci.create.namespaces", Edges::Signs, "first to last setns, unshare or clone of init's namespaces"),
    stage(
        "*.oci.create.init",
        Edges::Signs,
        "init starts up in its namespaces and reads its orders, to its first mount",
    ),
    stage(
        "*.oci.create.mounts",
        Edges::Signs,
        "mounts and device nodes by init in a row, before or after its pivot_root",
    ),
    stage("*.oci.create.sync", Edges::Signs, "init's mounts to the limits, and the limits to init's next step"),
    stage("*.oci.create.limits", Edges::Signs, "first to last write to a file of the container's cgroup"),
    stage("*.oci.create.hooks", Edges::Signs, "one OCI hook process, exec to exit"),
    stage("*.oci.create.pivot", Edges::Signs, "pivot_root to the umount of the old root"),
    stage("*.oci.create.state", Edges::Signs, "init is ready; runc saves the container's state"),
    stage("*.oci.create.privileges", Edges::Signs, "init gives up privileges: no_new_privs, capabilities, user"),
    stage("*.oci.create.lsm", Edges::Signs, "first to last write in a row of init's AppArmor or SELinux label"),
    stage("*.oci.create.seccomp", Edges::Signs, "the seccomp filter is compiled and installed"),
    stage(
        "*.oci.create.lookpath",
        Edges::Signs,
        "init's last privileges to the exit of runtime create, which failed: the entrypoint is looked up",
    ),
    stage("*.oci.create.finish", Edges::Signs, "init's last step to the exit of runtime create"),
    stage("*.oci.fifo_wait", Edges::Signs, "created, not yet told to start"),
    stage("*.oci.start", Edges::Signs, "runtime start's clone to the entrypoint's execve"),
    stage("*.task.reply", Edges::Signs, "the entrypoint's execve to the shim's reply to Task/Start"),
    stage("*.fsync", Edges::Signs, "the runtime waits for the disk; no other call is open that may have made it"),
    stage(
        "*.tmp_mount",
        Edges::Signs,
        "the runtime mounts a file system for a look, to its umount; no other such call",
    ),
    stage("*.chown", Edges::Signs, "the runtime changes owners of files; no other such call"),
    stage("*.relabel", Edges::Signs, "the runtime changes SELinux labels of files; no other such call"),
    stage("*.runtime", Edges::Remainder, "what remains inside the call"),
    stage("container.exec", Edges::Point, "the entrypoint's execve; from the response on where that came first"),
    stage(
        "container.listen",
        Edges::Point,
        "first listen in the pod's network namespace by a process of the container",
    ),
    stage(
        "cri.call",
        Edges::Signs,
        "another call about the pod that may change something, request to response; its method may be unknown",
    ),
    stage("poststart", Edges::Signs, "ExecSync of a PostStart hook, request to response"),
    stage("probe.exec", Edges::Signs, "ExecSync of a probe while the start is not over, request to response"),
    stage(
        "probe.connect",
        Edges::Signs,
        "a client of the runtime connects to a port of the pod, first try to accepted",
    ),
    stage("container.run", Edges::Signs, "the entrypoint's execve to its process's exit; of verdicts alone"),
    stage("container.stop", Edges::Signs, "StopContainer, request to response; of verdicts alone"),
    stage("sandbox.run", Edges::Signs, "RunPodSandbox's response to the pause process's exit; of verdicts alone"),
    stage("sandbox.stop", Edges::Signs, "StopPodSandbox, request to response; of verdicts alone"),
    stage("sandbox.stop.cni", Edges::Signs, "CNI plugins with DEL in it; of verdicts alone"),
    stage("sandbox.stop.cni.*", Edges::Signs, "one of them, clone to exit; of verdicts alone"),
];

/// The stages of calls, for which a leading `*` stands.
const CALLS: [&str; 4] = ["sandbox", "image.pull", "container.create", "container.start"];

/// The stage that the own time of a span of `stage` belongs to: what remains inside a call has a name of its own.
pub fn self_stage(stage: &str) -> Cow<'_, str> {
    match lookup(stage).map(|stage| stage.edges) {
        Some(Edges::Call) => Cow::Owned(format!("{stage}.runtime")),
        _ => Cow::Borrowed(stage),
    }
}

/// The registry's entry for `name`; exact names win over patterns.
pub fn lookup(name: &str) -> Option<&'static Stage> {
    let fits = |stage: &&Stage| {
        if let Some(below) = stage.pattern.strip_prefix('*') {
            name.strip_suffix(below).is_some_and(|call| CALLS.contains(&call))
        } else if let Some(above) = stage.pattern.strip_suffix('*') {
            name.strip_prefix(above).is_some_and(|rest| !rest.is_empty())
        } else {
            stage.pattern == name
        }
    };
    let exact = STAGES.iter().find(|stage| stage.pattern == name);
    exact.or_else(|| STAGES.iter().find(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_stage() {
        let edges = |name| lookup(name).map(|stage| stage.edges);
        assert_eq!(edges("sandbox"), Some(Edges::Call));
        assert_eq!(edges("sandbox.cni.bridge"), Some(Edges::Signs));
        assert_eq!(edges("container.start.oci.create.pivot"), Some(Edges::Signs));
        assert_eq!(edges("image.pull.runtime"), Some(Edges::Remainder));
        assert_eq!(edges("sandbox.cni."), None);
        assert_eq!(edges("oci.create"), None);
        assert_eq!(self_stage("container.start"), "container.start.runtime");
        assert_eq!(self_stage("sandbox.cni.bridge"), "sandbox.cni.bridge");
    }
}

//! The closed list of reasons. A new one is an entry here; its page in `docs/reasons/` is made of it.

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its name in outputs.
    pub name: &'static str,
    /// The word that kubelet shows for it; empty: the word of the call that failed, `-`: it has none.
    pub kubelet: &'static str,
    /// What it means.
    pub means: &'static str,
    /// How podlapse knows.
    pub knows: &'static str,
    /// What to check next.
    pub next_check: &'static str,
}

/// The reason of that name.
pub fn reason(name: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| reason.name == name)
}

impl Reason {
    /// Its page, in Markdown.
    pub fn page(&self) -> String {
        let kubelet = match self.kubelet {
            "" => {
                "the word of the call that failed: `FailedCreatePodSandBox`, `ErrImagePull`, `CreateContainerError`, \
                   `RunContainerError`, or `CrashLoopBackOff` where it had been answered"
                    .to_owned()
            }
            "-" => "nothing of its own".to_owned(),
            word => format!("`{word}`"),
        };
        let Reason { name, means, knows, next_check, .. } = self;
        format!(
            "# {name}\n\n{means}\n\n- How podlapse knows: {knows}\n- What to check next: {next_check}\n- kubelet shows: {kubelet}.\n"
        )
    }
}

/// All of them, in the order of a start; last what a failure is called where nothing more is known.
pub const REASONS: &[Reason] = &[
    Reason {
        name: "no_cni_config",
        kubelet: "FailedCreatePodSandBox",
        means: "The runtime has no CNI configuration, so it cannot give the pod a network.",
        knows: "The reply says so; the pod's network namespace was made and no plugin was run.",
        next_check: "List /etc/cni/net.d on the node, and look at the pod of the CNI's DaemonSet there.",
    },
    Reason {
        name: "plugin_missing",
        kubelet: "FailedCreatePodSandBox",
        means: "A CNI plugin, or the plugin that it delegates to, has no binary on the node.",
        knows: "No process of that plugin was seen. The reply names it; without a text loopback ran alone, and nothing after it.",
        next_check: "List the CNI binary directory (/opt/cni/bin), and look at the DaemonSet or package that installs the plugin.",
    },
    Reason {
        name: "ipam_exhausted",
        kubelet: "FailedCreatePodSandBox",
        means: "No free address is left for the pod.",
        knows: "The plugin that hands addresses out failed, and says so.",
        next_check: "Compare the leases (/var/lib/cni/networks/NETWORK) with the sandboxes that live, or look at the subnet's free addresses.",
    },
    Reason {
        name: "cni_daemon_not_ready",
        kubelet: "FailedCreatePodSandBox",
        means: "The CNI's daemon has not written what its plugin reads on this node.",
        knows: "The plugin failed, and says which file is missing.",
        next_check: "Look at the CNI's pod on this node, such as kube-flannel or calico-node.",
    },
    Reason {
        name: "cni_auth_failed",
        kubelet: "FailedCreatePodSandBox",
        means: "The CNI plugin is not allowed to talk to the API server.",
        knows: "The plugin failed, and says that it is unauthorized.",
        next_check: "Look at the age of the token in the plugin's kubeconfig below /etc/cni/net.d, and at the CNI's pod that renews it.",
    },
    Reason {
        name: "cni_agent_down",
        kubelet: "FailedCreatePodSandBox",
        means: "The CNI plugin cannot reach its agent on this node.",
        knows: "The plugin failed, and says that nobody answers on the agent's socket.",
        next_check: "Look at the CNI's agent on this node; a configuration that an uninstalled CNI left behind does the same.",
    },
    Reason {
        name: "cni_bad_output",
        kubelet: "FailedCreatePodSandBox",
        means: "A CNI plugin printed something that is not the JSON that the CNI asks for.",
        knows: "The reply says so.",
        next_check: "Run the plugin's log through; a crash or a message on its stdout does this. Look for a wrapper script around the binary.",
    },
    Reason {
        name: "cni_killed",
        kubelet: "FailedCreatePodSandBox",
        means: "A CNI plugin was ended by a signal.",
        knows: "The kernel's exit record of the plugin's process.",
        next_check: "Look in the kernel's log for an OOM kill or a crash of that process, and for who sends signals to it: the runtime does when its client has gone.",
    },
    Reason {
        name: "cni_failed",
        kubelet: "FailedCreatePodSandBox",
        means: "A CNI plugin exited with an error; nothing more is known.",
        knows: "The kernel's exit record of the plugin's process.",
        next_check: "Read the message, and the plugin's own log.",
    },
    Reason {
        name: "runtime_handler_unknown",
        kubelet: "FailedCreatePodSandBox",
        means: "The pod's RuntimeClass names a handler that this node's runtime does not have.",
        knows: "The reply says so, and the request carries the handler's name.",
        next_check: "Compare the RuntimeClass's handler with the runtimes in the node's runtime configuration.",
    },
    Reason {
        name: "pause_image_missing",
        kubelet: "FailedCreatePodSandBox",
        means: "The sandbox's image is not on the node and cannot be found where it should be pulled from.",
        knows: "The reply says so.",
        next_check: "Compare the runtime's sandbox image setting with the images on the node (`crictl images`); image garbage collection may have taken it.",
    },
    Reason {
        name: "pause_image_auth",
        kubelet: "FailedCreatePodSandBox",
        means: "The sandbox's image is not on the node, and the registry wants credentials that the runtime does not have.",
        knows: "The reply says so.",
        next_check: "Pull the sandbox's image by hand, pin it against garbage collection, or give the runtime credentials.",
    },
    Reason {
        name: "pause_image_unreachable",
        kubelet: "FailedCreatePodSandBox",
        means: "The sandbox's image is not on the node, and its registry does not answer.",
        knows: "The reply says so.",
        next_check: "Check that the node reaches the registry: name, route, proxy, mirror.",
    },
    Reason {
        name: "name_reserved",
        kubelet: "",
        means: "An earlier attempt of the same sandbox or container still holds the name: this failure only follows from it.",
        knows: "The reply says so and names the holder; `is_consequence_of` is the holder's trace where podlapse saw it.",
        next_check: "Look at the earlier attempt, and at what it waits for; if it is from before podlapse, `crictl inspectp` or `crictl inspect` the holder.",
    },
    Reason {
        name: "sandbox_exited",
        kubelet: "",
        means: "The sandbox's pause process ended while nobody had asked for the pod's stop, so that no container can start in it.",
        knows: "Its exit; the runtime's wait for it was answered, or the reply says that it does not run.",
        next_check: "Look for who ended it: an OOM kill, a signal, a restart of the node's services. kubelet makes a new sandbox.",
    },
    Reason {
        name: "image_not_found",
        kubelet: "ErrImagePull",
        means: "The registry has no such image or tag.",
        knows: "The reply's code or text says so.",
        next_check: "Check the image's name, tag and architecture.",
    },
    Reason {
        name: "image_auth",
        kubelet: "ErrImagePull",
        means: "The registry refuses the pull: credentials are missing or wrong. A repository that does not exist looks the same.",
        knows: "The reply's code or text says so.",
        next_check: "Check imagePullSecrets, the credential provider, and the image's name.",
    },
    Reason {
        name: "registry_unreachable",
        kubelet: "ErrImagePull",
        means: "The registry could not be reached.",
        knows: "The reply's text says so.",
        next_check: "Check that the node reaches the registry: name, route, proxy, mirror.",
    },
    Reason {
        name: "no_progress_timeout",
        kubelet: "ErrImagePull",
        means: "The runtime gave up a pull in which nothing moved for its timeout.",
        knows: "The reply says cancelled, although the client did not cancel.",
        next_check: "Check the path to the registry and the disk; containerd's setting is image_pull_progress_timeout.",
    },
    Reason {
        name: "entrypoint_not_found",
        kubelet: "",
        means: "The entrypoint does not exist in the container.",
        knows: "Runtime create failed without an execve, and says so.",
        next_check: "Check command and args against the image, and whether a volume hides the file.",
    },
    Reason {
        name: "entrypoint_not_executable",
        kubelet: "",
        means: "The entrypoint is there and may not be executed.",
        knows: "Runtime create failed without an execve, and says so.",
        next_check: "Check the file's mode and owner in the image, and the user that the container runs as.",
    },
    Reason {
        name: "entrypoint_unusable",
        kubelet: "",
        means: "The entrypoint or its working directory was not found, or may not be used; which of them is not known.",
        knows: "Init did all its steps, gave up its privileges and ended without an execve; no text says more.",
        next_check: "Check command, args and workingDir against the image: that they exist, and that the container's user may use them.",
    },
    Reason {
        name: "working_dir_missing",
        kubelet: "",
        means: "The container's working directory does not exist or is none.",
        knows: "Runtime create failed without an execve, and says so.",
        next_check: "Check workingDir, and whether a volume hides the directory.",
    },
    Reason {
        name: "init_oom",
        kubelet: "",
        means: "The kernel killed the container's init for memory before it ran the entrypoint, or refused a limit below what init used already: the limit is too low to start in.",
        knows: "The kernel's OOM kill of a process of the container, and init's end by a signal; or the write of the limit, which gave EBUSY (cgroup v1).",
        next_check: "Raise the memory limit: the runtime itself needs some 10 to 20 MB of it while it starts a container.",
    },
    Reason {
        name: "hook_failed",
        kubelet: "",
        means: "An OCI hook failed.",
        knows: "The hook's process ended badly.",
        next_check: "Run the hook by hand and read its log; GPU and security tools install hooks.",
    },
    Reason {
        name: "shim_died",
        kubelet: "",
        means: "The shim ended while the runtime waited for it, or while a container of it ran.",
        knows: "The shim's process ended badly, or before a process that it had started; or the reply says that its connection closed.",
        next_check: "Look in the kernel's log for an OOM kill or a crash of the shim.",
    },
    Reason {
        name: "cgroup_frozen",
        kubelet: "",
        means: "The container's cgroup is frozen, so that its init cannot go on.",
        knows: "The last write to its freezer (cgroup v1) froze it, or the reply says so.",
        next_check: "Look at who froze it (the culprit), and thaw it: write 0 to cgroup.freeze (v1: THAWED to freezer.state).",
    },
    Reason {
        name: "systemd_slow",
        kubelet: "",
        means: "systemd did not make the container's cgroup in time.",
        knows: "The cgroup was waited for as long as the runtime waits for systemd.",
        next_check: "Look at PID 1's CPU time, `systemctl list-jobs` and the number of mounts.",
    },
    Reason {
        name: "cgroup_limit",
        kubelet: "",
        means: "The kernel refused to make the container's cgroup or to take one of its values.",
        knows: "A refused write, or the reply's text.",
        next_check: "Check the value, and the number of cgroups (/proc/cgroups): leaked ones use the ids up.",
    },
    Reason {
        name: "apparmor_profile_missing",
        kubelet: "",
        means: "The container's AppArmor profile is not loaded on this node.",
        knows: "The write of init's label was refused, or the reply says so.",
        next_check: "Load the profile (`apparmor_parser`), or look at `aa-status`.",
    },
    Reason {
        name: "exec_failed",
        kubelet: "CrashLoopBackOff",
        means: "The entrypoint's execve failed, after the runtime had reported success.",
        knows: "The execve's errno.",
        next_check: "ENOEXEC: the image's architecture, or a script's first line. ENOENT: the interpreter or loader. EACCES: the file's mode.",
    },
    Reason {
        name: "exited_before_exec",
        kubelet: "CrashLoopBackOff",
        means: "The container's init ended before it ran the entrypoint.",
        knows: "Init's exit, without an execve before it.",
        next_check: "Look for who sent the signal, or at the runtime's log.",
    },
    Reason {
        name: "oom_killed",
        kubelet: "OOMKilled",
        means: "The kernel killed a process of the container for memory.",
        knows: "The kernel's choice of its victim (oom:mark_victim), and the exit of the container's first process; of a victim that is not the first process its shim's word that the container ran out of memory.",
        next_check: "Compare the limit with what the process needs (`kubectl top`, memory.peak); on cgroup v2 memory.oom.group says whether all processes go with one.",
    },
    Reason {
        name: "grace_exceeded",
        kubelet: "-",
        means: "The container did not end within its grace period, so the runtime killed it.",
        knows: "The signals that the runtime sent, in the kernel's record of them: the stop signal, then SIGKILL.",
        next_check: "See that the first process handles SIGTERM: a shell as pid 1 does not hand it on (use exec, or an init such as tini), and the kernel drops it where pid 1 has no handler.",
    },
    Reason {
        name: "killed",
        kubelet: "Error",
        means: "Another process ended the container's first process by a signal; nobody had asked the runtime to stop it.",
        knows: "The kernel's record of the signal, with its sender, and the exit by that signal, or with its number and 128.",
        next_check: "Look at the culprit: an operator's kill, an agent on the node, another container of a pod that shares its pid namespace.",
    },
    Reason {
        name: "crashed",
        kubelet: "Error",
        means: "The container's first process crashed.",
        knows: "The exit by SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP or SIGSYS that the process or the kernel had sent.",
        next_check: "Look at the container's log and for a core file (/proc/sys/kernel/core_pattern); SIGSYS is a seccomp filter's, SIGILL may be the image's architecture.",
    },
    Reason {
        name: "exited_with_error",
        kubelet: "Error",
        means: "The container's first process ended by itself with an exit code other than 0; nobody had asked for it.",
        knows: "The kernel's exit record.",
        next_check: "Read the container's log: `kubectl logs --previous`.",
    },
    Reason {
        name: "poststart_failed",
        kubelet: "FailedPostStartHook",
        means: "The container's PostStart hook failed; kubelet kills the container for it.",
        knows: "The hook's ExecSync failed, or its command exited with an error.",
        next_check: "Run the hook's command in the container; what it writes is in no log but kubelet's event.",
    },
    Reason {
        name: "cni_del_failed",
        kubelet: "FailedKillPod",
        means: "A CNI plugin could not take the pod off the network, so the sandbox cannot be stopped.",
        knows: "The kernel's exit record of the plugin's process, with CNI_COMMAND=DEL.",
        next_check: "Read the plugin's own log; until it succeeds the pod stays Terminating and its address taken.",
    },
    Reason {
        name: "client_deadline",
        kubelet: "",
        means: "The client waited no longer for the call; the stage is what was still going on.",
        knows: "The client, or the runtime, which keeps the same deadline, reset the call or ended it when the time that its request gives was over.",
        next_check: "Look at the stage that was open, and at the process that it names.",
    },
    Reason {
        name: "client_cancel",
        kubelet: "",
        means: "The client gave the call up before its deadline.",
        knows: "The client reset the call.",
        next_check: "Look at why the client did: kubelet does when it restarts or when the pod is deleted.",
    },
    Reason {
        name: "stuck",
        kubelet: "-",
        means: "The start takes long and is not over; the stage is what is still going on.",
        knows: "The stage's end was not seen. /proc says what its process waits for, and from it down the last that it waits for.",
        next_check: "Look at the last process of the evidence, and at what it waits for: a lock, a server, a disk. Where the runtime itself holds the call, look at its log.",
    },
    Reason {
        name: "no_create_container",
        kubelet: "CreateContainerConfigError",
        means: "The sandbox is ready, the image is there, and kubelet makes no container, again and again: it cannot put the container's configuration together. A ConfigMap or Secret is missing, or a key in it; or runAsNonRoot meets an image that runs as root.",
        knows: "No call says so: it is inferred. RunPodSandbox went well, no CreateContainer came, and ImageStatus found an image at two tries or more of which no container was made. It is not said while a pull is open, after one that failed, or where another pod waits for its first container, too: ImageStatus names no pod.",
        next_check: "Run `kubectl describe pod`: its events name the ConfigMap, Secret or key, or the user. The volumes of a pod are mounted before; this is about env, envFrom and securityContext.",
    },
    Reason {
        name: "runtime_restarted",
        kubelet: "-",
        means: "The runtime ended before it had answered. Of a node: it ended, and its open calls with it, until another one serves its socket.",
        knows: "The exit of the runtime's process; the signal that was sent to it, and by whom; the kernel's OOM kill. The next one by its bind of the socket.",
        next_check: "Look at the runtime's log and its service: a crash, an OOM kill, an upgrade.",
    },
    Reason {
        name: "connection_closed",
        kubelet: "-",
        means: "The client's connection ended before the reply.",
        knows: "The connection's end.",
        next_check: "Look at whether the client ended or restarted.",
    },
    Reason {
        name: "server_reset",
        kubelet: "",
        means: "The runtime reset the call.",
        knows: "A reset by the server.",
        next_check: "Look at the runtime's log.",
    },
    Reason {
        name: "no_status",
        kubelet: "-",
        means: "The call ended without a status that podlapse could read.",
        knows: "The end of the call's stream.",
        next_check: "Look at what the runtime did next; the quality section says what podlapse missed.",
    },
    Reason {
        name: "sandbox_stopped",
        kubelet: "-",
        means: "The sandbox was stopped before every container had started.",
        knows: "A StopPodSandbox.",
        next_check: "Look at who stopped it: the pod was deleted, evicted or replaced.",
    },
    Reason {
        name: "container_stopped",
        kubelet: "-",
        means: "The container was told to stop while its start hung.",
        knows: "A StopContainer before the entrypoint.",
        next_check: "Look at what the start waited for, and at who stopped it.",
    },
    Reason {
        name: "cri_list_slow",
        kubelet: "-",
        means: "Of a node: what kubelet's PLEG polls (ListPodSandbox, ListContainers, PodSandboxStatus, ContainerStatus) takes more than ten seconds, or is not answered. When no list goes through for three minutes, kubelet says `PLEG is not healthy` and the node is NotReady.",
        knows: "The calls themselves, in the time of the records. It is told again each time that it has lasted twice as long, and at three minutes; it is over when such a call is answered within ten seconds, or none came for a minute.",
        next_check: "Look at the other calls that are open, in the evidence, oldest first: the runtime may hold a lock for one of them (a mount that hangs, NFS). A runtime that is stopped or starved answers nothing: look at its process state, and take its goroutines with SIGUSR1 (containerd).",
    },
    Reason {
        name: "runtime_slow",
        kubelet: "-",
        means: "Of a node: calls that only ask (lists, statuses, Version) are slow, of several kinds, and none is stuck: what they have in common is the runtime itself.",
        knows: "Of at least six such calls in the last 30 seconds, of at least three methods, four of five took a second or more, for ten seconds or longer: kubelet asks each second, and a healthy runtime answers within milliseconds. It is over when fewer than half of them do.",
        next_check: "Look at the node's load: CPU throttling of the runtime's service, memory pressure, the number of containers, and the disk (`iostat -x`, /proc/pressure).",
    },
    Reason {
        name: "runtime_slow_disk",
        kubelet: "-",
        means: "Of a node: as runtime_slow, and the runtime waits for the disk.",
        knows: "As runtime_slow, and for at least half of that time a thread of the runtime was in fsync, fdatasync, syncfs or umount2. That this is why is a conclusion; a syscall that has not ended is not counted.",
        next_check: "Look at the disk below the runtime's root: `iostat -x`, /proc/pressure/io, a throttled cloud volume, a neighbour that writes; containerd keeps its metadata in a bolt database and syncs each change.",
    },
    Reason {
        name: "cri_unavailable",
        kubelet: "-",
        means: "Of a node: the runtime does not have the CRI, or not in the version that its client speaks. kubelet does not become ready.",
        knows: "A call of the CRI was answered with UNIMPLEMENTED: for its service, or of a method that every version has. A client that finds another version within a second is none.",
        next_check: "Look at the runtime's configuration (`disabled_plugins`; Docker's containerd package disables cri) and its log for why the plugin did not load; else compare the versions: kubelet since 1.26 needs runtime.v1.",
    },
    Reason {
        name: "mount_table_large",
        kubelet: "-",
        means: "Of a node: the runtime's mount table is so large that all that reads it is slow: runc, systemd, kubelet.",
        knows: "The lines of /proc/PID/mountinfo of the runtime, when podlapse attaches and when it looks at a start that takes long: 5000 or more. A pod has some 15 mounts, and a large node 250 pods.",
        next_check: "Look at what leaks: `awk '{print $5}' /proc/PID/mountinfo | sort | uniq -c | sort -n`; mounts that are repeated, or below folders of pods that are gone.",
    },
    Reason {
        name: "cri_response_large",
        kubelet: "-",
        means: "Of a node: a response of the CRI comes near 16 MiB, more than which kubelet and containerd do not take in one message; above it each list fails, and PLEG with it.",
        knows: "The length of gRPC's message, also where its content was not read: more than 12 MiB; or a RESOURCE_EXHAUSTED that says so.",
        next_check: "Count what exists (`crictl ps -a`, `crictl pods`): containers that are not collected, or large annotations. Kubernetes 1.36 can stream lists.",
    },
    Reason {
        name: "call_failed",
        kubelet: "",
        means: "A call failed, for a reason that podlapse does not know; the message is the runtime's.",
        knows: "The call's status.",
        next_check: "Read the message. The stage is the innermost step that failed, as far as one did.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_reason_has_its_page() {
        let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reasons");
        let mut names = BTreeSet::new();
        for reason in REASONS {
            let name = format!("{}.md", reason.name);
            expect_test::expect_file![docs.join(&name)].assert_eq(&reason.page());
            assert!(names.insert(name), "{} is there twice", reason.name);
        }
        let files = std::fs::read_dir(docs).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        assert_eq!(files.collect::<BTreeSet<_>>(), names);
    }
}

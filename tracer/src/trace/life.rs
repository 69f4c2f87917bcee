//! What happens to a pod besides its starts: signs and calls of its life, each as it comes.

use super::{CallInfo, PodInfo, Verdict};
use crate::ids::{ContainerId, MonotonicNs, SandboxId, Tgid};

/// One thing that happened to a pod, or to a container of it.
#[derive(Clone, Debug)]
pub struct LifeEvent {
    /// When. Events of calls that got their name late come late.
    pub at: MonotonicNs,
    /// Realtime of `at`, ns since the epoch, when a clock pair was recorded.
    pub realtime: Option<u64>,
    /// What.
    pub kind: LifeKind,
    /// The pod; of one that is older than podlapse what is known of it.
    pub pod: PodInfo,
    /// The sandbox.
    pub sandbox: Option<SandboxId>,
    /// The container that it is about.
    pub container: Option<LifeContainer>,
    /// How long it took: a call, a plugin, the run of a container that ended.
    pub lasted_ns: Option<u64>,
    /// The call that it is.
    pub call: Option<CallInfo>,
    /// Who did it: the sender of a signal, the plugin; of an OOM kill the victim.
    pub process: Option<LifeProcess>,
    /// Number of the signal that was sent, or that ended the process.
    pub signal: Option<u8>,
    /// Exit code of the process, or of the command of an ExecSync.
    pub exit_code: Option<u8>,
    /// More, by name; see [`LifeKind`].
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong, where something did.
    pub verdict: Option<Verdict>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifeContainer {
    /// `metadata.name`.
    pub name: Option<String>,
    /// Id.
    pub id: Option<ContainerId>,
    /// Attempt.
    pub attempt: Option<u32>,
}

/// A process, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifeProcess {
    /// Thread group.
    pub pid: Tgid,
    /// `comm`; empty: unknown.
    pub comm: String,
}

macro_rules! kinds {
    ($($kind:ident = $name:literal, $doc:literal;)*) => {
        /// The closed list of what may happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LifeKind { $(#[doc = $doc] $kind,)* }

        impl LifeKind {
            /// All of them, with what they mean.
            pub const ALL: &[(LifeKind, &'static str)] = &[$((LifeKind::$kind, $doc),)*];

            /// The name in outputs.
            pub fn name(self) -> &'static str {
                match self { $(LifeKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    PostStart = "post_start", "A PostStart hook (an ExecSync that the next container waits for) ended.";
    Probe = "probe", "The first exec probe of a container, or one that turned out other than the one before, ended; or a client's connect to a port of the pod was accepted for the first time. `via` is `exec` or `connect`, `port` the port, `failed` how many failed before in a row.";
    Ready = "ready", "Every probe of the pod that was seen has succeeded once: ready as far as it can be seen. Other probes may exist that were not seen.";
    Exec = "exec", "Exec (kubectl exec): the runtime was asked for a stream into the container; or an ExecSync without a timeout that is no PostStart hook, such as a PreStop hook, ended. What runs there is not read.";
    Attach = "attach", "Attach (kubectl attach): the runtime was asked for a stream to the container.";
    PortForward = "port_forward", "PortForward (kubectl port-forward): the runtime was asked for a stream to the pod.";
    Update = "update", "The resources of the pod or a container were changed.";
    Oom = "oom", "The kernel chose a process of the container to kill for memory. `rss_kib` is what it had, where the kernel tells (since 6.9), `limit` what its cgroup allows, `init` whether it is the container's first process, `group` whether all of the container's processes go with it.";
    Signal = "signal", "A signal that ends a process by default was sent to the container's first process by another one. `for` is `stop` where the runtime sent it. `ignored` is `true` where the kernel dropped it: the process ignores it, or is the first of its pid namespace and has no handler for it.";
    Exit = "exit", "The container's first process ended. `asked` says whether a stop had been asked for, by a call or by a signal of the runtime; `sender` who sent the signal that ended it: `runtime`, `kernel`, `itself` or a process.";
    ShimExit = "shim_exit", "The shim (or conmon) ended while a container of it ran: nobody reaps it or hands its streams on any more. `running` is how many first processes it had, pause's included.";
    SandboxExit = "sandbox_exit", "The pause process ended while nobody had asked for the pod's stop: the sandbox has to be made again.";
    Stop = "stop", "StopContainer was asked for. `grace_s` is the time between SIGTERM and SIGKILL; `because` is `poststart_failed` where the container's PostStart hook had failed.";
    Stopped = "stopped", "StopContainer was answered, or given up. `killed` says whether the container was killed after the grace period.";
    SandboxStop = "sandbox_stop", "StopPodSandbox was asked for.";
    Cni = "cni_del", "A CNI plugin that takes the pod off the network ended.";
    SandboxStopped = "sandbox_stopped", "StopPodSandbox was answered, or given up.";
    Removed = "removed", "RemoveContainer was answered.";
    SandboxRemoved = "sandbox_removed", "RemovePodSandbox was answered. `last` says whether no other sandbox of the pod is known: the pod is gone.";
}

impl LifeEvent {
    /// Of that kind, at that time, and nothing more.
    pub(crate) fn new(kind: LifeKind, at: MonotonicNs) -> LifeEvent {
        LifeEvent {
            at,
            realtime: None,
            kind,
            pod: PodInfo::default(),
            sandbox: None,
            container: None,
            lasted_ns: None,
            call: None,
            process: None,
            signal: None,
            exit_code: None,
            attributes: Vec::new(),
            verdict: None,
        }
    }

    /// With one more attribute, where it is known.
    pub(crate) fn and(mut self, name: &'static str, value: Option<impl ToString>) -> LifeEvent {
        self.attributes.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The last sandbox of the pod was removed.
    pub fn is_the_end(&self) -> bool {
        self.kind == LifeKind::SandboxRemoved && self.attribute("last") == Some("true")
    }
}

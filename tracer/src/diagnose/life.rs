//! What went wrong in a pod's life after its start: rules over how something ended. An end that was asked for, or a good
//! one, has no verdict; what the signs leave open has none either.

use super::reason;
use super::words::{how, named, pid, signal_name};
use crate::ids::Tgid;
use crate::trace::{Confidence, LifeProcess, Verdict, seconds};

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A fault, or a kill for memory.
    Kernel,
    /// The process itself, or a timer of its own.
    Itself,
    /// The container runtime, its shim or its OCI runtime.
    Runtime,
    /// Another process.
    Other,
}

impl By {
    /// In words.
    pub(crate) fn name(self, sender: &LifeProcess) -> String {
        match self {
            By::Kernel => "kernel".to_owned(),
            By::Itself => "itself".to_owned(),
            By::Runtime => "runtime".to_owned(),
            By::Other => named(sender),
        }
    }
}

/// How a first process ended, and what is known about it.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) pid: Option<Tgid>,
    pub(crate) comm: &'a str,
    pub(crate) code: Option<u8>,
    pub(crate) signal: Option<u8>,
    /// The last signal to it; of one that a signal ended the last of that number.
    pub(crate) sent: Option<(u8, By, &'a LifeProcess)>,
    pub(crate) asked: bool,
    /// Its shim had ended before, and nobody had asked for a stop.
    pub(crate) shim_died: bool,
    /// Records were lost: what was not seen may have happened.
    pub(crate) unsure: bool,
    /// The kernel chose it, or a child with which it ended.
    pub(crate) killed: Option<Killed<'a>>,
    /// The runtime's first signal, from it to its SIGKILL, and whether the kernel dropped it.
    pub(crate) grace_ns: Option<(u8, u64, bool)>,
}

/// A victim of the OOM killer.
#[derive(Debug)]
pub(crate) struct Killed<'a> {
    pub(crate) pid: Tgid,
    pub(crate) comm: &'a str,
    pub(crate) rss_kib: u32,
    pub(crate) limit: Option<String>,
    pub(crate) group: Option<bool>,
    pub(crate) init: bool,
}

/// What a rule finds.
struct Found {
    message: String,
    culprit: Option<String>,
    evidence: Vec<String>,
    sure: bool,
}

/// When a reason holds.
struct Rule {
    reason: &'static str,
    stage: &'static str,
    fits: fn(&End<'_>) -> Option<Found>,
}

const RUN: &str = "container.run";

/// The first that fits names the reason.
const RULES: &[Rule] = &[
    Rule { reason: "oom_killed", stage: RUN, fits: oom_killed },
    Rule { reason: "shim_died", stage: RUN, fits: with_its_shim },
    Rule { reason: "grace_exceeded", stage: "container.stop", fits: grace_exceeded },
    Rule { reason: "killed", stage: RUN, fits: killed },
    Rule { reason: "crashed", stage: RUN, fits: crashed },
    Rule { reason: "exited_with_error", stage: RUN, fits: exited_with_error },
];

/// What went wrong where a container ended that had run.
pub(crate) fn end(end: &End<'_>) -> Option<Verdict> {
    RULES.iter().find_map(|rule| Some(made(rule.reason, rule.stage, (rule.fits)(end)?)))
}

/// What went wrong where a pause process ended that nobody had asked to.
pub(crate) fn sandbox_end(end: &End<'_>) -> Option<Verdict> {
    let by = end.sent.filter(|_| end.signal.is_some());
    if end.asked || end.unsure && by.is_none() {
        return None;
    }
    let who = by.map(|(_, by, sender)| format!("; {} had sent it", by.name(sender)));
    let evidence = format!("pause{} {}{}", pid(end.pid), how(end.code, end.signal), who.unwrap_or_default());
    let culprit = by.filter(|(_, by, _)| *by == By::Other).map(|(_, _, sender)| named(sender));
    let message = "the sandbox ended: kubelet makes another one, and its containers anew".to_owned();
    let found = Found { message, culprit, evidence: vec![evidence], sure: true };
    Some(made("sandbox_exited", "sandbox.run", found))
}

/// The kernel killed a process for memory, and the container lives on.
pub(crate) fn oom(killed: &Killed<'_>) -> Verdict {
    let message = "the kernel killed a process of the container for memory; the container's first process lives on";
    let found =
        Found { message: message.to_owned(), culprit: Some(victim(killed)), evidence: killed.evidence(), sure: true };
    made("oom_killed", RUN, found)
}

/// A plugin did not take the pod off the network.
pub(crate) fn cni_del(plugin: &LifeProcess, code: Option<u8>, signal: Option<u8>) -> Verdict {
    let found = Found {
        message: format!("{} could not take the pod off the network", plugin.comm),
        culprit: Some(named(plugin)),
        evidence: vec![format!("{} {}", named(plugin), how(code, signal))],
        sure: true,
    };
    made("cni_del_failed", &format!("sandbox.stop.cni.{}", plugin.comm), found)
}

/// StopPodSandbox failed of it.
pub(crate) fn cni_stop(message: String) -> Verdict {
    let evidence = vec!["a plugin that was to take the pod off the network had failed".to_owned()];
    made("cni_del_failed", "sandbox.stop.cni", Found { message, culprit: None, evidence, sure: true })
}

/// A shim ended before its containers.
pub(crate) fn shim_died(shim: &LifeProcess, code: Option<u8>, signal: Option<u8>, running: usize) -> Verdict {
    let what = if running == 1 { "a process that it had started" } else { "processes that it had started" };
    let found = Found {
        message: format!("the shim ended before {what}: nobody looks after what it leaves"),
        culprit: Some(named(shim)),
        evidence: vec![format!("{} {}", named(shim), how(code, signal))],
        sure: true,
    };
    made("shim_died", "sandbox.run", found)
}

/// A PostStart hook failed.
pub(crate) fn poststart(how: &str) -> Verdict {
    let evidence = vec![how.to_owned()];
    let message = "the PostStart hook failed: kubelet kills the container for it".to_owned();
    // An ExecSync does not say that it is a hook.
    made("poststart_failed", "poststart", Found { message, culprit: None, evidence, sure: false })
}

/// A call failed.
pub(crate) fn call(stage: &str, reason: &str, message: &str) -> Verdict {
    made(reason, stage, Found { message: message.to_owned(), culprit: None, evidence: Vec::new(), sure: true })
}

/// An init never ran the entrypoint: the start has that reason, too.
pub(crate) fn never_ran(reason: &str, stage: &str, code: Option<u8>, signal: Option<u8>) -> Verdict {
    let message = format!("init {} without having run the entrypoint", how(code, signal));
    made(reason, stage, Found { message, culprit: None, evidence: Vec::new(), sure: true })
}

fn made(name: &str, stage: &str, found: Found) -> Verdict {
    let known = reason(name);
    let word = known.map(|known| known.kubelet).filter(|word| !word.is_empty() && *word != "-");
    Verdict {
        stage: stage.to_owned(),
        reason: name.to_owned(),
        message: found.message,
        culprit: found.culprit,
        evidence: found.evidence,
        confidence: if found.sure { Confidence::Seen } else { Confidence::Inferred },
        next_check: known.map(|known| known.next_check.to_owned()),
        kubelet: word.map(str::to_owned),
        is_consequence_of: None,
    }
}

fn oom_killed(end: &End<'_>) -> Option<Found> {
    let killed = end.killed.as_ref()?;
    let message = if killed.init {
        "the kernel killed the container's first process for memory".to_owned()
    } else {
        format!(
            "the container {} just after the kernel had killed a process of it for memory",
            how(end.code, end.signal)
        )
    };
    Some(Found { message, culprit: Some(victim(killed)), evidence: killed.evidence(), sure: killed.init })
}

fn with_its_shim(end: &End<'_>) -> Option<Found> {
    let by_runtime = end.sent.is_some_and(|(_, by, _)| by == By::Runtime) && end.signal.is_some();
    (end.shim_died && by_runtime).then(|| Found {
        message: "its shim had ended, so the runtime ended the container".to_owned(),
        culprit: None,
        evidence: vec![format!("the first process {}; the runtime had sent it", how(end.code, end.signal))],
        sure: true,
    })
}

fn grace_exceeded(end: &End<'_>) -> Option<Found> {
    let (first, waited, ignored) = end.grace_ns?;
    let name = signal_name(first);
    let message = format!("it did not end within {} of {name}, so the runtime killed it", seconds(waited));
    let mut evidence = vec![format!("the runtime sent {name}, and SIGKILL {} later", seconds(waited))];
    if ignored {
        evidence.push(format!("the kernel dropped {name}: the process ignores it, or is the first of its pid namespace and has no handler for it"));
    }
    Some(Found { message, culprit: None, evidence, sure: true })
}

/// Another process sent the signal that ended it, or the one that its exit code says it ended of.
fn killed(end: &End<'_>) -> Option<Found> {
    let (signal, by, sender) = end.sent.filter(|_| !end.asked)?;
    let own = end.signal == Some(signal);
    let told = end.code == Some(128 + (signal & 0x7f));
    (by == By::Other && (own || told)).then(|| Found {
        message: format!("{} sent {} to it", named(sender), signal_name(signal)),
        culprit: Some(named(sender)),
        evidence: vec![format!("the first process{} {}", pid(end.pid), how(end.code, end.signal))],
        sure: own,
    })
}

/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS of its own.
fn crashed(end: &End<'_>) -> Option<Found> {
    const CRASHES: [u8; 7] = [4, 5, 6, 7, 8, 11, 31];
    let signal = end.signal.filter(|signal| CRASHES.contains(signal) && !end.asked)?;
    let own = end.sent.map(|(_, by, _)| by);
    let sure = matches!(own, Some(By::Kernel | By::Itself));
    (sure || own.is_none() && !end.unsure).then(|| Found {
        message: format!("it crashed: {}", signal_name(signal)),
        culprit: Some(first_process(end)),
        evidence: vec![format!("the first process{} {}", pid(end.pid), how(None, Some(signal)))],
        sure,
    })
}

fn exited_with_error(end: &End<'_>) -> Option<Found> {
    let of_its_own = end.signal.is_some() && end.sent.is_some_and(|(_, by, _)| by == By::Itself);
    let error = end.code.is_some_and(|code| code != 0) || of_its_own;
    let mut evidence = vec![format!("the first process{} {}", pid(end.pid), how(end.code, end.signal))];
    if let Some((signal, By::Other, sender)) = end.sent {
        evidence.push(format!("{} had sent {} to it before", named(sender), signal_name(signal)));
    }
    (error && !end.asked && !end.unsure).then(|| Found {
        message: format!("it {}", how(end.code, end.signal)),
        culprit: Some(first_process(end)),
        evidence,
        sure: true,
    })
}

impl Killed<'_> {
    fn evidence(&self) -> Vec<String> {
        let rss = (self.rss_kib > 0).then(|| format!("; it had {} KiB of memory", self.rss_kib));
        let limit = self.limit.as_ref().map(|limit| format!("; the container's limit is {limit} bytes"));
        let what = format!("the kernel chose {}", victim(self));
        let mut evidence = vec![[Some(what), rss, limit].into_iter().flatten().collect::<String>()];
        evidence.extend(self.group.map(|group| {
            let text = if group { "all processes of the container go together" } else { "other processes of it stay" };
            text.to_owned()
        }));
        evidence
    }
}

fn victim(killed: &Killed<'_>) -> String {
    named(&LifeProcess { pid: killed.pid, comm: killed.comm.to_owned() })
}

fn first_process(end: &End<'_>) -> String {
    named(&LifeProcess { pid: end.pid.unwrap_or_default(), comm: end.comm.to_owned() })
}

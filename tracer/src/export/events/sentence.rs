//! What happened, in words: the one place where an event becomes a sentence.

use super::super::names::{grpc_code, signal};
use super::super::time::duration;
use crate::ids::SandboxId;
use crate::trace::{LifeEvent, LifeKind, LifeProcess, Outcome, StartKind, Trace};

/// What happened, without the time and the container that it happened to.
pub fn sentence(event: &LifeEvent) -> String {
    match event.kind {
        LifeKind::PostStart => format!("PostStart hook {}", result(event)),
        LifeKind::Probe => probe(event),
        LifeKind::Ready => {
            let after = since(event, "the pod's first sign").map_or_else(String::new, |since| format!(", {since}"));
            format!("ready as far as it can be seen{after}: every probe that was seen has succeeded")
        }
        LifeKind::Exec if event.call.as_ref().is_some_and(|call| call.method == "ExecSync") => {
            let client = event.call.as_ref().and_then(|call| call.client.as_deref()).unwrap_or("a client");
            format!("a command that {client} ran in the container {}", result(event))
        }
        LifeKind::Exec => asked(event, "a stream to a command in the container"),
        LifeKind::Attach => asked(event, "a stream to the container"),
        LifeKind::PortForward => asked(event, "a stream to a port of the pod"),
        LifeKind::Update => asked(event, "other limits"),
        LifeKind::Oom => oom(event),
        LifeKind::Signal => {
            let stop = if event.attribute("for") == Some("stop") { ", as part of the stop" } else { "" };
            let dropped = if event.attribute("ignored") == Some("true") {
                "; dropped: the process ignores it, or has no handler for it"
            } else {
                ""
            };
            format!(
                "{} sent{}{stop}{dropped}",
                event.signal.map_or("a signal".into(), named),
                by(event.process.as_ref())
            )
        }
        LifeKind::Exit => exit(event),
        LifeKind::ShimExit => {
            let shim = who(event, "the shim");
            let left = match event.attribute("running") {
                None | Some("1") => "what it had started ran: nobody reaps it any more".to_owned(),
                Some(running) => format!("{running} processes that it had started ran: nobody reaps them any more"),
            };
            format!("{shim} {}{} while {left}", was(event), ended(event))
        }
        LifeKind::SandboxExit => {
            let how = format!("{}{}{}", was(event), ended(event), sent(event));
            format!("the pause process {how}; nobody had asked for the pod's stop")
        }
        LifeKind::Stop => match event.attribute("grace_s") {
            Some("0") => asked(event, &format!("a stop, with SIGKILL at once{}", because(event))),
            Some(grace) => asked(event, &format!("a stop, with SIGKILL after {grace} s{}", because(event))),
            None => asked(event, &format!("a stop{}", because(event))),
        },
        LifeKind::Stopped => match (failure(event), event.attribute("killed")) {
            (Some(failure), _) => format!("the stop failed{}: {failure}", after(event)),
            (None, _) if event.verdict.is_some() => format!("the stop was given up{}", after(event)),
            (None, Some("true")) => format!("stopped{}, killed when the grace period was over", after(event)),
            (None, _) => format!("stopped{}", after(event)),
        },
        LifeKind::SandboxStop => asked(event, "the pod's stop"),
        LifeKind::Cni => {
            let plugin = who(event, "a CNI plugin");
            match result(event).strip_prefix("failed") {
                Some(how) => format!("{plugin} failed to take the pod off the network{how}"),
                None => format!("{plugin} took the pod off the network{}", in_time(event)),
            }
        }
        LifeKind::SandboxStopped => done(event, "the pod's stop", "stopped", ""),
        LifeKind::Removed => done(event, "the container's removal", "removed", ""),
        LifeKind::SandboxRemoved => match event.attribute("last") {
            Some("true") => done(event, "the sandbox's removal", "sandbox removed", ": the pod is gone"),
            Some(_) => done(event, "the sandbox's removal", "sandbox removed", "; the pod has another"),
            None => done(event, "the sandbox's removal", "sandbox removed", ""),
        },
    }
}

/// How a start ended.
pub(super) fn start(trace: &Trace) -> String {
    let how = match trace.outcome {
        Outcome::Complete => "complete",
        Outcome::Failed => "failed",
        Outcome::InProgress => "still under way",
        Outcome::Partial => "over, seen in part",
    };
    let mut text = format!("{how} after {}", duration(trace.total_ns));
    let slowest = trace.stages.iter().max_by_key(|stage| (stage.self_ns, std::cmp::Reverse(&stage.stage)));
    if let Some(stage) = slowest.filter(|stage| stage.self_ns > 0) {
        text += &format!(", of which {} in {}", duration(stage.self_ns), stage.stage);
    }
    let id = trace.sandbox.id.as_ref();
    match (trace.kind, trace.pod.attempt.filter(|attempt| *attempt > 0)) {
        (StartKind::Container, _) => text += &format!("; restarted in the same sandbox{}{}", short(id), peers(trace)),
        (StartKind::Pod, Some(attempt)) => text += &format!("; sandbox{} made again, attempt {attempt}", short(id)),
        (StartKind::Pod, None) => text += &format!("; sandbox{}", short(id)),
    }
    text
}

fn peers(trace: &Trace) -> String {
    let names: Vec<&str> = trace.containers.iter().filter(|c| c.peer).filter_map(|c| c.name.as_deref()).collect();
    if names.is_empty() { String::new() } else { format!(", peers unchanged: {}", names.join(", ")) }
}

/// The beginning of an id, as tools show it.
fn short(id: Option<&SandboxId>) -> String {
    id.map_or_else(String::new, |id| format!(" {}", id.as_str().chars().take(12).collect::<String>()))
}

fn probe(event: &LifeEvent) -> String {
    let before = match event.attribute("failed").and_then(|failed| failed.parse::<u64>().ok()) {
        None | Some(0) => String::new(),
        Some(1) => ", after one that failed".to_owned(),
        Some(failed) => format!(", after {failed} that failed"),
    };
    let text = match (event.attribute("via"), event.attribute("port")) {
        (Some("connect"), Some(port)) => format!("a connection to port {port} was accepted for the first time{before}"),
        (Some("connect"), None) => format!("a connection to the pod was accepted for the first time{before}"),
        _ => format!("exec probe {}{before}", result(event)),
    };
    since(event, "the entrypoint's exec").map_or(text.clone(), |since| format!("{text}; {since}"))
}

fn oom(event: &LifeEvent) -> String {
    let mut text = format!("out of memory: the kernel kills {}", who(event, "a process"));
    match event.attribute("init") {
        Some("true") => text += ", the container's first process",
        Some(_) => text += ", not the container's first process",
        None => {}
    }
    if let Some(kib) = event.attribute("rss_kib").and_then(|kib| kib.parse::<u64>().ok()) {
        text += &format!(", which had {}", memory(kib.saturating_mul(1024)));
    }
    match event.attribute("limit") {
        Some("max") => text += "; its cgroup has no limit of its own",
        Some(limit) => text += &format!("; the limit is {}", limit.parse().map_or_else(|_| limit.to_owned(), memory)),
        None => {}
    }
    if event.attribute("group") == Some("true") {
        text += "; all processes of the container go with it";
    }
    text
}

fn exit(event: &LifeEvent) -> String {
    let text = format!("{}{}{}", ended(event), after(event), sent(event));
    match event.attribute("asked") {
        Some("true") => text + "; a stop had been asked for",
        Some(_) if event.exit_code != Some(0) => text + "; nobody had asked for a stop",
        _ => text,
    }
}

/// Who sent the signal that ended it.
fn sent(event: &LifeEvent) -> String {
    match event.attribute("sender") {
        Some(whole @ ("runtime" | "kernel")) => format!(", sent by the {whole}"),
        Some(sender) => format!(", sent by {sender}"),
        None => String::new(),
    }
}

/// How a process ended.
fn ended(event: &LifeEvent) -> String {
    match (event.signal, event.exit_code) {
        (Some(number), _) => format!("ended by {}", named(number)),
        (None, Some(code)) => format!("exited with {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn was(event: &LifeEvent) -> &'static str {
    if event.signal.is_some() { "was " } else { "" }
}

/// How a command or a plugin ended, or the call that it was, and how long it took.
fn result(event: &LifeEvent) -> String {
    let failed = |how: &str| format!("failed{}: {how}", after(event));
    match (failure(event), event.signal, event.exit_code) {
        (Some(failure), ..) => failed(&failure),
        (None, Some(number), _) => failed(&format!("ended by {}", named(number))),
        (None, None, Some(0)) => format!("succeeded{}", in_time(event)),
        (None, None, Some(code)) => failed(&format!("exit code {code}")),
        (None, None, None) => format!("ended{}", after(event)),
    }
}

/// Code and text of a call that failed.
fn failure(event: &LifeEvent) -> Option<String> {
    let call = event.call.as_ref()?;
    let code = call.code.filter(|code| *code != 0)?;
    Some(format!("{} ({code}): {}", grpc_code(code), call.message.as_deref().unwrap_or("no message")))
}

fn done(event: &LifeEvent, what: &str, well: &str, so: &str) -> String {
    match failure(event) {
        Some(failure) => format!("{what} failed{}: {failure}", after(event)),
        None => format!("{well}{}{so}", in_time(event)),
    }
}

/// Who asked for what, and whether it was refused.
fn asked(event: &LifeEvent, what: &str) -> String {
    let refused = failure(event).map_or_else(String::new, |failure| format!(", and it failed: {failure}"));
    match event.call.as_ref().and_then(|call| call.client.as_deref()) {
        Some(client) => format!("{client} asked for {what}{refused}"),
        None => format!("{what} was asked for{refused}"),
    }
}

fn because(event: &LifeEvent) -> &'static str {
    if event.attribute("because") == Some("poststart_failed") { ", since the PostStart hook had failed" } else { "" }
}

/// How long after something else it happened.
fn since(event: &LifeEvent, what: &str) -> Option<String> {
    let ns = event.attribute("after_ns")?.parse().ok()?;
    Some(format!("{} after {what}", duration(ns)))
}

fn after(event: &LifeEvent) -> String {
    event.lasted_ns.map_or_else(String::new, |ns| format!(" after {}", duration(ns)))
}

fn in_time(event: &LifeEvent) -> String {
    event.lasted_ns.map_or_else(String::new, |ns| format!(" in {}", duration(ns)))
}

fn who(event: &LifeEvent, unknown: &str) -> String {
    event.process.as_ref().map_or_else(|| unknown.to_owned(), process)
}

fn by(process_of: Option<&LifeProcess>) -> String {
    process_of.map_or_else(String::new, |it| format!(" by {}", process(it)))
}

fn process(process: &LifeProcess) -> String {
    match (process.comm.as_str(), process.pid.0) {
        ("", pid) => format!("pid {pid}"),
        (comm, 0) => comm.to_owned(),
        (comm, pid) => format!("{comm} (pid {pid})"),
    }
}

fn named(number: u8) -> String {
    format!("{} ({number})", signal(number))
}

/// Bytes in the largest unit that they fill.
fn memory(bytes: u64) -> String {
    const KIB: u64 = 1024;
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..1_048_576 => format!("{} KiB", bytes / KIB),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

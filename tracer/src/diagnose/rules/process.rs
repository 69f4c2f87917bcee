//! Processes that the kernel ended, or that nobody lets go on: these signs need no text.

use super::{CALL, HELD, INIT, Rule, Sign, Takes};
use crate::diagnose::case::Case;
use crate::trace::{Container, Span};

/// What systemd is given to make a cgroup, by libdbus (25 s) and by runc (30 s).
const SYSTEMD_NS: u64 = 25_000_000_000;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: "poststart_failed",
        of: CALL,
        within: "poststart",
        sign: |_| Some(Sign::default()),
        texts: &[],
        takes: Takes::Sign,
    },
    Rule {
        reason: "init_oom",
        of: INIT,
        within: "",
        sign: oom,
        texts: &[
            &["container init was oom-killed"],
            &["oom: the memory limit could be too low"],
            &["unable to set memory limit to", "current usage:"],
        ],
        takes: Takes::Either,
    },
    Rule {
        reason: "hook_failed",
        of: INIT,
        within: "",
        sign: |case| case.failed("oci.create.hooks").map(Sign::ended),
        texts: &[&["error running hook"], &["running prestart hook"], &["error executing hook"]],
        takes: Takes::Either,
    },
    Rule {
        reason: "cgroup_frozen",
        of: HELD,
        within: "",
        sign: frozen,
        texts: &[&["container's cgroup unexpectedly frozen"]],
        takes: Takes::Either,
    },
    Rule {
        reason: "systemd_slow",
        of: HELD,
        within: "",
        sign: systemd,
        texts: &[&["timeout waiting for systemd to create"]],
        takes: Takes::Either,
    },
];

/// The kernel killed init for memory before it ran the entrypoint.
fn oom(case: &Case<'_>) -> Option<Sign> {
    let container = case.container()?;
    let Some(victim) = container.init_oom else { return no_room(container) };
    let limit = container.limits.get("memory.max").or_else(|| container.limits.get("memory.limit_in_bytes"));
    let limit = limit.map_or(String::new(), |limit| format!("; the limit is {} bytes", limit.trim()));
    let culprit = Some(format!("init (pid {})", victim.0));
    // runc create may have ended well before anybody looks.
    let at = container.exit.as_ref().map(|exit| exit.at_ns);
    let steps = ["oci.create", "oci.fifo_wait", "oci.start"].into_iter().flat_map(|step| case.part(step));
    let open = |span: &&Span| at.is_some_and(|at| span.start_ns <= at && span.end_ns.is_none_or(|end| end > at));
    let stage = steps.filter(open).last().map(|span| span.stage.clone());
    Some(Sign {
        culprit,
        stage,
        ..Sign::says(format!("the kernel killed init for memory before the entrypoint{limit}"))
    })
}

/// The kernel refused the limit (v1): init had more than that already.
fn no_room(container: &Container) -> Option<Sign> {
    const EBUSY: i32 = 16;
    let write = container.writes.last()?;
    let refused = write.file == "memory.limit_in_bytes" && write.errno.is_some_and(|errno| errno.abs() == EBUSY);
    let evidence = format!("the write of {} to {} gave EBUSY: init uses more", write.value.trim(), write.file);
    refused.then(|| Sign::says(evidence))
}

/// What was written to the container's freezer last; of cgroup v2 the writes to `cgroup.*` are not kept.
fn frozen(case: &Case<'_>) -> Option<Sign> {
    let mut writes = case.container()?.writes.iter();
    let last = writes.rfind(|write| write.file == "freezer.state" && write.errno.is_none())?;
    (last.value.trim() == "FROZEN").then_some(())?;
    let comm = last.comm.as_deref().unwrap_or("a process");
    let culprit = format!("{comm} (pid {})", last.pid.0);
    let evidence = format!("{culprit} wrote {} to {}, and nothing undid it", last.value.trim(), last.file);
    // What exactly init did at that instant says nothing.
    let stage = case.symptom.stage.split_once(".oci.create.").map(|(call, _)| format!("{call}.oci.create"));
    Some(Sign { culprit: Some(culprit), stage, ..Sign::says(evidence) })
}

/// The wait for the cgroup took as long as a runtime waits for systemd.
fn systemd(case: &Case<'_>) -> Option<Sign> {
    let length = |end: Option<u64>, start: u64| end.unwrap_or(case.trace.total_ns).saturating_sub(start);
    let mut waits = case.part("oci.create.cgroup_join");
    let wait = waits.find(|span| length(span.end_ns, span.start_ns) >= SYSTEMD_NS)?;
    let seconds = length(wait.end_ns, wait.start_ns) / 1_000_000_000;
    Some(Sign::says(format!("the container's cgroup was waited for {seconds} s")).at(&wait.stage))
}

/// The entrypoint's exec, and its errno by name.
pub(super) fn exec_failed(case: &Case<'_>) -> Option<Sign> {
    let failed = case.trace.containers.iter().filter(|container| !container.peer);
    let (container, exec, errno) =
        failed.filter_map(|it| Some((it, it.exec.as_ref()?, it.exec.as_ref()?.errno?))).next()?;
    let (name, hint) = match errno {
        2 => ("ENOENT", ": the file, its interpreter or its loader is missing"),
        8 => ("ENOEXEC", ": built for another architecture, or a script without its first line"),
        13 => ("EACCES", ": not executable, or on a file system mounted noexec"),
        1 => ("EPERM", ""),
        7 => ("E2BIG", ": arguments and environment are too large"),
        12 => ("ENOMEM", ""),
        40 => ("ELOOP", ""),
        _ => ("", ""),
    };
    let name = if name.is_empty() { format!("errno {errno}") } else { name.to_owned() };
    let culprit = container.pid.map(|pid| format!("{} (pid {})", exec.path, pid.0));
    Some(Sign { culprit, ..Sign::says(format!("execve of {} gave {name}{hint}", exec.path)) })
}

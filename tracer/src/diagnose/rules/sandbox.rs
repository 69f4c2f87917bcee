//! What is refused before anything is made, and a sandbox that is gone.

use super::{CALL, HELD, Rule, Sign, Takes, none};
use crate::diagnose::case::Case;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reason: "name_reserved",
        of: HELD,
        within: "",
        sign: none,
        // containerd's and CRI-O's.
        texts: &[
            &["failed to reserve sandbox name"],
            &["failed to reserve container name"],
            &["is reserved for", "name "],
        ],
        takes: Takes::Text,
    },
    Rule {
        reason: "runtime_handler_unknown",
        of: CALL,
        within: "sandbox",
        sign: handler,
        // containerd's, and CRI-O's.
        texts: &[&["no runtime for \"", "is configured"], &["failed to find runtime handler"]],
        takes: Takes::Text,
    },
    Rule {
        reason: "shim_died",
        of: CALL,
        within: "",
        sign: shim_ended,
        texts: &[&["ttrpc: closed"], &["shim disconnected"]],
        takes: Takes::Either,
    },
    Rule {
        reason: "sandbox_exited",
        of: CALL,
        within: "container.",
        sign: pause_ended,
        texts: &[&["sandbox container \"", "is not running"], &["sandbox container task: no running task found"]],
        takes: Takes::Either,
    },
];

/// The request asked for one.
fn handler(case: &Case<'_>) -> Option<Sign> {
    let handler = case.trace.pod.runtime_handler.as_ref()?;
    Some(Sign::says(format!("the request asks for runtime handler {handler:?}, and nothing was run for it")))
        .filter(|_| case.part("oci.create").next().is_none())
}

/// One shim has all containers of a pod: it may have been started by an earlier call.
fn shim_ended(case: &Case<'_>) -> Option<Sign> {
    let daemons = case.trace.spans.iter().filter(|span| span.stage.ends_with(".shim.daemon"));
    let mut ended = daemons.filter_map(|span| Some((span, span.process.as_ref().filter(|it| it.ended_badly())?)));
    let (span, process) = ended.next_back()?;
    let own = case.spans.iter().any(|it| it.id == span.id);
    let sign = Sign::ended((span, process));
    Some(Sign { stage: sign.stage.filter(|_| own), ..sign })
}

/// The runtime's Wait for the pause process was answered.
fn pause_ended(case: &Case<'_>) -> Option<Sign> {
    let waited = case.trace.sandbox.task_calls.iter().find(|call| call.method == "Wait" && call.end_ns.is_some())?;
    let status = waited.exit_status.map_or(String::new(), |status| format!(" with status {status}"));
    Some(Sign::says(format!("the sandbox's pause process had ended{status}")))
}

/// The id of the sandbox or container that holds the name, where the text gives a whole one.
pub(in crate::diagnose) fn reserved_for(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("is reserved for ")?;
    let id: String = rest.trim_start_matches('"').chars().take_while(char::is_ascii_hexdigit).collect();
    (id.len() == 64).then_some(id)
}

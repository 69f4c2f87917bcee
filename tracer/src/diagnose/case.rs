//! What the rules look at: the failed start's trace, by question.

use std::collections::BTreeSet;

use crate::trace::{CallInfo, Container, ProcessInfo, Span, SpanId, Trace, Verdict};

use super::reasons::Reason;

/// A failed start.
pub(super) struct Case<'a> {
    pub(super) trace: &'a Trace,
    /// Stage, reason and message as the lifecycle saw them.
    pub(super) symptom: &'a Verdict,
    /// The message in lower case.
    pub(super) text: String,
    /// The span of the call that failed.
    call: Option<&'a Span>,
    /// The spans below it; all where no call failed.
    pub(super) spans: Vec<&'a Span>,
}

impl<'a> Case<'a> {
    pub(super) fn new(trace: &'a Trace, symptom: &'a Verdict) -> Case<'a> {
        let bad = |span: &&Span| {
            let Some(call) = &span.call else { return false };
            let same = call.message.as_deref().unwrap_or_default() == symptom.message;
            let replied = ["call_failed", "client_deadline"].contains(&symptom.reason.as_str());
            replied && same && call.code.is_some_and(|code| code != 0)
        };
        // What failed first, in the time of the replies, is what the lifecycle blames.
        let call = trace.spans.iter().filter(bad).min_by_key(|span| span.end_ns);
        let all = trace.spans.iter();
        let spans = call.map_or_else(|| all.clone().collect(), |span| below(all.clone(), [span.id].into()));
        Case { trace, symptom, text: symptom.message.to_lowercase(), call, spans }
    }

    /// The call that failed, by its reply.
    pub(super) fn call(&self) -> Option<&'a CallInfo> {
        self.call?.call.as_ref()
    }

    /// Stage of the call in which it failed, or the symptom's: `sandbox`, `container.start`, …
    pub(super) fn stage(&self) -> &'a str {
        self.call.map_or(&self.symptom.stage, |span| &span.stage)
    }

    /// Its reply, as evidence.
    pub(super) fn status(&self) -> Option<String> {
        let call = self.call()?;
        Some(format!("{} ended with gRPC code {}", call.method, call.code?))
    }

    /// Spans whose stage ends in that part, such as `oci.create.hooks`, in the order of the trace.
    pub(super) fn part(&self, part: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().copied().filter(move |span| {
            span.stage.strip_suffix(part).is_some_and(|call| call.ends_with('.') || call.is_empty())
        })
    }

    /// The plugins' processes that were to add the pod to its networks, delegates too; not those that cleaned up.
    pub(super) fn plugins(&self) -> Vec<(&'a Span, &'a ProcessInfo)> {
        let whole = self.part("cni").filter(|span| span.name == "CNI").map(|span| span.id).collect();
        let plugins = below(self.spans.iter().copied(), whole);
        plugins.into_iter().filter_map(|span| Some((span, span.process.as_ref()?))).collect()
    }

    /// Processes of such spans that ended badly, with their span.
    pub(super) fn failed(&self, part: &'a str) -> Option<(&'a Span, &'a ProcessInfo)> {
        self.part(part)
            .filter_map(|span| Some((span, span.process.as_ref()?)))
            .find(|(_, process)| process.ended_badly())
    }

    /// The container that failed: the last one that reached no entrypoint, or whose exec failed.
    pub(super) fn container(&self) -> Option<&'a Container> {
        let unborn = |it: &&Container| !it.peer && it.exec.as_ref().is_none_or(|exec| exec.errno.is_some());
        let within = self.stage().starts_with("container.");
        self.trace.containers.iter().rev().find(unborn).filter(|_| within)
    }

    /// The word that kubelet has for it.
    pub(super) fn kubelet(&self, reason: &Reason) -> Option<&'static str> {
        let of_call = [
            ("sandbox", "FailedCreatePodSandBox"),
            ("image.pull", "ErrImagePull"),
            ("container.create", "CreateContainerError"),
            ("container.start", "RunContainerError"),
            ("container.exec", "CrashLoopBackOff"),
        ];
        let by_call = || of_call.into_iter().find(|(of, _)| self.stage().starts_with(of)).map(|(_, word)| word);
        match reason.kubelet {
            "" => by_call(),
            "-" => None,
            word => Some(word),
        }
    }
}

/// The spans below those of `inside`; parents come first.
fn below<'a>(spans: impl Iterator<Item = &'a Span>, mut inside: BTreeSet<SpanId>) -> Vec<&'a Span> {
    let is_below = |span: &&Span| {
        let below = span.parent.is_some_and(|parent| inside.contains(&parent));
        if below {
            inside.insert(span.id);
        }
        below
    };
    spans.filter(is_below).collect()
}

/// `bridge (pid 4711) exited with 1`.
pub(super) fn ended(span: &Span, process: &ProcessInfo) -> String {
    let name = named(span, process);
    match (process.signal, process.exit_code) {
        (Some(signal), _) => format!("{name} was ended by signal {signal}"),
        (None, Some(code)) => format!("{name} exited with {code}"),
        (None, None) => format!("{name} was not seen to end"),
    }
}

/// `bridge (pid 4711)`.
pub(super) fn named(span: &Span, process: &ProcessInfo) -> String {
    let last = span.stage.rsplit('.').next().unwrap_or_default();
    let name = if span.name.is_empty() { last } else { &span.name };
    format!("{name} (pid {})", process.pid.0)
}

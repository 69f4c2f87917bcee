//! The rules, in the order in which they are tried, and how one is tried.

mod image;
mod network;
mod oci;
mod process;
mod sandbox;

pub(super) use sandbox::reserved_for;

use super::Fit;
use super::case::{Case, ended, named};
use crate::trace::{Confidence, ProcessInfo, Span};

/// All of them: what is most particular first.
pub(super) const RULES: &[&[Rule]] = &[sandbox::RULES, process::RULES, network::RULES, image::RULES, oci::RULES];

/// When a reason holds.
pub(super) struct Rule {
    /// Its name in the list of reasons.
    pub(super) reason: &'static str,
    /// The symptoms that it can explain.
    pub(super) of: &'static [&'static str],
    /// Beginning of the stage of the call that failed; empty: any.
    pub(super) within: &'static str,
    /// What the signs say.
    pub(super) sign: fn(&Case<'_>) -> Option<Sign>,
    /// Texts of runtimes and plugins, in lower case, one of which says it: the parts of a text are all in the reply. Each
    /// has a blank or a mark that no name of a pod, image or container can hold.
    pub(super) texts: &'static [&'static [&'static str]],
    /// What it takes.
    pub(super) takes: Takes,
}

/// What a rule takes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A sign; a text is one more piece of evidence.
    Sign,
    /// A text; a sign makes it sure.
    Text,
    /// Either.
    Either,
}

/// The symptoms that a text or a process may explain.
pub(super) const CALL: &[&str] = &["call_failed"];
/// The same, and an init that died although its runtime had reported success.
pub(super) const INIT: &[&str] = &["call_failed", "exited_before_exec"];
/// The same, and a call that never ended, or has not ended yet.
pub(super) const HELD: &[&str] = &["call_failed", "client_deadline", "client_cancel", "stuck"];

/// What signs say.
#[derive(Debug, Default)]
pub(super) struct Sign {
    /// The stage that is to blame; None: the symptom's.
    pub(super) stage: Option<String>,
    /// The process to blame.
    pub(super) culprit: Option<String>,
    /// In words.
    pub(super) evidence: Vec<String>,
    /// They point there, but something else can leave the same ones.
    pub(super) weak: bool,
}

impl Sign {
    /// A process that failed.
    pub(super) fn ended((span, process): (&Span, &ProcessInfo)) -> Sign {
        Sign {
            stage: Some(span.stage.clone()),
            culprit: Some(named(span, process)),
            evidence: vec![ended(span, process)],
            weak: false,
        }
    }

    /// A sentence.
    pub(super) fn says(evidence: impl Into<String>) -> Sign {
        Sign { evidence: vec![evidence.into()], ..Sign::default() }
    }

    pub(super) fn at(self, stage: &str) -> Sign {
        Sign { stage: Some(stage.to_owned()), ..self }
    }

    pub(super) fn weak(self) -> Sign {
        Sign { weak: true, ..self }
    }
}

impl Rule {
    /// Why it holds, where it does.
    pub(super) fn fits(&self, case: &Case<'_>) -> Option<Fit> {
        if !self.of.contains(&case.symptom.reason.as_str()) || !case.stage().starts_with(self.within) {
            return None;
        }
        let said = |parts: &&&[&str]| parts.iter().all(|part| case.text.contains(part));
        let text = self.texts.iter().find(said).and_then(|parts| parts.first()).copied();
        let sign = (self.sign)(case);
        let holds = match self.takes {
            Takes::Sign => sign.is_some(),
            Takes::Text => text.is_some(),
            Takes::Either => sign.is_some() || text.is_some(),
        };
        // The kernel's word is enough. A text alone may be another version's, or quote somebody.
        let sure = sign.as_ref().is_some_and(|sign| !sign.weak);
        let confidence = if sure { Confidence::Seen } else { Confidence::Inferred };
        holds.then(|| Fit { sign: sign.unwrap_or_default(), text, confidence })
    }
}

/// What is known where no rule fits: the symptom itself was seen.
pub(super) fn symptom(case: &Case<'_>) -> Fit {
    let at = case.spans.iter().copied().filter(|span| span.stage == case.symptom.stage);
    let mut processes = at.filter_map(|span| Some((span, span.process.as_ref()?)));
    let waited = waited_for(case);
    let sign = match case.symptom.reason.as_str() {
        "exec_failed" => process::exec_failed(case),
        // It was waited for.
        "stuck" | "client_deadline" | "client_cancel" if waited.is_some() => {
            Some(Sign { culprit: waited, ..Sign::default() })
        }
        // It was waited for, and may have been ended when the wait was over.
        "client_deadline" | "client_cancel" => processes
            .find(|(_, process)| process.exit_code.is_none())
            .map(|(span, process)| Sign { culprit: Some(named(span, process)), ..Sign::says(ended(span, process)) }),
        _ => processes.find(|(_, process)| process.ended_badly()).map(Sign::ended),
    };
    let sign = Sign { stage: None, ..sign.unwrap_or_default() };
    // What its client does beside the runtime is not seen.
    let guessed = case.symptom.reason == "no_create_container";
    Fit { sign, text: None, confidence: if guessed { Confidence::Inferred } else { Confidence::Seen } }
}

/// The process that is waited for in the stage to blame: a runtime that gave up itself has gone on to clean up.
fn waited_for(case: &Case<'_>) -> Option<String> {
    case.trace.waiting.as_ref().filter(|waiting| waiting.stage == case.symptom.stage)?.culprit()
}

/// No sign tells.
pub(super) fn none(_: &Case<'_>) -> Option<Sign> {
    None
}

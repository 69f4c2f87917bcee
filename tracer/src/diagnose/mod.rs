//! Why a start failed: a reason from a closed list, with what it rests on and what to check next.
//!
//! A failure comes with a stage and a symptom (a call failed, an exec failed, init died). The rules, a file a family,
//! look at the trace's signs first (which process failed, of what, what was never run) and at the text of the reply
//! second: texts differ between versions, signs do not. The first rule that fits names the reason; where none does the
//! symptom stays, with its text. Pure.

#![forbid(unsafe_code)]

mod case;
pub(crate) mod life;
mod reasons;
mod rules;
mod words;

use case::Case;
pub use reasons::{REASONS, Reason, reason};
use rules::RULES;

use crate::trace::{Confidence, Trace, Verdict};

/// Refines the verdict of a trace, where it has one. `owner` gives the id of the trace that a sandbox or container is of,
/// where that is another one.
pub(crate) fn refine(trace: &mut Trace, owner: impl Fn(&str) -> Option<String>) {
    let Some(symptom) = trace.verdict.take() else { return };
    let mut verdict = judge(trace, &symptom);
    if verdict.reason == "name_reserved"
        && let Some(id) = rules::reserved_for(&symptom.message)
    {
        verdict.evidence.push(format!("the name is held by {id}"));
        verdict.is_consequence_of = owner(&id);
    }
    trace.verdict = Some(verdict);
}

fn judge(trace: &Trace, symptom: &Verdict) -> Verdict {
    let case = Case::new(trace, symptom);
    let found = RULES.iter().copied().flatten().find_map(|rule| Some((rule.reason, rule.fits(&case)?)));
    let (name, fit) = found.unwrap_or_else(|| (symptom.reason.as_str(), rules::symptom(&case)));
    let known = reason(name);
    let mut evidence = symptom.evidence.clone();
    evidence.extend(fit.sign.evidence);
    evidence.extend(fit.text.map(|text| format!("the reply says {text:?}")));
    evidence.extend(case.status());
    evidence.extend(trace.waiting.iter().flat_map(|waiting| waiting.evidence()));
    Verdict {
        stage: fit.sign.stage.unwrap_or_else(|| symptom.stage.clone()),
        reason: name.to_owned(),
        message: symptom.message.clone(),
        culprit: fit.sign.culprit,
        evidence,
        confidence: fit.confidence,
        next_check: known.map(|known| known.next_check.to_owned()),
        kubelet: known.and_then(|known| case.kubelet(known)).map(str::to_owned),
        is_consequence_of: None,
    }
}

/// What a rule, or the lack of one, rests on.
struct Fit {
    sign: rules::Sign,
    text: Option<&'static str>,
    confidence: Confidence,
}

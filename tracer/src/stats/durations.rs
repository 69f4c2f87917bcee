//! What a start that is over gives to histograms: a value for each span that lasted, for what remains of each call, and
//! for the whole.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::START;
use crate::trace::{Edges, SpanId, Trace, lookup, self_stage};

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duration<'a> {
    /// A stage of the registry, or [`START`].
    pub stage: Cow<'a, str>,
    /// The image that it is about.
    pub image: Option<&'a str>,
    /// Nanoseconds.
    pub ns: u64,
}

/// The values of a start that is over.
pub fn durations(trace: &Trace) -> Vec<Duration<'_>> {
    let mut all = vec![Duration { stage: START.into(), image: None, ns: trace.total_ns }];
    let images = images(trace);
    for span in &trace.spans {
        let Some(end) = span.end_ns else { continue };
        let (ns, image) = (end.saturating_sub(span.start_ns), images.get(&span.id).copied());
        let point = lookup(&span.stage).is_some_and(|stage| stage.edges == Edges::Point);
        // A point that lasted: the entrypoint ran after the response.
        if !point || ns > 0 {
            all.push(Duration { stage: span.stage.as_str().into(), image, ns });
        }
        if let remainder @ Cow::Owned(_) = self_stage(&span.stage) {
            all.push(Duration { stage: remainder, image, ns: span.self_ns });
        }
    }
    all
}

/// The image that each span is about: its own, its container's, or that of the span that it is part of.
pub(super) fn images(trace: &Trace) -> BTreeMap<SpanId, &str> {
    let of_container = |name: &String| {
        let container = trace.containers.iter().find(|container| container.name.as_ref() == Some(name))?;
        container.image.as_deref()
    };
    let mut images = BTreeMap::new();
    for span in &trace.spans {
        let own = span.attributes.get("image").map(String::as_str);
        let found = own.or_else(|| span.attributes.get("container").and_then(of_container));
        let found = found.or_else(|| images.get(&span.parent?).copied());
        if let Some(image) = found {
            images.insert(span.id, image);
        }
    }
    images
}

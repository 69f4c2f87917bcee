//! Why no start was seen, as far as the records tell. Pure.

use crate::record::{Event, ListedSandbox, Listing, Record};
use crate::recording::Selection;
use crate::trace::Trace;

/// What was seen instead of a start that was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Unseen {
    /// The pod that was asked for is in the list of what exists, and ready.
    runs: bool,
    /// The first start that was seen and is none of those asked for.
    other: Option<String>,
}

impl Unseen {
    /// Takes what a record lists.
    pub(super) fn record(&mut self, record: &Record, selection: &Selection) {
        if let Event::Listed(listed) = &record.event
            && let Listing::Sandbox(sandbox) = &listed.what
        {
            self.runs |= sandbox.ready == Some(true) && is_meant(sandbox, selection);
        }
    }

    /// Takes a start that is not chosen.
    pub(super) fn not_chosen(&mut self, trace: &Trace) {
        self.other.get_or_insert_with(|| trace.pod.full_name());
    }

    /// What is known, and what to do.
    pub(super) fn why(&self, selection: &Selection) -> String {
        let pod = match selection {
            Selection { pod: Some((namespace, name)), .. } => Some(format!("{namespace}/{name}")),
            Selection { uid, .. } => uid.clone(),
        };
        match (pod, &self.other) {
            (Some(_), _) if self.runs && selection.lifecycle => "it runs, and nothing happened to it".to_owned(),
            (Some(pod), _) if self.runs => {
                format!("it ran before podlapse came, and `podlapse pods --pod {pod}` shows it")
            }
            (None, Some(other)) if !selection.command => {
                format!("{other} was under way before, or restarts: `--pod {other}` takes that, too")
            }
            _ => "check that the pod is to run on this node, and `podlapse doctor`".to_owned(),
        }
    }
}

/// Whether a sandbox is of the pod that was asked for. `/proc` knows no names.
fn is_meant(sandbox: &ListedSandbox, selection: &Selection) -> bool {
    let named = |(namespace, name): &(String, String)| sandbox.namespace == *namespace && sandbox.name == *name;
    match selection {
        Selection { pod: None, uid: None, .. } => false,
        Selection { pod, uid, .. } => {
            pod.as_ref().is_none_or(named) && uid.as_ref().is_none_or(|uid| sandbox.uid.as_str() == uid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MonotonicNs, PodUid, Tgid, Tid};
    use crate::record::{ListSource, Listed};

    #[test]
    fn a_pod_that_ran_before() {
        let listed = |name: &str, ready| {
            let sandbox = ListedSandbox {
                name: name.into(),
                namespace: "shop".into(),
                uid: PodUid(format!("uid-{name}")),
                ready: Some(ready),
                ..ListedSandbox::default()
            };
            let (at, what) = (MonotonicNs(1), Listing::Sandbox(sandbox));
            let event = Event::Listed(Listed { asked: at, source: ListSource::Cri, what });
            Record { at, tgid: Tgid(1), tid: Tid(1), event }
        };
        let by_name = Selection { pod: Some(("shop".into(), "web".into())), ..Selection::default() };
        let by_uid = Selection { uid: Some("uid-web".into()), ..Selection::default() };
        let next = Selection { next: Some(1), ..Selection::default() };
        let why = |selection: &Selection, records: &[Record]| {
            let mut unseen = Unseen::default();
            records.iter().for_each(|record| unseen.record(record, selection));
            unseen.why(selection)
        };
        let runs = [listed("db", true), listed("web", true)];
        let shows = |pod: &str| format!("it ran before podlapse came, and `podlapse pods --pod {pod}` shows it");
        assert_eq!(why(&by_name, &runs), shows("shop/web"));
        assert_eq!(why(&by_uid, &runs), shows("uid-web"));
        let other = "check that the pod is to run on this node, and `podlapse doctor`";
        for (selection, records) in
            [(&next, &runs[..]), (&by_name, &[listed("web", false)]), (&by_uid, &[listed("db", true)]), (&by_name, &[])]
        {
            assert_eq!(why(selection, records), other);
        }
    }
}

//! What the runtime itself does inside a call; see `lifecycle/chores.rs` for whose it is.
//!
//! | stage | from | to |
//! |---|---|---|
//! | `.fsync` | entry of a thread's fsync, fdatasync or syncfs | its exit; the two of one transaction are one |
//! | `.tmp_mount` | entry of a mount onto `…/containerd-mount…` | exit of the last umount in a row |
//! | `.chown` | first chown in a row | last |
//! | `.relabel` | first change of an SELinux label in a row | last |

use super::super::chores::{Chore, What};
use super::interval::Interval;
use crate::trace::{Draft, DraftId, DraftSpan};

/// A bolt database, containerd's, writes its new root between the two syncs of a commit.
const COMMIT_NS: u64 = 250_000;

/// Adds the spans of a call's chores. None overlaps what was added before: then the call waits for others.
pub(in crate::lifecycle) fn add(draft: &mut Draft, call: DraftId, stage: &str, chores: &[Chore]) {
    let mut rows: Vec<Vec<Chore>> = Vec::new();
    for chore in chores {
        match rows.last_mut().filter(|row| row.last().is_some_and(|last| goes_on(last, chore))) {
            Some(row) => row.push(*chore),
            None => rows.push(vec![*chore]),
        }
    }
    let busy: Vec<_> = draft.below(call).map(|span| (span.start, span.end)).collect();
    for row in rows {
        let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
        // One chown, or an umount alone, takes no time.
        let (part, name) = match first.what {
            What::Sync => ("fsync", "sync to disk"),
            What::TempMount => ("tmp_mount", "temporary mount"),
            What::Chown if row.len() > 1 => ("chown", "change owners"),
            What::Relabel if row.len() > 1 => ("relabel", "change labels"),
            What::Chown | What::Relabel | What::TempUmount => continue,
        };
        let Interval { start, end, observed, .. } = Interval::seen(first.enter, last.exit);
        let waits = busy.iter().any(|(from, to)| *from < last.exit && to.is_none_or(|to| to > first.enter));
        if !waits {
            let stage = format!("{stage}.{part}");
            let name = name.to_owned();
            draft.add(Some(call), DraftSpan { stage, name, start, end, observed, ..DraftSpan::default() });
        }
    }
}

fn goes_on(last: &Chore, next: &Chore) -> bool {
    match (last.what, next.what) {
        (What::Sync, What::Sync) => last.tid == next.tid && next.enter.since(last.exit) <= COMMIT_NS,
        (What::TempMount | What::TempUmount, What::TempUmount) => true,
        (What::Chown, What::Chown) | (What::Relabel, What::Relabel) => true,
        _ => false,
    }
}

//! Values written to a container's cgroup files: by whom, when, and which of them held at a given time.

use std::collections::BTreeMap;

use super::unit::is_membership;
use crate::ids::{MonotonicNs, Tgid};
use crate::record::CgroupWrite;

/// Writes that a unit remembers.
const MAX_WRITES: usize = 64;

/// One write.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) at: MonotonicNs,
    /// Exit of the write.
    exit: MonotonicNs,
    pub(super) file: String,
    pub(super) value: String,
    pub(super) errno: Option<i32>,
    pub(super) pid: Tgid,
    /// Of the writer, where its exec was seen.
    pub(super) comm: Option<String>,
}

/// The writes to the files of one cgroup, in order; bounded.
#[derive(Debug, Default)]
pub(super) struct Writes(Vec<Written>);

impl Writes {
    /// Remembers a write; false when there is no room. What moves processes or opens devices is no limit.
    pub(super) fn add(&mut self, at: MonotonicNs, pid: Tgid, comm: Option<String>, write: &CgroupWrite) -> bool {
        let other = ["devices.", "cgroup."].iter().any(|family| write.file.starts_with(family));
        if is_membership(&write.file) || other {
            return true;
        }
        if self.0.len() >= MAX_WRITES {
            return false;
        }
        let errno = write.errno();
        let (file, value) = (write.file.clone(), write.value.trim_end().to_owned());
        self.0.push(Written { at, exit: write.exit, file, value, errno, pid, comm });
        true
    }

    /// The last value that each file took until `at`.
    pub(super) fn effective(&self, at: MonotonicNs) -> BTreeMap<String, String> {
        let taken = self.0.iter().filter(|write| write.errno.is_none() && write.exit <= at);
        taken.map(|write| (write.file.clone(), write.value.clone())).collect()
    }

    /// The writes that began in that time.
    pub(super) fn within(&self, from: MonotonicNs, to: MonotonicNs) -> impl Iterator<Item = &Written> {
        self.0.iter().filter(move |write| write.at >= from && write.at <= to)
    }
}

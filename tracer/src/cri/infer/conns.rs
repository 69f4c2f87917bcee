//! A client's connections: which methods the opaque entries of its header table may stand for.
//!
//! An encoder that looks into its table before it writes (Go's does) never holds one path twice: an entry that is used
//! after a path was inserted stands for another path, and two entries of before the attach stand for two. A connection
//! that inserts one path twice is not believed to be of that kind.

use std::collections::BTreeMap;

use super::methods::Method;
use super::set::Set;
use crate::cri::Slot;
use crate::ids::{ConnId, MonotonicNs, Tgid};

/// Most entries of one connection; a table of 4 KiB holds fewer.
const MAX_SLOTS: usize = 512;

/// An opaque entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) set: Set,
    pub(super) bound: Option<Method>,
    /// A call of it was answered.
    pub(super) answered: bool,
    /// Calls during which a shim was asked to execute.
    pub(super) executed: u32,
    /// What was concluded from states fits no method: nothing is concluded from its being none.
    pub(super) contradicted: bool,
    /// What made the set smaller, in order.
    evidence: Vec<&'static str>,
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Conn {
    pub(super) slots: BTreeMap<Slot, Entry>,
    /// The last call's stream and start.
    pub(super) last: Option<(u32, MonotonicNs)>,
    /// `runtime.v1` or `runtime.v1alpha2`.
    pub(super) package: Option<Package>,
    /// A method of the CRI was named here, or bound.
    pub(super) speaks_cri: bool,
    /// The process at the other end.
    pub(super) client: Option<Tgid>,
    /// kubelet is the client.
    pub(super) kubelet: bool,
    /// Paths that were inserted in this epoch.
    inserted: Vec<String>,
    epoch: u32,
    /// One was inserted twice.
    repeats: bool,
}

/// A version of the CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    V1,
    V1Alpha2,
}

impl Entry {
    /// Leaves only `set`; whether that said anything.
    pub(super) fn narrow(&mut self, set: Set, evidence: &'static str) -> bool {
        let left = self.set.and(set);
        if left == self.set {
            return false;
        }
        self.contradicted |= left.without(Set::FOREIGN).is_empty() && self.evidence.iter().any(|e| e.contains("state"));
        self.set = left;
        if !self.evidence.contains(&evidence) {
            self.evidence.push(evidence);
        }
        true
    }

    pub(super) fn evidence(&self) -> String {
        self.evidence.join(", ")
    }
}

impl Conn {
    /// A path was inserted into the table of this epoch.
    pub(super) fn insert(&mut self, path: String) {
        self.repeats |= self.inserted.contains(&path);
        self.inserted.push(path);
    }

    /// A call was lost, or is told again.
    pub(super) fn lost(&mut self) {
        self.inserted.clear();
    }

    /// An epoch begins with the first entry that is used in it.
    pub(super) fn epoch(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.inserted.clear();
        }
    }

    /// The entry of `slot`, which is used now.
    pub(super) fn used(&mut self, slot: Slot) -> &mut Entry {
        if self.slots.len() >= MAX_SLOTS && !self.slots.contains_key(&slot) {
            self.slots.pop_first();
        }
        let elsewhere = self.elsewhere(slot);
        let entry = self.slots.entry(slot).or_insert_with(|| Entry {
            set: Set::all(),
            bound: None,
            answered: false,
            executed: 0,
            contradicted: false,
            evidence: Vec::new(),
        });
        entry.narrow(Set::all().without(elsewhere), "no other entry of the table");
        entry
    }

    /// Methods that other entries of the table stand for.
    fn elsewhere(&self, slot: Slot) -> Set {
        if self.repeats {
            return Set::EMPTY;
        }
        let literal = self.inserted.iter().filter_map(|path| Method::named(path.rsplit('/').next()?));
        let bound = self
            .slots
            .iter()
            .filter(|(other, _)| **other != slot && other.epoch == slot.epoch)
            .filter_map(|(_, e)| e.bound);
        literal.chain(bound).fold(Set::EMPTY, |set, method| set.or(method.set()))
    }

    /// Narrows the other entries of the table when one is bound; gives those that changed.
    pub(super) fn exclude(&mut self, slot: Slot, method: Method) -> Vec<Slot> {
        let mut changed = Vec::new();
        if !self.repeats {
            for (other, entry) in &mut self.slots {
                if *other != slot
                    && other.epoch == slot.epoch
                    && entry.bound.is_none()
                    && entry.narrow(Set::all().without(method.set()), "no other entry of the table")
                {
                    changed.push(*other);
                }
            }
        }
        changed
    }
}

/// Connections by their ids.
pub(super) type Conns = BTreeMap<ConnId, Conn>;

impl Package {
    /// The version that a service's name tells.
    pub(super) fn of(service: &str) -> Option<Package> {
        match service.rsplit_once('.')?.0 {
            "runtime.v1" => Some(Package::V1),
            "runtime.v1alpha2" => Some(Package::V1Alpha2),
            _ => None,
        }
    }

    /// The version that a Version reply tells (`runtime_api_version`).
    pub(super) fn of_version(version: &str) -> Option<Package> {
        match version {
            "v1" => Some(Package::V1),
            "v1alpha2" => Some(Package::V1Alpha2),
            _ => None,
        }
    }

    /// A service's name.
    pub(super) fn service(package: Option<Package>, method: Method) -> &'static str {
        match (package, method.entry().image) {
            (Some(Package::V1), false) => "runtime.v1.RuntimeService",
            (Some(Package::V1), true) => "runtime.v1.ImageService",
            (Some(Package::V1Alpha2), false) => "runtime.v1alpha2.RuntimeService",
            (Some(Package::V1Alpha2), true) => "runtime.v1alpha2.ImageService",
            (None, false) => "RuntimeService",
            (None, true) => "ImageService",
        }
    }
}

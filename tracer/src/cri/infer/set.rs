//! Which methods a call may be.

use super::methods::Method;

/// Methods of the CRI, and one element for whatever else may be spoken on the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(pub(super) u64);

impl Set {
    /// No method at all: what was seen fits none.
    pub(super) const EMPTY: Set = Set(0);

    /// Another API than the CRI (containerd's own, a plugin's), or a method that is newer than the table.
    pub(super) const FOREIGN: Set = Set(1 << 63);

    /// Everything.
    pub(super) fn all() -> Set {
        Method::all().fold(Set::FOREIGN, |set, method| set.or(method.set()))
    }

    /// The methods for which `keep` holds.
    pub(super) fn of(keep: impl Fn(Method) -> bool) -> Set {
        Method::all().filter(|method| keep(*method)).fold(Set::EMPTY, |set, method| set.or(method.set()))
    }

    pub(super) const fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    pub(super) const fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn meets(self, other: Set) -> bool {
        self.0 & other.0 != 0
    }

    /// Its methods of the CRI.
    pub(super) fn methods(self) -> impl Iterator<Item = Method> {
        Method::all().filter(move |method| self.meets(method.set()))
    }

    /// The only one left, when that is a method of the CRI.
    pub(super) fn single(self) -> Option<Method> {
        (self.0.count_ones() == 1 && !self.meets(Set::FOREIGN)).then(|| self.methods().next()).flatten()
    }
}

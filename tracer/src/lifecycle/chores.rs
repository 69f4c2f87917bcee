//! What the runtime's own threads do for a call that no id names: waits for the disk, temporary mounts, owners, labels.
//!
//! A daemon's thread does not say for whom it works. So a chore is a call's only where that call, of all that may change
//! something, was the only one open from the chore's beginning to its end; else it is nobody's. What the runtime does
//! by itself meanwhile (its garbage collector writes, too) is told apart as far as it can be: while a plugin, the shim
//! or the OCI runtime works for a call, the call itself waits, and a chore then is not its own (`edges/chores.rs`).

use std::collections::BTreeMap;

use super::calls::asks;
use crate::cri::{CallEvent, CallKey, CallStart, Protocol};
use crate::ids::{MonotonicNs, Tid};
use crate::record::{Sys, Syscall};

/// Calls whose chores are remembered.
const MAX_CALLS: usize = 512;
/// Chores that are remembered of each.
const MAX_CHORES: usize = 256;

/// What a thread of the runtime did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// fsync, fdatasync, syncfs.
    Sync,
    /// A mount below containerd's `mount.WithTempMount`; its umount.
    TempMount,
    TempUmount,
    /// A file's owner.
    Chown,
    /// A file's SELinux label.
    Relabel,
}

/// One such syscall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chore {
    pub(super) what: What,
    pub(super) tid: Tid,
    pub(super) enter: MonotonicNs,
    pub(super) exit: MonotonicNs,
}

/// A call that may change something.
#[derive(Clone, Copy, Debug)]
struct Open {
    began: MonotonicNs,
    named: bool,
}

/// Open calls, and what was done for which.
#[derive(Debug, Default)]
pub(super) struct Chores {
    open: BTreeMap<CallKey, Open>,
    /// When the last call ended.
    ended: MonotonicNs,
    done: BTreeMap<CallKey, Vec<Chore>>,
    pub(super) evicted: u64,
}

impl Chores {
    /// A call begins or ends.
    pub(super) fn call(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Start(start) if changes(start) => {
                if self.open.len() >= MAX_CALLS {
                    self.open.pop_first();
                    self.evicted += 1;
                }
                self.open.insert(start.key, Open { began: start.at, named: !start.method.is_empty() });
            }
            // It was counted as one that may; what it stood in the way of until now stays nobody's.
            CallEvent::Named(named) if !changes(&named.start) => {
                self.open.remove(&named.start.key);
            }
            CallEvent::Named(named) => {
                if let Some(open) = self.open.get_mut(&named.start.key) {
                    open.named = true;
                }
            }
            CallEvent::End { key, at, .. } if self.open.contains_key(key) => {
                self.open.remove(key);
                self.ended = self.ended.max(*at);
            }
            _ => {}
        }
    }

    /// A thread of the runtime ended a syscall.
    pub(super) fn syscall(&mut self, tid: Tid, exit: MonotonicNs, syscall: &Syscall) {
        let enter = syscall.enter;
        let Some(what) = what(syscall) else { return };
        let mut open = self.open.iter();
        let (Some((key, call)), None) = (open.next(), open.next()) else { return };
        if enter < call.began || enter < self.ended {
            return;
        }
        if self.done.len() >= MAX_CALLS && !self.done.contains_key(key) {
            self.done.pop_first();
            self.evicted += 1;
        }
        let chores = self.done.entry(*key).or_default();
        if chores.len() >= MAX_CHORES {
            self.evicted += 1;
            return;
        }
        chores.push(Chore { what, tid, enter, exit });
    }

    /// Whether a call is open that has no name.
    pub(super) fn is_any_nameless(&self) -> bool {
        self.open.values().any(|call| !call.named)
    }

    /// What was done for a call, in the order of its end.
    pub(super) fn of(&self, call: CallKey) -> &[Chore] {
        self.done.get(&call).map_or(&[], Vec::as_slice)
    }

    pub(super) fn forget(&mut self, call: CallKey) {
        self.done.remove(&call);
    }
}

fn what(syscall: &Syscall) -> Option<What> {
    let [first, second, _] = &syscall.strings;
    let temporary = |path: &str| super::argv::basename(path).starts_with("containerd-mount");
    Some(match syscall.sys {
        Sys::Fsync | Sys::Fdatasync | Sys::Syncfs => What::Sync,
        Sys::Mount if temporary(second) => What::TempMount,
        Sys::Umount2 if temporary(first) => What::TempUmount,
        Sys::Fchownat | Sys::Lchown => What::Chown,
        Sys::Setxattr | Sys::Lsetxattr if second == "security.selinux" => What::Relabel,
        _ => return None,
    })
}

/// Whether a call may make the runtime write: all but those that ask. One whose method is not known may.
fn changes(start: &CallStart) -> bool {
    start.protocol == Protocol::Grpc && !asks(&start.method)
}

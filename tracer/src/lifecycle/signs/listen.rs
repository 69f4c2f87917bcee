//! Which container a listening process is of.

use super::super::Lifecycle;
use super::super::unit::{Kind, Listening, Unit, UnitKey};
use crate::ids::{CgroupId, MonotonicNs, Tgid};
use crate::record::Listen;

/// The root of the default hierarchy: where that is not mounted, or not used, everybody is in it.
const ROOT: CgroupId = CgroupId(1);

impl Lifecycle {
    /// The first listen in the pod's network namespace counts; one in a namespace that the container made for itself
    /// does not.
    pub(super) fn listen(&mut self, at: MonotonicNs, tgid: Tgid, listen: Listen) {
        let process = self.processes.get(tgid);
        let key = match process.map(|process| (&process.kind, process.unit)) {
            Some((Kind::Contained, unit)) => unit,
            // The runtime, a plugin, an exec probe: a server of theirs is not the container's.
            Some(_) => return,
            None => None,
        };
        let key = key.or_else(|| self.unit_of_cgroup(listen)).or_else(|| self.unit_of_netns(listen));
        let Some(key) = key else { return };
        if let Some(unit) = self.units.get_mut(key).filter(|unit| is_inside(unit, listen)) {
            unit.listening.get_or_insert(Listening { at, tgid, port: listen.port });
        }
    }

    /// A container's children are not followed, but are in its cgroup. Where two could be meant, nothing is said.
    fn unit_of_cgroup(&self, listen: Listen) -> Option<UnitKey> {
        let own = |unit: &Unit| unit.entered().is_some_and(|entry| entry.cgroup == listen.cgroup);
        self.only(|unit| listen.cgroup > ROOT && own(unit))
    }

    /// Where cgroups tell nothing: the one container in a network namespace that was made for its pod.
    fn unit_of_netns(&self, listen: Listen) -> Option<UnitKey> {
        let inside = |unit: &Unit| unit.exit.is_none() && is_inside(unit, listen);
        self.only(|unit| inside(unit) && unit.netns_path.is_some())?;
        self.only(|unit| inside(unit) && unit.netns_path.is_none())
    }

    fn only(&self, fits: impl Fn(&Unit) -> bool) -> Option<UnitKey> {
        let mut found = self.units.iter().filter(|(_, unit)| fits(unit)).map(|(key, _)| key);
        found.next().filter(|_| found.next().is_none())
    }
}

fn is_inside(unit: &Unit, listen: Listen) -> bool {
    let net = unit.entered().and_then(|entry| entry.namespaces).map(|namespaces| namespaces.net);
    net.is_some_and(|net| net == listen.netns)
}

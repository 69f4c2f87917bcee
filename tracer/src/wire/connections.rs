//! The connections that are open, by identity and by descriptor.
//!
//! A connection's identity never comes again; a descriptor does, so a closed or reused one ends what it named.

use std::collections::{BTreeMap, BTreeSet};

use super::session::Session;
use crate::ids::{ConnId, Tgid};

/// An open connection.
pub(super) struct Connection {
    pub(super) session: Session,
    /// Process at the other end.
    pub(super) peer: Option<Tgid>,
    /// Process whose bytes these are.
    owner: Tgid,
    /// Bytes that it moved in all.
    pub(super) moved: u64,
    /// It was given to [`super::Decoder::take_muted`].
    pub(super) muted: bool,
    descriptors: Vec<(Tgid, i32)>,
    used: u64,
}

/// All of them. Ordered, so that the same records give the same events in the same order.
#[derive(Default)]
pub(super) struct Connections {
    open: BTreeMap<ConnId, Connection>,
    named: BTreeMap<(Tgid, i32), ConnId>,
    clock: u64,
}

impl Connections {
    pub(super) fn contains(&self, id: ConnId) -> bool {
        self.open.contains_key(&id)
    }

    /// A connection that is about to be used.
    pub(super) fn get(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.clock += 1;
        let connection = self.open.get_mut(&id)?;
        connection.used = self.clock;
        Some(connection)
    }

    /// Takes a connection in; gives what had that identity before.
    pub(super) fn insert(
        &mut self,
        id: ConnId,
        session: Session,
        owner: Tgid,
        peer: Option<Tgid>,
    ) -> Option<Connection> {
        let old = self.remove(id);
        self.clock += 1;
        self.open.insert(
            id,
            Connection { session, peer, owner, moved: 0, muted: false, descriptors: Vec::new(), used: self.clock },
        );
        old
    }

    /// `descriptor` names connection `id` from now on; gives a connection that nothing names any more.
    pub(super) fn name(&mut self, id: ConnId, descriptor: (Tgid, i32)) -> Option<(ConnId, Connection)> {
        if descriptor.1 < 0 || self.named.get(&descriptor) == Some(&id) {
            return None;
        }
        let old = self.unname(descriptor);
        if let Some(connection) = self.open.get_mut(&id) {
            connection.descriptors.push(descriptor);
            self.named.insert(descriptor, id);
        }
        old
    }

    /// `descriptor` names nothing any more; gives a connection that it was the last name of.
    pub(super) fn unname(&mut self, descriptor: (Tgid, i32)) -> Option<(ConnId, Connection)> {
        let id = self.named.remove(&descriptor)?;
        let connection = self.open.get_mut(&id)?;
        connection.descriptors.retain(|d| *d != descriptor);
        let last = connection.descriptors.is_empty();
        last.then(|| self.remove(id)).flatten().map(|connection| (id, connection))
    }

    /// Descriptor `descriptor` of connection `id` was closed; without a descriptor: its socket was released.
    pub(super) fn close(&mut self, id: ConnId, descriptor: (Tgid, i32)) -> Option<(ConnId, Connection)> {
        if descriptor.1 >= 0 && self.named.contains_key(&descriptor) {
            return self.unname(descriptor);
        }
        let nameless = self.open.get(&id).is_some_and(|connection| connection.descriptors.is_empty());
        (descriptor.1 < 0 || nameless).then(|| self.remove(id)).flatten().map(|connection| (id, connection))
    }

    /// Takes a connection out.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        for descriptor in &connection.descriptors {
            self.named.remove(descriptor);
        }
        Some(connection)
    }

    /// Takes the connection out that was not used for longest, when there are more than `limit`.
    pub(super) fn evict(&mut self, limit: usize) -> Option<(ConnId, Connection)> {
        if self.open.len() <= limit {
            return None;
        }
        let id = *self.open.iter().min_by_key(|(_, connection)| connection.used)?.0;
        self.remove(id).map(|connection| (id, connection))
    }

    /// The processes whose connections are open.
    pub(super) fn owners(&self) -> BTreeSet<Tgid> {
        self.open.values().map(|connection| connection.owner).collect()
    }

    /// A process ended: gives the next connection that ended with it.
    pub(super) fn exited(&mut self, tgid: Tgid) -> Option<(ConnId, Connection)> {
        while let Some((descriptor, _)) = self.named.range((tgid, i32::MIN)..=(tgid, i32::MAX)).next() {
            if let Some(ended) = self.unname(*descriptor) {
                return Some(ended);
            }
        }
        let mut open = self.open.iter();
        let id = *open.find(|(_, connection)| connection.owner == tgid && connection.descriptors.is_empty())?.0;
        self.remove(id).map(|connection| (id, connection))
    }
}

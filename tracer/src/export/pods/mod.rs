//! The identity chain, for programs (`podlapse.pods/v1`) and for people.

mod detail;
mod json;
mod table;
#[cfg(test)]
mod tests;

pub use detail::write_detail;
pub use json::write_pods_json;
pub use table::write_table;

use crate::record::Namespaces;

/// The namespaces by name, in the order of the contract; those that are known.
fn namespaces(n: &Namespaces) -> impl Iterator<Item = (&'static str, u32)> {
    let all = [("net", n.net), ("ipc", n.ipc), ("uts", n.uts), ("pid", n.pid), ("mnt", n.mnt), ("user", n.user)];
    all.into_iter().filter(|(_, inode)| *inode != 0)
}

/// Names of the namespaces that two processes are both in.
fn shared(a: &Namespaces, b: &Namespaces) -> Vec<&'static str> {
    let pairs = namespaces(a).filter(|own| namespaces(b).any(|other| other == *own));
    pairs.map(|(name, _)| name).collect()
}

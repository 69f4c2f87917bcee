//! What a recording says of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The header line; fields that a later version adds are ignored by this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// `podlapse 0.1.0`
    pub tool: String,
    /// RFC 3339.
    pub created: String,
    /// podlapse's own arguments and the first word of `-- COMMAND`; the rest of it may hold secrets.
    pub arguments: Vec<String>,
    /// Where it was made; absent in recordings before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
    /// [`crate::engine::Config::settle_ns`]
    pub settle_ns: u64,
    /// [`crate::engine::Config::containers`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
    /// [`crate::engine::Config::stuck_after_ns`]; absent in recordings before it was one.
    #[serde(default)]
    pub stuck_after_ns: u64,
    /// Which starts the run was about; replay selects the same.
    #[serde(default)]
    pub selection: Selection,
}

/// The machine, its clocks at one instant, and how podlapse looked into it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `uname -r`
    pub kernel: String,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME` at that instant, since the epoch; later pairs are records.
    pub realtime_ns: u64,
    /// Backend of each group of hooks that is attached.
    pub backends: BTreeMap<String, String>,
}

/// Which starts a run was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Namespace and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<(String, String)>,
    /// UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// How many; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Only those that began while COMMAND ran.
    #[serde(default)]
    pub command: bool,
    /// Also starts of a container in a sandbox that runs; of a named pod they always count.
    #[serde(default)]
    pub restarts: bool,
    /// The life of the pods to their removal, not their starts alone.
    #[serde(default)]
    pub lifecycle: bool,
}

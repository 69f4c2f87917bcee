//! The live source of records: loads the BPF programs, finds the container runtime, reads the rings.
//!
//! Everything that podlapse learns on a node leaves this module as a [`crate::record::Record`], in time order. It
//! never stands in the path of a start: no event is held up, no process stopped, no file written but podlapse's own
//! memory. What it attaches goes when [`Session`] is dropped or the process ends: links are descriptors, tracefs is
//! mounted in a mount namespace that lives as long as one thread.

mod ahead;
mod btf;
mod cri;
mod detach;
mod error;
mod hooks;
mod loader;
mod log;
mod merge;
mod node;
mod privileges;
mod proc;
mod register;
mod rings;
mod session;
mod sockets;
mod specs;
mod tracefs;
mod waiting;

pub(crate) use cri::connect;
pub use cri::{Version, VersionError, version};
pub use error::ProbeError;
pub use hooks::{Backend, Choice, Group, Hook, Status};
pub use loader::probe_hooks;
pub use node::Node;
pub use privileges::{drop_privileges, missing_capabilities};
pub(crate) use proc::Proc;
pub(crate) use register::is_shim;
pub(crate) use session::now;
pub use session::{Bootstrap, Options, Session};
pub use sockets::candidates;
pub(crate) use sockets::listener;

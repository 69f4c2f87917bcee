//! Real nodes to test podlapse against, and the kubelet's side of the CRI.
//!
//! A [`Node`] is a private containerd with runc, crun and bridge networking in its own mount and
//! network namespaces. It leaves nothing behind, however its process ends. [`Cri`] starts pods on
//! it, or on any other CRI socket.

pub mod bpf;
pub mod calls;
pub mod cases;
pub mod cgroup;
pub mod churn;
pub mod cri;
pub mod durations;
pub mod hold;
pub mod hpack;
pub mod http;
pub mod image;
pub mod kubelet;
pub mod late;
pub mod machine;
pub mod node;
pub mod payload;
pub mod podlapse;
pub mod secrets;
pub mod signals;
pub mod slice;
pub mod strace;
pub mod tools;
pub mod trace;
pub mod witness;

pub use cri::Cri;
pub use node::{Node, Options};
pub use tools::Containerd;

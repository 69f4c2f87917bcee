//! podlapse: an eBPF lifecycle tracer for Kubernetes pod starts.
//!
//! Data flows one way: [`record`]s come from the kernel probes, from `/proc` or from a recording, go through the pure
//! engine (wire, cri, lifecycle, trace) and leave as traces through the exports. See ARCHITECTURE.md.

pub mod agent;
pub mod cli;
pub mod cri;
pub mod diagnose;
pub mod engine;
pub mod export;
pub mod ids;
pub mod lifecycle;
pub mod pods;
pub mod probe;
pub mod record;
pub mod recording;
pub mod stats;
pub mod trace;
pub mod wire;

//! What the fuzz targets do; `fuzz_targets/` only names them. `cargo xtask fuzz` runs them.
//!
//! The pure part of podlapse is compiled into this crate, file by file: it needs none of podlapse's dependencies on the
//! kernel and the network, so a build is quick, and the targets reach what is private to podlapse.

#![forbid(unsafe_code)]
#![expect(dead_code, unused_imports, reason = "only the part of podlapse that is fuzzed is used")]

// What tests of podlapse share names it so.
extern crate self as podlapse;

#[path = "../../../tracer/tests/capture/mod.rs"]
mod capture;
#[path = "../../../tracer/src/cri/mod.rs"]
mod cri;
#[path = "../../../tracer/src/diagnose/mod.rs"]
mod diagnose;
#[path = "../../../tracer/src/engine.rs"]
mod engine;
#[path = "../../../tracer/src/ids.rs"]
mod ids;
#[path = "../../../tracer/src/lifecycle/mod.rs"]
mod lifecycle;
#[path = "../../../tracer/src/record/mod.rs"]
mod record;
#[path = "../../../tracer/src/recording/mod.rs"]
mod recording;
#[path = "../../../tracer/src/trace/mod.rs"]
mod trace;
#[path = "../../../tracer/src/wire/mod.rs"]
mod wire;

mod check;
mod input;
pub mod seeds;

/// One module a target: `run` takes any bytes and panics when a property does not hold.
pub mod target {
    pub mod capture;
    pub mod engine;
    pub mod frames;
    pub mod grpc;
    pub mod hpack;
    pub mod infer;
    pub mod proto;
    pub mod record;
    pub mod recording;
    pub mod ttrpc;
}

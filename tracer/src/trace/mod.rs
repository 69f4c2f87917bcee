//! Traces: the span tree of one start, its partition into stages, its critical path. Pure.
//!
//! These are the engine's own types; each export has its own and none of these is serializable.

#![forbid(unsafe_code)]

mod draft;
mod life;
mod model;
mod node;
mod partition;
mod stages;
mod waiting;

pub(crate) use draft::{Draft, DraftId, DraftSpan};
pub use life::{LifeContainer, LifeEvent, LifeKind, LifeProcess};
pub use model::{
    Attempt, AttemptExit, CallInfo, Confidence, Container, ContainerKind, ExecPoint, ExitPoint, LimitWrite,
    ListenPoint, NodeInfo, Outcome, PodInfo, ProcessInfo, Quality, Sandbox, Span, SpanId, StageTotal, StartKind,
    TaskCall, Trace, Verdict,
};
pub use node::NodeVerdict;
pub use stages::{Edges, STAGES, Stage, lookup, self_stage};
pub use waiting::{LastSign, Look, Waiting, WaitingProcess, seconds};

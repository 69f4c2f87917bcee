//! Calls: what the wire's messages say, as the lifecycle sees it. Pure.

#![forbid(unsafe_code)]

pub mod allow;
mod call;
pub(crate) mod infer;
pub mod schema;

pub use call::{
    CallEvent, CallKey, CallStart, Ending, Field, Fields, HeaderSigns, MethodSource, Named, Protocol, Slot, Unnamed,
    Value,
};

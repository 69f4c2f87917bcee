//! Calls: what the wire's messages say, as the lifecycle sees it. Pure.

#![forbid(unsafe_code)]

pub mod allow;
mod call;
pub mod schema;

pub use call::{CallEvent, CallKey, CallStart, Ending, Field, Fields, MethodSource, Protocol, Value};

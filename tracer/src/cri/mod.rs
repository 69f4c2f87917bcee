//! Calls: what the wire's messages say, as the lifecycle sees it. Pure.

#![forbid(unsafe_code)]

mod call;

pub use call::{CallEvent, CallKey, CallStart, Ending, Field, Fields, MethodSource, Protocol, Value};

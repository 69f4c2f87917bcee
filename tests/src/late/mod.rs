//! Late attaches with a known answer: traffic whose methods are known, cut anywhere, and what podlapse makes of the rest.
//!
//! No node and no root: recorded bytes of real clients, or those of a [`client`] that this module plays.

pub mod capture;
pub mod client;
pub mod cut;
pub mod model;
pub mod proto;
pub mod random;
pub mod score;

pub use capture::{Traffic, Truth};
pub use cut::{Cut, Damage};
pub use score::Score;

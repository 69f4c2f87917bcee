//! What the agent keeps of all starts, and how it is asked for it: metrics, recent traces, HTTP.

mod http;
mod metrics;
mod recent;

pub use self::http::{Kept, Listener, Shared, api_routes, metrics_routes, serve};
pub use self::metrics::{BUCKETS, Format, Metrics, Progress};
pub use self::recent::{Query, Recent};

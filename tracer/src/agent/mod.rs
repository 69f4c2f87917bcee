//! What the agent keeps of all starts, and how it is asked for it: metrics, recent traces, HTTP.

mod client;
mod http;
mod lines;
mod metrics;
mod recent;
mod serve;

pub use self::client::{Address, ClientError, get};
pub use self::http::{Kept, Shared, api_routes, metrics_routes};
pub use self::lines::LineFile;
pub use self::metrics::{BUCKETS, Format, Metrics, Progress};
pub use self::recent::{Query, Recent};
pub use self::serve::{Listener, serve};

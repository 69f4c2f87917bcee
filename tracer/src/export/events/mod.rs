//! What happens to a pod, an event at a time: lines of a timeline, and `podlapse.event/v1`.

mod json;
mod sentence;
#[cfg(test)]
mod tests;
mod timeline;

pub(super) use json::event_value;
pub use json::write_event_json;
pub use sentence::sentence;
pub use timeline::Timeline;

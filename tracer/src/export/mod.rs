//! Exports: a trace as people and programs read it. Each has its own types; the engine's are not serializable.
//!
//! Pure but for the writer that they are given. The same trace gives the same bytes.

mod diff;
mod events;
mod grid;
mod json;
mod names;
mod perfetto;
mod pods;
#[cfg(test)]
pub(crate) mod samples;
mod stages;
mod starts;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod tree;

pub use diff::{DiffSide, write_diff, write_diff_json};
pub use events::{Timeline, sentence, write_event_json};
pub use json::write_json;
pub use perfetto::Perfetto;
pub use pods::{write_detail, write_pods_json, write_table};
pub use stages::{write_comparison, write_comparison_json, write_stages, write_stages_json};
pub use starts::{StartLine, write_starts};
pub use text::Charset;
pub use time::{duration, rfc3339};
pub use tree::{Tree, write_tree};

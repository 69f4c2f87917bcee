//! The lifecycle on synthetic streams.

mod after_exec;
mod attempts;
mod chores;
mod clients;
mod compressed;
mod connects;
mod containerd;
mod crio;
mod dsl;
mod failures;
mod identity;
mod images;
mod kinds;
mod labels;
mod late;
mod life;
mod limits;
mod listed;
mod node;
mod properties;
mod queue;
mod render;
mod restarts;
mod runtimes;
mod starts;
mod stuck;
mod systemd;
mod tasks;
mod under_way;
mod verdicts;

use self::dsl::Stream;
use crate::engine::Config;
use crate::trace::Trace;

/// Feeds a stream with the default settings and compares the traces' text.
fn check(stream: Stream, expect: expect_test::Expect) -> Vec<Trace> {
    let traces = stream.feed(Config::default());
    expect.assert_eq(&traces.iter().map(render::trace).collect::<String>());
    for trace in &traces {
        assert_eq!(trace.stages.iter().map(|stage| stage.self_ns).sum::<u64>(), trace.total_ns);
        for span in &trace.spans {
            assert!(crate::trace::lookup(&span.stage).is_some(), "{} is not registered", span.stage);
        }
    }
    traces
}

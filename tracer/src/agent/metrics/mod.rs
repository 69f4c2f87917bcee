//! Metrics of all starts, for Prometheus: names and units as OpenMetrics wants them, labels of bounded sets only.

mod own;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::own::Own;
pub use self::own::Progress;
use crate::lifecycle::Answered;
use crate::stats;
use crate::trace::{NodeVerdict, Trace, Verdict};

/// Upper bounds of the buckets: 250 us to 10 min.
pub const BUCKETS: [f64; 20] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// Label sets of the stages' histograms; a plugin's name is one of them.
const MAX_STAGES: usize = 512;
/// Methods that have a label of their own. The CRI has about forty; a client may ask for anything.
const MAX_METHODS: usize = 64;

/// The text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl Format {
    /// What a client takes, by its `Accept`; Prometheus names the formats that it can read.
    pub fn of(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Text }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: String,
    outcome: &'static str,
    /// Empty: the default one.
    runtime_handler: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    stage: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: String,
    /// gRPC's number; `none`: there was no answer, or none that could be read.
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabels {
    trace_id: String,
}

type Traced = HistogramWithExemplars<TraceLabels>;
type Histograms<L, H> = Family<L, H, fn() -> H>;

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    stages: Histograms<StageLabels, Traced>,
    /// Label sets of `stages`.
    label_sets: usize,
    left_out: Counter,
    starts: Histograms<StartLabels, Traced>,
    began: Counter,
    withdrawn: Counter,
    verdicts: Family<VerdictLabels, Counter>,
    node: Family<NodeLabels, Gauge>,
    calls: Family<CallLabels, Counter>,
    polls: Histograms<MethodLabels, Histogram>,
    /// Methods that were seen.
    methods: BTreeSet<String>,
    lines_dropped: Counter,
    own: Own,
}

impl Default for Metrics {
    /// Nothing has been counted yet.
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("podlapse");
        let metrics = Metrics {
            own: Own::registered(&mut registry),
            registry: Registry::default(),
            stages: Family::new_with_constructor(|| Traced::new(BUCKETS.into_iter())),
            label_sets: 0,
            left_out: Counter::default(),
            starts: Family::new_with_constructor(|| Traced::new(BUCKETS.into_iter())),
            began: Counter::default(),
            withdrawn: Counter::default(),
            verdicts: Family::default(),
            node: Family::default(),
            calls: Family::default(),
            polls: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            methods: BTreeSet::new(),
            lines_dropped: Counter::default(),
        };
        let help = "Duration of one span of a stage, by how its start ended";
        registry.register_with_unit("stage_duration", help, Unit::Seconds, metrics.stages.clone());
        let help = "Durations of stages that found no room, for there were too many different ones";
        registry.register("stage_durations_left_out", help, metrics.left_out.clone());
        let help = "Duration of starts of which no more will be known, by what started and how it ended";
        registry.register_with_unit("start_duration", help, Unit::Seconds, metrics.starts.clone());
        registry.register("starts_begun", "Starts that began", metrics.began.clone());
        let help = "Starts that were told of and turned out to be part of another one";
        registry.register("starts_withdrawn", help, metrics.withdrawn.clone());
        registry.register("verdicts", "Failures of starts and of running pods", metrics.verdicts.clone());
        registry.register("node_verdicts", "1: that is wrong with the node now", metrics.node.clone());
        let help = "Calls of the CRI that are over, by method and gRPC status code";
        registry.register("cri_calls", help, metrics.calls.clone());
        let help = "Duration of the calls that kubelet makes each second";
        registry.register_with_unit("cri_list_duration", help, Unit::Seconds, metrics.polls.clone());
        let help = "Traces and events that the file of JSON Lines did not take";
        registry.register("lines_dropped", help, metrics.lines_dropped.clone());
        Metrics { registry, ..metrics }
    }
}

impl Metrics {
    /// A start began.
    pub fn began(&self) {
        self.began.inc();
    }

    /// A start that had begun is none.
    pub fn withdrawn(&self) {
        self.withdrawn.inc();
    }

    /// Counts a start of which no more will be known.
    pub fn trace(&mut self, trace: &Trace) {
        let exemplar = || Some(TraceLabels { trace_id: trace.trace_id.clone() });
        let at = trace.start_realtime.map(|start| start.saturating_add(trace.total_ns));
        let at = at.map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
        let labels = StartLabels { kind: trace.kind.name(), outcome: trace.outcome.name() };
        self.starts.get_or_create(&labels).observe(seconds(trace.total_ns), exemplar(), at);
        for value in stats::durations(trace) {
            let labels = StageLabels {
                stage: value.stage.into_owned(),
                outcome: trace.outcome.name(),
                runtime_handler: trace.pod.runtime_handler.clone().unwrap_or_default(),
            };
            if self.stages.get(&labels).is_none() {
                if self.label_sets >= MAX_STAGES {
                    self.left_out.inc();
                    continue;
                }
                self.label_sets += 1;
            }
            self.stages.get_or_create(&labels).observe(seconds(value.ns), exemplar(), at);
        }
        trace.verdict.iter().for_each(|verdict| self.verdict(verdict));
    }

    /// Counts a failure.
    pub fn verdict(&self, verdict: &Verdict) {
        let labels = VerdictLabels { stage: verdict.stage.clone(), reason: verdict.reason.clone() };
        self.verdicts.get_or_create(&labels).inc();
    }

    /// Something is wrong with the node, or no longer.
    pub fn node(&self, verdict: &NodeVerdict) {
        self.node.get_or_create(&NodeLabels { reason: verdict.reason.clone() }).set(verdict.open.into());
    }

    /// Counts a call of the CRI.
    pub fn call(&mut self, call: &Answered) {
        let method = match call.method.as_str() {
            "" => "unknown",
            known if self.methods.contains(known) => known,
            other if self.methods.len() >= MAX_METHODS || !is_name(other) => "other",
            new => {
                self.methods.insert(new.to_owned());
                new
            }
        };
        let code =
            call.code.map_or("none".to_owned(), |code| if code <= 16 { code.to_string() } else { "other".into() });
        self.calls.get_or_create(&CallLabels { method: method.to_owned(), code }).inc();
        if method.starts_with("List") || method.starts_with("Stream") {
            let labels = MethodLabels { method: method.to_owned() };
            self.polls.get_or_create(&labels).observe(seconds(call.took_ns));
        }
    }

    /// A line was not written.
    pub fn line_dropped(&self) {
        self.lines_dropped.inc();
    }

    /// How the run goes.
    pub fn progress(&self, progress: &Progress) {
        self.own.progress(progress);
    }

    /// The text.
    pub fn text(&self, format: Format) -> String {
        self.own.look();
        let mut all = String::new();
        // Writing to a String does not fail.
        let _ = match format {
            Format::OpenMetrics => text::encode(&mut all, &self.registry),
            Format::Text => prometheus_text::encode(&mut all, &self.registry),
        };
        all
    }
}

/// A method of a service, not what else a client may put there.
fn is_name(method: &str) -> bool {
    method.len() <= 40 && method.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

//! Metrics of all starts, for Prometheus: names and units as OpenMetrics wants them, labels of bounded sets only.

use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::stats;
use crate::trace::{Trace, Verdict};

/// Upper bounds of the buckets: 250 us to 10 min.
pub const BUCKETS: [f64; 20] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// Label sets of the stages' histograms; a plugin's name is one of them.
const MAX_STAGES: usize = 512;

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
struct TraceLabels {
    trace_id: String,
}

type Histogram = HistogramWithExemplars<TraceLabels>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn histogram() -> Histogram {
    Histogram::new(BUCKETS.into_iter())
}

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    stages: Histograms<StageLabels>,
    /// Label sets of `stages`.
    label_sets: usize,
    starts: Histograms<StartLabels>,
    verdicts: Family<VerdictLabels, Counter>,
    left_out: Counter,
    open: Gauge,
}

impl Default for Metrics {
    /// Nothing has been counted yet.
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("podlapse");
        let stages: Histograms<StageLabels> = Family::new_with_constructor(histogram);
        let starts: Histograms<StartLabels> = Family::new_with_constructor(histogram);
        let (verdicts, left_out, open) = (Family::default(), Counter::default(), Gauge::default());
        let seconds = |name, help, metric: &Histograms<StageLabels>, to: &mut Registry| {
            to.register_with_unit(name, help, Unit::Seconds, metric.clone());
        };
        seconds("stage_duration", "Duration of one span of a stage", &stages, &mut registry);
        let help = "Duration of starts that are over, by what started and how it ended";
        registry.register_with_unit("start_duration", help, Unit::Seconds, starts.clone());
        registry.register("verdicts", "Failures by stage and reason", verdicts.clone());
        registry.register("stage_values_left_out", "Durations of stages that found no room", left_out.clone());
        registry.register("open_starts", "Starts that are not over", open.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The podlapse that runs", build);
        Metrics { registry, stages, label_sets: 0, starts, verdicts, left_out, open }
    }
}

impl Metrics {
    /// Counts a start that is over.
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

    /// How many starts are not over.
    pub fn open(&self, starts: usize) {
        self.open.set(i64::try_from(starts).unwrap_or(i64::MAX));
    }

    /// The text.
    pub fn text(&self, format: Format) -> String {
        let mut all = String::new();
        // Writing to a String does not fail.
        let _ = match format {
            Format::OpenMetrics => text::encode(&mut all, &self.registry),
            Format::Text => prometheus_text::encode(&mut all, &self.registry),
        };
        all
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

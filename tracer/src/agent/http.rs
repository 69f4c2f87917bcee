//! HTTP for those who ask the agent: few routes, small answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::{Format, Metrics, Query, Recent};
use crate::export::write_stages_json;
use crate::stats::Stats;

/// How old a text may be that is given to several at once.
const FRESH: Duration = Duration::from_secs(1);
/// The run loop comes around each 100 ms; where it did not for so long, the agent hangs.
const HANGS: Duration = Duration::from_secs(10);

/// What the run loop fills and HTTP reads.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Kept>);

/// All of it.
#[derive(Debug, Default)]
pub struct Kept {
    /// Metrics.
    pub metrics: Metrics,
    /// Traces of late.
    pub recent: Recent,
    /// Histograms.
    pub stats: Stats,
    /// Why it is not ready; none: it is.
    pub unready: Option<String>,
    /// When the run loop came around last.
    pub alive: Option<Instant>,
    /// Answers of the last moment, by their media type.
    texts: BTreeMap<&'static str, (Instant, Bytes)>,
}

impl Shared {
    /// Nothing is known, and not ready for that reason.
    pub fn new(unready: &str) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(Kept { unready: Some(unready.to_owned()), ..Kept::default() })))
    }

    /// What is kept; a panic elsewhere leaves it whole enough to be read.
    pub fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// A text of all that is kept: made at most once a moment, however many ask.
    fn text(&mut self, media: &'static str, make: impl FnOnce(&Kept) -> io::Result<Vec<u8>>) -> Response {
        if let Some((_, text)) = self.texts.get(media).filter(|(made, _)| made.elapsed() < FRESH) {
            return typed(media, text.clone());
        }
        match make(self) {
            Ok(text) => {
                let text = Bytes::from(text);
                self.texts.insert(media, (Instant::now(), text.clone()));
                typed(media, text)
            }
            Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }
}

/// `/metrics`, `/healthz`, `/readyz`.
pub fn metrics_routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(async || said(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz"))
        .with_state(shared)
}

/// The same, and `/api/v1/traces`, `/api/v1/stages`.
pub fn api_routes(shared: Arc<Shared>) -> Router {
    const THERE: &str = "there are /api/v1/traces, /api/v1/stages, /metrics, /healthz and /readyz";
    metrics_routes(Arc::clone(&shared))
        .route("/api/v1/traces", get(traces).with_state(Arc::clone(&shared)))
        .route("/api/v1/stages", get(stages).with_state(shared))
        .fallback(async || said(StatusCode::NOT_FOUND, THERE))
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::of(accept);
    shared.lock().text(format.content_type(), |kept| Ok(kept.metrics.text(format).into_bytes()))
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    match shared.lock().alive.map(|alive| alive.elapsed()) {
        Some(ago) if ago >= HANGS => unavailable(&format!("the run loop has not come around for {} s", ago.as_secs())),
        // None: it starts.
        _ => said(StatusCode::OK, "ok"),
    }
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    match &shared.lock().unready {
        None => said(StatusCode::OK, "ok"),
        Some(why) => unavailable(why),
    }
}

fn unavailable(why: &str) -> Response {
    said(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// A line for a person.
fn said(status: StatusCode, line: &str) -> Response {
    (status, format!("{line}\n")).into_response()
}

fn typed(media: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(media))], body.into()).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    pod: Option<String>,
    #[serde(default)]
    failed: bool,
    limit: Option<usize>,
}

/// JSON Lines, the latest first. They are sent as they are kept: a client that reads slowly holds no copy.
async fn traces(
    State(shared): State<Arc<Shared>>,
    which: Result<Parameters<Which>, QueryRejection>,
) -> Result<Response, Response> {
    let Parameters(Which { pod, failed, limit }) = which.map_err(wrong)?;
    let found = shared.lock().recent.find(&Query { pod, failed, limit });
    let lines = tokio_stream::iter(found.into_iter().map(Ok::<Bytes, Infallible>));
    Ok(typed("application/x-ndjson", Body::from_stream(lines)))
}

fn wrong(query: QueryRejection) -> Response {
    said(StatusCode::BAD_REQUEST, &query.body_text())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    #[serde(default)]
    format: Histograms,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Histograms {
    /// `podlapse.stages/v1`
    #[default]
    Json,
    /// A V2 log.
    Hdr,
}

async fn stages(
    State(shared): State<Arc<Shared>>,
    how: Result<Parameters<How>, QueryRejection>,
) -> Result<Response, Response> {
    let Parameters(how) = how.map_err(wrong)?;
    let mut kept = shared.lock();
    Ok(match how.format {
        Histograms::Hdr => kept.text("text/plain; charset=utf-8", |kept| Ok(kept.stats.to_log())),
        Histograms::Json => kept.text("application/json", |kept| {
            let mut text = Vec::new();
            write_stages_json(&mut text, &kept.stats, None).map(|()| text)
        }),
    })
}

#[cfg(test)]
mod tests;

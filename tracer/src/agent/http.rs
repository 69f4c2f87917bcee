//! HTTP for those who ask the agent: few routes, small answers, no patience with clients that are slow.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query as Parameters, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::{Format, Metrics, Query, Recent};
use crate::export::write_stages_json;
use crate::stats::Stats;

/// Connections at a time, of one listener; others wait.
const MAX_CONNECTIONS: usize = 256;
/// How long a client may take for its request's head, and for all that it asks on one connection.
const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(30);
/// How old a text of metrics may be that is given to several at once.
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
    texts: [Option<(Instant, Bytes)>; 2],
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
    fn text(&mut self, format: Format) -> Bytes {
        let of = usize::from(format == Format::OpenMetrics);
        if let Some((made, text)) = self.texts[of].as_ref().filter(|(made, _)| made.elapsed() < FRESH) {
            let _ = made;
            return text.clone();
        }
        let text = Bytes::from(self.metrics.text(format));
        self.texts[of] = Some((Instant::now(), text.clone()));
        text
    }
}

/// `/metrics`, `/healthz`, `/readyz`.
pub fn metrics_routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

/// The same, and `/api/v1/traces`, `/api/v1/stages`.
pub fn api_routes(shared: Arc<Shared>) -> Router {
    let api = Router::new().route("/api/v1/traces", get(traces)).route("/api/v1/stages", get(stages));
    api.with_state(Arc::clone(&shared)).merge(metrics_routes(shared))
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::of(accept);
    typed(format.content_type(), shared.lock().text(format))
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    match shared.lock().alive {
        Some(alive) if alive.elapsed() < HANGS => "ok\n".into_response(),
        Some(alive) => unavailable(&format!("the run loop has not come around for {} s", alive.elapsed().as_secs())),
        // It starts.
        None => "ok\n".into_response(),
    }
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    match &shared.lock().unready {
        None => "ok\n".into_response(),
        Some(why) => unavailable(why),
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

fn typed(content: &'static str, body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content))], body).into_response()
}

#[derive(Debug, Default, Deserialize)]
struct Which {
    pod: Option<String>,
    #[serde(default)]
    failed: bool,
    limit: Option<usize>,
}

/// JSON Lines, the latest first.
async fn traces(State(shared): State<Arc<Shared>>, Parameters(which): Parameters<Which>) -> Response {
    let query = Query { pod: which.pod, failed: which.failed, limit: which.limit };
    let found = shared.lock().recent.find(&query);
    typed("application/x-ndjson", found.concat().into())
}

#[derive(Debug, Default, Deserialize)]
struct How {
    /// `json`, or `hdr`: a V2 log.
    format: Option<String>,
}

async fn stages(State(shared): State<Arc<Shared>>, Parameters(how): Parameters<How>) -> Response {
    let stats = shared.lock().stats.clone();
    match how.format.as_deref() {
        Some("hdr") => typed("text/plain; charset=utf-8", stats.to_log().into()),
        None | Some("json") => {
            let mut text = Vec::new();
            match write_stages_json(&mut text, &stats, None) {
                Ok(()) => typed("application/json", text.into()),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            }
        }
        Some(other) => (StatusCode::BAD_REQUEST, format!("no format {other:?}: json or hdr\n")).into_response(),
    }
}

/// Where clients come from.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    /// Its address, where that is TCP: port 0 is one that the kernel chooses.
    pub fn name(&self) -> Option<String> {
        match self {
            Listener::Tcp(listener) => Some(listener.local_addr().ok()?.to_string()),
            Listener::Unix(_) => None,
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept().await?.0),
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Serves until it is dropped. A client that is slow, or sends something else than HTTP, loses its connection.
pub async fn serve(listener: Listener, routes: Router) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            // No descriptor is left, or the client has gone: others come.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            let http = http.timer(TokioTimer::new()).header_read_timeout(HEAD);
            let _ = tokio::time::timeout(CONNECTION, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(slot);
        });
    }
}

use axum::http::{Method, Request};
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::export::samples;

/// An agent that saw a start that went well, then one that failed.
fn seen() -> Arc<Shared> {
    let shared = Shared::new("podlapse attaches");
    for trace in [samples::complete(), crate::trace::Trace { trace_id: "f".repeat(32), ..samples::failed() }] {
        let mut json = Vec::new();
        crate::export::write_json(&mut json, &trace).unwrap();
        let mut kept = shared.lock();
        kept.metrics.trace(&trace);
        kept.stats.add(&trace);
        kept.recent.add(&trace, json);
    }
    shared
}

async fn send(routes: Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = routes.oneshot(request).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.into()).unwrap())
}

async fn get(routes: Router, path: &str) -> (u16, String, String) {
    let (status, headers, body) = send(routes, Request::get(path).body(Body::empty()).unwrap()).await;
    let media = headers.get(header::CONTENT_TYPE).map_or("", |media| media.to_str().unwrap());
    (status.as_u16(), media.to_owned(), body)
}

fn ids(lines: &str) -> Vec<String> {
    let id = |line| serde_json::from_str::<Value>(line).unwrap()["trace_id"].as_str().unwrap()[..4].to_owned();
    lines.lines().map(id).collect()
}

#[tokio::test]
async fn traces_are_lines_of_json() {
    let routes = api_routes(seen());
    let of = async |query: &str| {
        let (status, media, body) = get(routes.clone(), &format!("/api/v1/traces{query}")).await;
        assert_eq!((status, &*media), (200, "application/x-ndjson"), "{query}: {body}");
        ids(&body)
    };
    assert_eq!(of("").await, ["ffff", "0123"]);
    assert_eq!(of("?failed=true").await, ["ffff"]);
    assert_eq!(of("?failed=false&limit=1").await, ["ffff"]);
    assert_eq!(of("?pod=default/web-0").await, ["ffff", "0123"]);
    assert_eq!(of("?pod=default%2Fweb-0&failed=true").await, ["ffff"]);
    assert_eq!(of("?pod=7f2c1f6e-93f2-4f3e-9d0b-0a7b3f1f9a55&limit=1").await, ["ffff"]);
    assert_eq!(of("?pod=default/other").await, [""; 0]);
}

#[tokio::test]
async fn a_wrong_query_says_what_is_wrong() {
    let routes = api_routes(seen());
    for (path, names) in [
        ("/api/v1/traces?limit=many", "limit"),
        ("/api/v1/traces?limit=-1", "limit"),
        ("/api/v1/traces?failed=yes", "failed"),
        ("/api/v1/traces?name=web", "unknown field `name`, expected one of `pod`, `failed`, `limit`"),
        ("/api/v1/traces?pod=%ff%fe&pod=x", "pod"),
        ("/api/v1/stages?format=xml", "unknown variant `xml`, expected `json` or `hdr`"),
        ("/api/v1/stages?by=node", "unknown field `by`"),
    ] {
        let (status, _, body) = get(routes.clone(), path).await;
        assert!(status == 400 && body.contains(names) && body.ends_with('\n'), "{path}: {status} {body}");
    }
}

#[tokio::test]
async fn stages_are_json_or_a_log() {
    let routes = api_routes(seen());
    let (status, media, json) = get(routes.clone(), "/api/v1/stages").await;
    assert_eq!((status, &*media), (200, "application/json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], &json["starts"]["failed"]), (&"podlapse.stages/v1".into(), &1.into()));

    let (_, media, log) = get(routes, "/api/v1/stages?format=hdr").await;
    assert_eq!(media, "text/plain; charset=utf-8");
    let stats = Stats::from_log(log.as_bytes()).unwrap();
    assert_eq!((stats.starts("complete"), stats.starts("failed")), (1, 1));
}

#[tokio::test]
async fn metrics_in_the_format_that_is_taken() {
    for (accept, media, end) in [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text", true),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain; version=0.0.4", false),
    ] {
        let request = Request::get("/metrics").header("accept", accept).body(Body::empty()).unwrap();
        let (status, headers, body) = send(metrics_routes(seen()), request).await;
        assert_eq!(status, StatusCode::OK);
        assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(media), "{headers:?}");
        assert_eq!(body.ends_with("# EOF\n"), end, "{body}");
        assert!(body.contains("podlapse_start_duration_seconds_count{kind=\"pod\",outcome=\"failed\"} 1"), "{body}");
    }
}

/// A text is made once a moment, and then again.
#[tokio::test]
async fn many_who_ask_at_once_get_one_text() {
    let shared = seen();
    let (_, _, one) = get(metrics_routes(Arc::clone(&shared)), "/metrics").await;
    shared.lock().metrics.began();
    let (_, _, two) = get(metrics_routes(Arc::clone(&shared)), "/metrics").await;
    assert!(one == two);
    shared.lock().texts.values_mut().for_each(|(made, _)| *made = made.checked_sub(FRESH).unwrap());
    let (_, _, three) = get(metrics_routes(shared), "/metrics").await;
    assert!(three.contains("podlapse_starts_begun_total 1"), "{three}");
}

#[tokio::test]
async fn health() {
    let shared = Shared::new("podlapse attaches");
    let ask = async |path| {
        let (status, _, body) = get(metrics_routes(Arc::clone(&shared)), path).await;
        (status, body)
    };
    assert_eq!(ask("/healthz").await, (200, "ok\n".into()));
    assert_eq!(ask("/readyz").await, (503, "podlapse attaches\n".into()));
    shared.lock().unready = None;
    shared.lock().alive = Some(Instant::now());
    assert_eq!((ask("/healthz").await.0, ask("/readyz").await.0), (200, 200));
    shared.lock().alive = Instant::now().checked_sub(HANGS);
    let (status, why) = ask("/healthz").await;
    assert!(status == 503 && why.contains("has not come around for 10 s"), "{status} {why}");
}

#[tokio::test]
async fn what_is_not_there() {
    for path in ["/", "/api/v1/traces", "/metrics/", "/%00", "/../etc/passwd"] {
        let (status, _, body) = get(metrics_routes(seen()), path).await;
        assert_eq!((status, &*body), (404, "there are /metrics, /healthz and /readyz\n"), "{path}");
    }
    let (status, _, body) = get(api_routes(seen()), "/api/v2/traces").await;
    assert!(status == 404 && body.contains("/api/v1/traces"), "{status} {body}");
}

#[tokio::test]
async fn methods() {
    for path in ["/metrics", "/healthz", "/api/v1/traces", "/api/v1/stages"] {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
            let request = Request::builder().method(&method).uri(path).body(Body::empty()).unwrap();
            let (status, headers, _) = send(api_routes(seen()), request).await;
            let allowed = headers[header::ALLOW].to_str().unwrap();
            assert_eq!((status.as_u16(), allowed), (405, "GET,HEAD"), "{method} {path}");
        }
        let (status, _, body) = send(api_routes(seen()), Request::head(path).body(Body::empty()).unwrap()).await;
        assert_eq!((status.as_u16(), &*body), (200, ""), "{path}");
    }
}

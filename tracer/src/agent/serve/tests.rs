use std::net::SocketAddr;

use axum::http::StatusCode;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::*;

async fn tcp(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(Listener::Tcp(listener), routes));
    address
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello\n")).fallback(async || StatusCode::NOT_FOUND)
}

/// All that is answered until the connection ends.
async fn answer(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has had enough closes meanwhile.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn over_tcp_and_over_a_unix_socket() {
    let told = answer(tcp(hello()).await, ASK).await;
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.ends_with("hello\n"), "{told}");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    tokio::spawn(serve(Listener::Unix(UnixListener::bind(&path).unwrap()), hello()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(ASK).await.unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).await.unwrap();
    assert!(told.ends_with("hello\n"), "{told}");
}

#[tokio::test]
async fn what_is_no_http_loses_its_connection() {
    let address = tcp(hello()).await;
    let long = [b"GET /".to_vec(), b"x".repeat(10 * MAX_HEAD), b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost x\r\n\r\n",
        &long,
    ] {
        let told = answer(address, garbage).await;
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 4") || told.starts_with("HTTP/1.1 5"), "{told}");
    }
    assert!(answer(address, ASK).await.ends_with("hello\n"), "others are served");
}

/// More than may be connected wait, and are served as soon as the slow ones have lost theirs: for a head that does not
/// come that is soon.
#[tokio::test(start_paused = true)]
async fn slow_clients_hold_nobody_up_for_long() {
    let address = tcp(hello()).await;
    let mut slow = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        slow.push(stream);
    }
    let told = answer(address, ASK).await;
    assert!(told.ends_with("hello\n"), "{told}");
    let mut rest = Vec::new();
    let _ = slow[0].read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("hello"));
}

/// A client that reads nothing of a long answer loses it.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read() {
    let address = tcp(Router::new().route("/", get(async || vec![b'x'; 32 << 20]))).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(ASK).await.unwrap();
    tokio::time::sleep(2 * CONNECTION + HEAD).await;
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told).await;
    assert!(told.len() < 32 << 20, "{}", told.len());
}

#[tokio::test]
async fn a_thousand_at_once() {
    let address = tcp(hello()).await;
    let all: Vec<_> = (0..1000).map(|_| tokio::spawn(answer(address, ASK))).collect();
    for one in all {
        let told = one.await.unwrap();
        assert!(told.ends_with("hello\n"), "{told:?}");
    }
}

use axum::Router;
use axum::routing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use super::*;
use crate::agent::{Listener, serve};

const PATIENCE: Duration = Duration::from_secs(3);

#[test]
fn addresses() {
    for (text, address) in [
        ("unix:/run/api.sock", "unix:/run/api.sock"),
        ("unix:///run/api.sock", "unix:/run/api.sock"),
        ("127.0.0.1:9797", "http://127.0.0.1:9797"),
        ("http://node-1.example:80/", "http://node-1.example:80"),
        ("[::1]:9797", "http://[::1]:9797"),
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), address, "{text}");
    }
    for text in [
        "",
        "off",
        "unix:",
        "unix:api.sock",
        "localhost",
        ":80",
        "a:0",
        "a:65536",
        "::1:80",
        "[x]:1",
        "https://a:1",
        "a b:1",
        "a:1/x",
    ] {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}

/// Something that answers each request with these bytes, and then closes.
async fn says(answer: &'static [u8]) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

async fn error(address: &Address) -> String {
    get(address, "/x", PATIENCE, 100).await.unwrap_err().to_string()
}

#[tokio::test]
async fn answers() {
    let routes = || {
        let busy = async || (StatusCode::SERVICE_UNAVAILABLE, "podlapse attaches\n");
        let host = async |headers: axum::http::HeaderMap| headers[header::HOST].to_str().unwrap().to_owned();
        Router::new().route("/x", routing::get(host)).route("/busy", routing::get(busy))
    };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api.sock");
    tokio::spawn(serve(Listener::Unix(UnixListener::bind(&socket).unwrap()), routes()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = Address::Tcp(listener.local_addr().unwrap().to_string());
    tokio::spawn(serve(Listener::Tcp(listener), routes()));

    let Address::Tcp(authority) = &tcp else { panic!("{tcp}") };
    for (address, host) in [(&Address::Unix(socket), "podlapse"), (&tcp, authority)] {
        assert_eq!(get(address, "/x", PATIENCE, 100).await.unwrap(), host.as_bytes());
        let refused = get(address, "/busy", PATIENCE, 100).await.unwrap_err().to_string();
        assert_eq!(refused, format!("{address} says 503 Service Unavailable to /busy: podlapse attaches"));
    }
}

#[tokio::test]
async fn what_is_no_agent() {
    for (answer, word) in [
        (&b""[..], "does not answer as an agent does"),
        (b"220 smtp.example ESMTP\r\n", "does not answer as an agent does"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 302 Found\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n", "302 Found"),
    ] {
        let told = error(&says(answer).await).await;
        assert!(told.contains(word), "{told}");
    }
    let dir = tempfile::tempdir().unwrap();
    let nobody = error(&Address::Unix(dir.path().join("api.sock"))).await;
    assert!(nobody.starts_with("no agent answers on unix:") && nobody.contains("No such file"), "{nobody}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let address = Address::Unix(socket);
    assert_eq!(error(&address).await, format!("{address} did not answer within 3s"));
}

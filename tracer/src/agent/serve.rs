//! Connections of those who ask the agent: so many at a time, and no patience with clients that are slow.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Connections at a time, of one listener; others wait. Each takes a descriptor and some buffers.
const MAX_CONNECTIONS: usize = 64;
/// Largest head of a request.
const MAX_HEAD: usize = 16 * 1024;
/// How long a client may take for a request's head; also how long a connection may idle.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection takes requests, and then how long the last answer may take to be read.
const CONNECTION: Duration = Duration::from_secs(30);

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
            let http = http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
            let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            if tokio::time::timeout(CONNECTION, connection.as_mut()).await.is_err() {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(CONNECTION, connection).await;
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests;

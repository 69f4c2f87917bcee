//! Asks an agent: one GET, over TCP or a unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`
    Tcp(String),
    /// `unix:PATH`
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Address, &'static str> {
        const HELP: &str = "give HOST:PORT, http://HOST:PORT or unix:/PATH";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(HELP) };
        }
        let authority = text.strip_prefix("http://").unwrap_or(text);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or(HELP)?;
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host_is_one =
            v6.map_or(!host.is_empty() && host.chars().all(named), |v6| v6.parse::<std::net::Ipv6Addr>().is_ok());
        if host_is_one && port.parse::<u16>().is_ok_and(|port| port > 0) {
            Ok(Address::Tcp(authority.to_owned()))
        } else {
            Err(HELP)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(authority) => write!(f, "http://{authority}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an agent gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error("no agent answers on {0}: {1}; does one run, and is that its address?")]
    Connect(Address, io::Error),
    /// What is there speaks no HTTP, or went away.
    #[error("{0} does not answer as an agent does: {1}")]
    Http(Address, hyper::Error),
    /// Its answer took too long.
    #[error("{0} did not answer within {1:?}")]
    Silent(Address, Duration),
    /// Its answer was cut short, or is larger than any of an agent.
    #[error("the answer of {0} cannot be read: {1}")]
    Body(Address, axum::Error),
    /// It refused.
    #[error("{address} says {status} to {path}: {why}")]
    Refused {
        /// The agent.
        address: Address,
        /// What it was asked for.
        path: &'static str,
        /// Its answer.
        status: StatusCode,
        /// Why, as it says.
        why: String,
    },
}

/// What an agent answers to a GET of `path`, of at most `max` bytes.
///
/// # Errors
/// When it does not answer with 200 within `patience`.
pub async fn get(address: &Address, path: &'static str, patience: Duration, max: usize) -> Result<Bytes, ClientError> {
    let asked = async {
        let connect = |error| ClientError::Connect(address.clone(), error);
        match address {
            Address::Tcp(authority) => {
                let stream = TcpStream::connect(authority).await.map_err(connect)?;
                ask(stream, address, authority, path, max).await
            }
            Address::Unix(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(connect)?;
                ask(stream, address, "podlapse", path, max).await
            }
        }
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ClientError::Silent(address.clone(), patience)),
    }
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &Address,
    host: &str,
    path: &'static str,
    max: usize,
) -> Result<Bytes, ClientError> {
    let http = |error| ClientError::Http(address.clone(), error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    // What goes wrong there is told here, too.
    let _connection = tokio::task::JoinSet::from_iter([connection]);
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = axum::http::Uri::from_static(path);
    let host = axum::http::HeaderValue::from_str(host).unwrap_or(axum::http::HeaderValue::from_static("podlapse"));
    request.headers_mut().insert(header::HOST, host);
    let (head, body) = sender.send_request(request).await.map_err(http)?.into_parts();
    let body = axum::body::to_bytes(Body::new(body), max).await;
    let body = body.map_err(|error| ClientError::Body(address.clone(), error))?;
    if head.status == StatusCode::OK {
        return Ok(body);
    }
    let why = String::from_utf8_lossy(&body[..body.len().min(1000)]).trim().to_owned();
    Err(ClientError::Refused { address: address.clone(), path, status: head.status, why })
}

#[cfg(test)]
mod tests;

//! One HTTP request, spoken by hand: the agent's server is not to be tested by its own library. HTTP/1.0 has no chunks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// Longest time without a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, …
    pub status: u16,
    /// Its media type.
    pub content_type: String,
    /// Its body.
    pub body: String,
}

/// GETs a path of who listens on a socket.
///
/// # Errors
/// When nobody listens there, or what comes back is no HTTP.
pub fn get(socket: &Path, path: &str, accept: &str) -> Result<Reply> {
    let stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(stream, path, accept)
}

/// GETs a path of who listens at a TCP address.
///
/// # Errors
/// When nobody listens there, or what comes back is no HTTP.
pub fn get_tcp(address: &str, path: &str) -> Result<Reply> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(stream, path, "*/*")
}

fn ask(mut stream: impl Read + Write, path: &str, accept: &str) -> Result<Reply> {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: agent\r\nAccept: {accept}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no HTTP: {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| head.to_owned())?;
    let named = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type").then(|| value.to_owned())
    };
    let content_type = head.lines().find_map(named).unwrap_or_default();
    Ok(Reply { status, content_type, body: body.to_owned() })
}

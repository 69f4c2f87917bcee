//! A connection whose header blocks are those of kubelet's own gRPC library.
//!
//! A Rust client sends `:path` as a literal each time; grpc-go puts each header field into the HPACK table at its first
//! use, and from then on a method is only an index. So between the client and the socket every header block is written
//! anew, in grpc-go's order and form, on one connection.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};
use httlib_hpack::Decoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

use crate::hpack::Encoder;

/// The client's preface (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
/// PADDED and PRIORITY, which the client never sets.
const EXTRA: u8 = 0x28;

/// The order of grpc-go's fields; others follow.
const ORDER: [&[u8]; 7] = [b":method", b":scheme", b":path", b":authority", b"content-type", b"user-agent", b"te"];

/// `:path` of each call on the connection, by stream.
pub type Paths = Arc<Mutex<Vec<(u32, String)>>>;

/// Connects; what is written to the stream goes to the socket in the other form.
pub(super) async fn connect(socket: &Path, paths: Paths) -> std::io::Result<DuplexStream> {
    let (mut from_runtime, to_runtime) = UnixStream::connect(socket).await?.into_split();
    let (near, far) = tokio::io::duplex(1 << 20);
    let (from_client, mut to_client) = tokio::io::split(far);
    tokio::spawn(async move { tokio::io::copy(&mut from_runtime, &mut to_client).await });
    tokio::spawn(async move {
        // An error here is one of the client's calls.
        if let Err(error) = rewrite(from_client, to_runtime, paths).await {
            eprintln!("the kubelet-like connection: {error:#}");
        }
    });
    Ok(near)
}

async fn rewrite(mut from: ReadHalf<DuplexStream>, mut to: OwnedWriteHalf, paths: Paths) -> Result<()> {
    let mut preface = [0; PREFACE.len()];
    from.read_exact(&mut preface).await?;
    ensure!(preface == *PREFACE, "the client does not begin with HTTP/2's preface");
    // grpc-go writes it alone.
    to.write_all(&preface).await?;
    let (mut decoder, mut encoder) = (Decoder::with_dynamic_size(4096), Encoder::default());
    let (mut have, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        have.extend_from_slice(&chunk[..read]);
        // What came at once goes on at once: a request's header block and its message are one write.
        let mut out = Vec::new();
        while let Some((head, payload)) = frame(&mut have) {
            if head[3] != HEADERS {
                out.extend(head);
                out.extend(payload);
                continue;
            }
            ensure!(head[4] & END_HEADERS != 0 && head[4] & EXTRA == 0, "a header block in an unexpected form");
            let block = block(payload, &mut decoder, &mut encoder, |path| {
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                paths.lock().expect("no holder panics").push((stream, path));
            })?;
            out.extend(&u32::try_from(block.len())?.to_be_bytes()[1..]);
            out.extend(&head[3..]);
            out.extend(block);
        }
        to.write_all(&out).await?;
    }
}

/// Takes one whole frame off the front.
fn frame(have: &mut Vec<u8>) -> Option<([u8; HEAD], Vec<u8>)> {
    let head: [u8; HEAD] = *have.first_chunk()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    if have.len() < HEAD + length {
        return None;
    }
    let frame: Vec<u8> = have.drain(..HEAD + length).collect();
    Some((head, frame[HEAD..].to_vec()))
}

/// A header block as grpc-go would write it.
fn block(
    mut block: Vec<u8>,
    decoder: &mut Decoder<'_>,
    encoder: &mut Encoder,
    mut each_path: impl FnMut(String),
) -> Result<Vec<u8>> {
    let mut fields = Vec::new();
    if let Err(error) = decoder.decode(&mut block, &mut fields) {
        bail!("the client's header block does not decode: {error:?}");
    }
    fields.push((b"grpc-timeout".to_vec(), b"120000m".to_vec(), 0));
    fields.sort_by_key(|(name, ..)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    for (_, path, _) in fields.iter().filter(|(name, ..)| name == b":path") {
        each_path(String::from_utf8(path.clone()).context("a path that is not UTF-8")?);
    }
    encoder.encode(fields.into_iter().map(|(name, value, _)| (name, value)))
}

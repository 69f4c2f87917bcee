//! Recorded traffic (`tests/data`): chunks of bytes, and which call is which method.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use podlapse::cri::{CallEvent, CallKey, MethodSource};
use podlapse::ids::{ConnId, MonotonicNs};
use podlapse::record::Direction;
use serde_json::Value;

use super::cut::{Cut, replay};

/// One chunk: what one syscall of the runtime moved, or an end of a connection.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// When.
    pub at: u64,
    /// Which connection.
    pub conn: u64,
    /// What.
    pub what: What,
}

/// What a chunk is.
#[derive(Clone, Debug)]
pub enum What {
    /// The connection begins.
    Open,
    /// It ends.
    Close,
    /// Bytes, and which way they went.
    Bytes(Direction, Vec<u8>),
}

/// Path of each call.
pub type Truth = BTreeMap<CallKey, String>;

/// Traffic with a known answer.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Its chunks, by time.
    pub chunks: Vec<Chunk>,
    /// Its calls.
    pub truth: Truth,
}

impl Traffic {
    /// Reads `FILE.jsonl`, and the truth from `FILE.truth.jsonl` beside it or, where that is missing, from a full
    /// decode from the first byte.
    pub fn read(file: &Path) -> Result<Traffic> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let chunks = lines(file, chunk)?.into_iter().flatten().collect();
        let beside = file.with_extension("truth.jsonl");
        let mut traffic = Traffic { name, chunks, truth: Truth::new() };
        traffic.truth = match beside.exists() {
            true => lines(&beside, truth)?.into_iter().collect(),
            false => traffic.decoded(),
        };
        Ok(traffic)
    }

    /// What a decode from the first byte says.
    fn decoded(&self) -> Truth {
        let mut truth = Truth::new();
        replay(self, &Cut::default(), &mut |_, event| {
            if let CallEvent::Start(start) = event
                && matches!(start.source, MethodSource::Literal | MethodSource::Table)
            {
                truth.insert(start.key, format!("/{}/{}", start.service, start.method));
            }
        });
        truth
    }
}

fn lines<T>(file: &Path, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let line = |(n, line)| {
        let place = || format!("{}:{}: no line of a capture", file.display(), n + 1);
        read(&serde_json::from_str(line).with_context(place)?).with_context(place)
    };
    text.lines().enumerate().map(line).collect()
}

/// One line of a capture; an end of the client's half alone says nothing.
#[expect(clippy::option_option, reason = "the outer one is a line that is none, the inner one a line without a chunk")]
fn chunk(line: &Value) -> Option<Option<Chunk>> {
    let (at, conn) = (line["t"].as_u64()?, line["conn"].as_u64()?);
    let read = line["dir"] == "c2s";
    let what = match (&line["data"], line.get("open"), read) {
        (Value::String(data), _, _) => {
            let direction = if read { Direction::In } else { Direction::Out };
            What::Bytes(direction, BASE64_STANDARD.decode(data).ok()?)
        }
        (_, Some(_), _) => What::Open,
        (_, None, false) => What::Close,
        (_, None, true) => return Some(None),
    };
    Some(Some(Chunk { at, conn, what }))
}

fn truth(line: &Value) -> Option<(CallKey, String)> {
    let stream = u32::try_from(line["stream"].as_u64()?).ok()?;
    Some((CallKey { conn: ConnId(line["conn"].as_u64()?), stream }, line["path"].as_str()?.to_owned()))
}

/// A chunk's time.
pub fn time(chunk: &Chunk) -> MonotonicNs {
    MonotonicNs(chunk.at)
}

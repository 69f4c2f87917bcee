//! Every call that podlapse's decoder finds in a recording, with its final name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use podlapse::cri::{CallEvent, CallKey, CallStart, Field, Fields, MethodSource, Protocol, Value};
use podlapse::record::Record;
use podlapse::recording::Reader;
use podlapse::wire::{Decoder, Limits};

/// How the name is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was in the call's header block, or in the header table, whose entry was seen to be made.
    Read,
    /// From what the call did.
    Inferred,
    /// It is not.
    Unknown,
}

/// One call on the CRI's socket.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Connection and stream.
    pub key: CallKey,
    /// Process at the client's end.
    pub client: Option<u32>,
    /// On CLOCK_MONOTONIC.
    pub start: u64,
    /// None when it was open as the recording ended.
    pub end: Option<u64>,
    /// How the name is known.
    pub source: Source,
    /// Service and method; empty when they are unknown.
    pub service: String,
    /// As `service`.
    pub method: String,
    /// Methods that it may be, when the name is unknown; none is any.
    pub candidates: Vec<&'static str>,
    /// Sandboxes, containers and pods that its request names.
    pub ids: Vec<String>,
}

/// The gRPC calls of a recording, in the order of their start.
pub fn of(recording: &Path) -> Result<Vec<Seen>> {
    let mut calls = Calls::default();
    decode(records(recording)?, |event| calls.event(event))?;
    let mut all: Vec<Seen> = calls.seen.into_values().collect();
    all.sort_by_key(|call| call.start);
    Ok(all)
}

/// Bytes in a recording that were not understood, or not there.
pub fn undecoded(recording: &Path) -> Result<u64> {
    let mut sum = 0;
    decode(records(recording)?, |event| {
        if let CallEvent::Undecoded { bytes, .. } = event {
            sum += bytes;
        }
    })?;
    Ok(sum)
}

/// A recording's records, one after the other.
pub fn records(recording: &Path) -> Result<impl Iterator<Item = Result<Record>>> {
    let mut reader = Reader::open(recording).with_context(|| format!("cannot read {}", recording.display()))?;
    Ok(std::iter::from_fn(move || reader.read().transpose()).map(|record| Ok(record?)))
}

/// Gives each event that a decoder makes of `records`.
pub fn decode(records: impl IntoIterator<Item = Result<Record>>, mut each: impl FnMut(CallEvent)) -> Result<()> {
    let (mut decoder, mut events) = (Decoder::new(Limits::default()), Vec::new());
    for record in records {
        decoder.record(&record?, &mut events);
        events.drain(..).for_each(&mut each);
    }
    Ok(())
}

#[derive(Default)]
struct Calls {
    /// By start: a connection's stream ids may come again after a loss.
    seen: BTreeMap<(CallKey, u64), Seen>,
    last: BTreeMap<CallKey, u64>,
}

impl Calls {
    fn event(&mut self, event: CallEvent) {
        match event {
            CallEvent::Start(start) => self.start(start),
            CallEvent::Request { key, fields, .. } => self.request(key, &fields),
            CallEvent::Response { .. } | CallEvent::Unasked { .. } | CallEvent::Undecoded { .. } => {}
            CallEvent::End { key, at, .. } => {
                if let Some(call) = self.of(key) {
                    call.end = Some(at.0);
                }
            }
            CallEvent::Named(named) => {
                let key = named.start.key;
                self.start(named.start);
                if let Some((_, fields)) = named.request {
                    self.request(key, &fields);
                }
                if let (Some(call), Some((at, _))) = (self.of(key), named.end) {
                    call.end = Some(at.0);
                }
            }
            CallEvent::Unnamed(unnamed) => {
                if let Some(call) = self.of(unnamed.start.key) {
                    call.end = Some(unnamed.end.0);
                    call.candidates.clone_from(&unnamed.candidates);
                    call.ids.clone_from(&unnamed.ids);
                }
            }
        }
    }

    fn start(&mut self, start: CallStart) {
        if start.protocol != Protocol::Grpc {
            return;
        }
        let source = match start.source {
            MethodSource::Literal | MethodSource::Table => Source::Read,
            MethodSource::Inferred => Source::Inferred,
            MethodSource::Opaque => Source::Unknown,
        };
        let CallStart { key, at, service, method, client, .. } = start;
        let call = Seen {
            key,
            client: client.map(|client| client.0),
            start: at.0,
            end: self.seen.get(&(key, at.0)).and_then(|call| call.end),
            source,
            service,
            method,
            candidates: Vec::new(),
            ids: Vec::new(),
        };
        self.last.insert(key, at.0);
        self.seen.insert((key, at.0), call);
    }

    fn request(&mut self, key: CallKey, fields: &Fields) {
        let Some(call) = self.of(key) else { return };
        for (field, value) in &fields.0 {
            if let (Field::SandboxId | Field::ContainerId | Field::PodUid, Value::Text(text)) = (field, value) {
                call.ids.push(text.clone());
            }
        }
    }

    fn of(&mut self, key: CallKey) -> Option<&mut Seen> {
        self.seen.get_mut(&(key, *self.last.get(&key)?))
    }
}

//! `podlapse.event/v1`: the documented JSON object of an event, see `docs/event-v1.schema.json`.
//!
//! Absent means unknown, as in `podlapse.trace/v1`, whose parts it shares.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::super::json::{Absent, Call, Pod, Verdict, call, known, objects, pid, pod, verdict};
use super::super::time::rfc3339;
use crate::trace::{LifeContainer, LifeEvent, LifeProcess};

/// Writes `event` as one line.
///
/// # Errors
/// What `out` gives.
pub fn write_event_json(out: &mut dyn Write, event: &LifeEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Event::from(event))?;
    line.push(b'\n');
    out.write_all(&line)
}

/// `event` as it is written, for another format to hold.
pub(in crate::export) fn event_value(event: &LifeEvent) -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(Event::from(event))
}

objects! {
    Event<'a> {
        schema: &'static str,
        event: &'static str,
        time: Option<String>,
        monotonic_ns: String,
        pod: Pod<'a>,
        sandbox: Option<&'a str>,
        container: Option<Container<'a>>,
        lasted_ns: Option<u64>,
        call: Option<Call<'a>>,
        process: Option<Process<'a>>,
        signal: Option<u8>,
        exit_code: Option<u8>,
        attributes: Option<BTreeMap<&'a str, &'a str>>,
        verdict: Option<Verdict<'a>>,
    }
    Container<'a> { name: Option<&'a str>, id: Option<&'a str>, attempt: Option<u32>, }
    Process<'a> { pid: Option<u32>, comm: Option<&'a str>, }
}

impl<'a> From<&'a LifeEvent> for Event<'a> {
    fn from(event: &'a LifeEvent) -> Self {
        let attributes = event.attributes.iter().map(|(name, value)| (*name, value.as_str()));
        Event {
            schema: "podlapse.event/v1",
            event: event.kind.name(),
            time: event.realtime.map(rfc3339),
            monotonic_ns: event.at.0.to_string(),
            pod: pod(&event.pod),
            sandbox: event.sandbox.as_ref().map(|id| id.as_str()),
            container: event.container.as_ref().map(container),
            lasted_ns: event.lasted_ns,
            call: event.call.as_ref().map(call),
            process: event.process.as_ref().map(process),
            signal: event.signal,
            exit_code: event.exit_code,
            attributes: Some(attributes.collect()).filter(|all: &BTreeMap<_, _>| !all.is_empty()),
            verdict: event.verdict.as_ref().map(verdict),
        }
    }
}

fn container(c: &LifeContainer) -> Container<'_> {
    Container { name: c.name.as_deref(), id: c.id.as_ref().map(|id| id.as_str()), attempt: c.attempt }
}

fn process(p: &LifeProcess) -> Process<'_> {
    Process { pid: pid(Some(p.pid)), comm: known(&p.comm) }
}

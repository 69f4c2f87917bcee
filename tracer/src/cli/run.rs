//! The run loop that live and replay share: records → recording → engine → selector → sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracer_ebpf::mark;

use super::command::Command;
use super::output::OutputError;
use super::say::Say;
use super::select::{Given, Selector};
use super::source::Source;
use super::unseen::Unseen;
use super::values::From;
use crate::agent::Progress;
use crate::engine::{Config, Engine, Update};
use crate::ids::MonotonicNs;
use crate::lifecycle::Answered;
use crate::record::{Event, Record};
use crate::recording::{Selection, WriteError, Writer};
use crate::trace::{LifeEvent, Trace};

/// Where the chosen traces go.
pub(super) trait Sink {
    /// Takes a trace that is over, or of which no more will be known.
    fn take(&mut self, trace: &Trace) -> Result<(), OutputError>;

    /// Takes an event of a pod that is followed; `first` is the pod's first sign.
    fn event(&mut self, _event: &LifeEvent, _first: MonotonicNs) -> Result<(), OutputError> {
        Ok(())
    }

    /// Takes that a start of such a pod is over; its trace comes later. `again`: it was told before, and more is known.
    fn over(&mut self, _trace: &Trace, _first: MonotonicNs, _again: bool) -> Result<(), OutputError> {
        Ok(())
    }

    /// Sees what the engine said, of whatever start.
    fn update(&mut self, _update: &Update) {}

    /// Whether it wants to see how the run goes, which costs a look at every start.
    fn watches(&self) -> bool {
        false
    }

    /// Where it wants to, sees how the run goes, several times a second; `answered`: calls of the CRI since the last time.
    fn going(&mut self, _progress: &Progress, _answered: Vec<Answered>) {}

    /// How many traces and events it took.
    fn taken(&self) -> usize;

    /// Whether it wants each trace as soon as it is final, not at the end.
    fn is_stream(&self) -> bool {
        false
    }

    /// Nothing comes any more.
    fn end(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    /// Shows a person who watches how far it is: `held` are over, but may still be reopened.
    fn show(&mut self, _held: &mut dyn Iterator<Item = &Trace>) -> Result<(), OutputError> {
        Ok(())
    }

    /// Takes back what `show` left on the terminal, since something else is to be said there.
    fn hide(&mut self) -> Result<(), OutputError> {
        Ok(())
    }
}

/// Everything between the records and the sink.
pub(super) struct Run<'a> {
    engine: Engine,
    selector: Selector,
    recording: Option<Writer>,
    recording_failed: Option<WriteError>,
    updates: Vec<Update>,
    sink: &'a mut dyn Sink,
    say: Say,
    read: Read,
}

/// What came from the source.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    records: u64,
    /// Bytes of payload.
    payload: u64,
    /// Connections of which no more payload was wanted.
    muted: u64,
    /// Lines for a person.
    news: u64,
    /// First and last record.
    times: Option<(MonotonicNs, MonotonicNs)>,
}

/// What may end a run besides its records.
pub(super) struct Limits {
    /// Set by a signal.
    pub(super) stop: Arc<AtomicBool>,
    /// Wall time from now, or from COMMAND's end. A replay has none.
    pub(super) timeout: Option<Duration>,
    /// `-- COMMAND`
    pub(super) command: Option<Command>,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ending<E> {
    /// All that was asked for is there.
    Done,
    /// A recording is over.
    EndOfRecording,
    /// By a signal.
    Interrupted,
    /// Too much wall time went by.
    TimedOut,
    /// The source failed.
    Failed(E),
}

/// What a run came to.
#[derive(Debug)]
pub(super) struct Summary {
    /// Traces and events that the sink took.
    pub(super) taken: usize,
    /// Starts chosen, and those of them that were over by themselves; with `--lifecycle` pods, and those that are gone.
    pub(super) chosen: (usize, usize),
    /// Calls of some clients could not be named.
    pub(super) nameless: bool,
    /// Something was said besides the traces.
    pub(super) news: bool,
    /// From the first record to the last.
    pub(super) span_ns: u64,
    /// What ended the recording early.
    pub(super) recording_failed: Option<WriteError>,
    /// What is known where there is no start.
    pub(super) unseen: Unseen,
}

impl<'a> Run<'a> {
    pub(super) fn new(config: Config, selection: Selection, sink: &'a mut dyn Sink, say: Say) -> Run<'a> {
        let selector = Selector::new(selection, config.settle_ns);
        let (engine, mut selector) = (Engine::new(config), selector);
        if sink.is_stream() {
            selector.give_early();
        }
        let (updates, read) = (Vec::new(), Read::default());
        Run { engine, selector, recording: None, recording_failed: None, updates, sink, say, read }
    }

    /// Only starts that began at `from` or later.
    pub(super) fn only_from(&mut self, from: From) {
        self.selector.only_from(from);
    }

    pub(super) fn record_to(&mut self, writer: Writer) {
        self.recording = Some(writer);
    }

    /// Feeds the engine until something ends the run, then gives the sink what is known.
    pub(super) async fn drive<S: Source>(
        mut self,
        source: &mut S,
        mut limits: Limits,
    ) -> Result<(Ending<S::Error>, Summary), OutputError> {
        let ending = self.until_it_ends(source, &mut limits).await;
        if !matches!(ending, Ok(Ending::Done)) {
            source.look(&self.engine.look_at_all());
        }
        let rest = source.finish().await;
        if !matches!(ending, Ok(Ending::Done)) {
            for record in rest {
                self.feed(record);
            }
        }
        if let Some(writer) = self.recording.take() {
            let (records, Read { payload, muted, .. }) = (writer.records(), self.read);
            self.recording_failed = writer.finish().err();
            let what = format!("{records} records, {payload} bytes off the runtime's sockets");
            self.say.line(&format!("recorded {what}; connections of other clients that were muted: {muted}"));
        }
        // A stdout that is gone ends the run, not the recording.
        let ending = ending?;
        let chosen = self.selector.count();
        let unseen = self.selector.unseen().clone();
        let rest = self.selector.finish(self.engine.open());
        give(self.sink, rest)?;
        self.sink.end()?;
        let nameless = self.engine.nameless();
        nameless.iter().for_each(|client| self.say.line(client));
        let (news, span_ns) = (self.read.news > 0, self.read.times.map_or(0, |(first, last)| last.since(first)));
        let (taken, nameless, recording_failed) = (self.sink.taken(), !nameless.is_empty(), self.recording_failed);
        Ok((ending, Summary { taken, chosen, nameless, news, span_ns, recording_failed, unseen }))
    }

    async fn until_it_ends<S: Source>(
        &mut self,
        source: &mut S,
        limits: &mut Limits,
    ) -> Result<Ending<S::Error>, OutputError> {
        let mut began = Instant::now();
        loop {
            let batch = match source.next().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(Ending::EndOfRecording),
                Err(error) => return Ok(Ending::Failed(error)),
            };
            for record in batch {
                self.feed(record);
                if self.selector.done() {
                    return Ok(Ending::Done);
                }
            }
            for conn in self.engine.take_muted() {
                source.mute(conn);
                self.read.muted += 1;
            }
            source.look(&self.engine.take_looks());
            for text in source.news() {
                self.read.news += 1;
                self.sink.hide()?;
                self.say.line(&text);
            }
            give(self.sink, self.selector.overflow())?;
            self.sink.show(&mut self.selector.held())?;
            let answered = self.engine.take_answered();
            if self.sink.watches() {
                let (standing, held) = (self.engine.standing(), self.selector.held().count());
                let Read { records, payload, .. } = self.read;
                let progress = Progress { standing, held, records, payload, programs_ns: source.programs_ns() };
                self.sink.going(&progress, answered);
            }
            if limits.stop.load(Ordering::Relaxed) {
                return Ok(Ending::Interrupted);
            }
            if let Some(command) = &mut limits.command
                && let Some(ended) = command.ended()
            {
                source.mark(mark::COMMAND_ENDED);
                self.say.line(&format!("COMMAND ended: {ended}"));
                limits.command = None;
                began = Instant::now();
            }
            if limits.command.is_none() && limits.timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
                return Ok(Ending::TimedOut);
            }
        }
    }

    fn feed(&mut self, mut record: Record) {
        if let Event::Bytes(bytes) = &record.event {
            self.read.payload += bytes.data.len() as u64;
        }
        if let Some(writer) = &mut self.recording
            && let Err(error) = writer.write(&mut record)
        {
            self.say.line(&error.to_string());
            (self.recording, self.recording_failed) = (None, Some(error));
        }
        let (first, last) = self.read.times.unwrap_or((record.at, record.at));
        self.read.times = Some((first, last.max(record.at)));
        self.selector.record(&record);
        self.selector.ripen(|id| self.engine.final_at(id));
        self.engine.feed(&record, &mut self.updates);
        self.read.records += 1;
        for update in self.updates.drain(..) {
            self.sink.update(&update);
            let line = self.say.progress(&update);
            if self.selector.update(update) {
                self.say.progress_line(line);
            }
        }
        for pod in self.selector.changed() {
            let why = "a later container, or a call that got its name late";
            self.say.line(&format!("the start of {pod} changed after its trace was printed: {why}"));
        }
    }
}

fn give(sink: &mut dyn Sink, all: Vec<Given>) -> Result<(), OutputError> {
    all.iter().try_for_each(|given| match given {
        Given::Trace(trace) => sink.take(trace),
        Given::Life { event, first } => sink.event(event, *first),
        Given::Over { trace, first, again } => sink.over(trace, *first, *again),
    })
}

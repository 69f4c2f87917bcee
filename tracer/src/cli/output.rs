//! Stdout: traces and nothing else. A reader that went away ends podlapse quietly.

use std::io::{self, IsTerminal, Write};

use super::args::{Format, Show};
use super::run::Sink;
use super::values::Span;
use crate::export::{
    Charset, Perfetto, StartLine, Timeline, Tree, write_event_json, write_json, write_starts, write_tree,
};
use crate::ids::MonotonicNs;
use crate::trace::{LifeEvent, Trace};

/// Width where nothing says another.
const WIDTH: usize = 100;

/// Why stdout took no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// Its reader went away.
    #[error("stdout was closed")]
    Closed,
    /// A write failed.
    #[error("cannot write to stdout: {0}")]
    Write(io::Error),
}

impl OutputError {
    pub(super) fn new(error: io::Error) -> OutputError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => OutputError::Closed,
            _ => OutputError::Write(error),
        }
    }
}

/// Prints traces, and the events of pods that are followed.
#[derive(Debug)]
pub(super) struct Output {
    style: Style,
    printed: usize,
}

#[derive(Debug)]
enum Style {
    Tree(Timeline),
    Json,
    Perfetto(Perfetto),
}

impl Output {
    /// `several`: several pods may be followed.
    pub(super) fn new(show: &Show, several: bool) -> Output {
        let style = match show.output {
            Format::Tree => {
                let tree = Tree { min_ns: show.min.map_or(0, Span::ns), ..tree(show.ascii) };
                Style::Tree(Timeline { tree, long: !io::stdout().is_terminal(), several })
            }
            Format::Json => Style::Json,
            Format::Perfetto => Style::Perfetto(Perfetto::default()),
        };
        Output { style, printed: 0 }
    }
}

impl Sink for Output {
    fn take(&mut self, trace: &Trace) -> Result<(), OutputError> {
        let mut text = Vec::new();
        match &mut self.style {
            Style::Json => write_json(&mut text, trace),
            Style::Perfetto(perfetto) => perfetto.write(&mut text, trace),
            Style::Tree(Timeline { tree, .. }) => {
                if self.printed > 0 {
                    text.push(b'\n');
                }
                write_tree(&mut text, trace, tree)
            }
        }
        .map_err(OutputError::new)?;
        self.printed += 1;
        write(&text)
    }

    fn event(&mut self, event: &LifeEvent, first: MonotonicNs) -> Result<(), OutputError> {
        let mut text = Vec::new();
        match &mut self.style {
            Style::Json => write_event_json(&mut text, event),
            Style::Perfetto(perfetto) => perfetto.event(&mut text, event),
            Style::Tree(timeline) => timeline.event(&mut text, event, first),
        }
        .map_err(OutputError::new)?;
        self.printed += 1;
        write(&text)
    }

    fn over(&mut self, trace: &Trace, first: MonotonicNs, again: bool) -> Result<(), OutputError> {
        let Style::Tree(timeline) = &self.style else { return Ok(()) };
        let mut text = Vec::new();
        timeline.start(&mut text, trace, first, again).map_err(OutputError::new)?;
        self.printed += 1;
        write(&text)
    }

    fn end(&mut self) -> Result<(), OutputError> {
        let Style::Perfetto(perfetto) = &mut self.style else { return Ok(()) };
        let mut text = Vec::new();
        perfetto.end(&mut text).map_err(OutputError::new)?;
        write(&text)
    }

    fn taken(&self) -> usize {
        self.printed
    }

    fn is_stream(&self) -> bool {
        matches!(self.style, Style::Json)
    }
}

/// Prints a line a start, when all are known.
#[derive(Debug, Default)]
pub(super) struct List {
    starts: Vec<StartLine>,
}

impl Sink for List {
    fn take(&mut self, trace: &Trace) -> Result<(), OutputError> {
        self.starts.push(StartLine::from(trace));
        Ok(())
    }

    fn end(&mut self) -> Result<(), OutputError> {
        if self.starts.is_empty() {
            return Ok(());
        }
        let (charset, width) = screen();
        let mut text = Vec::new();
        write_starts(&mut text, &self.starts, width, charset).map_err(OutputError::new)?;
        write(&text)
    }

    fn taken(&self) -> usize {
        self.starts.len()
    }
}

/// Writes all of `text` to stdout, now.
pub(super) fn write(text: &[u8]) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(OutputError::new)
}

/// Characters and columns of stdout; the latter where it is a terminal.
pub(super) fn screen() -> (Charset, Option<usize>) {
    let size = terminal_size::terminal_size_of(io::stdout()).filter(|_| io::stdout().is_terminal());
    (if size.is_some() { Charset::Unicode } else { Charset::Ascii }, size.map(|(width, _)| width.0.into()))
}

/// Whether stdout takes colour: a terminal, unless `NO_COLOR` or its like says otherwise.
pub(super) fn colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// How stdout is to be written to.
pub(super) fn tree(ascii: bool) -> Tree {
    let terminal = io::stdout().is_terminal();
    let size = terminal_size::terminal_size_of(io::stdout()).filter(|_| terminal);
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    let width = size.map(|(width, _)| usize::from(width.0)).or_else(columns).unwrap_or(WIDTH);
    let charset = if ascii || !terminal { Charset::Ascii } else { Charset::Unicode };
    Tree { width, charset, colour: colour(), min_ns: 0 }
}

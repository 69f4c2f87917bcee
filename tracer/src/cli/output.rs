//! Stdout: traces and nothing else. A reader that went away ends podlapse quietly.

use std::io::{self, IsTerminal, Write};

use super::args::{Format, Show};
use super::run::Sink;
use crate::export::{Charset, Tree, write_json, write_tree};
use crate::trace::Trace;

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

/// Prints traces.
#[derive(Debug)]
pub(super) struct Output {
    tree: Option<Tree>,
    printed: usize,
}

impl Output {
    pub(super) fn new(show: &Show) -> Output {
        let tree = (show.output == Format::Tree).then(|| tree(show.ascii));
        Output { tree, printed: 0 }
    }
}

impl Sink for Output {
    fn take(&mut self, traces: &[Trace]) -> Result<(), OutputError> {
        let mut text = Vec::new();
        for trace in traces {
            match &self.tree {
                None => write_json(&mut text, trace),
                Some(tree) => {
                    if self.printed > 0 {
                        text.push(b'\n');
                    }
                    write_tree(&mut text, trace, tree)
                }
            }
            .map_err(OutputError::new)?;
            self.printed += 1;
        }
        write(&text)
    }

    fn taken(&self) -> usize {
        self.printed
    }
}

/// Writes all of `text` to stdout, now.
pub(super) fn write(text: &[u8]) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(OutputError::new)
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
    Tree { width, charset, colour: colour() }
}

//! One line of the waterfall: mark, name, bar, duration, share, result.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::order::Row;
use super::{BAD, CRITICAL, FAINT, OPEN, Tree};
use crate::export::Charset;
use crate::export::names::{errno, grpc_code, signal};
use crate::export::text::{percent, wrap};
use crate::export::time::duration;
use crate::trace::{ProcessInfo, Span, Trace};

const DURATION: usize = 10;
const SHARE: usize = 6;
const MIN_BAR: usize = 8;

/// Lines that one failure's message may take.
const MESSAGE_LINES: usize = 6;

/// Widths of the columns.
#[derive(Debug)]
pub(super) struct Columns {
    label: usize,
    bar: usize,
    result: usize,
    indent: usize,
    long: bool,
}

impl Columns {
    pub(super) fn new(rows: &[Row<'_>], tree: &Tree) -> Columns {
        let (indent, long) = if tree.width < 80 { (1, false) } else { (2, tree.width >= 100) };
        let widest = |width: &dyn Fn(&Row<'_>) -> usize| rows.iter().map(width).max().unwrap_or(0);
        let result = widest(&|row| result(row.span, long, tree.charset).width()).min(tree.width / 5);
        // Mark and the spaces between the columns.
        let room = tree.width - 2 - 4 - DURATION - SHARE - result;
        let wanted = widest(&|row| row.depth * indent + tree.charset.clean(name(row.span)).width());
        let label = wanted.min(room * 9 / 20).max(8).min(room - MIN_BAR);
        let bar = room - label;
        Columns { label, bar, result, indent, long }
    }

    /// The scale above the bars.
    pub(super) fn ruler(&self, total_ns: u64) -> String {
        let total = duration(total_ns);
        let gap = (self.bar).saturating_sub(1 + total.len());
        format!("  {:label$} 0{:gap$}{total}", "", "", label = self.label)
    }

    pub(super) fn write(&self, out: &mut dyn Write, trace: &Trace, row: &Row<'_>, tree: &Tree) -> io::Result<()> {
        let span = row.span;
        let charset = tree.charset;
        let bad = failed(span);
        let indent = (row.depth * self.indent).min(self.label / 2);
        let label = charset.fit(&charset.clean(name(span)), self.label - indent);
        let length = span.end_ns.unwrap_or(trace.total_ns).saturating_sub(span.start_ns);
        let mark = match (mostly_critical(span, length), charset) {
            (false, _) => " ",
            (true, Charset::Ascii) => "*",
            (true, Charset::Unicode) => "●",
        };
        let result = charset.fit(&result(span, self.long, charset), self.result);
        let style = match () {
            () if bad => Some(BAD),
            () if span.end_ns.is_none() => Some(OPEN),
            () => None,
        };
        let bar = self.bar(span, trace.total_ns, charset);
        let line = format!(
            "{} {:indent$}{} {} {:>DURATION$} {:>SHARE$} {}",
            tree.paint(CRITICAL, mark),
            "",
            if bad { tree.paint(BAD, &label) } else { label },
            style.map_or_else(|| parts(&bar, tree), |style| tree.paint(style, &bar.concat())),
            duration(length),
            percent(length, trace.total_ns),
            style.map_or(result.clone(), |style| tree.paint(style, &result)),
        );
        writeln!(out, "{}", line.trim_end())?;
        if bad {
            let indent = indent + 4;
            for line in wrap(&failure(span, charset), tree.width - indent, MESSAGE_LINES) {
                writeln!(out, "{:indent$}{}", "", tree.paint(BAD, &line))?;
            }
        }
        Ok(())
    }

    /// Before the critical path, on it, and after it.
    fn bar(&self, span: &Span, total_ns: u64, charset: Charset) -> [String; 3] {
        let (critical, other, point, arrow) = match charset {
            Charset::Ascii => ('#', '-', '|', '>'),
            Charset::Unicode => ('█', '▒', '│', '▶'),
        };
        let start = span.start_ns.min(total_ns);
        let end = span.end_ns.unwrap_or(total_ns).clamp(start, total_ns);
        let first = scale(start, total_ns, self.bar, u128::div_euclid).min(self.bar - 1);
        let past = scale(end, total_ns, self.bar, u128::div_ceil).clamp(first + 1, self.bar);
        let mut bar: Vec<char> = vec![' '; self.bar];
        bar[first..past].fill(other);
        // Inside the span's own columns; less than half a column does not show.
        let column = |at| scale(at, total_ns, self.bar, |a, b| (a + b / 2) / b).clamp(first, past);
        let path = span.path_ns.map(|(from, to)| {
            let from = if from <= start { first } else { column(from) };
            from..if to >= end { past } else { column(to) }.max(from)
        });
        let path = path.unwrap_or(past..past);
        bar[path.clone()].fill(critical);
        match span.end_ns {
            None => bar[past - 1] = arrow,
            Some(end) if end <= span.start_ns => bar[first] = point,
            Some(_) => {}
        }
        let text = |chars: &[char]| chars.iter().collect();
        [text(&bar[..path.start]), text(&bar[path.clone()]), text(&bar[path.end..])]
    }
}

/// The path goes through the span for at least half of its `length`: one that soon gives way to a sibling is not what
/// the start waited for.
fn mostly_critical(span: &Span, length: u64) -> bool {
    let end = span.start_ns.saturating_add(length);
    span.path_ns.is_some_and(|(from, to)| u128::from(to.min(end).saturating_sub(from)) * 2 >= u128::from(length))
}

fn parts([before, path, after]: &[String; 3], tree: &Tree) -> String {
    [tree.paint(FAINT, before), tree.paint(CRITICAL, path), tree.paint(FAINT, after)].concat()
}

fn name(span: &Span) -> &str {
    if span.name.is_empty() { &span.stage } else { &span.name }
}

fn scale(at: u64, total: u64, width: usize, divide: fn(u128, u128) -> u128) -> usize {
    let column = divide(u128::from(at) * width as u128, u128::from(total.max(1)));
    usize::try_from(column).unwrap_or(width).min(width)
}

pub(super) fn failed(span: &Span) -> bool {
    let call = span.call.as_ref().is_some_and(|call| call.code.is_some_and(|code| code != 0));
    call || span.process.as_ref().is_some_and(ProcessInfo::failed)
}

/// How the call or process ended, in a few columns.
fn result(span: &Span, long: bool, charset: Charset) -> String {
    let process = span.process.as_ref();
    let ended = match (&span.call, process) {
        (Some(call), _) if call.code.is_some() => call.code.map(|code| grpc_code(code).into_owned()),
        (_, Some(process)) => match (process.errno, process.signal, process.exit_code) {
            (Some(number), _, _) => Some(errno(number).into_owned()),
            (_, Some(number), _) => Some(signal(number).into_owned()),
            (_, _, Some(code)) => Some(format!("exit {code}")),
            (None, None, None) => None,
        },
        _ => None,
    };
    let ended = ended.or_else(|| span.end_ns.is_none().then(|| "open".to_owned())).unwrap_or_default();
    match process {
        Some(process) if long && process.pid.0 != 0 => {
            let who = format!("pid {}", process.pid);
            charset.clean(format!("{who} {ended}").trim_end())
        }
        _ => ended,
    }
}

/// The whole story of a failure: code and message of a call, what ended a process.
fn failure(span: &Span, charset: Charset) -> String {
    let mut parts = Vec::new();
    if let Some(call) = &span.call
        && let Some(code) = call.code.filter(|code| *code != 0)
    {
        let message = call.message.as_deref().unwrap_or("no message");
        parts.push(format!("{} ({code}): {}", grpc_code(code), charset.clean(message)));
    }
    if let Some(process) = span.process.as_ref().filter(|process| process.failed()) {
        let who = format!("{} (pid {})", charset.clean(&process.exe), process.pid);
        if let Some(number) = process.errno {
            let text = std::io::Error::from_raw_os_error(number).to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            parts.push(format!("{who}: {} ({number}): {text}", errno(number)));
        } else if let Some(number) = process.signal {
            parts.push(format!("{who}: killed by {}", signal(number)));
        } else if let Some(code) = process.exit_code {
            parts.push(format!("{who}: exit status {code}"));
        }
    }
    format!("! {}", parts.join("; "))
}

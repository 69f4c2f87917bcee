//! The timeline: a line an event, what is wrong below it.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::super::text::wrap;
use super::super::time::{duration, rfc3339};
use super::super::tree::{BAD, FAINT, Tree, grounds};
use super::sentence::{sentence, start};
use crate::ids::MonotonicNs;
use crate::trace::{LifeEvent, LifeKind, Outcome, StartKind, Trace, Verdict};

/// Columns of the fields; a longer name is cut where lines may not be longer than the terminal.
const SINCE: usize = 12;
const POD: usize = 24;
const CONTAINER: usize = 12;
const EVENT: usize = 15;

/// A narrower terminal goes without dates.
const WITH_DATE: usize = 110;

/// Narrowest sentence.
const SENTENCE: usize = 24;

/// Columns before the rest of a sentence.
const INDENT: usize = 8;

/// Most lines of a sentence, or of a part of a verdict.
const LINES: usize = 8;

const GOOD: Style = AnsiColor::Green.on_default();

/// Writes lines as things happen.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// How lines are drawn; `min_ns` is of no use here.
    pub tree: Tree,
    /// A line may be as long as it needs: no terminal breaks it.
    pub long: bool,
    /// Several pods are followed, so each line names its own.
    pub several: bool,
}

/// What one line says.
struct Line<'a> {
    at: MonotonicNs,
    realtime: Option<u64>,
    pod: String,
    container: String,
    event: &'a str,
    text: String,
    style: Option<Style>,
    verdict: Option<&'a Verdict>,
}

impl Timeline {
    /// Writes an event; `first` is the pod's first sign.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn event(&self, out: &mut dyn Write, event: &LifeEvent, first: MonotonicNs) -> io::Result<()> {
        let container = event.container.as_ref().map(|container| {
            let id = || container.id.as_ref().map(|id| id.as_str().chars().take(CONTAINER).collect());
            container.name.clone().or_else(id).unwrap_or_else(|| "?".to_owned())
        });
        let style = match event.kind {
            _ if event.verdict.is_some() => Some(BAD),
            LifeKind::Ready => Some(GOOD),
            _ => None,
        };
        self.line(
            out,
            &Line {
                at: event.at,
                realtime: event.realtime,
                pod: event.pod.full_name(),
                container: container.unwrap_or_else(|| "-".to_owned()),
                event: event.kind.name(),
                text: sentence(event),
                style,
                verdict: event.verdict.as_ref(),
            },
            first,
        )
    }

    /// Writes that a start is over; `again`: it was told before, and more is known now.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn start(&self, out: &mut dyn Write, trace: &Trace, first: MonotonicNs, again: bool) -> io::Result<()> {
        let mut names = trace.containers.iter().filter(|container| !container.peer);
        let container = match (trace.kind, names.next(), names.next()) {
            (StartKind::Container, Some(one), None) => one.name.clone(),
            _ => None,
        };
        let more = if again { "more is known: " } else { "" };
        self.line(
            out,
            &Line {
                at: MonotonicNs(trace.start.0.saturating_add(trace.total_ns)),
                realtime: trace.start_realtime.map(|start| start.saturating_add(trace.total_ns)),
                pod: trace.pod.full_name(),
                container: container.unwrap_or_else(|| "-".to_owned()),
                event: if trace.kind == StartKind::Container { "restart" } else { "start" },
                text: format!("{more}{}", start(trace)),
                style: if trace.outcome == Outcome::Failed { Some(BAD) } else { Some(GOOD) },
                verdict: trace.verdict.as_ref(),
            },
            first,
        )
    }

    fn line(&self, out: &mut dyn Write, line: &Line<'_>, first: MonotonicNs) -> io::Result<()> {
        let Timeline { tree, long, several } = self;
        let time = self.time(line);
        let since = match line.at.0.checked_sub(first.0) {
            Some(ns) => format!("+{}", duration(ns)),
            None => format!("-{}", duration(first.since(line.at))),
        };
        let field = |text: &str, width: usize| {
            let text = tree.charset.clean(text);
            if *long { format!("{text:width$}") } else { tree.charset.fit(&text, width) }
        };
        let pod = if *several { format!("{} ", field(&line.pod, POD)) } else { String::new() };
        let middle = format!("{pod}{} {}", field(&line.container, CONTAINER), field(line.event, EVENT));
        let text = tree.charset.clean(&line.text);
        let taken = time.width() + 1 + SINCE + 1 + middle.width() + 1;
        let room = tree.width.saturating_sub(taken).max(SENTENCE);
        let first = if *long { text.clone() } else { wrap(&text, room, 2).into_iter().next().unwrap_or_default() };
        let rest = wrap(&text[first.len()..], tree.width.saturating_sub(INDENT), LINES);
        let styled = |text: &str| line.style.map_or_else(|| text.to_owned(), |style| tree.paint(style, text));
        let when = tree.paint(FAINT, &format!("{time} {since:>SINCE$}"));
        writeln!(out, "{when} {middle} {}", styled(&first))?;
        for text in &rest {
            writeln!(out, "{:INDENT$}{}", "", styled(text))?;
        }
        let Some(verdict) = line.verdict else { return Ok(()) };
        for text in self.verdict(verdict) {
            writeln!(out, "{:INDENT$}{}", "", tree.paint(BAD, &text))?;
        }
        Ok(())
    }

    /// Stage, reason and message, then what it rests on.
    fn verdict(&self, verdict: &Verdict) -> Vec<String> {
        let tree = Tree { width: self.tree.width.saturating_sub(INDENT), ..self.tree };
        let text = format!("! {} in {}: {}", verdict.reason, verdict.stage, verdict.message);
        let mut lines = wrap(&tree.charset.clean(&text), tree.width, LINES);
        lines.extend(grounds(verdict, &tree));
        lines
    }

    /// Wall time to the millisecond, or where it is not known the kernel's.
    fn time(&self, line: &Line<'_>) -> String {
        let Some(realtime) = line.realtime.map(rfc3339) else {
            return format!("{}.{:03}s", line.at.0 / 1_000_000_000, line.at.0 / 1_000_000 % 1000);
        };
        let (date, time) = realtime.split_at("2026-11-30T".len());
        let time = &time[.."08:15:00.000".len()];
        if self.tree.width >= WITH_DATE || self.long { format!("{date}{time}Z") } else { format!("{time}Z") }
    }
}

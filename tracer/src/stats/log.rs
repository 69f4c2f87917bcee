//! Histograms as an HdrHistogram log (interval lines of compressed V2 histograms), which other implementations read.
//!
//! Each line's tag is its key. What a histogram does not hold is in comments, which other readers skip. Joined by `cat`,
//! logs are a log.

use std::fmt::Write;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::{Decompress, FlushDecompress};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use super::{By, Entry, Key, Stats};

/// How a log of podlapse begins.
pub const MAGIC: &str = "#[podlapse.stages/v1";

/// What other writers begin with.
const VERSION: &str = "#[Histogram log format version 1.3]";

const LEGEND: &str = r#""StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram""#;

/// Durations are in ns; the column that is for people is in ms.
const MAX_DIVISOR: f64 = 1_000_000.0;

/// Longest histogram before compression: all counts of one with five digits, nine bytes each.
const MAX_PAYLOAD: u32 = 64 * 1024 * 1024;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It is another program's, or damaged at its beginning.
    #[error("not a log that `podlapse stages -o hdr` wrote: its first line does not say so")]
    NotOurs,
    /// A line is none of the format.
    #[error("the log is damaged in line {0}: {1}")]
    Line(usize, &'static str),
    /// Its end is missing, as after a full disk.
    #[error("the log is cut short: {0} of its histograms are missing")]
    CutShort(usize),
    /// Logs whose keys mean different things.
    #[error("the log was made with --by {0}, and another with --by {1}: they cannot be merged")]
    Mixed(&'static str, &'static str),
}

impl Stats {
    /// The log.
    pub fn to_log(&self) -> Vec<u8> {
        let Stats { open, left_out, lost_records, .. } = self;
        let by = self.by.map_or("-", By::name);
        let mut head = format!("{MAGIC} unit=ns by={by} open={open} left_out={left_out} lost={lost_records}");
        if let Some((from, to)) = self.interval {
            let _ = write!(head, " from_ns={from} to_ns={to}");
        }
        let _ = writeln!(head, "]\n{VERSION}");
        let (from, to) = self.interval.map_or((0, 0), |(from, to)| (from / 1_000_000, to / 1_000_000));
        let _ = writeln!(head, "#[StartTime: {}.{:03} (seconds since epoch)]", from / 1000, from % 1000);
        for (tag, entry) in self.entries().map(|(key, entry)| (key.tag(self.by), entry)) {
            let Entry { self_ns, below, above, .. } = entry;
            let _ = write!(head, "#[podlapse.own {tag} self_ns={self_ns} below={below} above={above}");
            if let Some((min, max)) = entry.range_ns() {
                let _ = write!(head, " min_ns={min} max_ns={max}");
            }
            head.push_str("]\n");
        }
        let _ = writeln!(head, "{LEGEND}");
        let mut log = head.into_bytes();
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        let writer = builder.with_max_value_divisor(MAX_DIVISOR).begin_log_with(&mut log, &mut serializer);
        let Ok(mut writer) = writer else { return log };
        let (start, length) = (Duration::from_millis(from), Duration::from_millis(to.saturating_sub(from)));
        for (key, entry) in self.entries().filter(|(_, entry)| entry.count() > 0) {
            let tag = key.tag(self.by);
            // Neither a Vec nor such a histogram refuses.
            let _ = writer.write_histogram(entry.histogram(), start, length, Tag::new(&tag));
        }
        log
    }

    /// Reads a log.
    ///
    /// # Errors
    /// [`LogError`] for what podlapse did not write.
    pub fn from_log(log: &[u8]) -> Result<Stats, LogError> {
        if !log.starts_with(MAGIC.as_bytes()) {
            return Err(LogError::NotOurs);
        }
        let (mut all, mut one): (Option<Stats>, Option<Stats>) = (None, None);
        // A parser of its own for each line, so that an error has a line.
        for (number, line) in (1..).zip(log.split_inclusive(|byte| *byte == b'\n')) {
            let text = str::from_utf8(line).map_err(|_| LogError::Line(number, "it is no text"))?;
            if let Some(head) = text.strip_prefix(MAGIC) {
                let head = header(head).ok_or(LogError::Line(number, "its header cannot be read"))?;
                all = joined(all, one.replace(head))?;
            }
            let Some(stats) = &mut one else { return Err(LogError::NotOurs) };
            if let Some(own) = text.strip_prefix("#[podlapse.own ") {
                stats.read_own(own).ok_or(LogError::Line(number, "its sums cannot be read"))?;
                continue;
            }
            for entry in IntervalLogIterator::new(line) {
                let entry = entry.map_err(|_| LogError::Line(number, "it is not whole"))?;
                stats.read_line(&entry).map_err(|why| LogError::Line(number, why))?;
            }
        }
        joined(all, one)?.ok_or(LogError::NotOurs)
    }

    fn read_own(&mut self, text: &str) -> Option<()> {
        let (tag, fields) = text.split_once(' ')?;
        let number = |name| number(fields, name);
        let (self_ns, below, above) = (number("self_ns")?, number("below")?, number("above")?);
        let range = number("min_ns").zip(number("max_ns")).filter(|(min, max)| min <= max);
        if let Some(entry) = self.entry(Key::parse(tag, self.by)?) {
            range.into_iter().for_each(|range| entry.widen(range));
            entry.self_ns = entry.self_ns.saturating_add(self_ns);
            entry.below = entry.below.saturating_add(below);
            entry.above = entry.above.saturating_add(above);
        }
        Some(())
    }

    fn read_line(&mut self, entry: &LogEntry<'_>) -> Result<(), &'static str> {
        let LogEntry::Interval(interval) = entry else { return Ok(()) };
        let tag = interval.tag().ok_or("it has no tag")?;
        let key = Key::parse(tag.as_str(), self.by).ok_or("its tag cannot be read")?;
        let histogram = histogram(interval.encoded_histogram()).ok_or("its histogram cannot be read")?;
        let fits = self.entry(key).is_none_or(|entry| entry.add(&histogram));
        if fits { Ok(()) } else { Err("its histogram has values above 1 h") }
    }
}

/// `all` and one log more.
fn joined(all: Option<Stats>, one: Option<Stats>) -> Result<Option<Stats>, LogError> {
    let Some(one) = one else { return Ok(all) };
    // The sums of all come before the histograms.
    let missing = one.entries().filter(|(_, entry)| entry.range_ns().is_some() && entry.count() == 0).count();
    if missing > 0 {
        return Err(LogError::CutShort(missing));
    }
    let name = |stats: &Stats| stats.by.map_or("nothing", By::name);
    match all {
        Some(all) if all.by != one.by => Err(LogError::Mixed(name(&all), name(&one))),
        Some(mut all) => {
            all.merge(&one);
            Ok(Some(all))
        }
        None => Ok(Some(one)),
    }
}

/// What follows [`MAGIC`].
fn header(text: &str) -> Option<Stats> {
    let by = field(text, "by")?;
    let by = if by == "-" { None } else { Some(By::ALL.into_iter().find(|known| known.name() == by)?) };
    let (open, left_out, lost_records) = (number(text, "open")?, number(text, "left_out")?, number(text, "lost")?);
    let interval = number(text, "from_ns").zip(number(text, "to_ns"));
    (field(text, "unit")? == "ns").then(|| Stats { open, left_out, lost_records, interval, ..Stats::new(by) })
}

/// The value of `name=value` among words.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let words = text.trim_end().trim_end_matches(']').split(' ');
    words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

fn histogram(text: &str) -> Option<Histogram<u32>> {
    let bytes = BASE64_STANDARD.decode(text).ok()?;
    // The length inside is believed by the deserializer, which makes room for it.
    let (mut inside, mut head) = (Decompress::new(true), [0; 8]);
    inside.decompress(bytes.get(8..)?, &mut head, FlushDecompress::None).ok()?;
    let [_, _, _, _, length @ ..] = head;
    if inside.total_out() < 8 || u32::from_be_bytes(length) > MAX_PAYLOAD {
        return None;
    }
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

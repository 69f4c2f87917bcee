//! Values of options: durations, sizes, instants and pod names.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration with its unit, as people write it: `500ms`, `2s`, `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl Span {
    pub(super) fn ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Span, &'static str> {
        const HELP: &str = "give a number and a unit, like 500ms, 2s or 5m";
        const DAY: u64 = 86_400_000_000_000;
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(HELP)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| HELP)?;
        let unit = match unit {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(HELP),
        };
        let ns = number.checked_mul(unit).filter(|ns| *ns <= 365 * DAY).ok_or("give at most a year")?;
        Ok(Span(Duration::from_nanos(ns)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.ns();
        let units = [(3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s"), (1_000_000, "ms")];
        match units.into_iter().find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", ns / unit),
            None => write!(f, "{}us", ns / 1000),
        }
    }
}

/// Bytes, as people write them: `512KiB`, `64MiB`, `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Size, &'static str> {
        const HELP: &str = "give a number and a unit, like 512KiB, 64MiB or 1GiB";
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(HELP)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| HELP)?;
        let unit = match unit {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(HELP),
        };
        number.checked_mul(unit).filter(|bytes| *bytes > 0).map(Size).ok_or(HELP)
    }
}

/// An instant of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// So long after its first record.
    After(Span),
    /// At this wall time, in nanoseconds since the epoch.
    Wall(u64),
}

impl FromStr for From {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<From, &'static str> {
        const HELP: &str = "give a time like 2026-11-30T08:15:00Z, or a number and a unit, like 90s or 5m";
        if let Ok(span) = text.parse() {
            return Ok(From::After(span));
        }
        if text.strip_prefix('-').is_some_and(|rest| rest.parse::<Span>().is_ok()) {
            return Err("the recording begins at 0s; nothing is before it");
        }
        let time: jiff::Timestamp = rfc3339(text).ok_or(HELP)?;
        u64::try_from(time.as_nanosecond()).map(From::Wall).map_err(|_| "give a time after 1970")
    }
}

/// RFC 3339 knows two things that jiff does not: `-00:00`, an offset that is not known, of a time in UTC; and digits of a
/// second beyond the ninth.
fn rfc3339(text: &str) -> Option<jiff::Timestamp> {
    let utc = text.strip_suffix("-00:00").map(|time| format!("{time}Z"));
    let text = utc.as_deref().unwrap_or(text);
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    match digits(rest) {
        count @ 10.. => format!("{whole}.{}{}", &rest[..9], &rest[count..]).parse().ok(),
        _ => text.parse().ok(),
    }
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl FromStr for PodName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PodName, &'static str> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(PodName { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("give NAMESPACE/NAME, like default/web-0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [("0s", 0), ("500ms", 500_000_000), ("2s", 2_000_000_000), ("90s", 90_000_000_000)] {
            assert_eq!(text.parse::<Span>().unwrap().ns(), ns);
        }
        for text in ["500ms", "2s", "90s", "5m", "3h", "7us"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["", "2", "s", "-1s", "1.5s", "2 s", "2x", "99999999999999999999s", "9999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1KiB", 1 << 10), ("64MiB", 64 << 20), ("3GiB", 3 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "1", "0MiB", "MiB", "64MB", "64 MiB", "-1KiB", "1.5GiB", "99999999999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn instants() {
        let wall = |ns| Ok(From::Wall(ns));
        assert_eq!("90s".parse(), Ok(From::After("90s".parse().unwrap())));
        assert_eq!("2026-11-30T08:15:00Z".parse(), wall(1_796_026_500_000_000_000));
        assert_eq!("2026-11-30T09:15:00.5+01:00".parse(), wall(1_796_026_500_500_000_000));
        for odd in [
            "2026-11-30t08:15:00z",
            "2026-11-30 08:15:00Z",
            "2026-11-30T08:15:00-00:00",
            "2026-11-30T08:15:00.000000000000Z",
            "2026-11-30T23:59:00+15:44",
        ] {
            assert_eq!(odd.parse(), wall(1_796_026_500_000_000_000), "{odd}");
        }
        assert!("-5s".parse::<From>().unwrap_err().contains("begins at 0s"));
        for text in ["", "90", "yesterday", "2026-11-30", "2026-11-30T08:15:00", "1900-01-01T00:00:00Z"] {
            assert!(text.parse::<From>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn pods() {
        let PodName { namespace, name } = "kube-system/dns".parse().unwrap();
        assert_eq!((&*namespace, &*name), ("kube-system", "dns"));
        for text in ["", "web", "/web", "default/", "a/b/c"] {
            assert!(text.parse::<PodName>().is_err(), "{text:?}");
        }
    }
}

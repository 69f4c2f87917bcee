//! Times as people and contracts write them.

/// RFC 3339 in UTC with nanoseconds, of nanoseconds since the epoch.
pub fn rfc3339(realtime_ns: u64) -> String {
    let (seconds, nanos) = (realtime_ns / 1_000_000_000, realtime_ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Date of the proleptic Gregorian calendar, days after 1970-01-01, counted in years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153; // 0 is March
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// Four significant digits or so, with a unit: `812.3 ms`, `1.204 s`, `2 min 03 s`.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => scaled(ns, 1_000, "us"),
        1_000_000..1_000_000_000 => scaled(ns, 1_000_000, "ms"),
        1_000_000_000..120_000_000_000 => scaled(ns, 1_000_000_000, "s"),
        120_000_000_000.. => format!("{} min {:02} s", ns / 60_000_000_000, ns / 1_000_000_000 % 60),
    }
}

/// Cut, not rounded, so that a part never looks longer than its whole.
fn scaled(ns: u64, unit: u64, name: &str) -> String {
    let (whole, part) = (ns / unit, ns % unit * 1000 / unit);
    match whole {
        0..10 => format!("{whole}.{part:03} {name}"),
        10..100 => format!("{whole}.{:02} {name}", part / 10),
        _ => format!("{whole}.{} {name}", part / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59.999999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_709_251_199_000_000_001, "2024-02-29T23:59:59.000000001Z"),
            (1_735_689_599_000_000_000, "2024-12-31T23:59:59.000000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(rfc3339(ns), text);
        }
    }

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_999, "1.999 us"),
            (12_345_678, "12.34 ms"),
            (999_999_999, "999.9 ms"),
            (1_204_000_000, "1.204 s"),
            (119_999_999_999, "119.9 s"),
            (123_000_000_000, "2 min 03 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}

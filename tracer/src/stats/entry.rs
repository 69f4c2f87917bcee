//! One histogram, and what it does not hold.

use hdrhistogram::Histogram;

/// The shortest duration that is told from shorter ones.
pub const LOWEST_NS: u64 = 1_000;

/// The longest duration that is told from longer ones.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// The durations of one key.
#[derive(Clone, Debug)]
pub struct Entry {
    histogram: Histogram<u32>,
    /// The shortest and the longest value, to the nanosecond.
    range_ns: Option<(u64, u64)>,
    /// Time that the stage owned, over all starts.
    pub self_ns: u64,
    /// Values that were shorter than [`LOWEST_NS`].
    pub below: u64,
    /// Values that were longer than [`HIGHEST_NS`].
    pub above: u64,
}

impl Default for Entry {
    fn default() -> Entry {
        // Counted in single nanoseconds, so that 1 us has three digits, too.
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("the bounds are constants that fit");
        Entry { histogram, range_ns: None, self_ns: 0, below: 0, above: 0 }
    }
}

impl Entry {
    /// Counts a duration.
    pub fn record(&mut self, duration_ns: u64) {
        self.below += u64::from(duration_ns < LOWEST_NS);
        self.above += u64::from(duration_ns > HIGHEST_NS);
        let value = duration_ns.clamp(LOWEST_NS, HIGHEST_NS);
        self.histogram.saturating_record(value);
        self.widen((value, value));
    }

    /// Adds the values of a histogram; false when they reach beyond the range.
    pub(super) fn add(&mut self, histogram: &Histogram<u32>) -> bool {
        self.histogram.add(histogram).is_ok()
    }

    /// Takes values into [`Entry::range_ns`].
    pub(super) fn widen(&mut self, (shortest, longest): (u64, u64)) {
        let (min, max) = self.range_ns.unwrap_or((shortest, longest));
        self.range_ns = Some((min.min(shortest), max.max(longest)));
    }

    /// Takes all of `other`.
    pub(super) fn merge(&mut self, other: &Entry) {
        self.add(&other.histogram);
        other.range_ns.into_iter().for_each(|range| self.widen(range));
        self.self_ns = self.self_ns.saturating_add(other.self_ns);
        self.below = self.below.saturating_add(other.below);
        self.above = self.above.saturating_add(other.above);
    }

    /// The histogram.
    pub fn histogram(&self) -> &Histogram<u32> {
        &self.histogram
    }

    /// Values.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest and the longest value, to the nanosecond.
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        self.range_ns
    }

    /// The value that the share `quantile` of all values does not exceed: the one at place `ceil(quantile * count)` in
    /// order, to three digits.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let (min, max) = self.range_ns.filter(|_| !self.histogram.is_empty())?;
        Some(self.histogram.value_at_quantile(quantile).clamp(min, max))
    }
}

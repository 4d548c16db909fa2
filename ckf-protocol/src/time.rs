//! Time as the host tells it: integer milliseconds, no clock in sight.

/// A span of time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Millis(u64);

impl Millis {
    /// This many milliseconds.
    #[inline]
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// This many seconds, at most `u64::MAX` milliseconds.
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// The number of milliseconds.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long to wait before the next try after `failures` earlier ones: this span, doubled by
    /// each of them and at most `longest`, of which the upper half is random. At least 1 ms.
    ///
    /// `random` is any 64 evenly spread bits, others for each try and each of those that may fail at
    /// the same moment, so that they do not come back in one instant.
    #[must_use]
    pub fn back_off(self, longest: Self, failures: u32, random: u64) -> Self {
        let doubled = self.0.saturating_mul(1 << failures.min(63));
        let full = doubled.clamp(1, longest.0.max(1));
        let offset = (u128::from(random) * u128::from(full / 2 + 1)) >> 64;
        Self(full - full / 2 + offset as u64)
    }
}

/// A point in time: milliseconds since a start that the host chooses once per process.
///
/// Machines ignore a `now` that goes back: they act at the latest one that they have seen. So one
/// that was far too large holds their deadlines up until the clock has caught up with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The host's start.
    pub const ZERO: Self = Self(0);
    /// The end of time: where sums stop, and a deadline that never comes.
    pub const END: Self = Self(u64::MAX);

    /// This many milliseconds after the host's start.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the host's start.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The point `span` later, or [`END`](Self::END).
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long after `earlier` this is; zero when it is not after.
    #[inline]
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// Whether a deadline has come by `now`. One at [`END`](Self::END) never does: where all
    /// deadlines are pushed together, machines would otherwise find one due after the other.
    #[inline]
    #[must_use]
    pub const fn is_due(self, now: Self) -> bool {
        self.0 <= now.0 && self.0 != Self::END.0
    }

    /// The later of two points: how machines keep their `now` from going back.
    #[inline]
    #[must_use]
    pub fn latest(self, other: Self) -> Self {
        self.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_to_its_longest_and_spreads_over_the_upper_half() {
        let (first, longest) = (Millis::new(100), Millis::new(10_000));
        for failures in (0..100).chain([u32::MAX]) {
            let full = (100u64 << failures.min(20)).min(10_000);
            let wait = |random| first.back_off(longest, failures, random).get();
            assert_eq!((wait(0), wait(u64::MAX)), (full - full / 2, full));
            assert_eq!(wait(u64::MAX / 2), full * 3 / 4);
        }
        assert_eq!(Millis::new(0).back_off(Millis::new(0), 0, u64::MAX).get(), 1);
        assert_eq!(Millis::new(1).back_off(Millis::new(1), 63, 0).get(), 1);
        let most = Millis::new(u64::MAX);
        assert_eq!(most.back_off(most, 1, 0).get(), u64::MAX / 2 + 1);
        assert_eq!(most.back_off(most, 1, u64::MAX).get(), u64::MAX);
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        let late = Instant::from_millis(u64::MAX - 1);
        assert_eq!(late.saturating_add(Millis::from_secs(1)), Instant::from_millis(u64::MAX));
        assert_eq!(Instant::ZERO.saturating_since(late), Millis::new(0));
        assert_eq!(Instant::from_millis(7).saturating_since(Instant::from_millis(2)).get(), 5);
        assert_eq!(Millis::from_secs(u64::MAX).get(), u64::MAX);
        assert_eq!(late.latest(Instant::ZERO), late);
        assert!(late.is_due(late) && late.is_due(Instant::END) && !late.is_due(Instant::ZERO));
        assert!(!Instant::END.is_due(Instant::END));
    }
}

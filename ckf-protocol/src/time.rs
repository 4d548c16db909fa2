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
}

/// A point in time: milliseconds since a start that the host chooses once per process.
///
/// Machines ignore a `now` that goes back: they act at the latest one that they have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The host's start.
    pub const ZERO: Self = Self(0);

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

    /// The point `span` later, or the end of time.
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
    fn arithmetic_stops_at_the_ends() {
        let late = Instant::from_millis(u64::MAX - 1);
        assert_eq!(late.saturating_add(Millis::from_secs(1)), Instant::from_millis(u64::MAX));
        assert_eq!(Instant::ZERO.saturating_since(late), Millis::new(0));
        assert_eq!(Instant::from_millis(7).saturating_since(Instant::from_millis(2)).get(), 5);
        assert_eq!(Millis::from_secs(u64::MAX).get(), u64::MAX);
        assert_eq!(late.latest(Instant::ZERO), late);
    }
}

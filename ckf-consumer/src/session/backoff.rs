//! How long to wait after a failure: doubling, bounded, spread by a seeded jitter so that many
//! lanes that lost the same producer do not come back in one instant.

use ckf_protocol::Millis;

/// Failures so far and the state of the jitter's generator (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    failures: u32,
    random: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { failures: 0, random: seed }
    }

    /// Forgets the failures so far.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure: `min` doubled by each earlier one and at most `max`, of
    /// which the upper half is random. At least 1 ms.
    pub(super) fn next(&mut self, min: Millis, max: Millis) -> Millis {
        let doubled = min.get().saturating_mul(1 << self.failures.min(63));
        self.failures = self.failures.saturating_add(1);
        let full = doubled.clamp(1, max.get().max(1));
        let low = full - full / 2;
        Millis::new(low + self.draw() % (full - low + 1))
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_bound_and_differ_between_seeds() {
        let (min, max) = (Millis::new(100), Millis::new(10_000));
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            [(); 200].map(|()| backoff.next(min, max).get())
        };
        for seed in 0..50 {
            let waits = waits(seed);
            for (i, wait) in waits.into_iter().enumerate() {
                let full = (100u64 << i.min(20)).min(10_000);
                assert!((full / 2..=full).contains(&wait), "{i}: {wait}");
            }
        }
        assert_ne!(waits(1), waits(2));
        assert_eq!(waits(1), waits(1));
        let mut backoff = Backoff::new(1);
        assert_eq!(backoff.next(Millis::new(1), Millis::new(1)).get(), 1);
        let most = Millis::new(u64::MAX);
        assert!(backoff.next(most, most).get() >= u64::MAX / 2);
    }
}

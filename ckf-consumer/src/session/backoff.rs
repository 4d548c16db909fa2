//! How long to wait after a failure: spread by a seeded jitter, so that many lanes that lost the
//! same producer do not come back in one instant.

use ckf_core::{GOLDEN_GAMMA, mix64};
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

    /// The wait after one more failure, see [`Millis::back_off`].
    pub(super) fn next(&mut self, first: Millis, longest: Millis) -> Millis {
        self.random = self.random.wrapping_add(GOLDEN_GAMMA);
        let wait = first.back_off(longest, self.failures, mix64(self.random));
        self.failures = self.failures.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_reset_and_differ_between_seeds() {
        let (first, longest) = (Millis::new(100), Millis::new(10_000));
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            [(); 20].map(|()| backoff.next(first, longest).get())
        };
        for seed in 0..50 {
            for (i, wait) in waits(seed).into_iter().enumerate() {
                let full = (100u64 << i).min(10_000);
                assert!((full / 2..=full).contains(&wait), "{i}: {wait}");
            }
        }
        // Also from one try to the next, once they no longer double.
        assert!(waits(1)[10..].iter().any(|&wait| wait != waits(1)[10]));
        assert_ne!(waits(1), waits(2));
        assert_eq!(waits(1), waits(1));
        let mut backoff = Backoff::new(1);
        let mut next = || backoff.next(first, longest).get();
        assert!((0..9).map(|_| next()).max() > Some(200));
        backoff.reset();
        assert!(backoff.next(first, longest).get() <= 100);
    }
}

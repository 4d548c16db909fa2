//! A small seeded generator (SplitMix64), so that every run can be repeated exactly.

use ckf_core::{GOLDEN_GAMMA, mix64};

/// SplitMix64: one `u64` of state, full period, the same sequence on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence is fixed by `seed` and `stream`; streams are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix64(seed) ^ mix64(stream.wrapping_add(0x5EED)))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix64(self.0)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias of at most `bound / 2^64` is of no
    /// consequence here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high.saturating_sub(low)).saturating_add(1))
    }

    /// True with probability `p` (0 never, 1 always).
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits fill a double's mantissa, so the draw is in [0, 1).
        ((self.next_u64() >> 11) as f64) < p * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn draws_stay_in_range() {
        let mut rng = Rng::new(1, 0);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            let x = rng.between(3, 7);
            seen[(x - 3) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(9, 9), 9);
        rng.between(0, u64::MAX);
    }

    #[test]
    fn chance_keeps_its_probability() {
        let mut rng = Rng::new(2, 0);
        let hits = (0..100_000).filter(|_| rng.chance(0.02)).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| !rng.chance(0.0)));
        assert!((0..1_000).all(|_| rng.chance(1.0)));
    }
}

//! A small seeded generator, so that every run can be repeated from one number.

use ckf_core::{GOLDEN_GAMMA, mix64};

/// SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng(u64);

impl Rng {
    /// The generator of this seed; any value is a good seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that is independent of this one's later numbers, for a part of a scenario that
    /// must not shift the others when it draws more or less often.
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix64(self.0)
    }

    /// A number in `0..bound`; 0 for a bound of 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// `true` with this probability; 0 and below never, 1 and above always.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fill an f64 exactly, so the unit value is below 1.
        let unit = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }

    /// One of the items; `None` of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_bounds_hold() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for bound in 0..1000 {
            let x = a.below(bound);
            assert_eq!(x, b.below(bound));
            assert!(x < bound.max(1));
            assert!((3..=9).contains(&a.between(3, 9)));
            b.between(3, 9);
        }
        assert!(!a.chance(0.0) && a.chance(1.0));
        let hits = (0..100_000).filter(|_| a.chance(0.02)).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
    }
}

//! A set of bucket numbers in fixed memory that lists itself in ascending order.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use crate::budget::Budget;

/// A bit tree: level 0 has one bit per number, and each bit of a higher level says whether a word
/// below has any. Marking is a few instructions; listing costs by what is marked, not by the range.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    levels: Vec<Vec<u64>>,
    len: u32,
}

/// Levels of 64 branches each that 2^30 buckets need.
const MAX_LEVELS: usize = 5;

impl Marks {
    /// No marks, over `0..range`.
    pub(crate) fn new(range: u32, budget: &mut Budget) -> Result<Self, AllocationError> {
        let mut marks = Self { levels: budget.vec(MAX_LEVELS)?, len: 0 };
        let mut words = range as usize;
        loop {
            words = words.div_ceil(64).max(1);
            match budget.vec(words) {
                Ok(mut level) => {
                    level.resize(words, 0);
                    marks.levels.push(level);
                }
                Err(refused) => {
                    marks.release(budget);
                    return Err(refused);
                }
            }
            if words == 1 {
                return Ok(marks);
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        let mut levels = self.levels;
        for level in levels.drain(..) {
            budget.release(level);
        }
        budget.release(levels);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.levels) + self.levels.iter().map(Budget::bytes_of).sum::<u64>()
    }

    /// How many are marked.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Free of branches that depend on what is marked.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32) {
        let mut at = number as usize;
        let Some(level) = self.levels.first() else { return };
        self.len += u32::from(level[at / 64] >> (at % 64) & 1 == 0);
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let at = number as usize;
        self.levels[0].get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// Takes all marks away, ascending.
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(u32)) {
        let top = self.levels.len() - 1;
        drain_below(&mut self.levels, top, 0, &mut visit);
        self.len = 0;
    }

    /// All marks, ascending.
    pub(crate) fn iter(&self) -> Iter<'_> {
        let top = self.levels.len() - 1;
        let mut pending = [0; MAX_LEVELS];
        pending[top] = self.levels[top][0];
        Iter { levels: &self.levels, pending, at: 0, height: top }
    }
}

fn drain_below(levels: &mut [Vec<u64>], height: usize, at: usize, visit: &mut impl FnMut(u32)) {
    let mut pending = core::mem::take(&mut levels[height][at]);
    while pending != 0 {
        let child = at * 64 + pending.trailing_zeros() as usize;
        pending &= pending - 1;
        match height {
            0 => visit(child as u32),
            _ => drain_below(levels, height - 1, child, visit),
        }
    }
}

/// The walk of [`Marks::iter`].
#[derive(Clone, Debug)]
pub(crate) struct Iter<'a> {
    levels: &'a [Vec<u64>],
    /// Bits still to visit of the word that the walk is in, by height.
    pending: [u64; MAX_LEVELS],
    /// Which word of the present height that is.
    at: usize,
    height: usize,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            let pending = self.pending[self.height];
            if pending == 0 {
                if self.height + 1 == self.levels.len() {
                    return None;
                }
                self.height += 1;
                self.at /= 64;
                continue;
            }
            self.pending[self.height] = pending & (pending - 1);
            let child = self.at * 64 + pending.trailing_zeros() as usize;
            if self.height == 0 {
                return Some(child as u32);
            }
            self.height -= 1;
            self.at = child;
            self.pending[self.height] = self.levels[self.height][child];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_an_ordered_set(range in prop_oneof![1u32..200, 1u32..300_000], ops in prop::collection::vec((any::<u32>(), 0u8..40), 0..300)) {
            let mut marks = Marks::new(range, &mut Budget::new(u64::MAX)).unwrap();
            let mut oracle = BTreeSet::new();
            for (number, op) in ops {
                if op == 0 {
                    let mut drained = Vec::new();
                    marks.drain(|mark| drained.push(mark));
                    prop_assert!(drained.into_iter().eq(core::mem::take(&mut oracle)));
                } else {
                    marks.insert(number % range);
                    oracle.insert(number % range);
                }
                prop_assert_eq!(marks.len() as usize, oracle.len());
                prop_assert!(marks.contains(number % range) == oracle.contains(&(number % range)));
                prop_assert!(marks.iter().eq(oracle.iter().copied()));
            }
        }
    }
}

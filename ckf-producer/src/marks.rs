//! A set of bucket numbers in fixed memory that lists itself in ascending order.

use alloc::vec::Vec;
use core::mem::take;

use ckf_core::AllocationError;

use crate::budget::Budget;

/// Bits in three levels: the lowest has one for each number, and each bit of a higher level says
/// whether a word below has any. Marking is a few instructions; listing costs by what is marked,
/// plus a look at each word on top, one for a quarter of a million numbers.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    low: Vec<u64>,
    middle: Vec<u64>,
    top: Vec<u64>,
    len: u32,
}

impl Marks {
    /// No marks, over `0..range`.
    pub(crate) fn new(range: u32, budget: &mut Budget) -> Result<Self, AllocationError> {
        let mut marks = Self { low: Vec::new(), middle: Vec::new(), top: Vec::new(), len: 0 };
        let filled = [&mut marks.low, &mut marks.middle, &mut marks.top].into_iter().try_fold(
            range as usize,
            |below, level| {
                let words = below.div_ceil(64).max(1);
                *level = budget.vec(words)?;
                level.resize(words, 0);
                Ok(words)
            },
        );
        match filled {
            Ok(_) => Ok(marks),
            Err(refused) => {
                marks.release(budget);
                Err(refused)
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.low);
        budget.release(self.middle);
        budget.release(self.top);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.low) + Budget::bytes_of(&self.middle) + Budget::bytes_of(&self.top)
    }

    /// How many are marked.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Free of branches that depend on what is marked.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32) {
        let at = number as usize;
        let (low, bit) = (&mut self.low[at >> 6], 1 << (at & 63));
        self.len += u32::from(*low & bit == 0);
        *low |= bit;
        self.middle[at >> 12] |= 1 << (at >> 6 & 63);
        self.top[at >> 18] |= 1 << (at >> 12 & 63);
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let at = number as usize;
        self.low.get(at >> 6).is_some_and(|word| word >> (at & 63) & 1 != 0)
    }

    /// Takes all marks away and shows them, ascending.
    #[inline]
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(u32)) {
        let Self { low, middle, top, len } = self;
        for (at, top) in top.iter_mut().enumerate() {
            for at in bits(at, take(top)) {
                for at in bits(at, take(&mut middle[at])) {
                    bits(at, take(&mut low[at])).for_each(|mark| visit(mark as u32));
                }
            }
        }
        *len = 0;
    }
}

/// The numbers of the bits that are set in word `at` of a level.
#[inline]
fn bits(at: usize, mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(at << 6 | bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_an_ordered_set(range in prop_oneof![1u32..200, 1u32..300_000, 1u32..5_000_000], ops in prop::collection::vec((any::<u32>(), 0u8..40), 0..300)) {
            let mut marks = Marks::new(range, &mut Budget::new(u64::MAX)).unwrap();
            let mut oracle = BTreeSet::new();
            for (number, op) in ops {
                let mut listed = Vec::new();
                marks.clone().drain(|mark| listed.push(mark));
                prop_assert!(listed.iter().eq(oracle.iter()));
                if op == 0 {
                    marks.drain(|_| ());
                    oracle.clear();
                } else {
                    marks.insert(number % range);
                    oracle.insert(number % range);
                }
                prop_assert_eq!(marks.len() as usize, oracle.len());
                prop_assert!(marks.contains(number % range) == oracle.contains(&(number % range)));
            }
        }
    }
}

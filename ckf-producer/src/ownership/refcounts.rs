//! How many members own each block of the pool.

use ckf_core::AllocationError;

use super::counted::{CountedSet, Held, Place};
use super::scramble::Key;
use crate::budget::Budget;

/// Owners that the low digit can stand for.
const DIGIT: u32 = 255;

/// Classes of [`Refcounts::histogram`].
pub(crate) const CLASSES: usize = 17;

/// Exact refcounts in two digits: a count of 1 to 255 for every block, and a carry, in a second
/// and nearly always empty set, for the blocks with more owners. `owners = low + 255 * carry`.
#[derive(Clone, Debug)]
pub(crate) struct Refcounts {
    low: CountedSet,
    carry: CountedSet,
    histogram: [u64; CLASSES],
}

/// The histogram class of a number of owners: 1, 2, 3-4, 5-8, ...
#[inline]
fn class(owners: u32) -> usize {
    (u32::BITS - (owners - 1).leading_zeros()) as usize
}

impl Refcounts {
    /// Most owners that a block can have: what two digits hold.
    #[cfg(test)]
    pub(crate) const MAX_OWNERS: u32 = DIGIT + DIGIT * DIGIT;

    pub(crate) const fn new() -> Self {
        Self { low: CountedSet::new(), carry: CountedSet::new(), histogram: [0; CLASSES] }
    }

    /// Distinct blocks.
    pub(crate) fn len(&self) -> u64 {
        self.low.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.low.bytes() + self.carry.bytes()
    }

    /// Blocks by number of owners: 1, 2, 3-4, 5-8, ..., up to 2^16.
    pub(crate) fn histogram(&self) -> [u64; CLASSES] {
        self.histogram
    }

    #[inline]
    pub(crate) fn touch(&self, key: Key) -> u64 {
        self.low.touch(key)
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Place> {
        self.low.find(key)
    }

    #[inline]
    fn carry_of(&self, key: Key) -> u32 {
        if self.carry.len() == 0 {
            return 0;
        }
        self.carry.find(key).map_or(0, |place| u32::from(self.carry.count(place)))
    }

    /// Owners of a block, 0 when nobody owns it.
    pub(crate) fn owners(&self, key: Key) -> u32 {
        let low = self.find(key).map_or(0, |place| self.low.count(place));
        u32::from(low) + DIGIT * self.carry_of(key)
    }

    /// Makes sure that a first owner can be entered.
    #[inline]
    pub(crate) fn reserve(&mut self, key: Key, budget: &mut Budget) -> Result<(), AllocationError> {
        self.low.reserve(key, budget)
    }

    /// Enters a block with one owner; needs [`reserve`](Self::reserve).
    #[inline]
    pub(crate) fn insert(&mut self, key: Key) {
        self.low.insert(key, 1);
        self.histogram[0] += 1;
    }

    /// Counts one more owner of the block at `place`.
    ///
    /// # Errors
    /// [`AllocationError`] when a carry is needed and refused; nothing has changed then.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: Key,
        place: Place,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let low = u32::from(self.low.count(place));
        let owners = low + DIGIT * self.carry_of(key);
        if low == DIGIT {
            match self.carry.find(key) {
                Some(carry) => self.carry.set_count(carry, self.carry.count(carry) + 1),
                None => {
                    self.carry.reserve(key, budget)?;
                    self.carry.insert(key, 1);
                }
            }
            self.low.set_count(place, 1);
        } else {
            self.low.set_count(place, low as u8 + 1);
        }
        self.reclass(owners, owners + 1);
        Ok(())
    }

    /// Counts one owner fewer of the block at `place`; returns whether it was the last.
    #[inline]
    pub(crate) fn release_one(&mut self, key: Key, place: Place, budget: &mut Budget) -> bool {
        let low = u32::from(self.low.count(place));
        let owners = low + DIGIT * self.carry_of(key);
        if owners == 1 {
            self.low.remove(key, place, budget);
            self.histogram[0] -= 1;
            return true;
        }
        if low > 1 {
            self.low.set_count(place, low as u8 - 1);
        } else if let Some(carry) = self.carry.find(key) {
            match self.carry.count(carry) {
                1 => self.carry.remove(key, carry, budget),
                more => self.carry.set_count(carry, more - 1),
            }
            self.low.set_count(place, DIGIT as u8);
        }
        self.reclass(owners, owners - 1);
        false
    }

    #[inline]
    fn reclass(&mut self, before: u32, after: u32) {
        self.histogram[class(before)] -= 1;
        self.histogram[class(after)] += 1;
    }

    /// All blocks, in no meaningful order; ask [`owners`](Self::owners) for their full counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.low.iter()
    }

    /// Whether both digits are consistent sets and the histogram is right.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut histogram = [0; CLASSES];
        for held in self.iter() {
            histogram[class(self.owners(held.key))] += 1;
        }
        let carried = |held: Held| self.find(held.key).is_some();
        histogram == self.histogram
            && self.low.is_consistent()
            && self.carry.is_consistent()
            && self.carry.iter().all(carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Through the carries of both digits and back, with memory refused at each carry.
    #[test]
    fn counts_beyond_one_digit_are_exact() {
        let (mut counts, mut budget) = (Refcounts::new(), Budget::new(u64::MAX));
        let keys: Vec<Key> = (1..4).map(Key).collect();
        for &key in &keys {
            counts.reserve(key, &mut budget).unwrap();
            counts.insert(key);
        }
        let key = keys[1];
        for owners in 2..=1000 {
            let place = counts.find(key).unwrap();
            budget.set_limit(budget.used());
            if counts.add(key, place, &mut budget).is_err() {
                assert_eq!(counts.owners(key), owners - 1);
                budget.set_limit(u64::MAX);
                counts.add(key, place, &mut budget).unwrap();
            }
            assert_eq!(counts.owners(key), owners);
            assert!(counts.is_consistent());
        }
        assert_eq!(counts.carry.len(), 1);
        for owners in (0..1000).rev() {
            let place = counts.find(key).unwrap();
            let last = counts.release_one(key, place, &mut budget);
            assert_eq!((last, counts.owners(key)), (owners == 0, owners));
            assert!(counts.is_consistent());
        }
        assert_eq!((counts.len(), counts.carry.len()), (2, 0));
        assert_eq!((counts.owners(keys[0]), counts.owners(keys[2])), (1, 1));
    }

    #[test]
    fn two_digits_hold_the_most_members() {
        const { assert!(crate::PoolConfig::MAX_MEMBERS <= Refcounts::MAX_OWNERS) };
        assert_eq!(class(crate::PoolConfig::MAX_MEMBERS), CLASSES - 1);
    }
}

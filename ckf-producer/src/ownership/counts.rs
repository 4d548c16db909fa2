//! How many members own each block of some.

use ckf_core::AllocationError;

use super::line::CountLine;
use super::scramble::Key;
use super::set::Set;
use super::walk::{Cursor, Held};
use crate::budget::Budget;

/// Classes of [`Counts::histogram`].
pub(crate) const CLASSES: usize = 17;

/// Blocks with exact numbers of owners, 1 to 65,535. A pool has fewer members, so no count can
/// overflow.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    blocks: Set<CountLine>,
    histogram: [u64; CLASSES],
}

/// The histogram class of a number of owners: 1, 2, 3-4, 5-8, ...
#[inline]
fn class(owners: u16) -> usize {
    (u16::BITS - (owners - 1).leading_zeros()) as usize
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self { blocks: Set::new(), histogram: [0; CLASSES] }
    }

    /// Blocks counted here.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.blocks.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// Blocks by number of owners: 1, 2, 3-4, 5-8, ..., up to 2^16.
    pub(crate) fn histogram(&self) -> &[u64; CLASSES] {
        &self.histogram
    }

    #[inline]
    pub(crate) fn touch(&self, key: Key) -> u64 {
        self.blocks.touch(key)
    }

    /// Owners of a block, 0 when it is not counted here.
    #[inline]
    pub(crate) fn owners(&self, key: Key) -> u16 {
        self.blocks.find(key).map_or(0, |place| self.blocks.count(place))
    }

    /// Makes sure that the next [`enter`](Self::enter), of this block, finds room.
    pub(crate) fn reserve(&mut self, key: Key, budget: &mut Budget) -> Result<(), AllocationError> {
        self.blocks.reserve(key, budget)
    }

    /// Enters a block that is not here, with this many owners.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; nothing has changed then.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        owners: u16,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let new = self.blocks.add(key, owners, budget)?;
        debug_assert!(new, "a block is counted once");
        self.histogram[class(owners)] += 1;
        Ok(())
    }

    /// Counts one more owner of the block, if it is here; returns whether it is.
    #[inline]
    pub(crate) fn gain(&mut self, key: Key) -> bool {
        let Some(place) = self.blocks.find(key) else { return false };
        let owners = self.blocks.count(place);
        self.blocks.set_count(place, owners + 1);
        self.reclass(owners, owners + 1);
        true
    }

    /// Counts one owner fewer of the block, if it is here, and forgets it when that was the last;
    /// returns how many are left.
    #[inline]
    pub(crate) fn lose(&mut self, key: Key, budget: &mut Budget) -> Option<u16> {
        let place = self.blocks.find(key)?;
        let owners = self.blocks.count(place);
        if owners == 1 {
            self.blocks.remove(key, place, budget);
            self.histogram[0] -= 1;
        } else {
            self.blocks.set_count(place, owners - 1);
            self.reclass(owners, owners - 1);
        }
        Some(owners - 1)
    }

    #[inline]
    fn reclass(&mut self, before: u16, after: u16) {
        self.histogram[class(before)] -= 1;
        self.histogram[class(after)] += 1;
    }

    /// All blocks, in no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.blocks.iter()
    }

    /// The blocks of the line at `cursor`, which moves on; `None` at the end.
    pub(crate) fn next_line(&self, cursor: &mut Cursor) -> Option<impl Iterator<Item = Held> + '_> {
        self.blocks.next_line(cursor)
    }

    /// Forgets a block found in a walk; every other place and every cursor stays valid.
    pub(crate) fn remove_in_walk(&mut self, held: Held) {
        self.blocks.remove_in_walk(held.key, held.place);
        self.histogram[class(held.count)] -= 1;
    }

    /// Gives memory back after removals in a walk.
    pub(crate) fn shrink(&mut self, budget: &mut Budget) {
        self.blocks.shrink(budget);
    }

    /// Gives all memory back.
    pub(crate) fn release(self, budget: &mut Budget) {
        self.blocks.release(budget);
    }

    /// Whether the set is consistent and the histogram is right.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut histogram = [0; CLASSES];
        self.iter().for_each(|held| histogram[class(held.count)] += 1);
        histogram == self.histogram && self.blocks.is_consistent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Up to the most owners that a pool can have, and back.
    #[test]
    fn counts_are_exact_to_the_last_member() {
        let (mut counts, mut budget) = (Counts::new(), Budget::new(u64::MAX));
        let most = crate::PoolConfig::MAX_MEMBERS as u16;
        let keys: Vec<Key> = (1..4).map(Key).collect();
        for &key in &keys {
            assert!(!counts.gain(key));
            counts.enter(key, 1, &mut budget).unwrap();
        }
        for owners in 2..=most {
            assert!(counts.gain(keys[1]));
            assert_eq!(counts.owners(keys[1]), owners);
            assert!(owners > 600 || counts.is_consistent());
        }
        assert_eq!(counts.histogram()[CLASSES - 1], 1);
        assert!(counts.is_consistent());
        for owners in (0..most).rev() {
            assert_eq!(counts.lose(keys[1], &mut budget), Some(owners));
            assert!(owners > 600 || counts.is_consistent());
        }
        assert_eq!(counts.lose(keys[1], &mut budget), None);
        assert_eq!((counts.owners(keys[0]), counts.owners(keys[2]), counts.len()), (1, 1, 2));
    }

    #[test]
    fn a_count_holds_the_most_members() {
        const { assert!(crate::PoolConfig::MAX_MEMBERS <= u16::MAX as u32) };
        assert_eq!(class(crate::PoolConfig::MAX_MEMBERS as u16), CLASSES - 1);
    }
}

//! One cache line of a counted set: seven keys and their counts.

use super::scramble::Key;

/// Keys that fit a line.
pub(crate) const LINE_SLOTS: usize = 7;

/// The low bit of each count.
const COUNT_ONES: u64 = 0x0001_0101_0101_0101;
/// The top bit of each count.
const COUNT_TOPS: u64 = COUNT_ONES << 7;

/// Seven keys with a count each, and how many keys passed by.
///
/// A slot is taken when its count is not 0, so every key is an ordinary one. The eighth byte of
/// `meta` counts the keys that would have come here but found the line full and went on; while
/// it is 0, a key that is not here is nowhere. At 255 it sticks, until the segment is rebuilt.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    keys: [Key; LINE_SLOTS],
    meta: u64,
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    pub(super) const EMPTY: Self = Self { keys: [Key(0); LINE_SLOTS], meta: 0 };

    /// The slot that holds `key`.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let mut hits = 0u32;
        for (slot, &held) in self.keys.iter().enumerate() {
            hits |= u32::from(held == key) << slot;
        }
        // An emptied slot keeps its old key: a hit counts only with a count.
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if self.count(slot) != 0 {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The lowest free slot.
    #[inline]
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = self.free_tops();
        if free == 0 { None } else { Some(free.trailing_zeros() as usize / 8) }
    }

    /// The top bit of each free slot's count.
    #[inline]
    fn free_tops(&self) -> u64 {
        let counts = self.meta & !(0xFF << 56);
        !(((counts & !COUNT_TOPS) + (COUNT_TOPS - COUNT_ONES)) | counts) & COUNT_TOPS
    }

    /// Count of `slot`, 0 when it is free.
    #[inline]
    pub(super) fn count(&self, slot: usize) -> u8 {
        (self.meta >> (slot * 8)) as u8
    }

    #[inline]
    pub(super) fn set_count(&mut self, slot: usize, count: u8) {
        let shift = slot * 8;
        self.meta = self.meta & !(0xFF << shift) | u64::from(count) << shift;
    }

    /// Takes a free slot.
    #[inline]
    pub(super) fn put(&mut self, slot: usize, key: Key, count: u8) {
        debug_assert!(self.count(slot) == 0 && count != 0);
        self.keys[slot] = key;
        self.set_count(slot, count);
    }

    /// Taken slots, ascending, with key and count.
    #[inline]
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, Key, u8)> + '_ {
        let taken = COUNT_TOPS & !self.free_tops();
        self.slots_of(taken)
    }

    /// Taken slots that `wanted` approves of; asks about every slot, taken or not. Free of
    /// branches until the answers are known.
    #[inline]
    pub(super) fn entries_where(
        &self,
        wanted: impl Fn(Key) -> bool,
    ) -> impl Iterator<Item = (usize, Key, u8)> + '_ {
        let mut tops = 0;
        for (slot, &key) in self.keys.iter().enumerate() {
            tops |= u64::from(wanted(key)) << (slot * 8 + 7);
        }
        self.slots_of(tops & !self.free_tops())
    }

    /// Slots given by their top bits.
    #[inline]
    fn slots_of(&self, mut tops: u64) -> impl Iterator<Item = (usize, Key, u8)> + '_ {
        core::iter::from_fn(move || {
            if tops == 0 {
                return None;
            }
            let slot = tops.trailing_zeros() as usize / 8;
            tops &= tops - 1;
            Some((slot, self.keys[slot], self.count(slot)))
        })
    }

    /// Keys that passed this full line by, 255 for any number from there on.
    #[inline]
    pub(super) fn passed(&self) -> u8 {
        (self.meta >> 56) as u8
    }

    #[inline]
    pub(super) fn pass(&mut self) {
        if self.passed() != u8::MAX {
            self.meta += 1 << 56;
        }
    }

    #[inline]
    pub(super) fn unpass(&mut self) {
        debug_assert!(self.passed() != 0, "only what passed can be taken back");
        if !matches!(self.passed(), 0 | u8::MAX) {
            self.meta -= 1 << 56;
        }
    }

    /// A word of the line, read only so that the line is near when it is needed.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn word_tricks_equal_the_slot_by_slot_answer(
            counts in prop::array::uniform7(prop_oneof![Just(0u8), Just(1), Just(127), Just(128), Just(255), any::<u8>()]),
            keys in prop::array::uniform7(0u64..4),
            passed in 0u8..4,
            key in 0u64..4,
        ) {
            let mut line = Line::EMPTY;
            for slot in 0..LINE_SLOTS {
                line.keys[slot] = Key(keys[slot]);
                line.set_count(slot, counts[slot]);
            }
            for _ in 0..passed {
                line.pass();
            }
            let found = (0..LINE_SLOTS).find(|&slot| counts[slot] != 0 && keys[slot] == key);
            prop_assert_eq!(line.find(Key(key)), found);
            prop_assert_eq!(line.free_slot(), counts.iter().position(|&count| count == 0));
            prop_assert_eq!(line.passed(), passed);
            for (slot, &count) in counts.iter().enumerate() {
                prop_assert_eq!(line.count(slot), count);
            }
        }
    }

    #[test]
    fn passed_sticks_at_its_end() {
        let mut line = Line::EMPTY;
        for _ in 0..300 {
            line.pass();
        }
        line.unpass();
        assert_eq!(line.passed(), 255);
        assert_eq!(line.free_slot(), Some(0));
    }
}

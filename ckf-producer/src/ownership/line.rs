//! One cache line of a set: keys with a small count each, in one of two layouts.

use core::fmt::Debug;

use super::scramble::Key;

/// Most keys of a line in any layout.
pub(crate) const LINE_SLOTS: usize = 7;

/// A cache line of keys, each with a count other than 0, and how many keys passed it by.
///
/// Passing keys are those that would have come here but found the line full and went on; while
/// there are none, a key that is not here is nowhere. Their number sticks at its end, until the
/// segment is rebuilt. Every key is an ordinary one: a slot is free or not by its count.
pub(crate) trait Line: Copy + Debug {
    const EMPTY: Self;
    /// Keys that fit, at most [`LINE_SLOTS`].
    const SLOTS: usize;
    const MAX_COUNT: u16;
    /// In masks of slots, slot `n` is the top bit of the `n`th field of this many bits.
    const STRIDE: usize;

    fn key(&self, slot: usize) -> Key;
    /// 0 when the slot is free.
    fn count(&self, slot: usize) -> u16;
    /// Changes the count of a taken slot, to one other than 0.
    fn set_count(&mut self, slot: usize, count: u16);
    /// Takes a free slot, with a count other than 0.
    fn put(&mut self, slot: usize, key: Key, count: u16);
    /// Takes a free slot, with the key and the count of a slot of another line.
    fn copy(&mut self, slot: usize, other: &Self, from: usize);
    /// Frees a slot.
    fn free(&mut self, slot: usize);
    /// Frees the slots of a mask.
    fn free_all(&mut self, mask: u64);
    /// Mask of taken slots.
    fn taken(&self) -> u64;
    /// The slot that holds `key`.
    fn find(&self, key: Key) -> Option<usize>;
    /// The lowest free slot.
    fn vacancy(&self) -> Option<usize>;
    fn passed(&self) -> u8;
    fn set_passed(&mut self, passed: u8);
    /// A word of the line, read only so that the line is near when it is needed.
    fn touch(&self) -> u64;

    #[inline]
    fn pass(&mut self) {
        self.set_passed(self.passed().saturating_add(1));
    }

    #[inline]
    fn unpass(&mut self) {
        debug_assert!(self.passed() != 0, "only what passed can be taken back");
        if !matches!(self.passed(), 0 | u8::MAX) {
            self.set_passed(self.passed() - 1);
        }
    }

    /// Mask of the slots, taken or not, in whose keys bit `bit` is set. Free of branches.
    #[inline]
    fn keys_with(&self, bit: u32) -> u64 {
        let slots = (0..Self::SLOTS).rev();
        let lows =
            slots.fold(0, |mask, slot| mask << Self::STRIDE | self.key(slot).get() >> bit & 1);
        lows << (Self::STRIDE - 1)
    }

    /// Taken slots, ascending, with key and count.
    #[inline]
    fn entries(&self) -> impl Iterator<Item = (usize, Key, u16)> + '_ {
        slots::<Self>(self.taken()).map(|slot| (slot, self.key(slot), self.count(slot)))
    }
}

/// The slots of a mask, ascending.
#[inline]
pub(super) fn slots<L: Line>(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let slot = mask.trailing_zeros() as usize / L::STRIDE;
        mask &= mask - 1;
        Some(slot)
    })
}

/// Seven keys that are there or not: their counts are 1, or 2 for a marked key.
///
/// `meta` has a byte for each slot: the top bit says that it is taken, the next one that it is
/// marked, the others repeat six bits of the key, so that one comparison of words tells which slots
/// are worth a look. The eighth byte counts the keys that passed.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct MarkLine {
    keys: [Key; 7],
    meta: u64,
}

const _: () = assert!(size_of::<MarkLine>() == 64);

impl MarkLine {
    const ONES: u64 = 0x0001_0101_0101_0101;
    const TAKEN: u64 = Self::ONES << 7;
    const MARK: u64 = 1 << 6;

    /// The byte of a taken slot with this key and no mark. Its bits are those that neither the
    /// segment (from above) nor the place within it (the low half, by its high bits) depends on.
    #[inline]
    fn byte(key: Key) -> u64 {
        key.get() >> 32 & 0x3F | 1 << 7
    }
}

impl Line for MarkLine {
    const EMPTY: Self = Self { keys: [Key::ZERO; 7], meta: 0 };
    const SLOTS: usize = 7;
    const MAX_COUNT: u16 = 2;
    const STRIDE: usize = 8;

    #[inline]
    fn key(&self, slot: usize) -> Key {
        self.keys[slot]
    }

    #[inline]
    fn count(&self, slot: usize) -> u16 {
        let byte = self.meta >> (slot * 8) & 0xFF;
        (byte >> 7 & 1) as u16 + (byte >> 6 & 1) as u16
    }

    #[inline]
    fn set_count(&mut self, slot: usize, count: u16) {
        debug_assert!(self.count(slot) != 0 && (1..=Self::MAX_COUNT).contains(&count));
        let mark = Self::MARK << (slot * 8);
        self.meta = if count == 1 { self.meta & !mark } else { self.meta | mark };
    }

    #[inline]
    fn put(&mut self, slot: usize, key: Key, count: u16) {
        debug_assert!(self.count(slot) == 0 && (1..=Self::MAX_COUNT).contains(&count));
        self.keys[slot] = key;
        self.meta |= (Self::byte(key) | u64::from(count - 1) << 6) << (slot * 8);
    }

    #[inline]
    fn copy(&mut self, slot: usize, other: &Self, from: usize) {
        debug_assert!(self.count(slot) == 0 && other.count(from) != 0);
        self.keys[slot] = other.keys[from];
        self.meta |= (other.meta >> (from * 8) & 0xFF) << (slot * 8);
    }

    #[inline]
    fn free(&mut self, slot: usize) {
        self.meta &= !(0xFF << (slot * 8));
    }

    #[inline]
    fn free_all(&mut self, mask: u64) {
        self.meta &= !((mask >> 7) * 0xFF);
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.meta & Self::TAKEN
    }

    #[inline]
    fn find(&self, key: Key) -> Option<usize> {
        let marks = Self::ONES * Self::MARK;
        let differs = (self.meta & !marks) ^ (Self::byte(key) * Self::ONES);
        // Top bits of the bytes that are 0; a borrow may add others above one of them.
        let mut hits = differs.wrapping_sub(Self::ONES) & !differs & Self::TAKEN;
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize / 8;
            if self.keys[slot] == key && self.count(slot) != 0 {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    #[inline]
    fn vacancy(&self) -> Option<usize> {
        let free = !self.meta & Self::TAKEN;
        if free == 0 { None } else { Some(free.trailing_zeros() as usize / 8) }
    }

    #[inline]
    fn passed(&self) -> u8 {
        (self.meta >> 56) as u8
    }

    #[inline]
    fn set_passed(&mut self, passed: u8) {
        self.meta = self.meta & !(0xFF << 56) | u64::from(passed) << 56;
    }

    #[inline]
    fn touch(&self) -> u64 {
        self.meta
    }
}

/// Six keys with counts of 16 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct CountLine {
    keys: [Key; 6],
    counts: [u16; 6],
    passed: u8,
}

const _: () = assert!(size_of::<CountLine>() == 64);

impl Line for CountLine {
    const EMPTY: Self = Self { keys: [Key::ZERO; 6], counts: [0; 6], passed: 0 };
    const SLOTS: usize = 6;
    const MAX_COUNT: u16 = u16::MAX;
    const STRIDE: usize = 1;

    #[inline]
    fn key(&self, slot: usize) -> Key {
        self.keys[slot]
    }

    #[inline]
    fn count(&self, slot: usize) -> u16 {
        self.counts[slot]
    }

    #[inline]
    fn set_count(&mut self, slot: usize, count: u16) {
        debug_assert!(self.counts[slot] != 0 && count != 0);
        self.counts[slot] = count;
    }

    #[inline]
    fn put(&mut self, slot: usize, key: Key, count: u16) {
        debug_assert!(self.counts[slot] == 0 && count != 0);
        (self.keys[slot], self.counts[slot]) = (key, count);
    }

    #[inline]
    fn copy(&mut self, slot: usize, other: &Self, from: usize) {
        self.put(slot, other.keys[from], other.counts[from]);
    }

    #[inline]
    fn free(&mut self, slot: usize) {
        self.counts[slot] = 0;
    }

    #[inline]
    fn free_all(&mut self, mask: u64) {
        slots::<Self>(mask).for_each(|slot| self.free(slot));
    }

    #[inline]
    fn taken(&self) -> u64 {
        let counts = self.counts.iter().enumerate();
        counts.fold(0, |mask, (slot, &count)| mask | u64::from(count != 0) << slot)
    }

    #[inline]
    fn find(&self, key: Key) -> Option<usize> {
        // An emptied slot keeps its old key: a hit counts only with a count.
        let keys = self.keys.iter().enumerate();
        let equal = keys.fold(0, |mask, (slot, &held)| mask | u64::from(held == key) << slot);
        let hits = equal & self.taken();
        if hits == 0 { None } else { Some(hits.trailing_zeros() as usize) }
    }

    #[inline]
    fn vacancy(&self) -> Option<usize> {
        let slot = (!self.taken()).trailing_zeros() as usize;
        (slot < Self::SLOTS).then_some(slot)
    }

    #[inline]
    fn passed(&self) -> u8 {
        self.passed
    }

    #[inline]
    fn set_passed(&mut self, passed: u8) {
        self.passed = passed;
    }

    #[inline]
    fn touch(&self) -> u64 {
        u64::from(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Line and slots say the same, whatever the slots hold.
    fn word_tricks_equal_the_slots<L: Line>(slots: &[(u64, u16)], passed: u8, wanted: u64) {
        let mut line = L::EMPTY;
        // Slots that were used before keep old keys.
        for slot in 0..L::SLOTS {
            line.put(slot, Key(wanted), L::MAX_COUNT);
            line.free(slot);
        }
        for _ in 0..passed {
            line.pass();
        }
        let slots: Vec<_> =
            slots[..L::SLOTS].iter().map(|&(key, count)| (key, count.min(L::MAX_COUNT))).collect();
        for (slot, &(key, count)) in slots.iter().enumerate() {
            if count != 0 {
                line.put(slot, Key(key), 1);
                line.set_count(slot, count);
            }
        }
        let found = slots.iter().position(|&(key, count)| count != 0 && key == wanted);
        assert_eq!(line.find(Key(wanted)), found);
        assert_eq!(line.vacancy(), slots.iter().position(|&(_, count)| count == 0));
        assert_eq!(line.passed(), passed);
        let taken = slots.iter().enumerate().filter(|(_, (_, count))| *count != 0);
        let taken: Vec<_> = taken.map(|(slot, &(key, count))| (slot, Key(key), count)).collect();
        assert!(line.entries().eq(taken.iter().copied()));
        for bit in [0, 1, 31, 32, 62, 63] {
            let with = taken.iter().filter(|(_, key, _)| key.0 >> bit & 1 != 0);
            let found = super::slots::<L>(line.keys_with(bit) & line.taken());
            assert!(found.eq(with.map(|&(slot, ..)| slot)));
            let mut without = line;
            without.free_all(line.keys_with(bit) & line.taken());
            assert_eq!(without.taken(), line.taken() & !line.keys_with(bit));
            assert_eq!(without.passed(), passed);
        }
        for slot in 0..L::SLOTS {
            line.free(slot);
        }
        assert_eq!((line.find(Key(wanted)), line.taken(), line.passed()), (None, 0, passed));
    }

    /// Few different keys, some of which differ only where a line does not look at first.
    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..3, (0u64..3).prop_map(|k| k << 32), (60u64..68).prop_map(|k| k << 32)]
    }

    fn count() -> impl Strategy<Value = u16> {
        prop_oneof![Just(0), 1u16..=2, Just(255), Just(256), Just(u16::MAX), any::<u16>()]
    }

    proptest! {
        #[test]
        fn both_layouts_equal_the_slot_by_slot_answer(
            slots in prop::array::uniform7((key(), count())),
            passed in 0u8..4,
            wanted in key(),
        ) {
            word_tricks_equal_the_slots::<MarkLine>(&slots, passed, wanted);
            word_tricks_equal_the_slots::<CountLine>(&slots, passed, wanted);
        }
    }

    #[test]
    fn passed_sticks_at_its_end() {
        fn sticks<L: Line>() {
            let mut line = L::EMPTY;
            (0..300).for_each(|_| line.pass());
            line.unpass();
            assert_eq!((line.passed(), line.vacancy()), (255, Some(0)));
        }
        sticks::<MarkLine>();
        sticks::<CountLine>();
    }
}

//! A bucket's image: four 16-bit slots packed in one `u64`, slot 0 in the low bits, 0 = empty.

use core::fmt;

use crate::Fingerprint;

/// Bit 0 of each slot.
const ONES: u64 = 0x0001_0001_0001_0001;
/// Top bit of each slot.
const TOPS: u64 = ONES << 15;

/// The absolute value of one bucket. Every `u64` is a valid image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct BucketImage(u64);

/// The top bit of each slot of `word` that is zero, all other bits clear. Exact: no carry leaves
/// a slot, since the addition works on 15 bits.
#[inline]
const fn zero_slots(word: u64) -> u64 {
    !(((word & !TOPS) + !TOPS) | word) & TOPS
}

/// How many top bits `slots` has: the multiplication adds them up in the highest slot.
#[inline]
const fn count_slots(slots: u64) -> u32 {
    ((slots >> 15).wrapping_mul(ONES) >> 48) as u32
}

impl BucketImage {
    /// An empty bucket.
    pub const EMPTY: Self = Self(0);

    /// The image with these bits.
    #[inline]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Top bits of the slots that hold `fingerprint`.
    #[inline]
    pub(crate) const fn matches(self, fingerprint: Fingerprint) -> u64 {
        zero_slots(self.0 ^ (fingerprint.get() as u64 * ONES))
    }

    /// Whether a slot holds `fingerprint`. Free of branches.
    #[inline]
    pub const fn contains(self, fingerprint: Fingerprint) -> bool {
        self.matches(fingerprint) != 0
    }

    /// How many slots hold `fingerprint`, 0 to 4.
    #[inline]
    pub const fn copies(self, fingerprint: Fingerprint) -> u32 {
        count_slots(self.matches(fingerprint))
    }

    /// How many slots are taken, 0 to 4.
    #[inline]
    pub const fn occupied(self) -> u32 {
        4 - count_slots(zero_slots(self.0))
    }

    /// Top bits of the empty slots.
    #[inline]
    pub(crate) const fn free(self) -> u64 {
        zero_slots(self.0)
    }

    /// The image with `fingerprint` in the lowest empty slot, or `None` when full.
    #[inline]
    pub const fn with(self, fingerprint: Fingerprint) -> Option<Self> {
        self.with_in(self.free(), fingerprint)
    }

    /// [`with`](Self::with), given this image's [`free`](Self::free) slots.
    #[inline]
    pub(crate) const fn with_in(self, free: u64, fingerprint: Fingerprint) -> Option<Self> {
        if free == 0 {
            return None;
        }
        Some(Self(self.0 | (fingerprint.get() as u64) << (free.trailing_zeros() - 15)))
    }

    /// The image without one copy of `fingerprint`, or `None` when it holds none.
    #[inline]
    pub const fn without(self, fingerprint: Fingerprint) -> Option<Self> {
        let matches = self.matches(fingerprint);
        if matches == 0 {
            return None;
        }
        Some(Self(self.0 & !(0xFFFF << (matches.trailing_zeros() - 15))))
    }

    /// What slot `slot` holds. `slot` is taken modulo 4.
    #[inline]
    pub const fn slot(self, slot: u32) -> Option<Fingerprint> {
        Fingerprint::new((self.0 >> ((slot % 4) * 16)) as u16)
    }

    /// The image with slot `slot` (modulo 4) holding `fingerprint` instead of what it held.
    #[inline]
    #[must_use]
    pub const fn with_slot(self, slot: u32, fingerprint: Fingerprint) -> Self {
        let shift = (slot % 4) * 16;
        Self(self.0 & !(0xFFFF << shift) | (fingerprint.get() as u64) << shift)
    }

    /// The image with slot `slot` (modulo 4) empty.
    #[inline]
    #[must_use]
    pub const fn without_slot(self, slot: u32) -> Self {
        Self(self.0 & !(0xFFFF << ((slot % 4) * 16)))
    }

    /// The four slots, slot 0 first.
    pub fn slots(self) -> impl Iterator<Item = Option<Fingerprint>> {
        (0..4).map(move |slot| self.slot(slot))
    }
}

impl fmt::Debug for BucketImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketImage({:016x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots biased towards the values at which word tricks go wrong.
    fn slot() -> impl Strategy<Value = u16> {
        prop_oneof![Just(0), Just(1), Just(0x7FFF), Just(0x8000), Just(0xFFFF), any::<u16>()]
    }

    proptest! {
        #[test]
        fn word_tricks_equal_the_slot_by_slot_answer(slots: [u16; 4], edge in [slot(), slot(), slot(), slot()], f in 1..=u16::MAX, pick in 0..5usize) {
            for slots in [slots, edge] {
                let image = BucketImage::new(slots.iter().rev().fold(0, |w, &s| w << 16 | u64::from(s)));
                let bits = slots.get(pick).copied().filter(|&s| s != 0).unwrap_or(f);
                let fingerprint = Fingerprint::new(bits).unwrap();
                let copies = slots.iter().filter(|&&s| s == bits).count();
                let taken = slots.iter().filter(|&&s| s != 0).count();
                prop_assert_eq!(image.contains(fingerprint), copies > 0);
                prop_assert_eq!(image.copies(fingerprint) as usize, copies);
                prop_assert_eq!(image.occupied() as usize, taken);
                match image.with(fingerprint) {
                    None => prop_assert_eq!(taken, 4),
                    Some(more) => {
                        prop_assert_eq!(more.copies(fingerprint) as usize, copies + 1);
                        prop_assert_eq!(more.occupied() as usize, taken + 1);
                    }
                }
                match image.without(fingerprint) {
                    None => prop_assert_eq!(copies, 0),
                    Some(less) => {
                        prop_assert_eq!(less.copies(fingerprint) as usize, copies - 1);
                        prop_assert_eq!(less.occupied() as usize, taken - 1);
                    }
                }
                for (i, kept) in image.slots().enumerate() {
                    prop_assert_eq!(kept.map_or(0, Fingerprint::get), slots[i]);
                    prop_assert_eq!(image.with_slot(i as u32, fingerprint).slot(i as u32), Some(fingerprint));
                    let emptied = image.without_slot(i as u32);
                    prop_assert_eq!(emptied.slot(i as u32), None);
                    prop_assert_eq!(kept.map_or(emptied, |kept| emptied.with_slot(i as u32, kept)), image);
                }
            }
        }
    }
}

//! The buckets of a table: where their images lie, how a change of one is told, and slots in them.

use alloc::vec::Vec;

use crate::{BucketImage, BucketIndex};

/// Memory for the buckets of a table: for callers that keep more about a bucket than its image, and
/// want all of it on one cache line.
pub trait Buckets {
    /// How many there are.
    fn count(&self) -> usize;

    /// The image of a bucket.
    ///
    /// # Panics
    /// When `bucket` comes from a larger format.
    fn image(&self, bucket: BucketIndex) -> BucketImage;

    /// Makes this the bucket's image. A table calls it for buckets of its own.
    fn set_image(&mut self, bucket: BucketIndex, image: BucketImage);

    /// A resident moves from one slot to another, and what is kept about it should follow: by
    /// default, nothing. Called before the slot that it leaves is given away.
    fn follow(&mut self, from: SlotIndex, to: SlotIndex) {
        let _nothing_is_kept = (from, to);
    }
}

impl Buckets for Vec<u64> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn image(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self[bucket.to_usize()])
    }

    #[inline]
    fn set_image(&mut self, bucket: BucketIndex, image: BucketImage) {
        self[bucket.to_usize()] = image.get();
    }
}

/// One changed bucket: where, and its image before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which bucket.
    pub bucket: BucketIndex,
    /// Its image before.
    pub before: BucketImage,
    /// Its image now.
    pub after: BucketImage,
}

impl Change {
    /// The slot that differs; a change of a table is always one of one slot.
    #[inline]
    pub fn slot(&self) -> SlotIndex {
        let differs = (self.before.get() ^ self.after.get()).trailing_zeros() / 16;
        SlotIndex { bucket: self.bucket, slot: differs as u8 & 3 }
    }
}

/// One slot of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndex {
    pub(crate) bucket: BucketIndex,
    pub(crate) slot: u8,
}

impl SlotIndex {
    /// Its bucket.
    #[inline]
    pub fn bucket(self) -> BucketIndex {
        self.bucket
    }

    /// Its place within the bucket, 0 to 3.
    #[inline]
    pub fn within(self) -> usize {
        usize::from(self.slot)
    }
}

/// The slots that hold a fingerprint in its candidate buckets, 0 to 8 of them.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    pub(crate) buckets: [BucketIndex; 2],
    /// Top bits of the slots, by bucket.
    pub(crate) slots: [u64; 2],
}

impl Copies {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots[0] | self.slots[1] == 0
    }

    /// The only one, if there is exactly one. Cheaper than a walk; free of branches until the end.
    #[inline]
    pub fn single(&self) -> Option<SlotIndex> {
        let [first, second] = self.slots;
        // Slots of the second bucket are told apart by the bit below.
        let all = first | second >> 1;
        if all == 0 || all & (all - 1) != 0 {
            return None;
        }
        let bucket = if first != 0 { self.buckets[0] } else { self.buckets[1] };
        Some(SlotIndex { bucket, slot: (all.trailing_zeros() / 16) as u8 })
    }
}

impl Iterator for Copies {
    type Item = SlotIndex;

    #[inline]
    fn next(&mut self) -> Option<SlotIndex> {
        let at = usize::from(self.slots[0] == 0);
        let slots = self.slots[at];
        if slots == 0 {
            return None;
        }
        self.slots[at] = slots & (slots - 1);
        Some(SlotIndex { bucket: self.buckets[at], slot: (slots.trailing_zeros() / 16) as u8 })
    }
}

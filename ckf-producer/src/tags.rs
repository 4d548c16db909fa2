//! Whose fingerprint is it? An owner for every slot of the filter.

use alloc::vec::Vec;

use ckf_core::{AllocationError, BucketIndex, Change, Format, SlotIndex};

use crate::budget::Budget;
use crate::ownership::OwnerId;

/// Who owns the block behind a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u16);

impl Tag {
    /// The block is counted: several members own it, or did.
    pub(crate) const SHARED: Self = Self(u16::MAX);

    /// This member and no other.
    #[inline]
    pub(crate) fn sole(owner: OwnerId) -> Self {
        debug_assert!(owner.get() != u16::MAX);
        Self(owner.get())
    }

    /// The sole owner, unless the block is shared.
    #[inline]
    pub(crate) fn owner(self) -> Option<OwnerId> {
        if self == Self::SHARED { None } else { Some(OwnerId::new(self.0)) }
    }
}

/// A tag for each slot, in memory taken once. Tags of empty slots mean nothing.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    buckets: Vec<[Tag; Format::SLOTS as usize]>,
}

impl Tags {
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        let mut buckets = budget.vec(format.bucket_count() as usize)?;
        buckets.resize(format.bucket_count() as usize, [Tag(0); Format::SLOTS as usize]);
        Ok(Self { buckets })
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.buckets);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.buckets)
    }

    /// The tag of slot `slot`, 0 to 3, of a bucket.
    pub(crate) fn of(&self, bucket: BucketIndex, slot: usize) -> Tag {
        self.buckets[bucket.to_usize()][slot]
    }

    #[inline]
    pub(crate) fn get(&self, slot: SlotIndex) -> Tag {
        self.buckets[slot.bucket().to_usize()][slot.within()]
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: SlotIndex, tag: Tag) {
        self.buckets[slot.bucket().to_usize()][slot.within()] = tag;
    }

    /// Brings the tags of a bucket near; the value means nothing.
    #[inline]
    pub(crate) fn touch(&self, bucket: BucketIndex) -> u64 {
        u64::from(self.buckets[bucket.to_usize()][0].0)
    }

    /// Lets tags follow the fingerprints of one insertion, whose changes come in order: a
    /// fingerprint that moves is written to its new slot before its old one is emptied. The slot
    /// gained last is that of the new fingerprint.
    #[inline]
    pub(crate) fn follow(&mut self, change: &Change, gained: &mut Option<SlotIndex>) {
        let slot = change.slot();
        if change.after.slot(slot.within() as u32).is_some() {
            *gained = Some(slot);
        } else if let Some(to) = *gained {
            self.set(to, self.get(slot));
        }
    }
}

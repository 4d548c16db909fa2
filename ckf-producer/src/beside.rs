//! What the pool knows of every bucket beside its image: whose fingerprints it holds, and what
//! readers were told of it last.

use alloc::vec::Vec;
use core::ops::Range;

use ckf_core::{AllocationError, BucketImage, BucketIndex, Change, Format, SlotIndex};

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

/// What lies beside the filter.
///
/// In one place for each bucket, because a change of a bucket needs both: the tag when it is made,
/// the published image when the batch is sealed. All memory is taken at once.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    buckets: Vec<Entry>,
}

/// What lies beside one bucket.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Entry {
    /// The image published last.
    published: u64,
    /// By slot; tags of empty slots mean nothing.
    tags: [Tag; Format::SLOTS as usize],
}

impl Beside {
    /// For an empty filter, published as such.
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        let empty = Entry { published: 0, tags: [Tag(0); Format::SLOTS as usize] };
        let mut buckets = budget.vec(format.bucket_count() as usize)?;
        buckets.resize(format.bucket_count() as usize, empty);
        Ok(Self { buckets })
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.buckets);
    }

    /// Bytes of tags; those of published images are as many.
    pub(crate) fn tag_bytes(&self) -> u64 {
        Budget::bytes_of(&self.buckets) / 2
    }

    /// The tag of slot `slot`, 0 to 3, of a bucket.
    pub(crate) fn tag_of(&self, bucket: BucketIndex, slot: usize) -> Tag {
        self.buckets[bucket.to_usize()].tags[slot]
    }

    #[inline]
    pub(crate) fn tag(&self, slot: SlotIndex) -> Tag {
        self.buckets[slot.bucket().to_usize()].tags[slot.within()]
    }

    #[inline]
    pub(crate) fn set_tag(&mut self, slot: SlotIndex, tag: Tag) {
        self.buckets[slot.bucket().to_usize()].tags[slot.within()] = tag;
    }

    /// Brings what lies beside a bucket near; the value means nothing.
    #[inline]
    pub(crate) fn touch(&self, bucket: BucketIndex) -> u64 {
        self.buckets[bucket.to_usize()].published
    }

    /// Lets tags follow the fingerprints of one insertion, whose changes come in order: a
    /// fingerprint that moves is written to its new slot before its old one is emptied. The slot
    /// gained last is that of the new fingerprint.
    pub(crate) fn follow(&mut self, change: &Change, gained: &mut Option<SlotIndex>) {
        let slot = change.slot();
        if change.after.slot(slot.within() as u32).is_some() {
            *gained = Some(slot);
        } else if let Some(to) = *gained {
            self.set_tag(to, self.tag(slot));
        }
    }

    /// The image of a bucket that was published last.
    #[inline]
    pub(crate) fn published(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.buckets[bucket.to_usize()].published)
    }

    /// Makes an image the published one.
    #[inline]
    pub(crate) fn publish(&mut self, bucket: u32, image: u64) {
        self.buckets[bucket as usize].published = image;
    }

    /// Images published last; `None` outside the table.
    pub(crate) fn published_words(
        &self,
        buckets: Range<u32>,
    ) -> Option<impl ExactSizeIterator<Item = u64> + Clone + use<'_>> {
        let entries = self.buckets.get(buckets.start as usize..buckets.end as usize)?;
        Some(entries.iter().map(|entry| entry.published))
    }
}

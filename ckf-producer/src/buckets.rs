//! The buckets of a pool's filter: each image with whose fingerprints it holds, and with what
//! readers were told of it last.

use alloc::vec::Vec;
use core::ops::Range;

use ckf_core::{
    AllocationError, BucketImage, BucketIndex, Buckets, Change, Format, SlotIndex, Table,
};

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

/// The filter's buckets, each with all that a change of it needs on one cache line: the image and
/// the tags when the change is made, the image published before when the batch is sealed. All
/// memory is taken at once.
///
/// What is public of it are the images, by [`Table`].
#[derive(Clone, Debug)]
pub struct PoolBuckets(Vec<Bucket>);

/// A filter in such buckets.
pub(crate) type PoolTable = Table<PoolBuckets>;

/// One bucket. Aligned to its size rounded up to a power of two, it never straddles cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Bucket {
    image: u64,
    /// The image published last.
    published: u64,
    /// By slot; tags of empty slots mean nothing.
    tags: [Tag; Format::SLOTS as usize],
}

impl PoolBuckets {
    /// Those of an empty filter, published as such.
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        let empty = Bucket { image: 0, published: 0, tags: [Tag(0); Format::SLOTS as usize] };
        let mut buckets = budget.vec(format.bucket_count() as usize)?;
        buckets.resize(format.bucket_count() as usize, empty);
        Ok(Self(buckets))
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.0);
    }

    /// Bytes of tags. Images take as many, published ones twice as many, with what is left unused.
    pub(crate) fn tag_bytes(&self) -> u64 {
        Budget::bytes_of(&self.0) / 4
    }

    /// The tag of slot `slot`, 0 to 3, of a bucket.
    pub(crate) fn tag_of(&self, bucket: BucketIndex, slot: usize) -> Tag {
        self.0[bucket.to_usize()].tags[slot]
    }

    #[inline]
    pub(crate) fn tag(&self, slot: SlotIndex) -> Tag {
        self.0[slot.bucket().to_usize()].tags[slot.within()]
    }

    #[inline]
    pub(crate) fn set_tag(&mut self, slot: SlotIndex, tag: Tag) {
        self.0[slot.bucket().to_usize()].tags[slot.within()] = tag;
    }

    /// The image of a bucket that was published last.
    pub(crate) fn published(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.0[bucket.to_usize()].published)
    }

    /// What has changed in a bucket since it was published last, if anything has.
    #[inline]
    pub(crate) fn change(&self, bucket: BucketIndex) -> Option<Change> {
        let Bucket { image, published, .. } = self.0[bucket.to_usize()];
        let (before, after) = (BucketImage::new(published), BucketImage::new(image));
        (before != after).then_some(Change { bucket, before, after })
    }

    /// Makes a bucket's image the published one.
    #[inline]
    pub(crate) fn publish(&mut self, bucket: BucketIndex) {
        let bucket = &mut self.0[bucket.to_usize()];
        bucket.published = bucket.image;
    }

    /// All images, bucket 0 first.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        self.0.iter().map(|bucket| bucket.image)
    }

    /// Images published last; `None` outside the table.
    pub(crate) fn published_words(
        &self,
        buckets: Range<u32>,
    ) -> Option<impl ExactSizeIterator<Item = u64> + Clone + use<'_>> {
        let buckets = self.0.get(buckets.start as usize..buckets.end as usize)?;
        Some(buckets.iter().map(|bucket| bucket.published))
    }
}

impl Buckets for PoolBuckets {
    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn image(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.0[bucket.to_usize()].image)
    }

    #[inline]
    fn set_image(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.0[bucket.to_usize()].image = image.get();
    }

    /// Tags follow their fingerprints.
    fn follow(&mut self, from: SlotIndex, to: SlotIndex) {
        self.set_tag(to, self.tag(from));
    }
}

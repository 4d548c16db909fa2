//! The buckets of a pool's filter: each image with whose fingerprints it holds, and with what
//! readers were told of it last. Whoever changes an image makes its bucket dirty.

use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;
use core::ops::Range;
use core::slice;

use ckf_core::{
    AllocationError, BucketImage, BucketIndex, Buckets, Change, Format, SlotIndex, Table,
    TableDigest,
};

use crate::budget::Budget;
use crate::dirty::Dirty;
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
#[derive(Clone)]
pub struct PoolBuckets {
    buckets: Vec<Bucket>,
    dirty: Dirty,
}

/// A filter in such buckets.
pub(crate) type PoolTable = Table<PoolBuckets>;

/// One bucket. Aligned to its size rounded up to a power of two, it never straddles cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Bucket {
    image: u64,
    /// The image published last.
    published: u64,
    /// By slot; tags of empty slots mean nothing.
    tags: [Tag; Format::SLOTS as usize],
    /// Whether the bucket is in the list of dirty ones.
    is_dirty: bool,
}

/// Dirty buckets looked at together.
const GROUP: usize = 32;

/// So few dirty buckets are still near since they changed.
const NEAR: usize = 256;

impl PoolBuckets {
    /// Those of an empty filter, published as such.
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        let tags = [Tag(0); Format::SLOTS as usize];
        let empty = Bucket { image: 0, published: 0, tags, is_dirty: false };
        let mut buckets = budget.vec(format.bucket_count() as usize)?;
        match Dirty::new(format, budget) {
            Ok(dirty) => {
                buckets.resize(format.bucket_count() as usize, empty);
                Ok(Self { buckets, dirty })
            }
            Err(refused) => {
                budget.release(buckets);
                Err(refused)
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.buckets);
        self.dirty.release(budget);
    }

    /// Bytes of tags. Images take as many.
    pub(crate) fn tag_bytes(&self) -> u64 {
        Budget::bytes_of(&self.buckets) / 4
    }

    /// Bytes of published images, with what is left unused, and of the list of dirty buckets.
    pub(crate) fn published_bytes(&self) -> u64 {
        2 * self.tag_bytes() + self.dirty.bytes()
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

    /// The image of a bucket that was published last.
    pub(crate) fn published(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.buckets[bucket.to_usize()].published)
    }

    /// What has changed in a bucket since it was published last, if anything has.
    #[inline]
    pub(crate) fn change(&self, bucket: BucketIndex) -> Option<Change> {
        let Bucket { image, published, .. } = self.buckets[bucket.to_usize()];
        let (before, after) = (BucketImage::new(published), BucketImage::new(image));
        (before != after).then_some(Change { bucket, before, after })
    }

    /// Buckets that have changed since they were published last, also those that have gone back.
    #[inline]
    pub(crate) fn dirty_len(&self) -> u32 {
        self.listed().len() as u32
    }

    /// Whether the bucket says that it is dirty. It should, then, be [listed](Self::listed).
    pub(crate) fn is_dirty(&self, bucket: BucketIndex) -> bool {
        self.buckets[bucket.to_usize()].is_dirty
    }

    /// The dirty buckets, each once.
    pub(crate) fn listed(&self) -> &[BucketIndex] {
        self.dirty.list()
    }

    /// Puts the dirty buckets in order, for [`changes`](Self::changes). Returns how many differ from
    /// their published images, and the digest with them, made of the digest of all published images.
    ///
    /// Goes by groups where they are many: the buckets of a group are read together, so that the
    /// waits for them overlap, before the first is looked at.
    pub(crate) fn list(&mut self, published: TableDigest) -> (u32, TableDigest) {
        let Self { buckets, dirty } = self;
        dirty.sort(|at| buckets[at.to_usize()].is_dirty);
        let many = self.listed().len() > NEAR;
        let (mut len, mut digest) = (0, published);
        for group in self.listed().chunks(GROUP) {
            if many {
                black_box(group.iter().fold(0, |near, &at| near ^ self.image(at).get()));
            }
            for &at in group {
                if let Some(change) = self.change(at) {
                    digest = digest.changed(&change);
                    len += 1;
                }
            }
        }
        (len, digest)
    }

    /// All dirty buckets that differ, ascending once they are [listed](Self::list).
    pub(crate) fn changes(&self) -> Changes<'_> {
        Changes { buckets: self, listed: self.listed().iter() }
    }

    /// Makes all images the published ones; no bucket is dirty then.
    pub(crate) fn publish(&mut self) {
        for at in self.dirty.list() {
            let bucket = &mut self.buckets[at.to_usize()];
            (bucket.published, bucket.is_dirty) = (bucket.image, false);
        }
        self.dirty.clear();
    }

    /// The list of dirty buckets, for faults in it.
    #[cfg(feature = "_model")]
    pub(crate) fn dirty_mut(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// Forgets that buckets are dirty.
    #[cfg(feature = "_model")]
    pub(crate) fn forget_dirty(&mut self) {
        self.buckets.iter_mut().for_each(|bucket| bucket.is_dirty = false);
        self.dirty.clear();
    }

    /// All images, bucket 0 first.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        self.buckets.iter().map(|bucket| bucket.image)
    }

    /// Images published last; `None` outside the table.
    pub(crate) fn published_words(
        &self,
        buckets: Range<u32>,
    ) -> Option<impl ExactSizeIterator<Item = u64> + Clone + use<'_>> {
        let buckets = self.buckets.get(buckets.start as usize..buckets.end as usize)?;
        Some(buckets.iter().map(|bucket| bucket.published))
    }
}

impl Buckets for PoolBuckets {
    #[inline]
    fn count(&self) -> usize {
        self.buckets.len()
    }

    #[inline]
    fn image(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.buckets[bucket.to_usize()].image)
    }

    /// The bucket is dirty from now on, also where the image is what it was.
    #[inline]
    fn set_image(&mut self, at: BucketIndex, image: BucketImage) {
        let bucket = &mut self.buckets[at.to_usize()];
        bucket.image = image.get();
        if !bucket.is_dirty {
            bucket.is_dirty = true;
            self.dirty.push(at);
        }
    }

    /// Tags follow their fingerprints.
    fn follow(&mut self, from: SlotIndex, to: SlotIndex) {
        self.set_tag(to, self.tag(from));
    }
}

/// How many there are, not what they hold: whatever has a pool shall be fit for a log.
impl fmt::Debug for PoolBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuckets({}, {} of them dirty)", self.buckets.len(), self.dirty_len())
    }
}

/// Dirty buckets in ascending order, each with the image published last and the image now.
#[derive(Clone)]
pub struct Changes<'a> {
    buckets: &'a PoolBuckets,
    listed: slice::Iter<'a, BucketIndex>,
}

impl Iterator for Changes<'_> {
    type Item = Change;

    #[inline]
    fn next(&mut self) -> Option<Change> {
        self.listed.find_map(|&bucket| self.buckets.change(bucket))
    }
}

/// How many are left to look at, not which.
impl fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes(of at most {} buckets)", self.listed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the buckets are granted and only their list is refused.
    #[test]
    fn what_is_refused_takes_nothing() {
        let format = Format::any_count(10, 1).unwrap();
        let needed = 10 * (size_of::<Bucket>() + size_of::<BucketIndex>()) as u64;
        for limit in 0..needed {
            let mut budget = Budget::new(limit);
            assert!(PoolBuckets::new(format, &mut budget).is_err());
            assert_eq!(budget.used(), 0, "{limit} of {needed}");
        }
        assert!(PoolBuckets::new(format, &mut Budget::new(needed)).is_ok());
    }
}

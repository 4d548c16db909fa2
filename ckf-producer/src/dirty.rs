//! Stop 4: dirty buckets. In come the filter's changes; out goes each dirty bucket once, with the
//! image that was published last. Next stop: `batch.rs`.

use alloc::vec::Vec;
use core::hint::black_box;
use core::slice;

use ckf_core::{AllocationError, BucketIndex, Change, Format, TableDigest};

use crate::buckets::{PoolBuckets, PoolTable};
use crate::budget::Budget;
use crate::marks::Marks;

/// Dirty buckets looked at together.
const GROUP: usize = 32;

/// So few dirty buckets are still near since they were marked.
const FEW: usize = 256;

/// Which buckets have moved on since they were published last.
///
/// All memory is taken at once, so that marking cannot fail: a removal never needs an allocation.
#[derive(Debug)]
pub(crate) struct Dirty {
    format: Format,
    marks: Marks,
    /// What was marked, in order, between [`gather`](Self::gather) and [`publish`](Self::publish).
    /// Walking the tree of marks costs more than all else that is done with a bucket, so it is
    /// done once a batch.
    listed: Vec<BucketIndex>,
}

impl Clone for Dirty {
    /// With room for a list of all buckets, as the budget has it.
    fn clone(&self) -> Self {
        let mut listed = Vec::with_capacity(self.listed.capacity());
        listed.extend_from_slice(&self.listed);
        Self { format: self.format, marks: self.marks.clone(), listed }
    }
}

impl Dirty {
    /// Nothing is dirty.
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        let marks = Marks::new(format.bucket_count(), budget)?;
        match budget.vec(format.bucket_count() as usize) {
            Ok(listed) => Ok(Self { format, marks, listed }),
            Err(refused) => {
                marks.release(budget);
                Err(refused)
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.listed);
        self.marks.release(budget);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.listed) + self.marks.bytes()
    }

    /// Takes note of a changed bucket.
    #[inline]
    pub(crate) fn mark(&mut self, change: &Change) {
        self.marks.insert(change.bucket.get());
    }

    /// Buckets marked, also those that have gone back to what was published.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.marks.len() + self.listed.len() as u32
    }

    pub(crate) fn is_marked(&self, bucket: BucketIndex) -> bool {
        self.marks.contains(bucket.get()) || self.listed.contains(&bucket)
    }

    /// Turns the marks into a list, ascending.
    pub(crate) fn gather(&mut self) {
        let Self { format, marks, listed } = self;
        // A batch that was leaked instead of dropped has left its list.
        listed.drain(..).for_each(|at| marks.insert(at.get()));
        marks.drain(|mark| {
            if let Some(bucket) = format.bucket(mark) {
                listed.push(bucket);
            }
        });
    }

    /// [Gathers](Self::gather) the list for [`changes`](Self::changes) and [`publish`](Self::publish).
    /// Returns how many buckets differ from their published images, and the digest with them, made
    /// of the digest of all published images.
    ///
    /// Goes by groups where they are many: the buckets of a group are read together, so that the
    /// waits for them overlap, before the first is looked at.
    pub(crate) fn list(&mut self, table: &PoolTable, published: TableDigest) -> (u32, TableDigest) {
        self.gather();
        let many = self.listed.len() > FEW;
        let (mut len, mut digest) = (0, published);
        for group in self.listed.chunks(GROUP) {
            if many {
                black_box(group.iter().fold(0, |near, &at| near ^ table.image(at).get()));
            }
            for &at in group {
                if let Some(change) = table.buckets().change(at) {
                    digest = digest.changed(&change);
                    len += 1;
                }
            }
        }
        (len, digest)
    }

    /// All listed buckets that differ, ascending: published image before, the filter's image after.
    pub(crate) fn changes<'a>(&'a self, table: &'a PoolTable) -> Changes<'a> {
        Changes { buckets: table.buckets(), listed: self.listed.iter() }
    }

    /// Makes the filter's images the published ones, where they are listed.
    pub(crate) fn publish(&mut self, table: &mut PoolTable) {
        let buckets = table.buckets_mut();
        self.listed.drain(..).for_each(|at| buckets.publish(at));
    }
}

/// Dirty buckets in ascending order, each with the image published last and the image now.
#[derive(Clone, Debug)]
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

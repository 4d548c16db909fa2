//! Stop 4: dirty buckets. In come the filter's changes; out goes each dirty bucket once, with the
//! image that was published last. Next stop: `batch.rs`.

use alloc::vec::Vec;
use core::hint::black_box;
use core::slice;

use ckf_core::{AllocationError, BucketIndex, Change, Format, Table};

use crate::beside::Beside;
use crate::budget::Budget;
use crate::marks::Marks;

/// Dirty buckets looked at together.
const GROUP: usize = 32;

/// So few dirty buckets are still near since they were marked.
const FEW: usize = 256;

/// Which buckets have moved on since they were published last.
///
/// All memory is taken at once, so that marking cannot fail: a removal never needs an allocation.
#[derive(Clone, Debug)]
pub(crate) struct Dirty {
    format: Format,
    marks: Marks,
    /// The marks in order, once they are [listed](Self::list). Walking the tree of marks costs
    /// more than all else that is done with a bucket, so it is done once a batch.
    listed: Vec<u32>,
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
        self.marks.len()
    }

    pub(crate) fn is_marked(&self, bucket: BucketIndex) -> bool {
        self.marks.contains(bucket.get())
    }

    /// Lists the marks for [`changes`](Self::changes) and [`publish`](Self::publish), and shows
    /// every bucket that differs from its published image, ascending.
    ///
    /// Goes by groups where they are many: the published images of a group are read together, so
    /// that the waits for them overlap, before the first is looked at.
    pub(crate) fn list(&mut self, table: &Table, beside: &Beside, mut visit: impl FnMut(&Change)) {
        let Self { marks, listed, .. } = self;
        listed.clear();
        marks.for_each(|mark| listed.push(mark));
        let bucket = |&at: &u32| self.format.bucket(at);
        let many = self.listed.len() > FEW;
        for group in self.listed.chunks(GROUP) {
            if many {
                let buckets = group.iter().filter_map(bucket);
                black_box(buckets.fold(0, |near, at| near ^ beside.touch(at)));
            }
            let changes = group.iter().filter_map(|&at| change(&self.format, table, beside, at));
            changes.for_each(|change| visit(&change));
        }
    }

    /// All listed buckets that differ, ascending: published image before, the filter's image after.
    pub(crate) fn changes<'a>(&'a self, table: &'a Table, beside: &'a Beside) -> Changes<'a> {
        Changes { table, beside, listed: self.listed.iter() }
    }

    /// Makes the filter's images the published ones, where they are listed.
    pub(crate) fn publish(&mut self, table: &Table, beside: &mut Beside) {
        let words = table.words();
        self.listed.iter().for_each(|&bucket| beside.publish(bucket, words[bucket as usize]));
        self.marks.clear(&self.listed);
        self.listed.clear();
    }
}

/// The change of a marked bucket, unless it has gone back to what was published.
#[inline]
fn change(format: &Format, table: &Table, beside: &Beside, bucket: u32) -> Option<Change> {
    let bucket = format.bucket(bucket)?;
    let (before, after) = (beside.published(bucket), table.image(bucket));
    (before != after).then_some(Change { bucket, before, after })
}

/// Dirty buckets in ascending order, each with the image published last and the image now.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    table: &'a Table,
    beside: &'a Beside,
    listed: slice::Iter<'a, u32>,
}

impl Iterator for Changes<'_> {
    type Item = Change;

    #[inline]
    fn next(&mut self) -> Option<Change> {
        let Self { table, beside, listed } = self;
        listed.find_map(|&bucket| change(table.format(), table, beside, bucket))
    }
}

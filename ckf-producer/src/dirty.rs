//! Stop 4: dirty buckets. In come the filter's changes; out goes each dirty bucket once, with the
//! image that was published last. Next stop: `batch.rs`.

use alloc::vec::Vec;
use core::hint::black_box;
use core::ops::Range;
use core::slice;

use ckf_core::{AllocationError, BucketImage, BucketIndex, Change, Format, Table};

use crate::budget::Budget;
use crate::marks::Marks;

/// Dirty buckets looked at together.
const GROUP: usize = 32;

/// The filter as its readers know it, and which buckets have moved on since.
///
/// All memory is taken at once, so that marking cannot fail: a removal never needs an allocation.
#[derive(Clone, Debug)]
pub(crate) struct Dirty {
    format: Format,
    published: Vec<u64>,
    marks: Marks,
    /// The marks in order, once they are [listed](Self::list). Walking the tree of marks costs
    /// more than all else that is done with a bucket, so it is done once a batch.
    listed: Vec<u32>,
}

impl Dirty {
    /// Nothing dirty, and what is published is what `table` holds.
    pub(crate) fn new(table: &Table, budget: &mut Budget) -> Result<Self, AllocationError> {
        let buckets = table.words().len();
        let marks = Marks::new(table.format().bucket_count(), budget)?;
        let mut dirty =
            Self { format: *table.format(), published: Vec::new(), marks, listed: Vec::new() };
        let memory = budget.vec(buckets).and_then(|published| {
            dirty.published = published;
            budget.vec(buckets)
        });
        match memory {
            Ok(listed) => {
                dirty.listed = listed;
                dirty.published.extend_from_slice(table.words());
                Ok(dirty)
            }
            Err(refused) => {
                dirty.release(budget);
                Err(refused)
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.published);
        budget.release(self.listed);
        self.marks.release(budget);
    }

    pub(crate) fn bytes(&self) -> u64 {
        let lists = Budget::bytes_of(&self.published) + Budget::bytes_of(&self.listed);
        lists + self.marks.bytes()
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

    /// What was published last, bucket 0 first.
    pub(crate) fn published(&self) -> &[u64] {
        &self.published
    }

    /// A part of [`published`](Self::published); `None` outside the table.
    pub(crate) fn published_range(&self, buckets: Range<u32>) -> Option<&[u64]> {
        self.published.get(buckets.start as usize..buckets.end as usize)
    }

    /// Lists the marks for [`changes`](Self::changes) and [`publish`](Self::publish), and shows
    /// every bucket that differs from its published image, ascending.
    ///
    /// Goes by groups: the published images of a group are read together, so that the waits for
    /// them overlap, before the first is looked at.
    pub(crate) fn list(&mut self, table: &Table, mut visit: impl FnMut(&Change)) {
        let Self { marks, listed, .. } = self;
        listed.clear();
        marks.for_each(|mark| listed.push(mark));
        for group in self.listed.chunks(GROUP) {
            black_box(group.iter().fold(0, |near, &at| near ^ self.published[at as usize]));
            let changes = group.iter().filter_map(|&at| self.change(table, at));
            changes.for_each(|change| visit(&change));
        }
    }

    /// The change of a marked bucket, unless it has gone back to what was published.
    #[inline]
    fn change(&self, table: &Table, bucket: u32) -> Option<Change> {
        let bucket = self.format.bucket(bucket)?;
        let before = BucketImage::new(self.published[bucket.to_usize()]);
        let after = table.image(bucket);
        (before != after).then_some(Change { bucket, before, after })
    }

    /// All listed buckets that differ, ascending: published image before, the filter's image after.
    pub(crate) fn changes<'a>(&'a self, table: &'a Table) -> Changes<'a> {
        Changes { dirty: self, table, listed: self.listed.iter() }
    }

    /// Makes the filter's images the published ones, where they are listed.
    pub(crate) fn publish(&mut self, table: &Table) {
        let (published, words) = (&mut self.published, table.words());
        for &bucket in &self.listed {
            published[bucket as usize] = words[bucket as usize];
        }
        self.marks.clear(&self.listed);
        self.listed.clear();
    }
}

/// Dirty buckets in ascending order, each with the image published last and the image now.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    dirty: &'a Dirty,
    table: &'a Table,
    listed: slice::Iter<'a, u32>,
}

impl Iterator for Changes<'_> {
    type Item = Change;

    #[inline]
    fn next(&mut self) -> Option<Change> {
        self.listed.by_ref().find_map(|&bucket| self.dirty.change(self.table, bucket))
    }
}

//! Stop 4: dirty buckets. In come the filter's changes; out goes each dirty bucket once, with the
//! image that was published last. Next stop: `batch.rs`.

use alloc::vec::Vec;
use core::hint::black_box;
use core::ops::Range;

use ckf_core::{AllocationError, BucketImage, BucketIndex, Change, Format, Table};

use crate::budget::Budget;
use crate::marks::{self, Marks};

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
}

impl Dirty {
    /// Nothing dirty, and what is published is what `table` holds.
    pub(crate) fn new(table: &Table, budget: &mut Budget) -> Result<Self, AllocationError> {
        let mut published = budget.vec(table.words().len())?;
        match Marks::new(table.format().bucket_count(), budget) {
            Ok(marks) => {
                published.extend_from_slice(table.words());
                Ok(Self { format: *table.format(), published, marks })
            }
            Err(refused) => {
                budget.release(published);
                Err(refused)
            }
        }
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.published);
        self.marks.release(budget);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.published) + self.marks.bytes()
    }

    /// Takes note of a changed bucket.
    #[inline]
    pub(crate) fn mark(&mut self, change: &Change) {
        self.marks.insert(change.bucket.get());
    }

    /// Buckets marked, also those that have gone back to what was published.
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

    /// Shows every bucket that differs from its published image, ascending.
    ///
    /// Goes by groups: the published images of a group are read together, so that the waits for
    /// them overlap, before the first is looked at.
    pub(crate) fn visit(&self, table: &Table, mut visit: impl FnMut(&Change)) {
        let mut marks = self.marks.iter();
        let mut group = [0; GROUP];
        loop {
            let mut len = 0;
            for (slot, mark) in group.iter_mut().zip(marks.by_ref()) {
                *slot = mark;
                len += 1;
            }
            let group = &group[..len];
            black_box(group.iter().fold(0, |near, &at| near ^ self.published[at as usize]));
            let changes = group.iter().filter_map(|&at| self.change(table, at));
            changes.for_each(|change| visit(&change));
            if len < GROUP {
                return;
            }
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

    /// All buckets that differ, ascending: published image before, the filter's image after.
    pub(crate) fn changes<'a>(&'a self, table: &'a Table) -> Changes<'a> {
        Changes { dirty: self, table, marks: self.marks.iter() }
    }

    /// Makes the filter's images the published ones.
    pub(crate) fn publish(&mut self, table: &Table) {
        let (published, words) = (&mut self.published, table.words());
        self.marks.drain(|bucket| published[bucket as usize] = words[bucket as usize]);
    }
}

/// Dirty buckets in ascending order, each with the image published last and the image now.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    dirty: &'a Dirty,
    table: &'a Table,
    marks: marks::Iter<'a>,
}

impl Iterator for Changes<'_> {
    type Item = Change;

    #[inline]
    fn next(&mut self) -> Option<Change> {
        self.marks.by_ref().find_map(|bucket| self.dirty.change(self.table, bucket))
    }
}

//! Stop 4: dirty buckets. In come the filter's changes; out goes each dirty bucket once, with the
//! image that was published last. Next stop: `batch.rs`.

use alloc::vec::Vec;
use core::ops::Range;

use ckf_core::{AllocationError, BucketImage, BucketIndex, Change, Format, Table};

use crate::budget::Budget;
use crate::marks::{self, Marks};

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

    /// Forgets the buckets that are back at what was published, and shows the others.
    pub(crate) fn settle(&mut self, table: &Table, mut visit: impl FnMut(&Change)) {
        let (published, format) = (&self.published, &self.format);
        self.marks.retain(|bucket| match change(format, published, table, bucket) {
            Some(change) if change.before != change.after => {
                visit(&change);
                true
            }
            _ => false,
        });
    }

    /// All dirty buckets, ascending: published image before, the filter's image after.
    pub(crate) fn changes<'a>(&'a self, table: &'a Table) -> Changes<'a> {
        Changes { dirty: self, table, marks: self.marks.iter() }
    }

    /// Makes the filter's images the published ones.
    pub(crate) fn publish(&mut self, table: &Table) {
        let (published, words) = (&mut self.published, table.words());
        self.marks.retain(|bucket| {
            published[bucket as usize] = words[bucket as usize];
            false
        });
    }
}

#[inline]
fn change(format: &Format, published: &[u64], table: &Table, bucket: u32) -> Option<Change> {
    let bucket = format.bucket(bucket)?;
    let before = BucketImage::new(published[bucket.to_usize()]);
    Some(Change { bucket, before, after: table.image(bucket) })
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
        change(&self.dirty.format, &self.dirty.published, self.table, self.marks.next()?)
    }
}

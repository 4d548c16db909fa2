//! Stop 4: dirty buckets. In comes each bucket when it changes first; out goes the list of them in
//! the order of the table, once a batch. Next stop: `batch.rs`.

use alloc::vec::Vec;

use ckf_core::{AllocationError, BucketIndex, Format};

use crate::budget::Budget;

/// So many buckets at most are sorted by bins: the batches of commands of usual size.
const FEW: usize = 512;
/// Below so many, insertion is as fast.
const LEAST: usize = 24;
const BINS: usize = 256;
/// Most buckets of a bin, so that those that share one are soon in order.
const CROWD: u16 = 16;

/// Which buckets have changed since they were published last, each once: whether it is listed, a
/// bucket knows itself.
///
/// All memory is taken at once, so that a change cannot fail: a removal never needs an allocation.
/// A list that is sorted once a batch costs less than a set that is always in order, whose words
/// are one more line of memory to wait for.
pub(crate) struct Dirty {
    list: Vec<BucketIndex>,
    format: Format,
}

impl Clone for Dirty {
    /// With room for a list of all buckets, as the budget has it.
    fn clone(&self) -> Self {
        let mut list = Vec::with_capacity(self.list.capacity());
        list.extend_from_slice(&self.list);
        Self { list, format: self.format }
    }
}

impl Dirty {
    /// Nothing is dirty.
    pub(crate) fn new(format: Format, budget: &mut Budget) -> Result<Self, AllocationError> {
        Ok(Self { list: budget.vec(format.bucket_count() as usize)?, format })
    }

    pub(crate) fn release(self, budget: &mut Budget) {
        budget.release(self.list);
    }

    pub(crate) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.list)
    }

    /// Lists a bucket that is not listed yet. There is always room: said so, no code to grow is compiled
    /// into the loops that list buckets.
    #[inline(always)]
    pub(crate) fn push(&mut self, bucket: BucketIndex) {
        assert!(self.list.len() < self.list.capacity(), "each bucket is listed once");
        self.list.push(bucket);
    }

    pub(crate) fn list(&self) -> &[BucketIndex] {
        &self.list
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Puts the list in order. `is_listed` is asked of every bucket where a large part of them is
    /// listed: then going through all is faster than sorting.
    pub(crate) fn sort(&mut self, is_listed: impl Fn(BucketIndex) -> bool) {
        let Self { list, format } = self;
        if list.len() > format.bucket_count() as usize / 8 && list.len() > FEW {
            list.clear();
            list.extend(format.buckets().filter(|&bucket| is_listed(bucket)));
        } else if !(LEAST..=FEW).contains(&list.len()) || !sort_few(list, format.bucket_count()) {
            list.sort_unstable();
        }
    }
}

/// Sorts at most [`FEW`] buckets of a table of `count`, unless they crowd: `false`, and nothing has
/// changed, then.
///
/// Buckets are spread evenly over the table, so that nearly all find their places by their high bits.
/// The remainders of bins and places change nothing but spare a check of bounds each.
fn sort_few(list: &mut [BucketIndex], count: u32) -> bool {
    let bits = u32::BITS - (count - 1).leading_zeros();
    let shift = bits.saturating_sub(BINS.ilog2());
    let bin = |bucket: BucketIndex| (bucket.get() >> shift) as usize % BINS;
    let mut starts = [0u16; BINS];
    list.iter().for_each(|&bucket| starts[bin(bucket)] += 1);
    if starts.iter().any(|&in_bin| in_bin > CROWD) {
        return false;
    }
    let mut before = 0;
    for start in &mut starts {
        before += core::mem::replace(start, before);
    }
    let mut placed = [list[0]; FEW];
    for &bucket in &*list {
        let place = &mut starts[bin(bucket)];
        placed[usize::from(*place) % FEW] = bucket;
        *place += 1;
    }
    // Within a bin by insertion.
    let mut last = placed[0];
    for (sorted, &bucket) in placed[..list.len()].iter().enumerate() {
        list[sorted] = bucket;
        if bucket < last {
            insert(&mut list[..=sorted]);
        } else {
            last = bucket;
        }
    }
    true
}

/// Brings the last one to its place among the others, which are in order.
fn insert(list: &mut [BucketIndex]) {
    let mut at = list.len() - 1;
    while at > 0 && list[at - 1] > list[at] {
        list.swap(at - 1, at);
        at -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn sorts(count: u32, numbers: impl Iterator<Item = u32>) -> Result<(), TestCaseError> {
        let format = Format::any_count(u64::from(count), 1).unwrap();
        let mut dirty = Dirty::new(format, &mut Budget::new(u64::MAX)).unwrap();
        let mut oracle = BTreeSet::new();
        for bucket in numbers.map(|number| format.bucket(number % count).unwrap()) {
            if oracle.insert(bucket) {
                dirty.push(bucket);
            }
        }
        dirty.sort(|bucket| oracle.contains(&bucket));
        prop_assert!(dirty.list().iter().eq(oracle.iter()));
        Ok(())
    }

    /// Insertion must not go through hundreds of buckets of one bin.
    #[test]
    fn only_buckets_that_crowd_are_left_as_they_are() {
        const COUNT: u32 = 1 << 16;
        let format = Format::any_count(u64::from(COUNT), 1).unwrap();
        let list = |len: u32, step: u32| -> Vec<_> {
            (0..len).rev().map(|n| format.bucket(n * step).unwrap()).collect()
        };
        for (len, step, sorts) in
            [(512, 127, true), (512, 16, true), (512, 15, false), (16, 1, true), (17, 1, false)]
        {
            let mut buckets = list(len, step);
            assert_eq!(sort_few(&mut buckets, COUNT), sorts, "{len} by {step}");
            assert_eq!(buckets.is_sorted(), sorts);
            assert!(sorts || buckets == list(len, step));
        }
    }

    proptest! {
        #[test]
        fn a_list_comes_out_in_order(
            count in prop_oneof![2u32..300, 2u32..70_000, 2u32..5_000_000],
            numbers in prop::collection::vec(any::<u32>(), 0..700),
            near in any::<bool>(),
        ) {
            // Spread over the table, or all in a corner of it.
            let spread = if near { 1 << 20 } else { 1 };
            sorts(count, numbers.iter().map(|number| number / spread))?;
        }

        #[test]
        fn a_long_list_comes_out_in_order(
            count in 2_000u32..50_000,
            len in 500usize..20_000,
            seed in any::<u32>(),
        ) {
            let next = |number: &u32| Some(number.wrapping_mul(0x9E37_79B1).wrapping_add(1));
            sorts(count, core::iter::successors(Some(seed), next).take(len))?;
        }
    }
}

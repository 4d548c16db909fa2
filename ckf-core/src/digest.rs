//! A digest of a whole table that costs a few instructions per changed bucket.
//!
//! The digest is the wrapping sum, over all buckets that are not empty, of a mixed 64-bit value of
//! the bucket's index and image. A sum does not depend on the order of changes, and one bucket's
//! share can be taken out and another put in. It finds divergence by fault, not by an adversary.
//! The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over
//! `image + (index + 1) * 0x9E3779B97F4A7C15`.

use core::fmt;

use crate::{BucketImage, Change, GOLDEN_GAMMA, mix64};

/// Digest of a table's words. Tables of one format with equal words have equal digests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TableDigest(u64);

impl TableDigest {
    /// Digest of an empty table.
    pub const EMPTY: Self = Self(0);

    /// A digest that came over the wire.
    #[inline]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Digest of a whole table, bucket 0 first. Cost: some ten instructions a bucket.
    pub fn of_words(words: &[u64]) -> Self {
        let sum = (0u32..).zip(words).fold(0u64, |sum, (index, &word)| {
            sum.wrapping_add(share(index, BucketImage::new(word)))
        });
        Self(sum)
    }

    /// The digest once bucket `index` holds `after` instead of `before`.
    #[inline]
    #[must_use]
    pub const fn replaced(self, index: u32, before: BucketImage, after: BucketImage) -> Self {
        Self(self.0.wrapping_add(share(index, after)).wrapping_sub(share(index, before)))
    }

    /// The digest after a table's change.
    #[inline]
    #[must_use]
    pub const fn changed(self, change: &Change) -> Self {
        self.replaced(change.bucket.get(), change.before, change.after)
    }
}

/// What one bucket adds to the sum; an empty one adds nothing. Free of branches: whether a bucket
/// is empty cannot be guessed.
#[inline]
const fn share(index: u32, image: BucketImage) -> u64 {
    let taken = (image.get() != 0) as u64;
    mix64(image.get().wrapping_add((index as u64 + 1).wrapping_mul(GOLDEN_GAMMA)))
        & taken.wrapping_neg()
}

impl fmt::Debug for TableDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableDigest({:016x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockHash, Format, Table};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn incremental_equals_whole(ops in proptest::collection::vec((any::<bool>(), 0u64..200), 0..400)) {
            let format = Format::any_count(48, 5).unwrap();
            let mut table = Table::new(format).unwrap();
            let mut digest = TableDigest::EMPTY;
            for (insert, key) in ops {
                let address = format.address(BlockHash::new(key));
                if insert {
                    let _ = table.insert(&address, |change| digest = digest.changed(&change));
                } else {
                    table.remove(&address, |change| digest = digest.changed(&change));
                }
                prop_assert_eq!(digest, TableDigest::of_words(table.words()));
            }
        }
    }

    #[test]
    fn f30_swapped_words_differ() {
        assert_ne!(TableDigest::of_words(&[1, 2]), TableDigest::of_words(&[2, 1]));
        assert_ne!(TableDigest::of_words(&[0, 2]), TableDigest::of_words(&[2, 0]));
        assert_eq!(TableDigest::of_words(&[0, 0, 0]), TableDigest::EMPTY);
    }
}

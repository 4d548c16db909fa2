//! Format identity: everything two sides must agree on before bits can be compared.

use crate::error::FormatError;

/// How the two buckets of a block are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// Any bucket count from 2. The second bucket mirrors the first under a sum that the
    /// fingerprint determines, modulo the count. The default: no memory lost to rounding up.
    AnyCount,
    /// Power-of-two bucket counts, second bucket by exclusive or. Bit-compatible with the filters
    /// that Dynamo publishes.
    PowerOfTwo,
}

/// Shape and seed of a filter, always valid.
///
/// Two filters are comparable, bucket by bucket, exactly when their formats are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    seed: u64,
    bucket_count: u32,
    indexing: Indexing,
}

impl Format {
    /// Version of the addressing and packing rules; part of the identity on the wire.
    pub const VERSION: u16 = 1;
    /// Bits of a fingerprint.
    pub const FINGERPRINT_BITS: u8 = 16;
    /// Slots of a bucket.
    pub const SLOTS: u8 = 4;
    /// Fewest buckets of a filter.
    pub const MIN_BUCKETS: u32 = 2;
    /// Most buckets of a filter: 2^30, which is 8 GiB and 2^32 slots.
    pub const MAX_BUCKETS: u32 = 1 << 30;
    /// The seed that Dynamo's filters use by default.
    pub const DYNAMO_SEED: u64 = 0x5DEE_CE66_D1B5_4A33;

    /// A format with any bucket count from [`MIN_BUCKETS`](Self::MIN_BUCKETS) to
    /// [`MAX_BUCKETS`](Self::MAX_BUCKETS).
    ///
    /// # Errors
    /// [`FormatError::BucketCount`]
    pub const fn any_count(bucket_count: u64, seed: u64) -> Result<Self, FormatError> {
        Self::new(Indexing::AnyCount, bucket_count, seed)
    }

    /// A format with a power-of-two bucket count within the same limits.
    ///
    /// # Errors
    /// [`FormatError`]
    pub const fn power_of_two(bucket_count: u64, seed: u64) -> Result<Self, FormatError> {
        Self::new(Indexing::PowerOfTwo, bucket_count, seed)
    }

    /// A format from its parts.
    ///
    /// # Errors
    /// [`FormatError::BucketCount`] outside the limits, [`FormatError::NotPowerOfTwo`] where
    /// `indexing` asks for a power of two.
    pub const fn new(
        indexing: Indexing,
        bucket_count: u64,
        seed: u64,
    ) -> Result<Self, FormatError> {
        if bucket_count < Self::MIN_BUCKETS as u64 || bucket_count > Self::MAX_BUCKETS as u64 {
            return Err(FormatError::BucketCount { bucket_count });
        }
        if matches!(indexing, Indexing::PowerOfTwo) && !bucket_count.is_power_of_two() {
            return Err(FormatError::NotPowerOfTwo { bucket_count });
        }
        Ok(Self { seed, bucket_count: bucket_count as u32, indexing })
    }

    /// The format of a size, whose bucket count is within the limits.
    pub(crate) const fn sized(bucket_count: u32, seed: u64) -> Self {
        Self { seed, bucket_count, indexing: Indexing::AnyCount }
    }

    /// Seed of the block mixing.
    #[inline]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Number of buckets.
    #[inline]
    pub const fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// How buckets are found.
    #[inline]
    pub const fn indexing(&self) -> Indexing {
        self.indexing
    }

    /// Number of slots: four per bucket.
    #[inline]
    pub const fn slot_count(&self) -> u64 {
        self.bucket_count as u64 * Self::SLOTS as u64
    }

    /// Bytes of one table's words: eight per bucket.
    #[inline]
    pub const fn table_bytes(&self) -> u64 {
        self.bucket_count as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_typed_errors() {
        for bad in [0, 1, (1 << 30) + 1, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(
                Format::any_count(bad, 0),
                Err(FormatError::BucketCount { bucket_count: bad })
            );
        }
        assert!(Format::any_count(1 << 30, 0).is_ok());
    }

    #[test]
    fn f23_xor_indexing_refuses_other_counts() {
        for bad in [3, 100, 1000] {
            assert_eq!(
                Format::power_of_two(bad, 0),
                Err(FormatError::NotPowerOfTwo { bucket_count: bad })
            );
            assert!(Format::any_count(bad, 0).is_ok());
        }
    }
}

//! Errors of this crate: one small enum per operation.

use thiserror::Error;

/// Why a [`Format`](crate::Format) is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bucket count is outside 2 to 2^30.
    #[error("bucket count {bucket_count} is outside 2 to 2^30")]
    BucketCount {
        /// The count that was asked for.
        bucket_count: u64,
    },
    /// Power-of-two indexing was asked for with another count.
    #[error("bucket count {bucket_count} is not a power of two")]
    NotPowerOfTwo {
        /// The count that was asked for.
        bucket_count: u64,
    },
}

/// Why a table cannot be made or sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SizingError {
    /// The target load is outside 1 to 950 per mille.
    #[error("target load of {per_mille} per mille is outside 1 to 950")]
    Load {
        /// The load that was asked for.
        per_mille: u16,
    },
    /// More buckets than a format may have.
    #[error("{blocks} blocks at {per_mille} per mille need more than 2^30 buckets")]
    TooMany {
        /// Blocks that were to fit.
        blocks: u64,
        /// Target load.
        per_mille: u16,
    },
}

/// The allocator refused memory; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("allocation of {bytes} bytes refused")]
pub struct AllocationError {
    /// Bytes that were asked for.
    pub bytes: u64,
}

/// No room for a fingerprint within the bounded search; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no room within the relocation search")]
pub struct Full;

//! Errors of this crate's pool: one small enum per operation.

use ckf_core::AllocationError;
use thiserror::Error;

use crate::Member;

/// Why a [`PoolConfig`](crate::PoolConfig) is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The number of members is outside its limits.
    #[error("{members} members are outside 1 to 65000")]
    Members {
        /// The number that was asked for.
        members: u32,
    },
    /// The occupancy level is outside its limits.
    #[error("occupancy level of {per_mille} per mille is outside 1 to 1000")]
    Occupancy {
        /// The level that was asked for.
        per_mille: u16,
    },
}

/// Why a command failed, for the block or member that it failed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Memory was refused, by the pool's limit or by the allocator.
    #[error("a block was refused: {0}")]
    Allocation(#[from] AllocationError),
    /// A new member would be one too many.
    #[error("the pool has its {limit} members already")]
    TooManyMembers {
        /// Members that the pool may have.
        limit: u32,
    },
    /// The pool's exact state is suspect; it takes no commands any more.
    #[error("the pool is fenced: {0}")]
    Fenced(#[from] Violation),
}

/// Why no batch could be sealed. Nothing has changed, no dirty bucket is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SealError {
    /// All sequence numbers are used up; a new incarnation starts anew.
    #[error("sequence numbers are used up")]
    SequenceExhausted,
    /// The pool's exact state is suspect; it publishes nothing any more.
    #[error("the pool is fenced: {0}")]
    Fenced(#[from] Violation),
}

/// Why the filter could not be given another format. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrowError {
    /// Memory for the new filter was refused.
    #[error("the new filter was refused: {0}")]
    Allocation(#[from] AllocationError),
    /// All sequence numbers or layout generations are used up.
    #[error("sequence numbers or layout generations are used up")]
    NumbersExhausted,
    /// The pool's exact state is suspect.
    #[error("the pool is fenced: {0}")]
    Fenced(#[from] Violation),
}

/// An invariant that does not hold: the exact state is suspect, so the pool is fenced.
///
/// Recovery: build a new pool under a new incarnation from the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A member's set lost count or misplaced a block.
    #[error("the set of member {member} is inconsistent")]
    MemberSet {
        /// The member.
        member: Member,
    },
    /// The counts of shared blocks, or the places of members, lost count or misplaced something.
    #[error("the refcounts are inconsistent")]
    Refcounts,
    /// Members own other blocks, or more or fewer times, than counts and tags say.
    #[error("refcounts disagree with what members own")]
    Edges,
    /// The blocks listed as omitted are not consistent with the blocks owned.
    #[error("the list of omitted blocks is inconsistent")]
    Omissions,
    /// The filter's fingerprints and tags are not those of the owned blocks less the omitted ones.
    #[error("the filter disagrees with the exact state")]
    Filter,
    /// A bucket differs from its published image without being dirty, or the digest is wrong.
    #[error("the published images disagree with the filter")]
    Published,
}

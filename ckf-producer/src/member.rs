//! Who owns blocks inside a pool.

use core::fmt;

/// A worker: one engine process of the data center. Every value is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(u64);

impl WorkerId {
    /// Wraps the number as it is.
    pub const fn new(worker: u64) -> Self {
        Self(worker)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A data-parallel rank of a worker. Every value is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DpRank(u32);

impl DpRank {
    /// Wraps the number as it is.
    pub const fn new(rank: u32) -> Self {
        Self(rank)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The owner of blocks: one rank of one worker. Ranks of a worker own separately (report F10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The worker.
    pub worker: WorkerId,
    /// Its rank.
    pub rank: DpRank,
}

impl Member {
    /// Rank `rank` of worker `worker`.
    pub const fn new(worker: u64, rank: u32) -> Self {
        Self { worker: WorkerId(worker), rank: DpRank(rank) }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.worker.0, self.rank.0)
    }
}

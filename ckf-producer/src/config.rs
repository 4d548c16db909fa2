//! What a host decides about a pool.

use ckf_core::Format;

use crate::error::ConfigError;
use crate::ownership::HashSeeds;

/// Limits and choices of a pool.
///
/// ```
/// use ckf_core::Sizing;
/// use ckf_producer::{HashSeeds, PoolConfig};
///
/// let format = Sizing::for_blocks(1_000_000, 600)?.format(42);
/// let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])).with_max_bytes(1 << 30);
/// assert_eq!(config.max_bytes(), 1 << 30);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    format: Format,
    seeds: HashSeeds,
    max_bytes: u64,
    max_members: u32,
    readmissions: u32,
    occupancy_level: u16,
}

impl PoolConfig {
    /// Most members that a pool can have: a block can have no more owners than that.
    pub const MAX_MEMBERS: u32 = 65_000;

    /// A pool with this filter, no limit of memory, [`MAX_MEMBERS`](Self::MAX_MEMBERS), 64
    /// re-admissions a command, and an event at 85 % occupancy.
    pub const fn new(format: Format, seeds: HashSeeds) -> Self {
        Self {
            format,
            seeds,
            max_bytes: u64::MAX,
            max_members: Self::MAX_MEMBERS,
            readmissions: 64,
            occupancy_level: 850,
        }
    }

    /// Bytes that the pool may take in all, filter included. What would exceed them is refused
    /// with an error, block by block.
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Members that may own blocks at one time.
    ///
    /// # Errors
    /// [`ConfigError::Members`] outside 1 to [`MAX_MEMBERS`](Self::MAX_MEMBERS).
    pub const fn with_max_members(mut self, members: u32) -> Result<Self, ConfigError> {
        if members == 0 || members > Self::MAX_MEMBERS {
            return Err(ConfigError::Members { members });
        }
        self.max_members = members;
        Ok(self)
    }

    /// Omitted blocks that one command may re-admit at most. 0 turns re-admission off.
    #[must_use]
    pub const fn with_readmissions(mut self, blocks: u32) -> Self {
        self.readmissions = blocks;
        self
    }

    /// Occupancy, in per mille of the filter's slots, at which the host is told to grow it.
    ///
    /// # Errors
    /// [`ConfigError::Occupancy`] outside 1 to 1000.
    pub const fn with_occupancy_level(mut self, per_mille: u16) -> Result<Self, ConfigError> {
        if per_mille == 0 || per_mille > 1000 {
            return Err(ConfigError::Occupancy { per_mille });
        }
        self.occupancy_level = per_mille;
        Ok(self)
    }

    /// Shape and seed of the filter.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Seeds of the exact sets.
    pub const fn seeds(&self) -> HashSeeds {
        self.seeds
    }

    /// Bytes that the pool may take in all.
    pub const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Members that may own blocks at one time.
    pub const fn max_members(&self) -> u32 {
        self.max_members
    }

    /// Omitted blocks that one command may re-admit at most.
    pub const fn readmissions(&self) -> u32 {
        self.readmissions
    }

    /// Occupancy at which the host is told to grow the filter, in per mille.
    pub const fn occupancy_level(&self) -> u16 {
        self.occupancy_level
    }
}

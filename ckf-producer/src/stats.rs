//! Figures for operators.

use crate::Pool;
use crate::ownership::CLASSES;

/// What a pool holds and has done. Counters run over the life of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// Members that own at least one block.
    pub members: u64,
    /// Ownerships: blocks summed over their members.
    pub edges: u64,
    /// Blocks owned by at least one member.
    pub distinct_blocks: u64,
    /// Blocks by number of owners: 1, 2, 3-4, 5-8, and so on, doubling, to 2^16.
    pub owners_histogram: [u64; CLASSES],
    /// Filter slots taken, per mille.
    pub occupancy_per_mille: u16,
    /// Blocks owned but not in the filter, now.
    pub omitted: u64,
    /// Blocks for which the filter had no room when they came.
    pub refused_insertions: u64,
    /// Full buckets that were gone through in search of room, a look at four others for each: what a
    /// filter near its limit costs.
    pub searched_buckets: u64,
    /// Omitted blocks that found room later.
    pub readmitted: u64,
    /// Fingerprints moved to make room for others.
    pub kicks: u64,
    /// Buckets that are marked as changed since the last batch.
    pub dirty_buckets: u32,
    /// Images in all batches.
    pub images: u64,
    /// Buckets left out of batches because they had gone back to their published image.
    pub net_reverted: u64,
    /// Memory.
    pub bytes: PoolBytes,
}

/// Memory of a pool by part, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolBytes {
    /// The members' sets of blocks.
    pub member_sets: u64,
    /// The owners of each block: a tag for each slot of the filter, and counts of shared blocks.
    pub refcounts: u64,
    /// The omitted blocks and their owners' counts.
    pub omitted: u64,
    /// The filter.
    pub filter: u64,
    /// The published images, and marks and list of dirty buckets.
    pub published: u64,
}

impl PoolBytes {
    /// All parts.
    pub const fn total(&self) -> u64 {
        self.member_sets + self.refcounts + self.omitted + self.filter + self.published
    }
}

impl Pool {
    /// Figures of the moment. Cost: a few instructions a member and per 2,000 blocks.
    pub fn stats(&self) -> PoolStats {
        let (ownership, projection) = (&self.ownership, &self.projection);
        let counters = projection.counters();
        PoolStats {
            members: ownership.member_count() as u64,
            edges: ownership.members().map(|(_, _, blocks)| blocks.len()).sum(),
            distinct_blocks: projection.distinct(),
            owners_histogram: projection.histogram(),
            occupancy_per_mille: projection.table.load_per_mille(),
            omitted: projection.omitted().len(),
            refused_insertions: counters.refused,
            searched_buckets: counters.searched,
            readmitted: counters.readmitted,
            kicks: counters.kicks,
            dirty_buckets: projection.dirty.len(),
            images: self.batches.images,
            net_reverted: self.batches.net_reverted,
            bytes: PoolBytes {
                member_sets: ownership.bytes(),
                refcounts: projection.table.buckets().tag_bytes() + projection.shared().bytes(),
                omitted: projection.omitted().bytes(),
                filter: projection.table.format().table_bytes(),
                published: 2 * projection.table.buckets().tag_bytes() + projection.dirty.bytes(),
            },
        }
    }
}

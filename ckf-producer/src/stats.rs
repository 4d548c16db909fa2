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
    /// Buckets that have changed since the last batch, also those that have gone back since.
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
    /// The published images, and the list of dirty buckets.
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
            dirty_buckets: projection.table.buckets().dirty_len(),
            images: self.batches.images,
            net_reverted: self.batches.net_reverted,
            bytes: self.bytes(),
        }
    }

    /// Memory by part.
    pub(crate) fn bytes(&self) -> PoolBytes {
        let table = &self.projection.table;
        PoolBytes {
            member_sets: self.ownership.bytes(),
            refcounts: table.buckets().tag_bytes() + self.projection.shared().bytes(),
            omitted: self.projection.omitted().bytes(),
            filter: table.format().table_bytes(),
            published: table.buckets().published_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ckf_core::{BlockHash, Format};
    use proptest::prelude::*;
    use std::vec::Vec;

    use crate::{HashSeeds, Member, Pool, PoolConfig};

    fn blocks(first: u64, count: u64) -> Vec<BlockHash> {
        (first..first + count).map(BlockHash::new).collect()
    }

    fn run(pool: &mut Pool, (op, a, b): (u8, u64, u64)) {
        let member = Member::new(a % 40, 0);
        match op {
            0 => _ = pool.store(member, &blocks(b % 9_000, a % 3_000)),
            1 => _ = pool.store(Member::new(a % 3_000, 0), &blocks(b % 9_000, 1)),
            2 => _ = pool.remove(member, &blocks(b % 9_000, a % 3_000)),
            3 => _ = pool.clear_member(member),
            4 => _ = pool.replace_member(member, &blocks(b % 9_000, a % 2_000)),
            5 => _ = pool.grow(Format::any_count(2 + a % 3_000, b).unwrap()),
            6 => drop(pool.seal().unwrap()),
            7 => _ = (b..b + 300).map(|n| pool.clear_member(Member::new(n % 3_000, 0))).count(),
            8 => pool.set_max_bytes(u64::MAX),
            _ => pool.set_max_bytes(pool.budget.used() + b % 20_000),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// What the budget counts is what all parts take, for pools and copies of them, wherever memory
        /// is refused.
        #[test]
        fn books_and_memory_agree_in_pools_and_their_copies(
            ops in prop::collection::vec((0u8..10, any::<u64>(), any::<u64>(), any::<bool>()), 1..40),
        ) {
            let format = Format::any_count(1_000, 1).unwrap();
            let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
            let mut pools = [Pool::new(config).unwrap(), Pool::new(config).unwrap()];
            for (op, a, b, copies) in ops {
                for pool in &mut pools {
                    run(pool, (op, a, b));
                    prop_assert_eq!(pool.budget.used(), pool.bytes().total());
                }
                if copies {
                    pools[1] = pools[(a % 2) as usize].clone();
                    prop_assert_eq!(pools[1].budget.used(), pools[1].bytes().total());
                    prop_assert!(pools[1].budget.used() <= pools[(a % 2) as usize].budget.used());
                }
            }
            for pool in &mut pools {
                prop_assert_eq!(pool.check(), Ok(()));
                (0..3_000).for_each(|n| _ = pool.clear_member(Member::new(n, 0)));
                prop_assert_eq!((pool.budget.used(), pool.bytes().member_sets), (pool.bytes().total(), 0));
            }
        }
    }
}

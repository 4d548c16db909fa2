//! `kv-index` 2.0.0, called as its documentation shows.

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use crate::workload::{Chain, Query, Workload};

/// The run-compressed exact index. Worker ids are the lanes.
pub struct ChainIdx {
    pub index: ChainIndex,
    pub lanes: usize,
}

impl ChainIdx {
    /// Feeds the workload; the per-worker maps, which lookups do not use, are dropped at the end.
    pub fn build(workload: &dyn Workload) -> Self {
        let lanes = workload.lanes();
        let index = ChainIndex::with_max_workers(lanes);
        for lane in 0..lanes {
            let id = index.intern_worker(&format!("lane-{lane}")).expect("room");
            assert_eq!(id as usize, lane, "ids are handed out densely");
        }
        let mut maps: Vec<_> = (0..lanes).map(|_| ChainBlockMap::new()).collect();
        for place in workload.placements() {
            let chain = workload.chain(place.chain);
            let blocks = stored_blocks(&chain, place.from, place.to);
            let parent = place.from.checked_sub(1).map(|at| SequenceHash(chain.sequence[at]));
            index
                .apply_stored(place.lane as u32, &blocks, parent, &mut maps[place.lane])
                .expect("parents are stored first");
        }
        Self { index, lanes }
    }

    /// What the index says it took from the allocator.
    pub fn own_bytes(&self) -> usize {
        let stats = self.index.stats();
        stats.arena_chunk_bytes + stats.slab_bytes
    }

    /// The allocation-free lookup, with the depths of the first `L` lanes as its result.
    #[inline]
    pub fn score<const L: usize>(&self, query: &[ContentHash]) -> [u32; L] {
        let mut depths = [0; L];
        self.index.score_into(
            query,
            |hash| hash.0,
            false,
            |lane, score| depths[lane as usize] = score,
        );
        depths
    }

    /// Stores (true) or removes (false) whole chains in one lane; returns how many.
    pub fn write(&self, lane: usize, writes: &[(Chain, bool)]) -> usize {
        let mut map = ChainBlockMap::new();
        for (chain, store) in writes {
            if *store {
                let blocks = stored_blocks(chain, 0, chain.local.len());
                self.index
                    .apply_stored(lane as u32, &blocks, None, &mut map)
                    .expect("a root chain");
            } else {
                let hashes: Vec<_> = chain.sequence.iter().copied().map(SequenceHash).collect();
                self.index.apply_removed(lane as u32, &hashes, &mut map);
            }
        }
        writes.len()
    }
}

fn stored_blocks(chain: &Chain, from: usize, to: usize) -> Vec<StoredBlock> {
    let block = |at: usize| StoredBlock {
        seq_hash: SequenceHash(chain.sequence[at]),
        content_hash: ContentHash(chain.local[at]),
    };
    (from..to).map(block).collect()
}

/// A request as the index takes it.
pub fn content_hashes(queries: &[Query]) -> Vec<Vec<ContentHash>> {
    queries
        .iter()
        .map(|query| query.chain.local.iter().copied().map(ContentHash).collect())
        .collect()
}

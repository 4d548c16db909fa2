//! The exact answer: which blocks each DC really holds.

use std::collections::HashMap;

use ahash::RandomState;
use ckf_core::BlockHash;

use super::cache::Served;

/// Per DC, how many of its workers hold each block. Nothing clever: it judges everything else.
#[derive(Debug)]
pub struct Oracle {
    dcs: Vec<HashMap<BlockHash, u32, RandomState>>,
}

impl Oracle {
    /// Empty DCs.
    pub fn new(dcs: usize) -> Self {
        let dc = || HashMap::with_hasher(RandomState::with_seeds(5, 6, 7, 8));
        Self { dcs: (0..dcs).map(|_| dc()).collect() }
    }

    /// Takes note of what serving a prompt did to one worker of the DC.
    pub fn served(&mut self, dc: usize, served: &Served) {
        self.lost(dc, served.evicted.iter().copied());
        for &block in &served.stored {
            *self.dcs[dc].entry(block).or_insert(0) += 1;
        }
    }

    /// Takes note that one worker of the DC no longer holds these blocks.
    pub fn lost(&mut self, dc: usize, blocks: impl IntoIterator<Item = BlockHash>) {
        for block in blocks {
            if let Some(holders) = self.dcs[dc].get_mut(&block) {
                *holders -= 1;
                if *holders == 0 {
                    self.dcs[dc].remove(&block);
                }
            }
        }
    }

    /// Leading blocks of the prompt that the DC holds, by a plain walk to the first miss.
    pub fn depth(&self, dc: usize, prompt: &[BlockHash]) -> usize {
        prompt.iter().take_while(|block| self.dcs[dc].contains_key(*block)).count()
    }

    /// Distinct blocks that the DC holds.
    pub fn len(&self, dc: usize) -> usize {
        self.dcs[dc].len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_held_until_its_last_holder_loses_it() {
        let blocks: Vec<_> = (0..4).map(BlockHash::new).collect();
        let stored = |stored: &[BlockHash]| Served { stored: stored.to_vec(), ..Served::default() };
        let mut oracle = Oracle::new(2);
        oracle.served(0, &stored(&blocks));
        oracle.served(0, &stored(&blocks[..2]));
        oracle.lost(0, blocks.clone());
        assert_eq!((oracle.depth(0, &blocks), oracle.depth(1, &blocks)), (2, 0));
        assert_eq!(oracle.len(0), 2);
        oracle.lost(0, [blocks[0]]);
        assert_eq!(oracle.depth(0, &blocks), 0);
        assert_eq!(oracle.len(0), 1);
    }
}

//! The block cache of one worker: bounded, least recently used, leaves before their prefixes.

use std::collections::HashMap;

use ahash::RandomState;
use ckf_core::BlockHash;

/// What serving one prompt did to a cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Leading blocks that were there already.
    pub hits: usize,
    /// Blocks that had to go, in the order in which they went.
    pub evicted: Vec<BlockHash>,
    /// Blocks that came, in the order of the prompt.
    pub stored: Vec<BlockHash>,
}

/// A bounded cache in the order of last use.
///
/// A block is never less recent than those that follow it in a prompt, so a block goes only after
/// everything that builds on it: what is resident is closed under "the block before".
#[derive(Debug)]
pub struct LruCache {
    index: HashMap<BlockHash, usize, RandomState>,
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Most and least recently used.
    newest: Option<usize>,
    oldest: Option<usize>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    block: BlockHash,
    newer: Option<usize>,
    older: Option<usize>,
}

impl LruCache {
    /// An empty cache for at most `capacity` blocks. Memory grows with use.
    pub fn new(capacity: usize) -> Self {
        Self {
            index: HashMap::with_hasher(RandomState::with_seeds(1, 2, 3, 4)),
            entries: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
            capacity,
        }
    }

    /// Number of resident blocks.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The most blocks it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// True when nothing is resident.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The resident blocks, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockHash> {
        self.index.keys().copied()
    }

    /// How many leading blocks of the prompt are resident. Cost: logarithmic in the prompt, since
    /// the resident part of a prompt has no holes.
    pub fn leading(&self, prompt: &[BlockHash]) -> usize {
        prompt.partition_point(|block| self.index.contains_key(block))
    }

    /// Serves a prompt: its resident beginning becomes the most recently used, older blocks make
    /// room, the rest of the prompt is stored. Of a prompt longer than the cache only the beginning
    /// is kept. Cost: linear in the prompt.
    pub fn serve(&mut self, prompt: &[BlockHash]) -> Served {
        let hits = self.leading(prompt);
        let kept = &prompt[..prompt.len().min(self.capacity).max(hits)];
        for block in kept[..hits].iter().rev() {
            let entry = self.index[block];
            self.unlink(entry);
            self.link_after(None, entry);
        }
        let missing = &kept[hits..];
        let overflow = (self.len() + missing.len()).saturating_sub(self.capacity);
        let evicted = (0..overflow).filter_map(|_| self.evict()).collect();

        let mut last = hits.checked_sub(1).map(|last| self.index[&kept[last]]);
        let mut stored = Vec::with_capacity(missing.len());
        for &block in missing {
            // Two equal hashes in one prompt do not happen by design; they would count once.
            if !self.index.contains_key(&block) {
                last = Some(self.insert_after(last, block));
                stored.push(block);
            }
        }
        Served { hits, evicted, stored }
    }

    fn insert_after(&mut self, newer: Option<usize>, block: BlockHash) -> usize {
        let entry = Entry { block, newer: None, older: None };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.index.insert(block, at);
        self.link_after(newer, at);
        at
    }

    fn evict(&mut self) -> Option<BlockHash> {
        let at = self.oldest?;
        let block = self.entries[at].block;
        self.unlink(at);
        self.index.remove(&block);
        self.free.push(at);
        Some(block)
    }

    /// Puts an unlinked entry behind `newer`, or to the very front.
    fn link_after(&mut self, newer: Option<usize>, at: usize) {
        let older = match newer {
            Some(newer) => self.entries[newer].older.replace(at),
            None => self.newest.replace(at),
        };
        match older {
            Some(older) => self.entries[older].newer = Some(at),
            None => self.oldest = Some(at),
        }
        self.entries[at].newer = newer;
        self.entries[at].older = older;
    }

    fn unlink(&mut self, at: usize) {
        let Entry { newer, older, .. } = self.entries[at];
        match newer {
            Some(newer) => self.entries[newer].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.entries[older].newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn prompt(ids: &[u64]) -> Vec<BlockHash> {
        ids.iter().map(|&id| BlockHash::new(id)).collect()
    }

    #[test]
    fn leaves_go_before_their_prefixes_and_before_anything_newer() {
        let mut cache = LruCache::new(6);
        assert_eq!(cache.serve(&prompt(&[1, 2, 3])).hits, 0);
        assert_eq!(cache.serve(&prompt(&[1, 2, 4])).hits, 2);
        // Least recent first: 3, then the leaf of the newer branch, then the shared root.
        let served = cache.serve(&prompt(&[10, 11, 12, 13]));
        assert_eq!(served.evicted, prompt(&[3, 4]));
        assert_eq!(served.stored, prompt(&[10, 11, 12, 13]));
        assert_eq!(cache.serve(&prompt(&[20])).evicted, prompt(&[2]));
    }

    #[test]
    fn the_resident_beginning_survives_its_own_prompt() {
        let mut cache = LruCache::new(4);
        cache.serve(&prompt(&[1, 2]));
        cache.serve(&prompt(&[5, 6]));
        let served = cache.serve(&prompt(&[1, 2, 3, 4]));
        assert_eq!((served.hits, served.evicted), (2, prompt(&[6, 5])));
    }

    #[test]
    fn of_a_prompt_longer_than_the_cache_the_beginning_is_kept() {
        let mut cache = LruCache::new(2);
        let served = cache.serve(&prompt(&[1, 2, 3]));
        assert_eq!(served.stored, prompt(&[1, 2]));
        assert_eq!(cache.serve(&prompt(&[1, 2, 3])), Served { hits: 2, ..Served::default() });
        assert_eq!(cache.serve(&[]), Served::default());
    }

    /// A list walked from end to end, nothing clever.
    struct Naive {
        blocks: Vec<BlockHash>,
        capacity: usize,
    }

    impl Naive {
        fn serve(&mut self, prompt: &[BlockHash]) -> Served {
            let hits = prompt.iter().take_while(|block| self.blocks.contains(block)).count();
            let kept = &prompt[..prompt.len().min(self.capacity)];
            self.blocks.retain(|block| !kept.contains(block));
            let mut evicted = Vec::new();
            while self.blocks.len() + kept.len() > self.capacity {
                evicted.extend(self.blocks.pop());
            }
            self.blocks.splice(0..0, kept.iter().copied());
            Served { hits, evicted, stored: kept[hits..].to_vec() }
        }
    }

    #[test]
    fn agrees_with_a_naive_list_and_never_leaves_a_hole() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 0);
            let capacity = rng.between(1, 30) as usize;
            let mut cache = LruCache::new(capacity);
            let mut naive = Naive { blocks: Vec::new(), capacity };
            for step in 0..300 {
                // A path in a tree with three children a node: ids are paths, as hashes are.
                let mut id = 0;
                let prompt: Vec<_> = (0..rng.between(0, 12))
                    .map(|_| {
                        id = id * 3 + rng.between(1, 3);
                        BlockHash::new(id)
                    })
                    .collect();
                assert_eq!(cache.serve(&prompt), naive.serve(&prompt), "seed {seed} step {step}");
                assert_eq!(cache.len(), naive.blocks.len());
                assert!(cache.len() <= capacity);
                for block in cache.blocks().map(BlockHash::get).filter(|&block| block > 3) {
                    let parent = (block - 1) / 3;
                    assert!(
                        cache.index.contains_key(&BlockHash::new(parent)),
                        "hole above {block}"
                    );
                }
            }
        }
    }
}

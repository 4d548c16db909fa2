//! An engine without a model: a block cache that publishes its events exactly as vLLM does, so that
//! everything around it can be tried on one machine.
//!
//! - [`wire`]: event batches in msgpack;
//! - [`publisher`]: the PUB socket and the replay socket;
//! - [`serve`]: the OpenAI-compatible front;
//! - [`drive`]: sends a trace through a router, and compares the router's picture with the engines'.

pub mod drive;
pub mod publisher;
pub mod serve;
pub mod wire;

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::replay::cache::LruCache;
use wire::BatchWriter;

/// The cache and the names of its blocks.
#[derive(Debug)]
pub struct Engine {
    cache: LruCache,
    block_size: usize,
    rank: u32,
    /// Two engines name equal blocks differently, as real ones do (report F01).
    seed: u64,
}

/// What serving a prompt did.
#[derive(Debug)]
pub struct Served {
    /// Full blocks of the prompt.
    pub blocks: usize,
    /// Leading ones that were held already.
    pub hits: usize,
    /// The events to publish, in one batch; `None` when nothing changed.
    pub payload: Option<Vec<u8>>,
}

impl Engine {
    /// An empty engine for at most `capacity` blocks.
    pub fn new(capacity: usize, block_size: usize, rank: u32, seed: u64) -> Self {
        Self { cache: LruCache::new(capacity), block_size: block_size.max(1), rank, seed }
    }

    /// Runs a prompt. Evictions come before the blocks that they make room for.
    pub fn serve(&mut self, tokens: &[u32]) -> Served {
        let hashes = self.hashes(tokens);
        let served = self.cache.serve(&hashes);
        let events =
            usize::from(!served.evicted.is_empty()) + usize::from(!served.stored.is_empty());
        let payload = (events > 0).then(|| {
            let mut batch = BatchWriter::new(events);
            if !served.evicted.is_empty() {
                batch.removed(served.evicted.iter().map(|&hash| self.id(hash)));
            }
            if let (false, end) = (served.stored.is_empty(), served.hits + served.stored.len()) {
                let parent = served.hits.checked_sub(1).map(|last| self.id(hashes[last]));
                let tokens = &tokens[served.hits * self.block_size..end * self.block_size];
                let ids = served.stored.iter().map(|&hash| self.id(hash));
                batch.stored(ids, parent, tokens, self.block_size as u32);
            }
            batch.finish(self.rank)
        });
        Served { blocks: hashes.len(), hits: served.hits, payload }
    }

    /// For each full block of a prompt, whether it is held.
    pub fn holds(&self, tokens: &[u32]) -> Vec<bool> {
        let hashes = self.hashes(tokens);
        let leading = self.cache.leading(&hashes);
        (0..hashes.len()).map(|block| block < leading).collect()
    }

    /// Number of blocks held.
    pub fn held(&self) -> usize {
        self.cache.len()
    }

    /// A batch that says that nothing is held any more, after forgetting all.
    pub fn clear(&mut self) -> Vec<u8> {
        self.cache = LruCache::new(self.cache.capacity());
        let mut batch = BatchWriter::new(1);
        batch.cleared();
        batch.finish(self.rank)
    }

    fn hashes(&self, tokens: &[u32]) -> Vec<BlockHash> {
        Scope::default().block_hashes(tokens, self.block_size).collect()
    }

    fn id(&self, hash: BlockHash) -> EngineBlockId {
        EngineBlockId::new(xxh3_64_with_seed(&hash.get().to_le_bytes(), self.seed))
    }
}

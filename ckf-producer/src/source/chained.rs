//! The front of engines whose own block ids readers can rebuild.

use alloc::vec::Vec;

use ckf_core::{BlockHash, EngineBlockId};

use super::engine::{EngineEvent, Medium};
use super::filter::{PlaceFilter, PlaceStats};
use super::front::{BlockChanges, Front};

/// Takes an engine's chained hashes as they are.
///
/// This is the one place where an [`EngineBlockId`] becomes a [`BlockHash`]. It is right only where
/// every reader of the pool computes the engine's own chain, as is possible with vLLM's
/// `sha256_cbor` and SGLang's chained SHA-256, salt and adapter included. With any other engine every
/// query would miss (report F01): use a [`Translator`](super::Translator).
///
/// Chained ids need no tokens and no parents, so nothing is remembered and nothing is orphaned.
#[derive(Clone, Debug)]
pub struct ChainedIds {
    filter: PlaceFilter,
}

impl ChainedIds {
    /// Blocks in `primary` count, others are left out and counted.
    pub fn new(primary: Medium) -> Self {
        Self { filter: PlaceFilter::new(primary) }
    }

    /// Blocks left out because of the place they lie in.
    pub fn places(&self) -> PlaceStats {
        self.filter.stats()
    }
}

/// What readers rebuild is the id itself.
fn hash_of(id: EngineBlockId) -> BlockHash {
    BlockHash::new(id.get())
}

impl Front for ChainedIds {
    type Event = Vec<EngineEvent>;

    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64 {
        for event in event {
            match event {
                EngineEvent::Stored(stored) => {
                    if self.filter.admits(&stored.place, stored.ids.len()) {
                        stored.ids.into_iter().for_each(|id| changes.store(hash_of(id)));
                    }
                }
                EngineEvent::Removed(removed) => {
                    if self.filter.admits(&removed.place, removed.ids.len()) {
                        removed.ids.into_iter().for_each(|id| changes.remove(hash_of(id)));
                    }
                }
                EngineEvent::Cleared => changes.clear(),
            }
        }
        0
    }

    fn reset(&mut self) {}
}

//! An engine whose events are numbered as they come, in front of a translator.

use core::num::NonZeroU32;

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId};
use ckf_producer::source::{
    EngineEvent, Handled, Place, RemovedBlocks, SourceConfig, StoredBlocks, Tokens, Translator,
    TranslatorConfig,
};

use crate::support::*;

pub(crate) const SIZE: u32 = 4;

pub(crate) fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<EngineBlockId> {
    numbers.into_iter().map(EngineBlockId::new).collect()
}

/// Tokens of consecutive blocks that carry these labels.
pub(crate) fn tokens(labels: impl IntoIterator<Item = u32>) -> Vec<u32> {
    labels.into_iter().flat_map(|label| (0..SIZE).map(move |i| label * 100 + i)).collect()
}

pub(crate) fn stored(
    numbers: impl IntoIterator<Item = u64>,
    parent: impl Into<Option<u64>>,
    labels: impl IntoIterator<Item = u32>,
) -> StoredBlocks {
    StoredBlocks {
        ids: ids(numbers),
        parent: parent.into().map(EngineBlockId::new),
        tokens: Tokens::Plain(tokens(labels)),
        block_size: SIZE,
        ..StoredBlocks::default()
    }
}

pub(crate) fn removed(numbers: impl IntoIterator<Item = u64>) -> RemovedBlocks {
    RemovedBlocks { ids: ids(numbers), place: Place::default() }
}

pub(crate) fn config() -> TranslatorConfig {
    TranslatorConfig::new(NonZeroU32::new(SIZE).unwrap(), SEEDS)
}

/// What a reader asks for, given the labels of a prompt's blocks.
pub(crate) fn query(scope: Scope, labels: impl IntoIterator<Item = u32>) -> Vec<BlockHash> {
    scope.block_hashes(&tokens(labels), SIZE as usize).collect()
}

/// A stream of engine events, numbered as they come.
pub(crate) struct Engine {
    pub(crate) world: World<Translator>,
    next: u64,
}

impl Engine {
    pub(crate) fn new(config: TranslatorConfig) -> Self {
        let world = World::new(SourceConfig::new(1), Translator::new(config));
        Self { world, next: 0 }
    }

    pub(crate) fn batch(&mut self, events: Vec<EngineEvent>) -> Handled {
        self.next += 1;
        self.world.event(1, self.next - 1, events)
    }

    pub(crate) fn store(&mut self, blocks: StoredBlocks) -> Handled {
        self.batch(vec![EngineEvent::Stored(blocks)])
    }

    pub(crate) fn remove(&mut self, blocks: RemovedBlocks) -> Handled {
        self.batch(vec![EngineEvent::Removed(blocks)])
    }

    pub(crate) fn depth(&self, blocks: &[BlockHash]) -> usize {
        let exact = blocks.iter().take_while(|hash| self.world.pool.owns(MEMBER, **hash)).count();
        assert_eq!(depth(&self.world.pool, blocks), exact, "no chance collision in these tests");
        exact
    }

    pub(crate) fn owned(&self) -> u64 {
        self.world.pool.owned_blocks(MEMBER)
    }

    pub(crate) fn stats(&self) -> ckf_producer::source::TranslatorStats {
        self.world.stream.front().stats()
    }
}

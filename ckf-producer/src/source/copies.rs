//! Copy counting, for engines that hold one block several times and report each copy.

use core::num::NonZeroU32;

use ckf_core::BlockHash;

use super::front::{BlockChange, BlockChanges, Front};
use super::map::{Hashed, Map};
use crate::HashSeeds;

/// How often each block is held.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    counts: Map<BlockHash, NonZeroU32>,
}

impl Copies {
    pub(super) fn new(seeds: HashSeeds) -> Self {
        Self { counts: Map::new(seeds) }
    }

    pub(super) fn hashed(&self, hash: BlockHash) -> Hashed<BlockHash> {
        self.counts.hashed(hash)
    }

    /// Makes room for this block; `false` when memory is refused.
    pub(super) fn reserve(&mut self, hash: Hashed<BlockHash>) -> bool {
        self.counts.reserve(hash)
    }

    /// Counts so many more copies; `true` when there were none. [`reserve`](Self::reserve) comes before.
    pub(super) fn add(&mut self, hash: Hashed<BlockHash>, copies: NonZeroU32) -> bool {
        match self.counts.insert(hash, copies) {
            None => true,
            Some(count) => {
                // Four thousand million copies of one block: whoever reports more is not believed.
                *count = count.saturating_add(copies.get());
                false
            }
        }
    }

    /// Counts one copy less; `true` when it was the last. An unknown block is a no-op.
    pub(super) fn subtract(&mut self, hash: Hashed<BlockHash>) -> bool {
        let mut last = false;
        self.counts.update(hash, |count| {
            last = !one_less(count);
            !last
        });
        last
    }

    pub(super) fn contains(&self, hash: Hashed<BlockHash>) -> bool {
        self.counts.contains(hash)
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
    }
}

/// Counts one copy less; `false`, and the count stays, when there is only one.
pub(super) fn one_less(count: &mut NonZeroU32) -> bool {
    let less = NonZeroU32::new(count.get() - 1);
    *count = less.unwrap_or(*count);
    less.is_some()
}

/// A front that lets only a block's first copy and its last removal through.
///
/// The pool counts a block once per member, so the first removal ends it (report F06). Engines
/// that keep several physical copies of a block and report every one of them need this in
/// between. Each occurrence counts, also within one event. An engine that *re-announces* blocks it
/// already holds must not be counted: its blocks would never go.
///
/// It wraps fronts whose changes it can count, [`Direct`](super::Direct) and
/// [`ChainedIds`](super::ChainedIds). The [`Translator`](super::Translator) counts by itself, see
/// [`TranslatorConfig::with_copies`](super::TranslatorConfig::with_copies), because it has to
/// tell copies of a block from blocks of equal content.
///
/// Memory: 25 to 45 bytes per block held, up to the limit given. Blocks beyond it are not passed
/// on, and counted. Cost: one map operation per block; now and then some thousand entries move.
///
/// ```
/// use ckf_core::BlockHash;
/// use ckf_producer::HashSeeds;
/// use ckf_producer::source::{BlockChange, BlockChanges, CopyCounter, Direct, Front};
///
/// let mut counter = CopyCounter::new(Direct, 1_000_000, HashSeeds::new([1, 2, 3, 4]));
/// let block = || vec![BlockHash::new(3)];
/// let mut apply = |change| {
///     let mut changes = BlockChanges::default();
///     counter.apply(vec![change], &mut changes);
///     changes.into_iter().count()
/// };
/// assert_eq!(apply(BlockChange::Store(block())), 1); // passes
/// assert_eq!(apply(BlockChange::Store(block())), 0); // a second copy
/// assert_eq!(apply(BlockChange::Remove(block())), 0); // one is left
/// assert_eq!(apply(BlockChange::Remove(block())), 1); // passes
/// ```
#[derive(Clone, Debug)]
pub struct CopyCounter<F> {
    front: F,
    copies: Copies,
    max_blocks: usize,
    refused: u64,
}

impl<F: Front> CopyCounter<F> {
    /// Counts copies of what `front` lets through, for `max_blocks` blocks at most, in a map
    /// under `seeds`.
    pub fn new(front: F, max_blocks: usize, seeds: HashSeeds) -> Self {
        Self { front, copies: Copies::new(seeds), max_blocks, refused: 0 }
    }

    /// Blocks held now.
    pub fn blocks(&self) -> usize {
        self.copies.len()
    }

    /// Stores, in blocks, that were not passed on because the limit was reached
    /// or memory refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The front within.
    pub fn front(&self) -> &F {
        &self.front
    }
}

impl<F: Front> Front for CopyCounter<F> {
    type Event = F::Event;

    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64 {
        let mut inner = BlockChanges::default();
        let orphans = self.front.apply(event, &mut inner);
        for change in inner {
            match change {
                BlockChange::Store(hashes) => {
                    for block in hashes {
                        let hash = self.copies.hashed(block);
                        let full =
                            self.copies.len() >= self.max_blocks || !self.copies.reserve(hash);
                        if full && !self.copies.contains(hash) {
                            self.refused += 1;
                        } else if self.copies.add(hash, NonZeroU32::MIN) {
                            changes.store(block);
                        }
                    }
                }
                BlockChange::Remove(hashes) => {
                    for block in hashes {
                        if self.copies.subtract(self.copies.hashed(block)) {
                            changes.remove(block);
                        }
                    }
                }
                BlockChange::Clear => {
                    self.copies.clear();
                    changes.clear();
                }
            }
        }
        orphans
    }

    fn reset(&mut self) {
        self.front.reset();
        self.copies.clear();
    }
}

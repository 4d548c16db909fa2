//! Copy counting, for engines that hold one block several times and report each copy.

use core::num::NonZeroU32;

use ckf_core::BlockHash;
use hashbrown::hash_map::Entry;

use super::front::{BlockChange, BlockChanges, Front};
use super::map::{self, Map};
use crate::HashSeeds;

/// How often each block is held.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    counts: Map<BlockHash, NonZeroU32>,
}

impl Copies {
    pub(super) fn new(seeds: HashSeeds) -> Self {
        Self { counts: map::new(seeds) }
    }

    /// Makes room for one more block; `false` when memory is refused.
    pub(super) fn reserve(&mut self) -> bool {
        self.counts.try_reserve(1).is_ok()
    }

    /// Counts one more copy; `true` when it is the first.
    pub(super) fn add(&mut self, hash: BlockHash) -> bool {
        match self.counts.entry(hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(NonZeroU32::MIN);
                true
            }
            Entry::Occupied(mut occupied) => {
                // Four thousand million copies of one block: whoever reports more is not believed.
                let count = occupied.get().saturating_add(1);
                occupied.insert(count);
                false
            }
        }
    }

    /// Counts one copy less; `true` when it was the last. An unknown block is a no-op.
    pub(super) fn subtract(&mut self, hash: BlockHash) -> bool {
        let Some(count) = self.counts.get_mut(&hash) else { return false };
        match NonZeroU32::new(count.get() - 1) {
            Some(less) => *count = less,
            None => {
                self.counts.remove(&hash);
                return true;
            }
        }
        false
    }

    pub(super) fn contains(&self, hash: BlockHash) -> bool {
        self.counts.contains_key(&hash)
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
    }
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
/// on, and counted. Cost: one map operation per block; now and then the
/// map grows.
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

    fn event_bytes(event: &Self::Event) -> u64 {
        F::event_bytes(event)
    }

    fn clears(event: &Self::Event) -> bool {
        F::clears(event)
    }

    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64 {
        let mut inner = BlockChanges::default();
        let orphans = self.front.apply(event, &mut inner);
        for change in inner {
            match change {
                BlockChange::Store(hashes) => {
                    for hash in hashes {
                        let full = self.copies.len() >= self.max_blocks || !self.copies.reserve();
                        if full && !self.copies.contains(hash) {
                            self.refused += 1;
                        } else if self.copies.add(hash) {
                            changes.store(hash);
                        }
                    }
                }
                BlockChange::Remove(hashes) => {
                    for hash in hashes {
                        if self.copies.subtract(hash) {
                            changes.remove(hash);
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

//! Copy counting, for engines that hold one block several times and report each copy.

use alloc::collections::BTreeMap;
use core::num::NonZeroU32;

use ckf_core::BlockHash;

use super::front::{BlockChange, BlockChanges, Front};

/// How often each block is held.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    counts: BTreeMap<BlockHash, NonZeroU32>,
}

impl Copies {
    /// Counts one more copy; `true` when it is the first.
    pub(super) fn add(&mut self, hash: BlockHash) -> bool {
        use alloc::collections::btree_map::Entry;
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
/// Memory: one map entry per block held, up to the limit given. Blocks beyond it are not passed
/// on, and counted. Cost: one map operation per block.
///
/// ```
/// use ckf_core::BlockHash;
/// use ckf_producer::source::{BlockChange, BlockChanges, CopyCounter, Direct, Front};
///
/// let mut counter = CopyCounter::new(Direct, 1_000_000);
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
    /// Counts copies of what `front` lets through, for `max_blocks` blocks at most.
    pub fn new(front: F, max_blocks: usize) -> Self {
        Self { front, copies: Copies::default(), max_blocks, refused: 0 }
    }

    /// Blocks held now.
    pub fn blocks(&self) -> usize {
        self.copies.len()
    }

    /// Stores, in blocks, that were not passed on because the limit was reached.
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
                        if self.copies.len() >= self.max_blocks && !self.copies.contains(hash) {
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

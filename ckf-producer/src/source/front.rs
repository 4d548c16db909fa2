//! What stands between the ordered events of a source and the commands to the pool.

use alloc::vec::Vec;
use core::fmt;

use ckf_core::BlockHash;

/// One change of a member's set of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// The member now holds these.
    Store(Vec<BlockHash>),
    /// The member no longer holds these.
    Remove(Vec<BlockHash>),
    /// The member holds nothing.
    Clear,
}

/// Changes in order. Neighbours of one kind are joined, and nothing is kept that stands before a
/// [`BlockChange::Clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockChanges {
    list: Vec<BlockChange>,
}

impl BlockChanges {
    /// Adds a stored block.
    pub fn store(&mut self, hash: BlockHash) {
        match self.list.last_mut() {
            Some(BlockChange::Store(hashes)) => hashes.push(hash),
            _ => self.list.push(BlockChange::Store(Vec::from([hash]))),
        }
    }

    /// Adds a removed block.
    pub fn remove(&mut self, hash: BlockHash) {
        match self.list.last_mut() {
            Some(BlockChange::Remove(hashes)) => hashes.push(hash),
            _ => self.list.push(BlockChange::Remove(Vec::from([hash]))),
        }
    }

    /// Forgets what was added and says that the member holds nothing.
    pub fn clear(&mut self) {
        self.list.clear();
        self.list.push(BlockChange::Clear);
    }

    /// Adds a change, joined with the last one when both are of a kind.
    pub fn push(&mut self, change: BlockChange) {
        match (self.list.last_mut(), change) {
            (_, BlockChange::Clear) => self.clear(),
            (Some(BlockChange::Store(to)), BlockChange::Store(mut more))
            | (Some(BlockChange::Remove(to)), BlockChange::Remove(mut more)) => {
                to.append(&mut more)
            }
            (_, change) => self.list.push(change),
        }
    }

    /// The blocks that the changes leave of an empty set: those whose last mention is a store.
    pub(super) fn into_blocks(self) -> Vec<BlockHash> {
        let mut list = self.list;
        if let [BlockChange::Store(hashes)] = &mut list[..] {
            // As full states are told. A repeated hash counts once in the pool.
            return core::mem::take(hashes);
        }
        let mut mentions = Vec::new();
        for (back, change) in list.into_iter().rev().enumerate() {
            let (hashes, stored) = match change {
                BlockChange::Store(hashes) => (hashes, true),
                BlockChange::Remove(hashes) => (hashes, false),
                BlockChange::Clear => break,
            };
            mentions.extend(hashes.into_iter().map(|hash| (hash, back, stored)));
        }
        // The last mention of each block comes first. Sorting takes a sixth of the time of a tree.
        mentions.sort_unstable();
        mentions.dedup_by_key(|mention| mention.0);
        mentions.retain(|mention| mention.2);
        mentions.into_iter().map(|mention| mention.0).collect()
    }
}

impl IntoIterator for BlockChanges {
    type Item = BlockChange;
    type IntoIter = alloc::vec::IntoIter<BlockChange>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// What a source publishes under one [`EventId`](super::EventId).
pub trait SourceEvent: Clone + fmt::Debug {
    /// Memory that it takes while it waits, in bytes: an estimate will do.
    fn bytes(&self) -> u64;

    /// Whether the member's set after this event is the same whatever it was before: it contains
    /// a clear. Such an event ends all doubt about the state.
    fn clears(&self) -> bool;
}

impl SourceEvent for Vec<BlockChange> {
    fn bytes(&self) -> u64 {
        let hashes = |change: &BlockChange| match change {
            BlockChange::Store(hashes) | BlockChange::Remove(hashes) => hashes.len() as u64,
            BlockChange::Clear => 0,
        };
        self.iter().map(|change| size_of::<BlockChange>() as u64 + 8 * hashes(change)).sum()
    }

    fn clears(&self) -> bool {
        self.contains(&BlockChange::Clear)
    }
}

/// Turns the events of one source into changes of its member's set of blocks.
///
/// A [`SourceStream`](super::SourceStream) puts events in order first and hands each to its front
/// exactly once: a front may keep state from event to event without a thought for loss,
/// repetition or restart. Fronts stack: [`CopyCounter`](super::CopyCounter) takes another one.
pub trait Front {
    /// What the source publishes under one [`EventId`](super::EventId).
    type Event: SourceEvent;

    /// Applies the event that follows the one applied last. Returns how many of its blocks could
    /// not be placed because a predecessor is unknown: a sign that something was missed.
    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64;

    /// Forgets the member's blocks: what is applied next starts from an empty set.
    fn reset(&mut self);
}

/// The front of sources that speak of [`BlockHash`]es already: changes pass as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direct;

impl Front for Direct {
    type Event = Vec<BlockChange>;

    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64 {
        event.into_iter().for_each(|change| changes.push(change));
        0
    }

    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn neighbours_of_a_kind_are_joined_and_a_clear_swallows_what_was() {
        let h = |bits: u64| BlockHash::new(bits);
        let mut changes = BlockChanges::default();
        changes.store(h(1));
        changes.push(BlockChange::Store(vec![h(2), h(3)]));
        changes.remove(h(1));
        changes.push(BlockChange::Remove(vec![h(9)]));
        changes.store(h(1));
        assert_eq!(
            changes.clone().into_iter().collect::<Vec<_>>(),
            vec![
                BlockChange::Store(vec![h(1), h(2), h(3)]),
                BlockChange::Remove(vec![h(1), h(9)]),
                BlockChange::Store(vec![h(1)]),
            ]
        );
        assert_eq!(changes.clone().into_blocks(), vec![h(1), h(2), h(3)]);
        changes.push(BlockChange::Clear);
        changes.store(h(4));
        assert_eq!(
            changes.into_iter().collect::<Vec<_>>(),
            vec![BlockChange::Clear, BlockChange::Store(vec![h(4)])]
        );
    }
}

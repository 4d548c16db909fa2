//! The sources, and what may be known of them.

use std::collections::BTreeSet;

use ckf_core::BlockHash;
use ckf_producer::source::{BlockChange, BlockChanges, Front, SourceEvent};

pub(super) type Blocks = BTreeSet<BlockHash>;

/// What a source tells at once.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) life: usize,
    /// How much its life has published with it.
    pub(super) published: usize,
    /// Whether it is a state instead of one event.
    pub(super) whole: bool,
    /// What all that it stores builds on.
    pub(super) parent: Option<BlockHash>,
    pub(super) changes: Vec<BlockChange>,
}

impl SourceEvent for Told {
    fn bytes(&self) -> u64 {
        self.changes.bytes()
    }

    fn clears(&self) -> bool {
        self.changes.clears()
    }
}

/// A front that leaves out what builds on blocks it does not hold, and insists on order.
#[derive(Clone, Debug, Default)]
pub(super) struct Follower {
    pub(super) known: Blocks,
    /// Life, and what it had published, as of the last event since the last reset.
    pub(super) last: Option<(usize, usize)>,
    /// Which event of its life `known` begins with, from 1; 0 where nothing can be missing, since the
    /// source held nothing or told its whole state.
    pub(super) from: Option<usize>,
}

impl Follower {
    /// What is known after these events and nothing else.
    pub(super) fn after<'a>(events: impl IntoIterator<Item = &'a Told>) -> Blocks {
        let mut follower = Self::default();
        for event in events {
            follower.apply(event.clone(), &mut BlockChanges::default());
        }
        follower.known
    }
}

impl Front for Follower {
    type Event = Told;

    fn apply(&mut self, told: Told, changes: &mut BlockChanges) -> u64 {
        let at = (told.life, told.published);
        let follows = |(life, published)| at == (life, published + 1);
        assert!(told.clears() || self.last.is_none_or(follows), "{at:?} after {:?}", self.last);
        if told.whole || told.published == 1 || told.clears() {
            self.from = Some(0);
        }
        self.from.get_or_insert(told.published);
        self.last = Some(at);
        let mut orphans = 0;
        for change in told.changes {
            match &change {
                BlockChange::Store(hashes) => {
                    if told.parent.is_some_and(|parent| !self.known.contains(&parent)) {
                        orphans += hashes.len() as u64;
                        continue;
                    }
                    self.known.extend(hashes);
                }
                BlockChange::Remove(hashes) => self.known.retain(|held| !hashes.contains(held)),
                BlockChange::Clear => self.known.clear(),
            }
            changes.push(change);
        }
        orphans
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// One life of a source: what it published, and after each event what it holds, and of that what
/// one who heard everything can place.
#[derive(Clone, Default)]
pub(super) struct Life {
    pub(super) events: Vec<Told>,
    states: Vec<(Blocks, Blocks)>,
    witness: Follower,
}

impl Life {
    pub(super) fn state(&self, published: usize) -> (Blocks, Blocks) {
        published.checked_sub(1).map_or_else(Default::default, |last| self.states[last].clone())
    }

    pub(super) fn publish(&mut self, told: Told) {
        let (mut state, _) = self.state(self.states.len());
        for change in &told.changes {
            match change {
                BlockChange::Store(hashes) => state.extend(hashes),
                BlockChange::Remove(hashes) => state.retain(|held| !hashes.contains(held)),
                BlockChange::Clear => state.clear(),
            }
        }
        self.events.push(told.clone());
        self.witness.apply(told, &mut BlockChanges::default());
        self.states.push((state, self.witness.known.clone()));
    }
}

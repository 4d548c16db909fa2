//! Telling a restart of an engine from a hiccup of the network.
//!
//! Engines do not name their lives. Two signs are certain:
//! - on one connection numbers only rise, so a number at or below the last one is a new life;
//! - the last batch before a connection was lost, asked for again, is another one now, or not there
//!   although it was the newest: a new life.
//!
//! A new connection alone says nothing (report F15). Without a replay socket there is no question to
//! ask, so two more things count: an address where nobody listens any more, since a network that
//! hiccups does not refuse connections; and a silence after a lost connection that lasts too long, since
//! what nothing proves must not be believed for ever. Both are for the watcher to notice.

use ckf_producer::source::{EventId, SourceGeneration};
use xxhash_rust::xxh3::xxh3_64;

/// What is remembered of an engine's present life.
#[derive(Debug)]
pub struct Life {
    generation: u64,
    /// Number of the last batch that came live. A replay runs up to the newest batch, which then
    /// comes live as well: that is no step back.
    last_live: Option<u64>,
    /// Number and digest of the newest batch received, live or replayed.
    newest: Option<(u64, u64)>,
}

impl Life {
    /// A first life. `generation` must be above those of former watchers of the same engine.
    pub fn new(generation: u64) -> Self {
        Self { generation, last_live: None, newest: None }
    }

    /// Its name.
    pub fn generation(&self) -> SourceGeneration {
        SourceGeneration::new(self.generation)
    }

    /// The newest batch received.
    pub fn newest(&self) -> Option<EventId> {
        self.newest.map(|(number, _)| EventId::new(number))
    }

    /// A batch came on the live socket; `true` when it shows that a new life began.
    pub fn live(&mut self, number: u64, payload: &[u8]) -> bool {
        let restarted = self.last_live.is_some_and(|last| number <= last);
        if restarted {
            self.begin();
        }
        self.last_live = Some(number);
        self.replayed(number, payload);
        restarted
    }

    /// A batch came in a replay.
    pub fn replayed(&mut self, number: u64, payload: &[u8]) {
        if self.newest.is_none_or(|(newest, _)| number >= newest) {
            self.newest = Some((number, xxh3_64(payload)));
        }
    }

    /// The engine is taken for a new one.
    pub fn begin(&mut self) {
        *self = Self::new(self.generation + 1);
    }

    /// After a reconnection the replay from [`newest`](Self::newest) on began with this batch, or
    /// brought none; `true` when that shows that a new life began.
    pub fn reconnected(&mut self, first: Option<(u64, &[u8])>) -> bool {
        let Some(newest) = self.newest else { return false };
        let same = match first {
            Some((number, payload)) if number == newest.0 => xxh3_64(payload) == newest.1,
            // The buffer has moved on: nothing is proved.
            Some((number, _)) => number > newest.0,
            None => false,
        };
        if !same {
            self.begin();
        }
        !same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f15_only_the_numbers_of_one_connection_or_the_replay_prove_a_restart() {
        let mut life = Life::new(7);
        assert!(!life.live(0, b"a") && !life.live(41, b"b"));
        assert!(!life.reconnected(Some((41, b"b"))), "the same batch: the same life");
        assert!(!life.live(42, b"c"));
        assert!(!life.reconnected(Some((50, b"x"))), "evicted: nothing proved");
        assert!(life.live(0, b"z"));
        assert_eq!(life.generation().get(), 8);
        assert!(life.reconnected(Some((0, b"other"))));
        assert_eq!((life.generation().get(), life.newest()), (9, None));
        life.live(5, b"q");
        assert!(life.reconnected(None), "the newest batch is gone");
    }

    #[test]
    fn f15_a_restart_shows_also_when_all_that_is_known_came_by_replay() {
        let mut life = Life::new(1);
        life.replayed(0, b"a");
        life.replayed(1, b"b");
        assert!(!life.live(1, b"b"), "what was replayed comes live as well");
        let mut idle = Life::new(1);
        idle.replayed(1, b"b");
        assert!(!idle.reconnected(Some((1, b"b"))));
        assert!(idle.reconnected(None));
    }
}

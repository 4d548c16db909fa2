//! Telling a restart of an engine from a hiccup of the network, and what a replay can vouch for.
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

use ckf_producer::source::{EngineEvent, EventId, SourceGeneration};
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
    /// The first batch after the last gap on the live socket.
    after_gap: Option<u64>,
}

impl Life {
    /// A first life. `generation` must be above those of former watchers of the same engine.
    pub fn new(generation: u64) -> Self {
        Self { generation, last_live: None, newest: None, after_gap: None }
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
        let expected = self.newest.map_or(0, |(newest, _)| newest.saturating_add(1));
        if number > expected {
            self.after_gap = Some(number);
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

    /// A batch came that cannot be read: what it said is missing.
    pub fn unreadable(&mut self, number: u64) {
        self.after_gap = number.checked_add(1);
    }

    /// The event as of which a member whose engine cannot be asked starts from nothing: the one before
    /// the batches that came without a gap, or else the newest.
    pub fn start_over(&mut self) -> Option<EventId> {
        self.after_gap.take().map(|first| EventId::new(first - 1)).or(self.newest())
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

/// The state that replayed batches lead to, as far as they vouch for it: all of them from the first
/// one ever, or from one that cleared everything. Otherwise the member counts as empty.
///
/// `batches` are numbers and events in the order of the answer; `None` stands for a batch that did
/// not decode.
pub fn full_state(
    batches: impl IntoIterator<Item = (u64, Option<Vec<EngineEvent>>)>,
) -> (Option<EventId>, Vec<EngineEvent>) {
    let mut next = Some(0);
    let mut vouched = true;
    let mut last = None;
    let mut content = Vec::new();
    for (number, events) in batches {
        if next != Some(number) || events.is_none() {
            vouched = false;
            content.clear();
        }
        for event in events.into_iter().flatten() {
            if event == EngineEvent::Cleared {
                vouched = true;
                content.clear();
            } else if vouched {
                content.push(event);
            }
        }
        next = number.checked_add(1);
        last = Some(EventId::new(number));
    }
    (last, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckf_core::EngineBlockId;
    use ckf_producer::source::{RemovedBlocks, StoredBlocks};

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
    fn without_replay_a_member_starts_over_before_the_batches_that_have_no_gap() {
        let mut life = Life::new(1);
        assert_eq!(life.start_over(), None, "nothing came yet");
        life.live(57, b"a");
        life.live(58, b"b");
        assert_eq!(life.start_over(), Some(EventId::new(56)));
        assert_eq!(life.start_over(), Some(EventId::new(58)), "that gap is dealt with");
        life.live(60, b"c");
        assert_eq!(life.start_over(), Some(EventId::new(59)));
        life.live(61, b"?");
        life.unreadable(61);
        life.live(62, b"d");
        assert_eq!(life.start_over(), Some(EventId::new(61)), "what could be read counts");
        let mut whole = Life::new(1);
        (0..5).for_each(|number| assert!(!whole.live(number, b"")));
        assert_eq!(whole.start_over(), Some(EventId::new(4)));
        life.begin();
        assert_eq!((life.generation().get(), life.start_over()), (2, None));
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

    #[test]
    fn a_replay_vouches_from_the_first_batch_or_a_clear_only() {
        let store = |id| {
            EngineEvent::Stored(StoredBlocks {
                ids: vec![EngineBlockId::new(id)],
                ..StoredBlocks::default()
            })
        };
        let removed = || EngineEvent::Removed(RemovedBlocks::default());
        let whole = full_state([(0, Some(vec![store(1)])), (1, Some(vec![removed()]))]);
        assert_eq!(whole, (Some(EventId::new(1)), vec![store(1), removed()]));
        let late = full_state([(3, Some(vec![store(1)])), (4, Some(vec![store(2)]))]);
        assert_eq!(late, (Some(EventId::new(4)), vec![]));
        let cleared = full_state([(3, Some(vec![store(1), EngineEvent::Cleared, store(2)]))]);
        assert_eq!(cleared.1, [store(2)]);
        let broken = full_state([(0, Some(vec![store(1)])), (1, None), (2, Some(vec![store(2)]))]);
        assert_eq!(broken.1, []);
        let holed = full_state([(0, Some(vec![store(1)])), (2, Some(vec![store(2)]))]);
        assert_eq!(holed.1, []);
        assert_eq!(full_state([]), (None, vec![]));
    }
}

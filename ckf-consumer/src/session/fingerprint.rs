//! What decides a session's future apart from time, for exhaustive exploration.

use std::hash::{Hash, Hasher};

use super::stream::Stream;
use super::{LaneSession, LaneStore, Phase};

impl<S: LaneStore + Hash> LaneSession<S> {
    /// Feeds everything but points in time, the back-off's length, counters and events.
    #[doc(hidden)]
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        (self.consumer, self.lane, self.epoch, &self.give_back, self.state()).hash(state);
        self.store.hash(state);
        match &self.phase {
            Phase::Unassigned => {}
            Phase::BackingOff { pool, .. } => pool.hash(state),
            Phase::Subscribing { pool, epoch, sent, .. } => (pool, epoch, sent).hash(state),
            Phase::Installing { stream, .. } | Phase::Ready { stream, .. } => stream.feed(state),
        }
    }
}

impl Stream {
    fn feed(&self, state: &mut impl Hasher) {
        (self.begin(), self.sequence(), self.parts(), self.digest(), self.filled()).hash(state);
    }
}

//! What decides a producer's future apart from time, for exhaustive exploration.

use core::hash::{Hash, Hasher};

use super::Publisher;
use super::lease::{Lease, Link, Stage};

impl Publisher {
    /// Feeds everything but points in time, counters and events.
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        (self.incarnation, self.minted, self.closed.is_some(), self.links.len()).hash(state);
        for (subscriber, link) in &self.links {
            subscriber.hash(state);
            link.fingerprint(state);
        }
    }
}

impl Link {
    fn fingerprint(&self, state: &mut impl Hasher) {
        self.letters.len().hash(state);
        for letter in &self.letters {
            letter.to_bytes().hash(state);
        }
        self.lease.is_some().hash(state);
        if let Some(lease) = &self.lease {
            lease.fingerprint(state);
        }
    }
}

impl Lease {
    fn fingerprint(&self, state: &mut impl Hasher) {
        let next = match self.stage {
            Stage::Snapshot { next, .. } => Some(next),
            Stage::Live { .. } => None,
        };
        (self.terms, next, self.owes_drain, self.outbox.len()).hash(state);
        for body in self.outbox.iter() {
            body.frame(self.terms.lease).to_bytes().hash(state);
        }
    }
}

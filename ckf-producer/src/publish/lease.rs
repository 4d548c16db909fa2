//! What is kept for one subscriber: its lease, and what waits to be sent to it.

use alloc::collections::VecDeque;

use ckf_protocol::{Frame, Instant, LeaseTerms, SharedBody};

/// The host's name for one link to one subscriber. A link carries one lease at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(u64);

impl SubscriberId {
    /// Wraps the number as it is.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One link. `letters` are frames for it alone, which go out before anything of the lease:
/// refusals, the end of a former lease, the begin of the present one.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) letters: VecDeque<Frame>,
    pub(super) lease: Option<Lease>,
}

impl Link {
    /// Letters that may wait; of more, the later ones are dropped.
    const MAX_LETTERS: usize = 4;

    /// Adds a letter; `false` when there is no room.
    pub(super) fn write(&mut self, letter: Frame) -> bool {
        let room = self.letters.len() < Self::MAX_LETTERS;
        if room {
            self.letters.push_back(letter);
        }
        room
    }

    /// Whether a poll would give a frame.
    pub(super) fn has_frames(&self) -> bool {
        !self.letters.is_empty() || self.lease.as_ref().is_some_and(Lease::has_frames)
    }
}

/// A lease and how far its subscriber has been served.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) terms: LeaseTerms,
    pub(super) stage: Stage,
    pub(super) outbox: Outbox,
    /// A drain marker is owed once the snapshot is complete.
    pub(super) owes_drain: bool,
}

/// Snapshot first, then only batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Buckets from `next` on are still to be sent; the next chunk must be taken by `deadline`.
    Snapshot { next: u32, deadline: Instant },
    /// All is sent; the last message was queued at `quiet_since`.
    Live { quiet_since: Instant },
}

impl Lease {
    /// Something was queued: the next heartbeat can wait.
    pub(super) fn note_queued(&mut self, now: Instant) {
        if let Stage::Live { quiet_since } = &mut self.stage {
            *quiet_since = now;
        }
    }

    fn has_frames(&self) -> bool {
        !self.outbox.is_empty() || matches!(self.stage, Stage::Snapshot { .. })
    }
}

/// Bodies that wait for one subscriber, bounded in number and bytes. The bytes are shared with
/// other subscribers' outboxes.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    bodies: VecDeque<SharedBody>,
    bytes: u64,
    max_messages: u32,
    max_bytes: u64,
}

/// The subscriber has let too much pile up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lagging;

impl Outbox {
    pub(super) fn new(max_messages: u32, max_bytes: u64) -> Self {
        Self { bodies: VecDeque::new(), bytes: 0, max_messages, max_bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.bodies.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Queues all of them or none.
    pub(super) fn push_all(&mut self, bodies: &[SharedBody]) -> Result<(), Lagging> {
        let more: u64 = bodies.iter().map(|body| body.frame_len() as u64).sum();
        if self.bodies.len() + bodies.len() > self.max_messages as usize
            || self.bytes + more > self.max_bytes
        {
            return Err(Lagging);
        }
        self.bodies.extend(bodies.iter().cloned());
        self.bytes += more;
        Ok(())
    }

    /// Queues a small body in an empty outbox: there, one always fits.
    pub(super) fn push_first(&mut self, body: SharedBody) {
        debug_assert!(self.is_empty());
        self.bytes += body.frame_len() as u64;
        self.bodies.push_back(body);
    }

    pub(super) fn pop(&mut self) -> Option<SharedBody> {
        let body = self.bodies.pop_front()?;
        self.bytes -= body.frame_len() as u64;
        Some(body)
    }

    /// What waits, first to go first.
    #[cfg(feature = "_model")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &SharedBody> {
        self.bodies.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckf_core::TableDigest;
    use ckf_protocol::{Heartbeat, Sequence};

    fn body() -> SharedBody {
        let (sequence, digest) = (Sequence::new(1), TableDigest::EMPTY);
        Heartbeat { sequence, digest, drain: false }.to_body()
    }

    #[test]
    fn an_outbox_is_bounded_in_messages_and_in_bytes() {
        let size = body().frame_len() as u64;
        let mut by_count = Outbox::new(3, u64::MAX);
        let mut by_bytes = Outbox::new(u32::MAX, 3 * size + 1);
        for outbox in [&mut by_count, &mut by_bytes] {
            assert_eq!(outbox.push_all(&[body(), body()]), Ok(()));
            assert_eq!(outbox.push_all(&[body(), body()]), Err(Lagging));
            assert_eq!((outbox.len(), outbox.bytes()), (2, 2 * size));
            assert_eq!(outbox.push_all(&[body()]), Ok(()));
            assert_eq!(outbox.push_all(&[body()]), Err(Lagging));
            assert!(outbox.pop().is_some());
            assert_eq!(outbox.push_all(&[body()]), Ok(()));
            while outbox.pop().is_some() {}
            assert_eq!(outbox.bytes(), 0);
        }
    }
}

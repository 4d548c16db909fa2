//! From one frame to its fate. Everything is checked before the first word is stored.

use ckf_core::{BucketImage, BucketIndex, TableDigest};
use ckf_protocol::{
    ChunkView, DeltaView, Heartbeat, Instant, Kind, LeaseTerms, Limits, Message,
    ProducerExpectation, Reject, SnapshotEnd, decode, peek_header,
};

use super::stream::{Place, Stream};
use super::{Failure, Handled, Ignored, LaneSession, LaneStore, Phase, SessionEvent};

/// For headers, which are read to find out whose frame it is, however long.
const ANY_LENGTH: Limits = match Limits::new(Limits::MAX_FRAME, 1, 1) {
    Ok(limits) => limits,
    Err(_) => panic!("the longest frames are legal"),
};

/// What a message on the current lease amounts to.
enum Verdict {
    Handled(Handled),
    Duplicate,
    WrongDirection,
    Failed(Failure),
}

impl<S: LaneStore> LaneSession<S> {
    /// Takes in one whole frame. Cost: linear in its length. One above the session's limits is
    /// refused like any that does not decode: on the current lease it retires the lane.
    pub fn handle_frame(&mut self, frame: &[u8], now: Instant) -> Handled {
        self.advance(now);
        self.stats.bytes += frame.len() as u64;
        let Ok(header) = peek_header(frame, &ANY_LENGTH) else {
            return self.ignore(Ignored::Unreadable);
        };
        match (header.lease(), &self.phase) {
            (Some(lease), _) if self.lease() == Some(lease) => self.receive(frame),
            (Some(_), _) if header.kind() == Ok(Kind::SnapshotBegin) => self.offered(frame),
            (_, Phase::Unassigned) => self.ignore(Ignored::Unassigned),
            (Some(_), _) => self.ignore(Ignored::ForeignLease),
            (None, _) => match decode(frame, self.config.limits()) {
                Ok(Message::Reject(reject)) => self.rejected(&reject),
                Ok(_) => self.ignore(Ignored::WrongDirection),
                Err(_) => self.ignore(Ignored::Unreadable),
            },
        }
    }

    fn ignore(&mut self, reason: Ignored) -> Handled {
        self.stats.ignored.count(reason);
        Handled::Ignored(reason)
    }

    /// A lease that is not the current one: the answer to our subscription, or no business of ours.
    fn offered(&mut self, frame: &[u8]) -> Handled {
        let Ok(Message::SnapshotBegin(begin)) = decode(frame, self.config.limits()) else {
            return self.ignore(Ignored::Unreadable);
        };
        let LeaseTerms { lease, consumer, lane, epoch } = begin.terms;
        if (consumer, lane) != (self.consumer, self.lane) {
            return self.ignore(Ignored::ForeignTerms);
        }
        let pool = match self.phase {
            Phase::Subscribing { pool, epoch: asked, .. } if epoch == asked => pool,
            _ => {
                // We asked for it once and no longer want it; nobody else will end it.
                self.return_lease(lease);
                return self.ignore(Ignored::ForeignTerms);
            }
        };
        let expected = ProducerExpectation { pool, format: *self.store.format() };
        if let Some(field) = begin.identity.mismatch(&expected) {
            let failure = Failure::IdentityMismatch { field };
            self.return_lease(lease);
            self.fail(failure);
            return Handled::Retired(failure);
        }
        self.store.begin_install(pool.dc);
        let deadline = self.now.saturating_add(self.config.times().snapshot_progress);
        self.phase = Phase::Installing { stream: Stream::new(begin), deadline };
        Handled::Installing
    }

    /// An answer to a subscription, perhaps to ours.
    fn rejected(&mut self, reject: &Reject) -> Handled {
        let Phase::Subscribing { pool, epoch, .. } = self.phase else {
            return self.ignore(Ignored::ForeignTerms);
        };
        let ours = (self.consumer, self.lane, epoch, pool);
        if (reject.consumer, reject.lane, reject.epoch, reject.pool) != ours {
            return self.ignore(Ignored::ForeignTerms);
        }
        let reason = reject.reason;
        self.tell(SessionEvent::Rejected { reason });
        self.fail(Failure::Rejected(reason));
        Handled::Rejected(reason)
    }

    /// A frame on the current lease.
    fn receive(&mut self, frame: &[u8]) -> Handled {
        let verdict = match decode(frame, self.config.limits()) {
            Err(error) => Verdict::Failed(Failure::Malformed(error)),
            Ok(message) => self.judge(&message),
        };
        match verdict {
            Verdict::Handled(handled) => handled,
            Verdict::Duplicate => self.ignore(Ignored::Duplicate),
            Verdict::WrongDirection => self.ignore(Ignored::WrongDirection),
            Verdict::Failed(failure) => {
                self.fail(failure);
                Handled::Retired(failure)
            }
        }
    }

    /// What a message on the current lease amounts to. Here and in what follows there is such a lease;
    /// without one, a message would change nothing.
    fn judge(&mut self, message: &Message<'_>) -> Verdict {
        let Some((stream, _)) = self.following() else { return Verdict::Duplicate };
        match message {
            Message::SnapshotBegin(begin) => match stream.mismatch(begin) {
                None => Verdict::Duplicate,
                Some(field) => Verdict::Failed(Failure::IdentityMismatch { field }),
            },
            Message::SnapshotChunk { chunk, .. } => self.chunk(chunk),
            Message::SnapshotEnd { end, .. } => self.end(end),
            Message::Delta { delta, .. } => self.delta(delta),
            Message::Heartbeat { heartbeat, .. } => self.heartbeat(heartbeat),
            Message::Retire { retire, .. } => Verdict::Failed(Failure::ByProducer(retire.reason)),
            _ => Verdict::WrongDirection,
        }
    }

    fn chunk(&mut self, chunk: &ChunkView<'_>) -> Verdict {
        let format = *self.store.format();
        let Some((stream, _)) = self.following() else { return Verdict::Duplicate };
        match stream.place_chunk(chunk.first(), chunk.len() as u32, format.bucket_count()) {
            Place::Past => return Verdict::Duplicate,
            Place::Ahead => {
                let (expected, found) = (stream.filled(), chunk.first());
                return Verdict::Failed(Failure::SnapshotGap { expected, found });
            }
            Place::Next => {}
        }
        let Phase::Installing { stream, deadline } = &mut self.phase else {
            return Verdict::Duplicate;
        };
        let Some(first) = format.bucket(chunk.first()) else { return Verdict::Duplicate };
        // In one pass: what is stored is waited for while the next image is read and mixed.
        let mut digest = stream.digest();
        let images = chunk.images().map(|(bucket, image)| {
            digest = digest.replaced(bucket, BucketImage::EMPTY, image);
            image
        });
        self.store.store_run(first, images);
        stream.chunk_stored(chunk.first() + chunk.len() as u32, digest);
        *deadline = self.now.saturating_add(self.config.times().snapshot_progress);
        self.stats.chunks += 1;
        Verdict::Handled(Handled::Chunk)
    }

    fn end(&mut self, end: &SnapshotEnd) -> Verdict {
        let buckets = self.store.format().bucket_count();
        let Some((stream, ready)) = self.following() else { return Verdict::Duplicate };
        let gap = stream.gap(end.sequence);
        if ready {
            // It ended when the lane became ready; what ends later skips something.
            let past = stream.place_mark(end.sequence) != Place::Ahead;
            return if past { Verdict::Duplicate } else { Verdict::Failed(gap) };
        }
        if stream.filled() < buckets {
            let (expected, found) = (stream.filled(), buckets);
            return Verdict::Failed(Failure::SnapshotGap { expected, found });
        }
        if stream.place_mark(end.sequence) != Place::Next {
            return Verdict::Failed(gap);
        }
        if stream.digest() != end.digest {
            return Verdict::Failed(Failure::DigestMismatch);
        }
        let (sequence, identity) = (stream.sequence(), *stream.identity());
        let stream = stream.clone();
        self.store.publish_ready(sequence, self.now);
        self.phase = Phase::Ready { stream, since: self.now, heard: self.now };
        self.stats.snapshots += 1;
        self.tell(SessionEvent::Ready { identity, sequence });
        Verdict::Handled(Handled::Ready(sequence))
    }

    fn delta(&mut self, delta: &DeltaView<'_>) -> Verdict {
        let Some((stream, ready)) = self.following() else { return Verdict::Duplicate };
        match stream.place_part(delta.sequence(), delta.part()) {
            Place::Next => {}
            Place::Past => {
                // The one past message that can still be compared: another batch under the number
                // of the last one means that the stream has forked.
                let last = stream.place_mark(delta.sequence()) == Place::Next && delta.last();
                return if ready && last && delta.digest() != stream.digest() {
                    Verdict::Failed(Failure::DigestMismatch)
                } else {
                    Verdict::Duplicate
                };
            }
            Place::Ahead => return Verdict::Failed(stream.gap(delta.sequence())),
        }
        let filled = stream.filled();
        let digest = self.predict(delta, filled, stream.digest());
        if ready && digest != delta.digest() {
            return Verdict::Failed(Failure::DigestMismatch);
        }
        self.apply(delta, filled);
        self.stats.deltas += 1;
        self.stats.patches += delta.len() as u64;
        let now = self.now;
        let sequence = match &mut self.phase {
            Phase::Installing { stream, .. } => {
                stream.part_applied(delta.sequence(), delta.last(), digest);
                stream.sequence()
            }
            Phase::Ready { stream, heard, .. } => {
                stream.part_applied(delta.sequence(), delta.last(), digest);
                *heard = now;
                self.store.note(stream.sequence(), now);
                stream.sequence()
            }
            _ => return Verdict::Duplicate,
        };
        Verdict::Handled(Handled::Applied(sequence))
    }

    /// The patches of the buckets below `filled`, with each bucket's image before.
    fn changes(
        &self,
        delta: &DeltaView<'_>,
        filled: u32,
    ) -> impl Iterator<Item = (BucketIndex, BucketImage, BucketImage)> {
        let format = *self.store.format();
        delta.patches().take_while(move |patch| patch.bucket < filled).filter_map(move |patch| {
            let bucket = format.bucket(patch.bucket)?;
            let before = self.store.word(bucket);
            Some((bucket, before, patch.apply(before)))
        })
    }

    /// The digest that the filled part of the lane would have after the patches.
    fn predict(&self, delta: &DeltaView<'_>, filled: u32, digest: TableDigest) -> TableDigest {
        self.changes(delta, filled).fold(digest, |digest, (bucket, before, after)| {
            digest.replaced(bucket.get(), before, after)
        })
    }

    /// Stores the patches: buckets that gain a fingerprint first, so that one that moves into free
    /// room is in both buckets for a moment rather than in none. Of a chain of moves, those into
    /// the place of another may be missed for that moment; see the crate's "Consistency" section.
    fn apply(&mut self, delta: &DeltaView<'_>, filled: u32) {
        let format = *self.store.format();
        for gaining in [true, false] {
            for patch in delta.patches().take_while(|patch| patch.bucket < filled) {
                let Some(bucket) = format.bucket(patch.bucket) else { continue };
                let before = self.store.word(bucket);
                let after = patch.apply(before);
                // In the second round the buckets of the first hold their new image already.
                if after != before && (after.occupied() > before.occupied()) == gaining {
                    self.store.store(bucket, after);
                }
            }
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Verdict {
        let Some((stream, ready)) = self.following() else { return Verdict::Duplicate };
        let sequence = heartbeat.sequence;
        match stream.place_mark(sequence) {
            Place::Past => return Verdict::Duplicate,
            Place::Ahead => return Verdict::Failed(stream.gap(sequence)),
            Place::Next if ready && heartbeat.digest != stream.digest() => {
                return Verdict::Failed(Failure::DigestMismatch);
            }
            Place::Next => {}
        }
        self.stats.heartbeats += 1;
        if let Phase::Ready { heard, .. } = &mut self.phase {
            *heard = self.now;
            self.store.note(sequence, self.now);
            if heartbeat.drain {
                self.tell(SessionEvent::Drained { sequence });
            }
        }
        Verdict::Handled(Handled::Alive(sequence))
    }
}

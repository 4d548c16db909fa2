//! Publication: who reads the pool, and what waits for each reader. In come sealed batches,
//! subscribers' frames and the time; out go frames and events. Next stop:
//! `ckf-protocol/src/delta.rs`.
//!
//! - `config`: limits and periods;
//! - `lease`: one subscriber's lease and outbox;
//! - `chunks`: snapshot chunks, encoded once for all that ask for the same;
//! - `report`: events, reasons and counters.

mod chunks;
mod config;
#[cfg(feature = "_model")]
mod fingerprint;
mod lease;
mod report;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::slice;

use ckf_protocol::{
    ConsumerId, DeltaWriter, EncodeError, Frame, Heartbeat, Incarnation, Instant, Lane, LeaseId,
    LeaseTerms, Limits, Message, PoolId, ProducerIdentity, Reject, RejectReason, Retire,
    RetireReason, SharedBody, SnapshotBegin, SnapshotEnd, Subscribe, VersionRange, decode,
};

use crate::{Pool, SealedBatch};
use chunks::Chunks;
use lease::{Lagging, Lease, Link, Outbox, Stage};

pub use config::{PublishConfig, PublishConfigError};
pub use lease::SubscriberId;
pub use report::{
    Due, EndedCounts, IgnoredRequest, IgnoredRequestCounts, LeaseEnd, ProducerEvent, PublishStats,
    RejectedCounts, Request, Traffic,
};

/// Serves any number of subscribers from one sequence of batches.
///
/// Memory: per subscriber a bounded outbox of references to bodies that all share; nothing of it
/// grows with the table.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    config: PublishConfig,
    pool: PoolId,
    incarnation: Incarnation,
    /// The latest time seen.
    now: Instant,
    /// Leases minted so far.
    minted: u64,
    links: BTreeMap<SubscriberId, Link>,
    /// Links with a lease, by the reader that holds it: a reader holds one.
    readers: BTreeMap<(ConsumerId, Lane), SubscriberId>,
    /// Of these, those whose snapshot is not complete.
    snapshots: usize,
    chunks: Chunks,
    /// Why no lease is granted any more.
    closed: Option<RejectReason>,
    events: VecDeque<ProducerEvent>,
    stats: PublishStats,
}

impl Publisher {
    /// Events kept for a host that does not fetch them; the oldest give way.
    pub(crate) const MAX_EVENTS: usize = 1024;
    /// Links without a lease whose letters are kept, beside one for each subscriber that there can
    /// be: those have to hear that their leases are over, whatever others leave unread.
    const MAX_LEASELESS: usize = 64;

    pub(crate) fn new(config: PublishConfig, pool: PoolId, incarnation: Incarnation) -> Self {
        Self {
            config,
            pool,
            incarnation,
            now: Instant::ZERO,
            minted: 0,
            links: BTreeMap::new(),
            readers: BTreeMap::new(),
            snapshots: 0,
            chunks: Chunks::default(),
            closed: None,
            events: VecDeque::new(),
            stats: PublishStats::default(),
        }
    }

    pub(crate) fn identity(&self, pool: &Pool) -> ProducerIdentity {
        let (layout, format) = (pool.layout(), pool.format());
        ProducerIdentity { pool: self.pool, incarnation: self.incarnation, layout, format }
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.latest(now);
    }

    /// Whether anybody reads: without a lease, batches need not be encoded.
    pub(crate) fn has_leases(&self) -> bool {
        !self.readers.is_empty()
    }

    pub(crate) fn stats(&self) -> PublishStats {
        let mut stats = self.stats;
        (stats.subscribers, stats.snapshots_running) =
            (self.readers.len() as u64, self.snapshots as u64);
        for (_, lease) in self.leases() {
            stats.outbox_messages_most = stats.outbox_messages_most.max(lease.outbox.len() as u64);
            stats.outbox_bytes_most = stats.outbox_bytes_most.max(lease.outbox.bytes());
        }
        stats
    }

    fn leases(&self) -> impl Iterator<Item = (SubscriberId, &Lease)> {
        self.links.iter().filter_map(|(&id, link)| Some((id, link.lease.as_ref()?)))
    }

    pub(crate) fn limits(&self, pool: &Pool) -> Limits {
        self.config.limits().with_bucket_count(pool.format().bucket_count())
    }

    /// Encodes the batch once and queues it for every lease.
    pub(crate) fn publish(&mut self, batch: &SealedBatch<'_>, limits: &Limits) {
        if !self.has_leases() {
            return;
        }
        self.stats.batches_encoded += 1;
        match encode(batch, limits) {
            Ok(parts) => self.queue_where(&parts, |_| true),
            // More parts than a batch may have: nobody can follow, all need a snapshot.
            Err(_) => self.retire_all(RetireReason::Lagged),
        }
    }

    /// Queues bodies for the leases that `wanted` picks; those without room for them end.
    fn queue_where(&mut self, bodies: &[SharedBody], mut wanted: impl FnMut(&mut Lease) -> bool) {
        let now = self.now;
        let mut lagging = Vec::new();
        for (&subscriber, link) in &mut self.links {
            let Some(lease) = link.lease.as_mut() else { continue };
            if !wanted(lease) {
                continue;
            }
            match lease.outbox.push_all(bodies) {
                Ok(()) => lease.note_queued(now),
                Err(Lagging) => lagging.push(subscriber),
            }
        }
        for subscriber in lagging {
            self.retire(subscriber, RetireReason::Lagged);
        }
    }

    /// Queues a drain marker for every lease; one whose snapshot runs gets it afterwards.
    pub(crate) fn drain(&mut self, pool: &Pool) {
        let marker = mark(pool, true);
        self.queue_where(slice::from_ref(&marker), |lease| {
            lease.owes_drain = matches!(lease.stage, Stage::Snapshot { .. });
            !lease.owes_drain
        });
    }

    pub(crate) fn handle_frame(
        &mut self,
        subscriber: SubscriberId,
        frame: &[u8],
        pool: &Pool,
    ) -> Request {
        let request = match decode(frame, self.config.limits()) {
            Ok(Message::Subscribe(subscribe)) => self.subscribe(subscriber, &subscribe, pool),
            Ok(Message::Unsubscribe(unsubscribe)) => self.release(subscriber, unsubscribe.lease),
            Ok(_) => Request::Ignored(IgnoredRequest::WrongDirection),
            Err(error) => Request::Ignored(IgnoredRequest::Unreadable(error)),
        };
        if let Request::Ignored(reason) = request {
            self.stats.ignored.count(reason);
        }
        request
    }

    fn subscribe(&mut self, subscriber: SubscriberId, request: &Subscribe, pool: &Pool) -> Request {
        let holder = self.readers.get(&(request.consumer, request.lane));
        let held = holder.and_then(|&id| Some((id, self.lease(id)?.epoch)));
        if held.is_some_and(|(_, epoch)| epoch == request.epoch) {
            return Request::Ignored(IgnoredRequest::Duplicate);
        }
        let replaces =
            held.is_some() || self.links.get(&subscriber).is_some_and(|l| l.lease.is_some());
        let expected = &request.expected;
        let refusal = if self.closed.is_some() {
            self.closed
        } else if expected.pool != self.pool {
            Some(RejectReason::UnknownPool)
        } else if !request.versions.contains(VersionRange::CURRENT) {
            Some(RejectReason::VersionUnsupported { theirs: VersionRange::SUPPORTED })
        } else if pool.fence_state().is_err() {
            Some(RejectReason::Fenced)
        } else if expected.format != pool.format() {
            Some(RejectReason::FormatMismatch { theirs: pool.format() })
        } else if held.is_some_and(|(_, epoch)| request.epoch < epoch) {
            Some(RejectReason::StaleEpoch)
        } else if !replaces && self.readers.len() >= self.config.max_subscribers() as usize {
            Some(RejectReason::TooManySubscribers)
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.stats.rejected.count(reason);
            self.tell(ProducerEvent::Rejected { subscriber, reason });
            self.write(subscriber, Reject::of(request, reason).to_frame(), Self::MAX_LEASELESS);
            return Request::Rejected(reason);
        }
        if let Some((holder, _)) = held {
            self.retire(holder, RetireReason::Replaced);
        }
        self.retire(subscriber, RetireReason::Replaced);
        Request::Granted(self.grant(subscriber, request, pool))
    }

    fn grant(&mut self, subscriber: SubscriberId, request: &Subscribe, pool: &Pool) -> LeaseTerms {
        let terms = LeaseTerms {
            lease: self.mint(),
            consumer: request.consumer,
            lane: request.lane,
            epoch: request.epoch,
        };
        let begin = SnapshotBegin {
            terms,
            identity: self.identity(pool),
            sequence: pool.sequence(),
            chunk_buckets: self.config.chunk_buckets(),
        };
        let deadline = self.now.saturating_add(self.config.snapshot_progress());
        let outbox = Outbox::new(self.config.outbox_messages(), self.config.outbox_bytes());
        let stage = Stage::Snapshot { next: 0, deadline };
        let link = self.links.entry(subscriber).or_default();
        // Whatever else was to be said on this link is older than the lease.
        link.letters.clear();
        link.write(begin.to_frame());
        link.lease = Some(Lease { terms, stage, outbox, owes_drain: false });
        self.readers.insert((terms.consumer, terms.lane), subscriber);
        self.snapshots += 1;
        self.stats.granted += 1;
        self.tell(ProducerEvent::Subscribed { subscriber, terms });
        terms
    }

    fn mint(&mut self) -> LeaseId {
        loop {
            self.minted = self.minted.wrapping_add(1);
            if let Some(lease) = LeaseId::mint(self.pool.dc, self.incarnation, self.minted) {
                return lease;
            }
        }
    }

    fn release(&mut self, subscriber: SubscriberId, lease: LeaseId) -> Request {
        let held = self.links.get(&subscriber).and_then(|link| link.lease.as_ref());
        if held.is_none_or(|held| held.terms.lease != lease) {
            return Request::Ignored(IgnoredRequest::UnknownLease);
        }
        self.end(subscriber, LeaseEnd::Retired(RetireReason::Unsubscribed));
        Request::Released(lease)
    }

    /// Ends a link's lease, if it has one, and tells its subscriber.
    fn retire(&mut self, subscriber: SubscriberId, reason: RetireReason) {
        if let Some(terms) = self.end(subscriber, LeaseEnd::Retired(reason)) {
            let most = Self::MAX_LEASELESS + self.config.max_subscribers() as usize;
            self.write(subscriber, Retire { reason }.to_body().frame(terms.lease), most);
        }
    }

    pub(crate) fn retire_all(&mut self, reason: RetireReason) {
        let subscribers: Vec<_> = self.leases().map(|(id, _)| id).collect();
        for subscriber in subscribers {
            self.retire(subscriber, reason);
        }
    }

    /// Ends all leases and grants none from now on: the pool is gone.
    pub(crate) fn close(&mut self) {
        self.closed = Some(RejectReason::UnknownPool);
        self.retire_all(RetireReason::Shutdown);
    }

    /// Ends all leases and grants none from now on: what the pool holds can no longer be told.
    pub(crate) fn fall_silent(&mut self) {
        self.closed = self.closed.or(Some(RejectReason::Fenced));
        self.retire_all(RetireReason::Fenced);
    }

    fn end(&mut self, subscriber: SubscriberId, end: LeaseEnd) -> Option<LeaseTerms> {
        let link = self.links.get_mut(&subscriber)?;
        let Lease { terms, stage, .. } = link.lease.take()?;
        self.readers.remove(&(terms.consumer, terms.lane));
        // A begin that was not fetched would open a stream that is never continued.
        link.letters.retain(|letter| letter.lease() != Some(terms.lease));
        if link.letters.is_empty() {
            self.links.remove(&subscriber);
        }
        self.stats.ended.count(end);
        self.tell(ProducerEvent::Ended { subscriber, terms, end });
        if matches!(stage, Stage::Snapshot { .. }) {
            self.end_snapshot();
        }
        Some(terms)
    }

    /// A subscriber reads no snapshot any more. Without another one, chunks are of no use.
    fn end_snapshot(&mut self) {
        self.snapshots -= 1;
        if self.snapshots == 0 {
            self.chunks.clear();
        }
    }

    /// Queues a letter, unless its link is new and there are so many without a lease already.
    fn write(&mut self, subscriber: SubscriberId, letter: Frame, most: usize) {
        let known = self.links.contains_key(&subscriber);
        let room = known || self.links.len() - self.readers.len() < most;
        if !room || !self.links.entry(subscriber).or_default().write(letter) {
            self.stats.letters_dropped += 1;
        }
    }

    pub(crate) fn handle_disconnected(&mut self, subscriber: SubscriberId) {
        self.end(subscriber, LeaseEnd::Disconnected);
        self.links.remove(&subscriber);
    }

    pub(crate) fn handle_timeout(&mut self, pool: &Pool) {
        let now = self.now;
        let mut heartbeat = None;
        let mut stuck = Vec::new();
        for (&subscriber, link) in &mut self.links {
            let Some(lease) = &mut link.lease else { continue };
            match &mut lease.stage {
                Stage::Snapshot { deadline, .. } if deadline.is_due(now) => stuck.push(subscriber),
                Stage::Live { quiet_since }
                    if quiet_since.saturating_add(self.config.heartbeat()).is_due(now) =>
                {
                    *quiet_since = now;
                    // What waits already says where the stream is.
                    if lease.outbox.is_empty() {
                        let body = heartbeat.get_or_insert_with(|| mark(pool, false));
                        lease.outbox.push_first(body.clone());
                    }
                }
                _ => {}
            }
        }
        for subscriber in stuck {
            self.retire(subscriber, RetireReason::Deadline);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Due)> {
        self.leases()
            .map(|(_, lease)| match lease.stage {
                Stage::Snapshot { deadline, .. } => (deadline, Due::SnapshotProgress),
                Stage::Live { quiet_since } => {
                    (quiet_since.saturating_add(self.config.heartbeat()), Due::Heartbeat)
                }
            })
            .filter(|&(at, _)| at < Instant::END)
            .min_by_key(|&(at, _)| at)
    }

    pub(crate) fn poll_frame(&mut self, subscriber: SubscriberId, pool: &Pool) -> Option<Frame> {
        let frame = self.next_frame(subscriber, pool)?;
        self.stats.sent(&frame);
        Some(frame)
    }

    fn next_frame(&mut self, subscriber: SubscriberId, pool: &Pool) -> Option<Frame> {
        let limits = self.limits(pool);
        let link = self.links.get_mut(&subscriber)?;
        if let Some(letter) = link.letters.pop_front() {
            if link.letters.is_empty() && link.lease.is_none() {
                self.links.remove(&subscriber);
            }
            return Some(letter);
        }
        let lease = link.lease.as_mut()?;
        if let Some(body) = lease.outbox.pop() {
            return Some(body.frame(lease.terms.lease));
        }
        let Stage::Snapshot { next, deadline } = &mut lease.stage else { return None };
        let terms = lease.terms;
        if *next < limits.bucket_count() {
            let buckets = self.config.chunk_buckets();
            let Ok((body, shared)) = self.chunks.get(pool, *next, buckets, &limits) else {
                debug_assert!(false, "chunks are within the limits by construction");
                return None;
            };
            *next = next.saturating_add(buckets);
            *deadline = self.now.saturating_add(self.config.snapshot_progress());
            *(if shared {
                &mut self.stats.chunks_shared
            } else {
                &mut self.stats.chunks_encoded
            }) += 1;
            return Some(body.frame(terms.lease));
        }
        // The outbox is empty, so the subscriber has every batch up to the pool's position.
        let (sequence, digest) = (pool.sequence(), pool.digest());
        lease.stage = Stage::Live { quiet_since: self.now };
        if core::mem::take(&mut lease.owes_drain) {
            lease.outbox.push_first(mark(pool, true));
        }
        self.end_snapshot();
        self.tell(ProducerEvent::Live { subscriber, terms });
        Some(SnapshotEnd { sequence, digest }.to_body().frame(terms.lease))
    }

    pub(crate) fn has_frames(&self, subscriber: SubscriberId) -> bool {
        self.links.get(&subscriber).is_some_and(Link::has_frames)
    }

    pub(crate) fn with_frames(&self) -> impl Iterator<Item = SubscriberId> {
        self.links.iter().filter(|(_, link)| link.has_frames()).map(|(&id, _)| id)
    }

    pub(crate) fn lease(&self, subscriber: SubscriberId) -> Option<LeaseTerms> {
        Some(self.links.get(&subscriber)?.lease.as_ref()?.terms)
    }

    pub(crate) fn poll_event(&mut self) -> Option<ProducerEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: ProducerEvent) {
        if self.events.len() == Self::MAX_EVENTS {
            self.events.pop_front();
            self.stats.events_dropped += 1;
        }
        self.events.push_back(event);
    }
}

/// The parts of a batch, each a body that any number of leases can share.
fn encode(batch: &SealedBatch<'_>, limits: &Limits) -> Result<Vec<SharedBody>, EncodeError> {
    let mut writer = DeltaWriter::new(batch.sequence(), batch.base_digest(), limits);
    for change in batch.changes() {
        writer.push(change.bucket.get(), change.before, change.after)?;
    }
    let encoded = writer.finish()?;
    debug_assert_eq!(encoded.digest, batch.digest());
    Ok(encoded.parts)
}

/// A heartbeat or drain marker of the pool's position.
fn mark(pool: &Pool, drain: bool) -> SharedBody {
    Heartbeat { sequence: pool.sequence(), digest: pool.digest(), drain }.to_body()
}

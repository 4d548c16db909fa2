//! Stop 7: one lane's side of a subscription. In come frames, the time and lost connections; out
//! go the words of the lane, frames for the producer and events. Next stop: the lane's table
//! ([`LaneWriter`]).
//!
//! - `config`: timings and limits;
//! - `store`: where words go;
//! - `stream`: position within a lease, and what comes next;
//! - `receive`: from a frame to its fate;
//! - `backoff`, `report`: waiting, and what is told to the host.

mod backoff;
mod config;
#[cfg(feature = "_model")]
mod fingerprint;
mod receive;
mod report;
mod store;
mod stream;

use std::collections::VecDeque;

use ckf_protocol::{
    ConsumerId, DcId, Epoch, IndexerDomainId, Instant, Lane, LeaseId, PoolId, ProducerExpectation,
    ProducerIdentity, Sequence, Subscribe, Unsubscribe, VersionRange,
};
use thiserror::Error;

use crate::LaneWriter;
use backoff::Backoff;
use stream::Stream;

pub use config::{SessionConfig, SessionConfigError, SessionTimes};
pub use report::{
    Failure, FailureCounts, Handled, Ignored, IgnoredCounts, SessionEvent, SessionStats, Waiting,
};
pub use store::LaneStore;

/// Keeps one lane equal to one pool's published table, whatever the network does.
///
/// A sans-IO machine: it never blocks, reads no clock and opens no socket. It is independent of the
/// sessions of other lanes, which may run on other threads.
///
/// # The loop
/// 1. [`assign`](Self::assign) gives the lane a pool.
/// 2. Send what [`poll_transmit`](Self::poll_transmit) gives to that pool's producer.
/// 3. Sleep until a frame comes or [`poll_timeout`](Self::poll_timeout) is due.
/// 4. Hand frames to [`handle_frame`](Self::handle_frame), whole and in the order they came; tell
///    [`handle_timeout`](Self::handle_timeout) the time, and
///    [`handle_disconnected`](Self::handle_disconnected) of a lost connection.
/// 5. Fetch [`poll_event`](Self::poll_event) until there is none, and go to 2.
///
/// Any other order is safe, but what waits for one producer must be sent before a pool of another is
/// assigned: nothing else has to be drained between calls, an early or repeated timeout does
/// nothing, and a `now` that goes back counts as the latest one seen. Each call does a bounded
/// amount of work: at most that of one frame.
///
/// ```
/// use ckf_consumer::{Consumer, ConsumerConfig, SessionEvent};
/// use ckf_core::{BlockHash, Format, Table, TableDigest};
/// use ckf_protocol::*;
///
/// let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
/// let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
/// let format = Format::any_count(1000, 42)?;
/// let manifest = Manifest::builder(domain, format).dc(DcId::new(7)).build()?;
/// let (queries, mut sessions) =
///     Consumer::new(&manifest, ConsumerConfig::default(), ConsumerId::new(1))?;
/// let session = &mut sessions[0];
/// let (now, limits) = (Instant::from_millis(5), Limits::default());
///
/// // 1. and 2. The subscription is what goes to the producer.
/// session.assign(DcId::new(7), Epoch::new(1), now)?;
/// let request = session.poll_transmit().expect("a subscription");
/// let Message::Subscribe(Subscribe { consumer, lane, epoch, expected, .. }) =
///     decode(&request, &limits)? else { panic!("a subscription") };
///
/// // 3. and 4. The producer answers with a snapshot. (`ckf-producer` makes these frames.)
/// let mut table = Table::new(format)?;
/// table.insert(&format.address(BlockHash::new(11)), |_| ())?;
/// let lease = LeaseId::new(99).expect("not 0");
/// let identity = ProducerIdentity {
///     pool: expected.pool,
///     incarnation: Incarnation::new(3),
///     layout: LayoutGeneration::FIRST,
///     format,
/// };
/// let sequence = Sequence::new(20);
/// let terms = LeaseTerms { lease, consumer, lane, epoch };
/// let begin = SnapshotBegin { terms, identity, sequence, chunk_buckets: 1000 };
/// let chunk = encode_chunk(0, table.words().iter().copied(), &limits)?;
/// let end = SnapshotEnd { sequence, digest: TableDigest::of_words(table.words()) };
/// for frame in [begin.to_frame(), chunk.frame(lease), end.to_body().frame(lease)] {
///     assert!(queries.contains(BlockHash::new(11)).is_empty());
///     let _fate = session.handle_frame(&frame.to_bytes(), now);
/// }
///
/// // 5. Queries may use the lane.
/// assert_eq!(session.poll_event(), Some(SessionEvent::Ready { identity, sequence }));
/// assert_eq!(queries.contains(BlockHash::new(11)).iter().collect::<Vec<_>>(), [lane]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is believed
/// A frame counts only if its header names the current lease, and then it is checked completely -
/// checksum, form, bounds, position in the stream, and the digest that the table would have -
/// before the first word is stored. On any fault the lane is withdrawn from queries, and after a
/// back-off the session subscribes again with a newer epoch; other lanes are not concerned.
///
/// What was applied before on the same lease, and comes again, is ignored and counted: patches are
/// absolute and positions strictly ascending, so a repeated message has nothing to say, and links
/// that repeat would otherwise never let a lane rest. Anything that skips ahead is a gap. During a
/// snapshot, patches of buckets that are still to come are left out, since their chunk will bring
/// them; a chunk that such a patch has overtaken on the way is found out by the digest at the end.
///
/// # One writer
/// A session can move to another thread, and there is one for each lane:
///
/// ```
/// fn can_move<T: Send>() {}
/// can_move::<ckf_consumer::LaneSession>();
/// ```
///
/// ```compile_fail,E0277
/// fn can_double<T: Clone>() {}
/// can_double::<ckf_consumer::LaneSession>();
/// ```
#[derive(Clone, Debug)]
pub struct LaneSession<S = LaneWriter> {
    store: S,
    config: SessionConfig,
    consumer: ConsumerId,
    lane: Lane,
    domain: IndexerDomainId,
    /// The latest time seen.
    now: Instant,
    /// The epoch of the last assignment or subscription.
    epoch: Option<Epoch>,
    phase: Phase,
    backoff: Backoff,
    /// Leases that their producer should end, the oldest first.
    give_back: VecDeque<LeaseId>,
    events: VecDeque<SessionEvent>,
    stats: SessionStats,
}

/// What a session is about.
#[derive(Clone, Debug)]
enum Phase {
    Unassigned,
    BackingOff { pool: PoolId, until: Instant },
    Subscribing { pool: PoolId, epoch: Epoch, sent: bool, deadline: Instant },
    Installing { stream: Stream, deadline: Instant },
    Ready { stream: Stream, since: Instant, heard: Instant },
}

/// [`LaneSession::state`]: what a session is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// It has no pool.
    Unassigned,
    /// It waits before it subscribes again.
    BackingOff,
    /// It has asked for a lease, or is about to.
    Subscribing,
    /// A snapshot arrives.
    Installing,
    /// Queries may use the lane.
    Ready,
}

/// Why [`LaneSession::assign`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssignError {
    /// The epoch is not above all that the session has used.
    #[error("epoch {given} is not above {last}")]
    StaleEpoch {
        /// The epoch that was given.
        given: Epoch,
        /// The last one used.
        last: Epoch,
    },
}

impl<S: LaneStore> LaneSession<S> {
    /// Events kept for a host that does not fetch them; the oldest give way.
    pub const MAX_EVENTS: usize = 64;
    /// Leases kept to be given back.
    const MAX_RETURNS: usize = 4;

    /// An unassigned session of one lane. `seed` decides the jitter of its back-off; give each
    /// session of each process another one. Consumers make their sessions themselves.
    pub fn new(
        store: S,
        config: SessionConfig,
        consumer: ConsumerId,
        lane: Lane,
        domain: IndexerDomainId,
        seed: u64,
    ) -> Self {
        let limits = config.limits().with_bucket_count(store.format().bucket_count());
        let config = SessionConfig { limits, ..config };
        Self {
            store,
            config,
            consumer,
            lane,
            domain,
            now: Instant::ZERO,
            epoch: None,
            phase: Phase::Unassigned,
            backoff: Backoff::new(seed),
            give_back: VecDeque::new(),
            events: VecDeque::new(),
            stats: SessionStats::default(),
        }
    }

    /// Which lane this is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// What the session is about.
    pub fn state(&self) -> SessionState {
        match self.phase {
            Phase::Unassigned => SessionState::Unassigned,
            Phase::BackingOff { .. } => SessionState::BackingOff,
            Phase::Subscribing { .. } => SessionState::Subscribing,
            Phase::Installing { .. } => SessionState::Installing,
            Phase::Ready { .. } => SessionState::Ready,
        }
    }

    /// The pool that the lane is assigned to.
    pub fn pool(&self) -> Option<PoolId> {
        match &self.phase {
            Phase::BackingOff { pool, .. } | Phase::Subscribing { pool, .. } => Some(*pool),
            _ => self.following().map(|(stream, _)| stream.identity().pool),
        }
    }

    /// Whether the lane is ready and holds no part of a batch whose other parts are still to come:
    /// its words are then exactly the producer's at [`position`](Self::position).
    pub fn is_between_batches(&self) -> bool {
        matches!(&self.phase, Phase::Ready { stream, .. } if stream.is_whole())
    }

    /// The stream that a ready lane follows, and the batch up to which it is complete.
    pub fn position(&self) -> Option<(ProducerIdentity, Sequence)> {
        match &self.phase {
            Phase::Ready { stream, .. } => Some((*stream.identity(), stream.sequence())),
            _ => None,
        }
    }

    /// The lease that the session follows.
    pub fn lease(&self) -> Option<LeaseId> {
        self.following().map(|(stream, _)| stream.lease())
    }

    /// The last epoch used.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Counters since the session was made.
    pub fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// The words of the lane.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Gives the lane the pool of the consumer's domain in `dc`, and subscribes with `epoch` at
    /// once. Resubscriptions count epochs up from there. A former assignment ends as with
    /// [`unassign`](Self::unassign); to move a lane from one producer to another, call that first,
    /// send what waits, and then assign. A session does not know of other lanes: that no two of them
    /// have one data center is up to the host.
    ///
    /// # Errors
    /// [`AssignError::StaleEpoch`]; then nothing has changed.
    pub fn assign(&mut self, dc: DcId, epoch: Epoch, now: Instant) -> Result<(), AssignError> {
        if let Some(last) = self.epoch.filter(|&last| epoch <= last) {
            return Err(AssignError::StaleEpoch { given: epoch, last });
        }
        self.unassign(now);
        self.backoff.reset();
        self.subscribe(PoolId { domain: self.domain, dc }, epoch);
        Ok(())
    }

    /// Takes the lane's pool away: queries stop using it, and the producer is told. No-op for a
    /// session without one.
    pub fn unassign(&mut self, now: Instant) {
        self.advance(now);
        if !matches!(self.phase, Phase::Unassigned) {
            self.leave(Failure::Unassigned);
            self.phase = Phase::Unassigned;
        }
    }

    /// Tells the session that its connection is lost: what was sent may not have arrived, and
    /// nothing more comes. The lane is retired, and the session subscribes again after a back-off.
    pub fn handle_disconnected(&mut self, now: Instant) {
        self.advance(now);
        if !matches!(self.phase, Phase::Unassigned | Phase::BackingOff { .. }) {
            self.fail(Failure::Disconnected);
        }
        // The producer ends the leases of a lost link by itself.
        self.give_back.clear();
    }

    /// Acts on the deadline of [`poll_timeout`](Self::poll_timeout) if it is due. Constant cost.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let Some((_, waiting)) = self.poll_timeout().filter(|(due, _)| due.is_due(self.now)) else {
            return;
        };
        match waiting {
            Waiting::Subscribe => self.fail(Failure::SubscribeDeadline),
            Waiting::SnapshotProgress => self.fail(Failure::SnapshotDeadline),
            Waiting::Silence => self.fail(Failure::Silence),
            Waiting::BackOff => self.resubscribe(),
        }
    }

    /// The next frame for the producer of the pool assigned last. What waits are at most four leases
    /// to give back, of which the oldest gives way to more, and a subscription.
    ///
    /// Leases belong to the producer that granted them: before a pool of another one is assigned,
    /// send what waits. A lease that was not given back ends when its producer's link closes.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        if let Some(lease) = self.give_back.pop_front() {
            return Some(Unsubscribe { lease }.to_frame().to_bytes());
        }
        let Phase::Subscribing { pool, epoch, sent: sent @ false, .. } = &mut self.phase else {
            return None;
        };
        *sent = true;
        let subscribe = Subscribe {
            consumer: self.consumer,
            lane: self.lane,
            epoch: *epoch,
            versions: VersionRange::SUPPORTED,
            expected: ProducerExpectation { pool: *pool, format: *self.store.format() },
        };
        Some(subscribe.to_frame().to_bytes())
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, and why; `None` for a
    /// session without a pool, and where the deadline would be the end of time. May change with
    /// every call that takes `&mut self`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Waiting)> {
        let (due, waiting) = match self.phase {
            Phase::Unassigned => return None,
            Phase::BackingOff { until, .. } => (until, Waiting::BackOff),
            Phase::Subscribing { deadline, .. } => (deadline, Waiting::Subscribe),
            Phase::Installing { deadline, .. } => (deadline, Waiting::SnapshotProgress),
            Phase::Ready { heard, .. } => {
                (heard.saturating_add(self.config.times().silence), Waiting::Silence)
            }
        };
        (due < Instant::END).then_some((due, waiting))
    }

    /// The next event. At most [`MAX_EVENTS`](Self::MAX_EVENTS) wait.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// The stream of the current lease, and whether the lane is ready.
    fn following(&self) -> Option<(&Stream, bool)> {
        match &self.phase {
            Phase::Installing { stream, .. } => Some((stream, false)),
            Phase::Ready { stream, .. } => Some((stream, true)),
            _ => None,
        }
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.latest(now);
    }

    fn subscribe(&mut self, pool: PoolId, epoch: Epoch) {
        self.epoch = Some(epoch);
        self.stats.subscribes += 1;
        let deadline = self.now.saturating_add(self.config.times().subscribe);
        self.phase = Phase::Subscribing { pool, epoch, sent: false, deadline };
    }

    /// Subscribes again, with the next epoch.
    fn resubscribe(&mut self) {
        let Some(pool) = self.pool() else { return };
        match self.epoch.map_or(Some(Epoch::new(1)), Epoch::checked_next) {
            Some(epoch) => {
                self.stats.resyncs += 1;
                self.subscribe(pool, epoch);
            }
            None => {
                self.leave(Failure::EpochsExhausted);
                self.phase = Phase::Unassigned;
            }
        }
    }

    /// Ends the lease or the subscription and waits before the next one.
    fn fail(&mut self, failure: Failure) {
        let Some(pool) = self.pool() else { return };
        let times = *self.config.times();
        if let Phase::Ready { since, .. } = self.phase {
            // A lane that held for a while is no repeated failure.
            if self.now.saturating_since(since) >= times.backoff_max {
                self.backoff.reset();
            }
        }
        self.leave(failure);
        let wait = self.backoff.next(times.backoff_min, times.backoff_max);
        self.phase = Phase::BackingOff { pool, until: self.now.saturating_add(wait) };
    }

    /// Withdraws the lane, gives the lease back, counts and tells why.
    fn leave(&mut self, failure: Failure) {
        let was_ready = self.state() == SessionState::Ready;
        if let Some(lease) = self.lease() {
            if !matches!(failure, Failure::ByProducer(_)) {
                self.return_lease(lease);
            }
            self.store.retire();
        }
        self.stats.failures.count(failure);
        self.tell(SessionEvent::Retired { failure, was_ready });
    }

    /// Keeps a lease to be given back.
    fn return_lease(&mut self, lease: LeaseId) {
        if self.give_back.contains(&lease) {
            return;
        }
        if self.give_back.len() == Self::MAX_RETURNS {
            self.give_back.pop_front();
        }
        self.give_back.push_back(lease);
    }

    fn tell(&mut self, event: SessionEvent) {
        if self.events.len() == Self::MAX_EVENTS {
            self.events.pop_front();
            self.stats.events_dropped += 1;
        }
        self.events.push_back(event);
    }
}

//! The producer of one pool: exact state and publication behind one `handle_*` / `poll_*` surface.

use core::{fmt, iter};

use ckf_core::{AllocationError, BlockHash, Format};
use ckf_protocol::{
    Frame, Incarnation, Instant, LayoutGeneration, LeaseTerms, PoolId, ProducerIdentity,
    RetireReason, Sequence,
};

use crate::publish::Publisher;
use crate::{
    Command, Due, GrowError, Member, Outcome, Pool, PoolConfig, ProducerEvent, PublishConfig,
    PublishStats, Request, SealError, SubscriberId, Violation, WorkerId,
};

/// One data center's producer: keeps exact ownership and publishes its projection to any number of
/// subscribers.
///
/// A sans-IO machine with one owner: it never blocks, reads no clock and opens no socket.
///
/// # The loop
/// 1. Give it the commands of stage 1: [`apply`](Self::apply), or [`store`](Self::store) and its
///    siblings.
/// 2. [`publish`](Self::publish) as often as readers shall hear of changes.
/// 3. For each link in [`with_frames`](Self::with_frames), send what
///    [`poll_frame`](Self::poll_frame) gives, as fast as the link takes it and no faster.
/// 4. Hand frames of subscribers to [`handle_frame`](Self::handle_frame), tell
///    [`handle_disconnected`](Self::handle_disconnected) of lost links, and
///    [`handle_timeout`](Self::handle_timeout) the time when [`poll_timeout`](Self::poll_timeout)
///    is due.
/// 5. Fetch [`poll_event`](Self::poll_event) until there is none, and go to 1.
///
/// Any other order is safe: nothing has to be drained between calls, an early or repeated timeout
/// does nothing, and a `now` that goes back counts as the latest one seen.
///
/// ```
/// use ckf_core::{BlockHash, Format};
/// use ckf_producer::{HashSeeds, Member, PoolConfig, Producer, PublishConfig, SubscriberId};
/// use ckf_protocol::*;
///
/// let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
/// let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
/// let pool = PoolId { domain, dc: DcId::new(7) };
/// let format = Format::any_count(1000, 42)?;
/// let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
/// let mut producer = Producer::new(config, PublishConfig::default(), pool, Incarnation::new(1))?;
/// let link = SubscriberId::new(1);
/// let now = Instant::from_millis(5);
///
/// // 4. A consumer asks for a lease. (Its session makes this frame.)
/// let subscribe = Subscribe {
///     consumer: ConsumerId::new(9),
///     lane: Lane::new(0)?,
///     epoch: Epoch::new(1),
///     expected: ProducerExpectation { pool, format },
///     versions: VersionRange::SUPPORTED,
/// };
/// let _granted = producer.handle_frame(link, &subscribe.to_frame().to_bytes(), now);
///
/// // 1. and 2. A worker stores two blocks; the batch is published.
/// producer.store(Member::new(1, 0), &[BlockHash::new(11), BlockHash::new(12)]);
/// assert_eq!(producer.publish(now)?, Some(Sequence::new(1)));
///
/// // 3. The batch goes out, and around it the snapshot.
/// let mut kinds = Vec::new();
/// while let Some(frame) = producer.poll_frame(link, now) {
///     kinds.push(frame.kind());
/// }
/// use Kind::*;
/// assert_eq!(kinds, [SnapshotBegin, Delta, SnapshotChunk, SnapshotEnd]);
///
/// // 4. Nothing to say: a heartbeat is due.
/// let (at, _why) = producer.poll_timeout().expect("a subscriber is to hear something");
/// producer.handle_timeout(at);
/// assert_eq!(producer.poll_frame(link, at).map(|frame| frame.kind()), Some(Heartbeat));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Snapshots
/// A snapshot is read from the published images, chunk by chunk, when the subscriber has taken all
/// that was queued for it. Batches go out in between. What a chunk holds is the state at the batch
/// sent last, so at the end the subscriber holds exactly the state of the batch named there. No
/// copy of the table is made, and a subscriber costs no more than a chunk at a time.
///
/// # Work bounds
/// [`publish`](Self::publish) costs by changed buckets, plus a few instructions per subscriber;
/// without one, nothing is encoded. [`poll_frame`](Self::poll_frame) makes at most one chunk.
/// [`handle_frame`](Self::handle_frame) finds a link and a reader among the others;
/// [`handle_timeout`](Self::handle_timeout) and [`poll_timeout`](Self::poll_timeout) look at each
/// subscriber once.
#[derive(Clone)]
pub struct Producer {
    pool: Pool,
    publisher: Publisher,
}

impl Producer {
    /// The producer of an empty pool: the start of a new incarnation.
    ///
    /// # Errors
    /// [`AllocationError`] when the filter's memory is refused.
    pub fn new(
        pool: PoolConfig,
        publish: PublishConfig,
        id: PoolId,
        incarnation: Incarnation,
    ) -> Result<Self, AllocationError> {
        Ok(Self { pool: Pool::new(pool)?, publisher: Publisher::new(publish, id, incarnation) })
    }

    /// The exact state, for looking.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What subscribers are told about this stream.
    pub fn identity(&self) -> ProducerIdentity {
        self.publisher.identity(&self.pool)
    }

    /// Counters of publication; those of the pool are [`Pool::stats`].
    pub fn stats(&self) -> PublishStats {
        self.publisher.stats()
    }

    /// The lease of a link, if it has one.
    pub fn lease(&self, subscriber: SubscriberId) -> Option<LeaseTerms> {
        self.publisher.lease(subscriber)
    }

    /// Feeds everything that decides this producer's future, given the commands so far, apart from
    /// time.
    #[cfg(feature = "_model")]
    #[doc(hidden)]
    pub fn fingerprint(&self, state: &mut impl core::hash::Hasher) {
        use core::hash::Hash;
        let pool = &self.pool;
        (pool.format(), pool.layout(), pool.sequence(), pool.digest()).hash(state);
        pool.words().for_each(|word| word.hash(state));
        let published = pool.published_words(0..pool.format().bucket_count());
        published.into_iter().flatten().for_each(|word| word.hash(state));
        self.publisher.fingerprint(state);
    }

    /// The exact state, for corrupting it.
    #[cfg(feature = "_model")]
    #[doc(hidden)]
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Applies a command; see [`Pool::apply`].
    pub fn apply(&mut self, command: &Command) -> Outcome {
        self.command(|pool| pool.apply(command))
    }

    /// See [`Pool::store`].
    pub fn store(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        self.command(|pool| pool.store(member, blocks))
    }

    /// See [`Pool::remove`].
    pub fn remove(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        self.command(|pool| pool.remove(member, blocks))
    }

    /// See [`Pool::clear_member`].
    pub fn clear_member(&mut self, member: Member) -> Outcome {
        self.command(|pool| pool.clear_member(member))
    }

    /// See [`Pool::remove_worker`].
    pub fn remove_worker(&mut self, worker: WorkerId) -> Outcome {
        self.command(|pool| pool.remove_worker(worker))
    }

    /// See [`Pool::replace_member`].
    pub fn replace_member(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        self.command(|pool| pool.replace_member(member, blocks))
    }

    /// See [`Pool::flush`].
    pub fn flush(&mut self) -> Outcome {
        self.command(Pool::flush)
    }

    fn command(&mut self, run: impl FnOnce(&mut Pool) -> Outcome) -> Outcome {
        let outcome = run(&mut self.pool);
        self.note_fence();
        outcome
    }

    /// Nobody may go on reading what can no longer be trusted.
    fn note_fence(&mut self) {
        if self.pool.fence_state().is_err() {
            self.publisher.retire_all(RetireReason::Fenced);
        }
    }

    /// See [`Pool::check`]. When it fails, all leases end.
    ///
    /// # Errors
    /// [`Violation`]
    pub fn check(&mut self) -> Result<(), Violation> {
        let verdict = self.pool.check();
        self.note_fence();
        verdict
    }

    /// See [`Pool::set_max_bytes`].
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.pool.set_max_bytes(max_bytes);
    }

    /// Gives the filter another format; see [`Pool::grow`]. All leases end: consumers must be told
    /// the new format by their hosts, and a subscription for the old one is refused with it.
    ///
    /// # Errors
    /// [`GrowError`]; then nothing has changed.
    pub fn grow(&mut self, format: Format) -> Result<LayoutGeneration, GrowError> {
        let layout = self.pool.grow(format)?;
        self.publisher.retire_all(RetireReason::LayoutChanged);
        Ok(layout)
    }

    /// Ends a batch and queues it for every subscriber; `None` when nothing changed. A subscriber
    /// without room for it loses its lease; the others do not notice.
    ///
    /// # Errors
    /// [`SealError`]; then all leases end and none is granted any more
    /// ([`RejectReason::Fenced`](ckf_protocol::RejectReason::Fenced)), since nothing will be
    /// published: the pool needs a new incarnation.
    pub fn publish(&mut self, now: Instant) -> Result<Option<Sequence>, SealError> {
        self.publisher.advance(now);
        let limits = self.publisher.limits(&self.pool);
        match self.pool.seal() {
            Ok(batch) => Ok(batch.map(|batch| {
                self.publisher.publish(&batch, &limits);
                batch.sequence()
            })),
            Err(error) => {
                self.publisher.fall_silent();
                Err(error)
            }
        }
    }

    /// [`publish`](Self::publish), and then a marker for every subscriber that it now holds all
    /// commands given so far.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn drain(&mut self, now: Instant) -> Result<Option<Sequence>, SealError> {
        let published = self.publish(now)?;
        self.publisher.drain(&self.pool);
        Ok(published)
    }

    /// Takes in one whole frame of a link.
    pub fn handle_frame(
        &mut self,
        subscriber: SubscriberId,
        frame: &[u8],
        now: Instant,
    ) -> Request {
        self.publisher.advance(now);
        self.publisher.handle_frame(subscriber, frame, &self.pool)
    }

    /// A link is lost: its lease ends, and nothing is kept for it.
    pub fn handle_disconnected(&mut self, subscriber: SubscriberId, now: Instant) {
        self.publisher.advance(now);
        self.publisher.handle_disconnected(subscriber);
    }

    /// Does what is due: heartbeats, and the end of leases whose snapshot is stuck.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.publisher.advance(now);
        self.publisher.handle_timeout(&self.pool);
    }

    /// Ends all leases and grants none from now on. What is still polled tells the subscribers.
    pub fn shutdown(&mut self, now: Instant) {
        self.publisher.advance(now);
        self.publisher.close();
    }

    /// The next frame for a link. Makes at most one snapshot chunk. Poll only when the link can
    /// take a frame: what the host keeps queued itself, this side cannot bound.
    #[must_use]
    pub fn poll_frame(&mut self, subscriber: SubscriberId, now: Instant) -> Option<Frame> {
        self.publisher.advance(now);
        self.publisher.poll_frame(subscriber, &self.pool)
    }

    /// Whether [`poll_frame`](Self::poll_frame) has something for the link.
    pub fn has_frames(&self, subscriber: SubscriberId) -> bool {
        self.publisher.has_frames(subscriber)
    }

    /// The links that [`poll_frame`](Self::poll_frame) has something for, ascending.
    pub fn with_frames(&self) -> impl Iterator<Item = SubscriberId> {
        self.publisher.with_frames()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, and why; `None` without
    /// subscribers. May change with every call that takes `&mut self`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Due)> {
        self.publisher.poll_timeout()
    }

    /// The next event, those of publication first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<ProducerEvent> {
        self.publisher.poll_event().or_else(|| self.pool.poll_event().map(ProducerEvent::Pool))
    }

    /// All waiting events.
    pub fn events(&mut self) -> impl Iterator<Item = ProducerEvent> {
        iter::from_fn(|| self.poll_event())
    }
}

/// Identity and counters, not every block and its owners: whatever holds a producer shall be fit for
/// a log.
impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("identity", &self.identity())
            .field("pool", &self.pool)
            .field("publication", &self.stats())
            .finish_non_exhaustive()
    }
}

//! Short ways to the identities, machines and traffic that tests need.

use ckf_consumer::{Handled, LaneSession, SessionConfig, SessionTimes};
use ckf_core::{BlockHash, Format};
use ckf_producer::{HashSeeds, PoolConfig, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant,
    Lane, Limits, Millis, PoolId,
};

use crate::memory::MemoryLane;

/// The session that scenarios use: the shipped one over a plain vector.
pub type Session = LaneSession<MemoryLane>;

/// The indexer domain of all scenarios.
pub fn domain() -> IndexerDomainId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) }
}

/// The pool of the scenarios' domain in a data center.
pub fn pool_id(dc: u64) -> PoolId {
    PoolId { domain: domain(), dc: DcId::new(dc) }
}

/// A format of `buckets` buckets and one fixed seed.
pub fn format(buckets: u32) -> Format {
    Format::any_count(u64::from(buckets), 42).expect("scenarios use legal sizes")
}

/// Message limits and chunks small enough that small tables take several messages.
pub fn small_publish(chunk_buckets: u32) -> PublishConfig {
    let limits = Limits::new(4096, 64, 128).expect("legal limits");
    PublishConfig::new(limits).with_chunk_buckets(chunk_buckets).expect("within the limits")
}

/// Back-offs of 10 to 80 ms, so that scenarios need little virtual time.
pub fn quick_session() -> SessionConfig {
    let times = SessionTimes {
        subscribe: Millis::new(500),
        snapshot_progress: Millis::new(500),
        silence: Millis::new(6000),
        backoff_min: Millis::new(10),
        backoff_max: Millis::new(80),
    };
    SessionConfig::new(times, Limits::default()).expect("legal times")
}

/// A producer of data center `dc`.
pub fn producer(dc: u64, incarnation: u64, format: Format, publish: PublishConfig) -> Producer {
    let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
    Producer::new(config, publish, pool_id(dc), Incarnation::new(incarnation))
        .expect("a small table")
}

/// An unassigned session of a consumer's lane.
pub fn session(consumer: u64, lane: u8, format: Format, config: SessionConfig) -> Session {
    LaneSession::new(
        MemoryLane::new(format),
        config,
        ConsumerId::new(consumer),
        Lane::new(lane).expect("a lane below 64"),
        domain(),
        consumer << 8 | u64::from(lane),
    )
}

/// Milliseconds as a point in time.
pub fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Block hashes from numbers.
pub fn hashes(numbers: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    numbers.into_iter().map(BlockHash::new).collect()
}

/// Assigns the session to data center `dc` with epoch 1.
pub fn assign(session: &mut Session, dc: u64, now: u64) {
    session.assign(DcId::new(dc), Epoch::new(1), at(now)).expect("a first epoch");
}

/// Carries frames both ways without fault until neither side has one. Returns what became of the
/// producer's frames.
pub fn exchange(
    producer: &mut Producer,
    link: SubscriberId,
    session: &mut Session,
    now: u64,
) -> Vec<Handled> {
    let mut fates = Vec::new();
    loop {
        let mut idle = true;
        while let Some(frame) = session.poll_transmit() {
            let _ = producer.handle_frame(link, &frame, at(now));
            idle = false;
        }
        while let Some(frame) = producer.poll_frame(link, at(now)) {
            fates.push(session.handle_frame(&frame.to_bytes(), at(now)));
            idle = false;
        }
        if idle {
            return fates;
        }
    }
}

/// Whether the lane is ready and holds exactly what the producer published last.
pub fn converged(producer: &Producer, session: &Session) -> bool {
    let pool = producer.pool();
    let position = session.position();
    position == Some((producer.identity(), pool.sequence()))
        && pool
            .published_words(0..pool.format().bucket_count())
            .is_some_and(|words| words.eq(session.store().words().iter().copied()))
}

//! A consumer whose lanes are filled with families of chains, by real producers over real frames.

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession, QueryHandle};
use ckf_core::{BlockHash, Format, Sizing};
use ckf_producer::{HashSeeds, Member, PoolConfig, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant,
    Manifest, PoolId,
};

use crate::hashes;

/// Blocks of a family.
pub const FAMILY: usize = 128;

/// The one link between a producer and its lane.
pub const LINK: SubscriberId = SubscriberId::new(1);

/// The time of everything here.
pub const NOW: Instant = Instant::from_millis(0);

fn domain() -> IndexerDomainId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) }
}

/// The producer of one lane, empty.
///
/// # Panics
/// When the format's memory is refused.
pub fn producer(lane: usize, format: Format) -> Producer {
    let pool = PoolId { domain: domain(), dc: DcId::new(lane as u64) };
    let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
    Producer::new(config, PublishConfig::default(), pool, Incarnation::new(1)).expect("memory")
}

/// A consumer and the producers of its lanes.
#[derive(Debug)]
pub struct World {
    /// Asks all lanes.
    pub query: QueryHandle,
    /// One a lane.
    pub sessions: Vec<LaneSession>,
    /// One a lane.
    pub producers: Vec<Producer>,
    /// Chains of [`FAMILY`] blocks: family `f` is whole in lane `f % lanes`; every fourth other
    /// lane holds a prefix.
    pub families: Vec<Vec<BlockHash>>,
}

impl World {
    /// `lanes` lanes of about `blocks` blocks each, at 90 % load.
    ///
    /// # Panics
    /// When the size is not possible.
    pub fn new(lanes: usize, blocks: usize) -> Self {
        // A family's mean number of blocks over all lanes, then over one.
        let spread = FAMILY + (lanes - 1) * FAMILY / 2 / 4;
        let count = (blocks * lanes / spread).max(lanes);
        let families: Vec<_> =
            (0..count).map(|number| hashes(100 + number as u64, FAMILY)).collect();
        let sizing = Sizing::for_blocks(blocks as u64 * 21 / 20, 900).expect("a legal size");
        let format = sizing.format(7);

        let mut producers: Vec<_> = (0..lanes).map(|lane| producer(lane, format)).collect();
        for (number, family) in families.iter().enumerate() {
            for (lane, producer) in producers.iter_mut().enumerate() {
                let turn = (number * 7 + lane * 13) % 64;
                let depth = match (number % lanes == lane, turn % 4) {
                    (true, _) => FAMILY,
                    (false, 0) => 1 + (number * 31 + lane * 17) % FAMILY,
                    _ => continue,
                };
                producer.store(Member::new(1, 0), &family[..depth]);
            }
        }
        let builder = Manifest::builder(domain(), format);
        let builder = (0..lanes as u64).fold(builder, |builder, lane| builder.dc(DcId::new(lane)));
        let manifest = builder.build().expect("distinct pools of one domain");
        let (query, mut sessions) =
            Consumer::new(&manifest, ConsumerConfig::default(), ConsumerId::new(9))
                .expect("memory");
        for (session, producer) in sessions.iter_mut().zip(&mut producers) {
            let frames = snapshot(session, producer);
            frames.iter().for_each(|frame| _ = session.handle_frame(frame, NOW));
            assert!(session.position().is_some(), "ready after its snapshot");
        }
        Self { query, sessions, producers, families }
    }

    /// The first `len` blocks of a family, or of a chain that nobody holds.
    pub fn request(&self, number: usize, len: usize) -> Vec<BlockHash> {
        if number.is_multiple_of(5) {
            return hashes(u64::MAX - number as u64, len);
        }
        let family = &self.families[number * 2_654_435_761 % self.families.len()];
        family[..len.min(FAMILY)].to_vec()
    }
}

/// Subscribes a session anew and returns the frames of its snapshot, not yet handled.
///
/// # Panics
/// When the producer refuses.
pub fn snapshot(session: &mut LaneSession, producer: &mut Producer) -> Vec<Vec<u8>> {
    let epoch = session.epoch().map_or(1, |epoch| epoch.get() + 1);
    let dc = producer.identity().pool.dc;
    session.assign(dc, Epoch::new(epoch), NOW).expect("a newer epoch");
    while let Some(frame) = session.poll_transmit() {
        let _ = producer.handle_frame(LINK, &frame, NOW);
    }
    producer.publish(NOW).expect("numbers left");
    frames(producer)
}

/// All frames that wait for the lane.
pub fn frames(producer: &mut Producer) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| Some(producer.poll_frame(LINK, NOW)?.to_bytes())).collect()
}

//! The few identities that the short programs need, and a link that carries everything at once.

use ckf_consumer::LaneSession;
use ckf_core::{Format, Sizing};
use ckf_producer::{HashSeeds, PoolConfig, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{
    DcId, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant, Manifest, PoolId,
};

/// The subscriber on the only link that these programs have per producer.
pub const LINK: SubscriberId = SubscriberId::new(1);

/// What may be compared: the operator of a real deployment states both halves.
pub fn domain() -> IndexerDomainId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) }
}

/// A filter for `blocks` blocks, in the format that all pools and consumers of a domain share.
pub fn format(blocks: u64) -> Result<Format, Box<dyn std::error::Error>> {
    Ok(Sizing::for_blocks(blocks, Sizing::DEFAULT_LOAD)?.format(42))
}

/// The consumer's list of pools: one lane a data center, numbered from 0.
pub fn manifest(dcs: u64, format: Format) -> Result<Manifest, Box<dyn std::error::Error>> {
    let builder = Manifest::builder(domain(), format);
    Ok((0..dcs).map(DcId::new).fold(builder, |builder, dc| builder.dc(dc)).build()?)
}

/// The producer of a data center's pool. Real hosts draw the seeds at random, and give each life of
/// the process a new incarnation.
pub fn producer(
    dc: u64,
    incarnation: u64,
    format: Format,
) -> Result<Producer, Box<dyn std::error::Error>> {
    let pool = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
    let id = PoolId { domain: domain(), dc: DcId::new(dc) };
    Ok(Producer::new(pool, PublishConfig::default(), id, Incarnation::new(incarnation))?)
}

/// Carries frames both ways until neither side has any.
pub fn exchange(producer: &mut Producer, session: &mut LaneSession, now: Instant) {
    loop {
        let request = session.poll_transmit();
        if let Some(frame) = &request {
            let _request = producer.handle_frame(LINK, frame, now);
        }
        let answer = producer.poll_frame(LINK, now);
        if let Some(frame) = &answer {
            let _handled = session.handle_frame(&frame.to_bytes(), now);
        }
        if request.is_none() && answer.is_none() {
            return;
        }
    }
}

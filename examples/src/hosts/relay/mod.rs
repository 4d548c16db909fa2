//! The relay: one process per data center.
//!
//! ```text
//! engines -> source::zmq -> pool (one task per pool owns its machines) -> feed (gRPC), nats
//! ```
//!
//! - [`pool`]: the task that owns a pool's sources and producer;
//! - [`feed`]: subscribers over gRPC;
//! - [`sources`]: starting and stopping the watchers of engines;
//! - [`admin`]: health, metrics, diagnosis.

pub mod admin;
pub mod feed;
pub mod pool;
pub mod sources;

use std::num::NonZeroU32;

use ckf_core::Format;
use ckf_producer::source::{
    PoolSourcesConfig, ReadyRule, SourceConfig, Translator, TranslatorConfig,
};
use ckf_producer::{HashSeeds, PoolConfig, PublishConfig};
use ckf_protocol::{Incarnation, Limits, Millis, PoolId};

use super::{HostResult, draw};

/// What a relay decides about each of its pools.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// Its name, as sources use it.
    pub name: String,
    /// Its identity.
    pub id: PoolId,
    /// Shape and seed of its filter.
    pub format: Format,
    /// Tokens of one block.
    pub block_size: NonZeroU32,
    /// How often batches go out while there is something to say.
    pub batch: Millis,
    /// After how long a pool counts as ready although engines are missing.
    pub ready_limit: Millis,
    /// Silence after which a subscriber hears a heartbeat.
    pub heartbeat: Millis,
    /// This process.
    pub incarnation: Incarnation,
}

/// Bytes of one frame at most: fits a NATS message with the server's default limit.
const MAX_FRAME: u32 = 512 << 10;
/// Buckets of one snapshot chunk.
const CHUNK_BUCKETS: u32 = 16 << 10;

/// Seeds of hash maps, others in each process, so that nobody can choose what crowds them.
fn seeds() -> HashSeeds {
    HashSeeds::new([draw(), draw(), draw(), draw()])
}

impl PoolPlan {
    pub(crate) fn producer(&self) -> HostResult<ckf_producer::Producer> {
        let publish = PublishConfig::new(Limits::new(MAX_FRAME, 1 << 16, CHUNK_BUCKETS)?)
            .with_chunk_buckets(CHUNK_BUCKETS)?
            .with_heartbeat(self.heartbeat)?;
        let config = PoolConfig::new(self.format, seeds());
        Ok(ckf_producer::Producer::new(config, publish, self.id, self.incarnation)?)
    }

    pub(crate) fn sources(&self) -> HostResult<(PoolSourcesConfig, Translator)> {
        let stream = SourceConfig::new(draw())
            .with_back_off(Millis::new(300), Millis::from_secs(5))?
            .with_deadline(Millis::from_secs(30))?;
        let ready = ReadyRule::new(100, self.ready_limit)?;
        // Only what the relay was told about has blocks here.
        let config = PoolSourcesConfig::new(stream, ready).with_discovery(false);
        Ok((config, Translator::new(TranslatorConfig::new(self.block_size, seeds()))))
    }
}

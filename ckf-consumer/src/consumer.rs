//! One consumer: its query handle and its lane sessions come from one constructor.

use ckf_core::AllocationError;
use ckf_protocol::{ConsumerId, Manifest};

use crate::sync::Arc;
use crate::table::Table;
use crate::{LaneSession, LaneWriter, QueryHandle, SessionConfig};

/// Choices of a host about a consumer.
#[derive(Clone, Debug, Default)]
pub struct ConsumerConfig {
    session: SessionConfig,
    seed: u64,
}

impl ConsumerConfig {
    /// Timings and limits of the lane sessions.
    #[must_use]
    pub fn with_session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }

    /// Seed of the sessions' back-off jitter; give each process another one.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// Makes consumers.
#[derive(Debug)]
pub struct Consumer;

impl Consumer {
    /// The query handle and the sessions, lane 0 first, of the manifest's pools. The sessions are
    /// unassigned. Takes the memory of all lanes: eight bytes a bucket and lane, lanes rounded up
    /// to a power of two.
    ///
    /// # Errors
    /// [`AllocationError`] when that memory is refused.
    #[expect(clippy::new_ret_no_self, reason = "the two ends of a consumer are its parts")]
    pub fn new(
        manifest: &Manifest,
        config: ConsumerConfig,
        consumer: ConsumerId,
    ) -> Result<(QueryHandle, Vec<LaneSession>), AllocationError> {
        let table = Arc::new(Table::new(manifest.format(), manifest.len() as u32)?);
        let sessions = manifest.lanes().map(|(lane, _)| {
            let writer = LaneWriter::new(Arc::clone(&table), lane);
            let seed = config.seed.wrapping_add(u64::from(lane.get()) << 32);
            LaneSession::new(writer, config.session, consumer, lane, manifest.domain(), seed)
        });
        let sessions = sessions.collect();
        Ok((QueryHandle::new(table), sessions))
    }
}

//! One consumer: its query handle and its lane sessions come from one constructor.

use core::fmt;

use ckf_protocol::{ConsumerId, Manifest};

use crate::error::ConsumerError;
use crate::lanes::{Backend, Chosen};
use crate::row::{Line, Rows};
use crate::sync::Arc;
use crate::table::Table;
use crate::{LaneSession, LaneWriter, QueryHandle, SearchMode, SessionConfig};

/// Choices of a host about a consumer.
#[derive(Clone, Default)]
pub struct ConsumerConfig {
    session: SessionConfig,
    seed: u64,
    mode: SearchMode,
    backend: Option<Backend>,
    memory: Option<&'static [Line]>,
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

    /// How the query handle searches, unless it is told otherwise.
    #[must_use]
    pub fn with_mode(mut self, mode: SearchMode) -> Self {
        self.mode = mode;
        self
    }

    /// The instructions of the row scan. Without this, the best that the processor has.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Memory for the rows, [`lines_needed`](Self::lines_needed) lines or more. What it holds does
    /// not matter. It must not be given to two consumers at the same time: their answers would be
    /// each other's. Once the handles, sessions and writers of one are gone, another may have it.
    #[must_use]
    pub fn with_memory(mut self, memory: &'static [Line]) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Lines of 64 bytes that the rows of this manifest take: eight bytes a bucket and lane, lanes
    /// rounded up to a power of two, and up to seven lines for alignment.
    pub fn lines_needed(manifest: &Manifest) -> usize {
        Rows::lines_needed(manifest.format().bucket_count(), manifest.len() as u32)
    }
}

/// Of memory, how much there is.
impl fmt::Debug for ConsumerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, seed, mode, backend, memory } = self;
        f.debug_struct("ConsumerConfig")
            .field("session", session)
            .field("seed", seed)
            .field("mode", mode)
            .field("backend", backend)
            .field("memory_lines", &memory.map(<[Line]>::len))
            .finish()
    }
}

/// Makes consumers.
#[derive(Debug)]
pub struct Consumer;

impl Consumer {
    /// The query handle and the sessions, lane 0 first, of the manifest's pools. The sessions are
    /// unassigned. Takes the memory of all lanes, [`ConsumerConfig::lines_needed`], and touches
    /// it.
    ///
    /// # Errors
    /// [`ConsumerError`]: memory refused or too small, backend not available.
    #[expect(clippy::new_ret_no_self, reason = "the two ends of a consumer are its parts")]
    pub fn new(
        manifest: &Manifest,
        config: ConsumerConfig,
        consumer: ConsumerId,
    ) -> Result<(QueryHandle, Vec<LaneSession>), ConsumerError> {
        let (query, writers) = parts(manifest, &config)?;
        let sessions = writers.into_iter().map(|writer| {
            let lane = writer.lane();
            let seed = config.seed.wrapping_add(u64::from(lane.get()) << 32);
            LaneSession::new(writer, config.session, consumer, lane, manifest.domain(), seed)
        });
        Ok((query, sessions.collect()))
    }

    /// The query handle and bare lane writers, lane 0 first, for a host that brings words by other
    /// means than this family's streams.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn writers(
        manifest: &Manifest,
        config: ConsumerConfig,
    ) -> Result<(QueryHandle, Vec<LaneWriter>), ConsumerError> {
        parts(manifest, &config)
    }
}

fn parts(
    manifest: &Manifest,
    config: &ConsumerConfig,
) -> Result<(QueryHandle, Vec<LaneWriter>), ConsumerError> {
    let backend = config.backend.unwrap_or_else(Backend::best);
    let scan = Chosen::new(backend).ok_or(ConsumerError::Backend { backend })?;
    let (format, lanes) = (manifest.format(), manifest.len());
    let (buckets, needed) = (format.bucket_count(), ConsumerConfig::lines_needed(manifest));
    let rows = match config.memory {
        None => Rows::new(buckets, lanes as u32)?,
        Some(memory) => Rows::within(memory, buckets, lanes as u32)
            .ok_or(ConsumerError::Memory { given: memory.len(), needed })?,
    };
    let table = Arc::new(Table::new(format, lanes, rows, scan));
    let writers =
        manifest.lanes().map(|(lane, _)| LaneWriter::new(Arc::clone(&table), lane)).collect();
    Ok((QueryHandle::new(table, config.mode), writers))
}

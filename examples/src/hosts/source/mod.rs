//! Engines' KV events: from their sockets to messages for the pool that counts them.
//!
//! - [`spec`]: what a source is called;
//! - [`file`]: the list of sources that may change while the relay runs;
//! - [`zmtp`]: one bounded connection between ZeroMQ sockets;
//! - [`zmq`]: the two connections to one engine: its events, and questions to its replay socket;
//! - [`life`]: telling a restart of an engine from a hiccup of the network.

pub mod file;
pub mod life;
pub mod spec;
pub mod zmq;
pub mod zmtp;

use ckf_producer::Member;
use ckf_producer::source::{EngineEvent, EventId, RequestId, SourceGeneration};

use tokio::sync::OwnedSemaphorePermit;

use super::metrics::{Counter, Gauge};

/// What a source tells its pool about one member.
#[derive(Debug)]
pub struct SourceMessage {
    /// Whose blocks are meant.
    pub member: Member,
    /// In which life of the engine.
    pub generation: SourceGeneration,
    /// What there is to say.
    pub what: SourceNews,
    /// The room that it takes on its way.
    pub room: Option<OwnedSemaphorePermit>,
}

/// See [`SourceMessage`].
#[derive(Debug)]
pub enum SourceNews {
    /// The engine answers.
    Announced,
    /// A batch of events, live or replayed.
    Batch(EventId, Vec<EngineEvent>),
    /// The replay that answers this question is over.
    HistoryEnd(RequestId),
    /// The batches that the engine still has, oldest first, in answer to this question for its full
    /// state, which no engine tells. Those that do not decode are left out.
    Latest(RequestId, Vec<(EventId, Vec<EngineEvent>)>),
    /// The engine cannot be asked now.
    Unavailable(RequestId),
}

/// Counters of one source.
#[derive(Debug, Default)]
pub struct SourceCounters {
    /// Connections made.
    pub connects: Counter,
    /// Connections lost, or not made in time.
    pub disconnects: Counter,
    /// Batches received live.
    pub batches: Counter,
    /// Bytes of these.
    pub bytes: Counter,
    /// Messages that are no event batch, batches that do not decode, and peers that speak another
    /// protocol.
    pub garbage: Counter,
    /// Messages and replays of more than the limit; the connection was given up before they came.
    pub oversized: Counter,
    /// Events of kinds that nobody knows.
    pub unknown_events: Counter,
    /// Batches whose rank is not the one of the source.
    pub foreign_rank: Counter,
    /// Ends of the engine's life that were noticed: it restarted, or is about to.
    pub restarts: Counter,
    /// Times that its blocks were forgotten because nothing proved them for too long.
    pub given_up: Counter,
    /// Questions to the replay socket.
    pub replays: Counter,
    /// Of these, unanswered or broken off.
    pub failed_replays: Counter,
    /// Milliseconds of the relay's clock at the last sign of life.
    pub heard_at: Gauge,
}

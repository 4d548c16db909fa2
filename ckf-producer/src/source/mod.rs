//! Stage 1: one ordered stream of events per member, from whatever the network delivers.
//!
//! Sources number their events and lose some on the way. A [`SourceStream`] turns what arrives into
//! commands for the [`Pool`](crate::Pool) that tell the member's exact set of blocks, and asks for
//! what is missing. [`PoolSources`] holds the streams of all members of a pool.
//!
//! # Run loop
//! No clock, socket or thread in here: the host owns those, and repeats these steps.
//!
//! 1. Hand in what arrived: events, heartbeats, answers (`handle_*`), live and replayed events alike.
//! 2. When the time of `poll_timeout` has come, call `handle_timeout`.
//! 3. Take the commands out (`poll_command`) and apply them to the pool in that order. When the pool
//!    reports an error for one, tell the stream (`handle_suspect`).
//! 4. Take the question out (`poll_request`) and send it to the source: for history, or for the full
//!    state.
//! 5. Log the notices (`poll_notice`).
//!
//! ```
//! use ckf_core::{BlockHash, Sizing};
//! use ckf_producer::source::{
//!     BlockChange, Direct, EventId, RequestKind, SourceConfig, SourceGeneration, SourceStream,
//! };
//! use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};
//! use ckf_protocol::Instant;
//!
//! let format = Sizing::for_blocks(1000, 600)?.format(42);
//! let mut pool = Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])))?;
//! let mut stream = SourceStream::new(Member::new(7, 0), SourceConfig::new(1), Direct);
//! let life = SourceGeneration::new(1);
//! let store = |bits| vec![BlockChange::Store(vec![BlockHash::new(bits)])];
//! let now = Instant::from_millis(0);
//!
//! // 1. Event 1 was lost on the way.
//! stream.handle_event(life, EventId::new(0), store(10), now);
//! stream.handle_event(life, EventId::new(2), store(12), now);
//! // 2. Should no answer come, the stream asks again.
//! let (retry, _) = stream.poll_timeout().expect("a question is open");
//! stream.handle_timeout(retry);
//! // 4. The question; the source replays, and says when it is done.
//! let request = stream.poll_request().expect("something is missing");
//! let missing = EventId::new(1);
//! assert_eq!(request.kind, RequestKind::History { from: missing, to: missing });
//! stream.handle_event(life, missing, store(11), retry);
//! stream.handle_history_end(request.id, retry);
//! // 3. All three, in order.
//! while let Some(command) = stream.poll_command() {
//!     if pool.apply(&command).error.is_some() {
//!         stream.handle_suspect(retry);
//!     }
//! }
//! assert!((10..13).all(|bits| pool.table().contains(BlockHash::new(bits))));
//! // 5. What there is to log.
//! while let Some(notice) = stream.poll_notice() {
//!     println!("{notice:?}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a stream does
//!
//! | what happens | what the stream does |
//! |---|---|
//! | the next event | applies it |
//! | an event already applied, or waiting; also numbering that goes back in a generation | drops it as a duplicate |
//! | a small gap, also one that a heartbeat brings to light | asks history; later events wait |
//! | history cannot give it | asks the full state: never skips |
//! | a large gap, joining in the middle, orphans | asks the full state |
//! | a source that has no full state | goes on from its latest events, see below |
//! | too many events waiting, of the member or of the pool | gives up the oldest of the member's, asks the full state |
//! | a full state | replaces the member by difference, drops what it covers, applies the rest |
//! | the first event of a generation, or one with a clear | the state is known from here, whatever was missed |
//! | a newer generation | clears the member before anything of it counts |
//! | events and answers of an older generation | drops and counts them |
//! | a suspicion of the host, or too many commands that it leaves waiting, of the member or of the pool | asks the full state; for such a reason again, at the pace of the longest back-off |
//! | no answer | asks again, with back-off |
//! | no progress until the deadline | clears the member; the next sign of life starts over |
//!
//! While a gap is open the pool shows the member's state before the gap. It shows nothing of a
//! member whose recovery failed: a wrong "no" costs a cache hit, a wrong "yes" costs a detour.
//!
//! # Which answer replaces what
//! A question for the full state has two answers.
//!
//! *All that the member holds* (`handle_full_state`), from a source that keeps such a state, replaces
//! whatever the stream knew.
//!
//! *The latest events* (`handle_latest`), from a source that keeps no more, as engines and their replay
//! sockets do; none at all where there is no such socket, and then those that wait take their place.
//! Of these, the ones after the last hole (an event that is gone, or that nobody can read) are certain:
//! what they store and do not remove again is held. What was before the hole may have gone in it.
//! What becomes of the state so far depends on why there was a doubt:
//!
//! | doubt | the pool shows | events that reach back to the last one applied | that begin later |
//! |---|---|---|---|
//! | `Orphans` | the exact state, without blocks of unknown parents | kept, and continued | kept: what lies between is a gap like any other |
//! | a gap (`LongGap`, `NoHistory`, `Overflow`) | the state before the gap | kept, and continued | replaced by what they tell |
//! | `FirstContact`, `Replaced`, `Failed`, `Backlog` | nothing | replaced by what they tell | the same |
//! | `Host` | nobody knows | replaced by what they tell | the same |
//!
//! Orphans never cost anything: while they are asked about, later events wait, but rather than give up
//! one of these, or the member for want of an answer, the stream goes on without the parents. A source
//! that had no more than its latest events is not asked about orphans again in its life: the stream has
//! applied all that it could tell.
//!
//! # Fronts
//! Events pass a [`Front`] on their way from the stream to the commands:
//! - [`Direct`] for sources that publish [`BlockHash`](ckf_core::BlockHash)es;
//! - [`Translator`] for engines, which publish ids of their own and tokens;
//! - [`ChainedIds`] for engines whose ids readers can rebuild;
//! - [`CopyCounter`] around one of them, for sources that report physical copies.
//!
//! They come after the ordering on purpose: a parent link or a count means something only in an
//! ordered stream without loss, and an event that waits or is replaced must not leave traces.
//!
//! # Outside
//! Sockets and encodings; how the host tells the generations of an engine apart. An engine that does
//! not name its generations gives a hint at best (numbers that start again, a new connection), and
//! taking every such hint for a new life would wipe caches for nothing.

mod answers;
mod chained;
mod config;
mod copies;
mod departed;
mod engine;
mod filter;
mod front;
mod ids;
mod map;
mod output;
mod pool;
mod queue;
mod readiness;
mod recovery;
mod stream;
mod translator;
mod turns;

pub use answers::FullState;
pub use chained::ChainedIds;
pub use config::{PoolSourcesConfig, SourceConfig, SourceConfigError};
pub use copies::CopyCounter;
pub use engine::{
    Adapter, Attention, EngineEvent, Medium, Place, RemovedBlocks, StoredBlocks, Tokens,
};
pub use filter::PlaceStats;
pub use front::{BlockChange, BlockChanges, Direct, Front, SourceEvent};
pub use ids::{EventId, RequestId, SourceGeneration};
pub use output::{
    Doubt, Handled, RequestKind, SourceNotice, SourceRequest, SourceStats, SourcesError,
    SourcesNotice, StreamState, WakeReason,
};
pub use pool::PoolSources;
pub use readiness::{Readiness, ReadyReason, ReadyRule};
pub use stream::SourceStream;
pub use translator::{Translator, TranslatorConfig, TranslatorStats};

//! Exact KV block ownership of one data center, projected into a cuckoo filter and published.
//!
//! Events of engines go in, one ordered stream a member ([`source`]); commands come out of there and go
//! into the [`Producer`], which is a [`Pool`] (who owns what, and its filter) with its subscribers. Each
//! can be used without the others.
//!
//! # The loop
//! No clock, randomness, socket or thread in here: the host owns those, and repeats these steps with one
//! `now` each time.
//!
//! 1. Hand in what arrived: events and answers of sources ([`PoolSources`](source::PoolSources)), frames
//!    of subscribers and lost links ([`Producer`]).
//! 2. Call `handle_timeout` of both.
//! 3. Apply the commands of stage 1. A member for which one fails is suspect.
//! 4. Send the questions of stage 1 to the sources.
//! 5. Publish, as often as readers shall hear of changes, and no earlier than the sources have told
//!    enough ([`readiness`](source::PoolSources::readiness)): an empty filter must not pass for an empty
//!    data center.
//! 6. Send the frames that wait, to each link as many as it takes.
//! 7. Log notices and events, and wait for input, at most until the earlier `poll_timeout`.
//!
//! ```
//! use ckf_core::{BlockHash, Sizing};
//! use ckf_producer::source::{
//!     BlockChange, Direct, EventId, PoolSources, PoolSourcesConfig, ReadyRule, SourceConfig,
//!     SourceGeneration,
//! };
//! use ckf_producer::{HashSeeds, Member, PoolConfig, Producer, PublishConfig, SubscriberId};
//! use ckf_protocol::{
//!     DcId, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant, Millis, PoolId,
//! };
//!
//! let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
//! let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
//! let id = PoolId { domain, dc: DcId::new(7) };
//! let format = Sizing::for_blocks(1_000_000, 600)?.format(42);
//! // Seeds are drawn at random, once a process; an incarnation is never used twice.
//! let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
//! let mut producer = Producer::new(config, PublishConfig::default(), id, Incarnation::new(1))?;
//!
//! let rule = ReadyRule::new(90, Millis::from_secs(60))?;
//! let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
//! let mut sources = PoolSources::new(config, Direct, Instant::from_millis(0));
//! let (worker, life, link) = (Member::new(7, 0), SourceGeneration::new(1), SubscriberId::new(1));
//! sources.expect(worker, Instant::from_millis(0))?;
//!
//! for turn in 0..3 {
//!     let now = Instant::from_millis(10 * turn);
//!     // 1. The first thing that the worker ever says.
//!     if turn == 1 {
//!         let event = vec![BlockChange::Store(vec![BlockHash::new(11), BlockHash::new(12)])];
//!         sources.handle_event(worker, life, EventId::new(0), event, now)?;
//!     }
//!     // 2.
//!     sources.handle_timeout(now);
//!     producer.handle_timeout(now);
//!     // 3.
//!     while let Some(command) = sources.poll_command() {
//!         let failed = producer.apply(&command).error.is_some();
//!         if let Some(member) = command.member().filter(|_| failed) {
//!             sources.handle_suspect(member, now);
//!         }
//!     }
//!     // 4.
//!     while let Some(question) = sources.poll_request() {
//!         println!("ask {}: {:?}", question.member, question.kind);
//!     }
//!     // 5. and 6.
//!     if sources.readiness().ready.is_some() {
//!         producer.publish(now)?;
//!         while let Some(frame) = producer.poll_frame(link, now) {
//!             println!("send {} bytes", frame.len());
//!         }
//!     }
//!     // 7.
//!     while let Some(notice) = sources.poll_notice() {
//!         println!("{notice:?}");
//!     }
//!     producer.events().for_each(|event| println!("{event:?}"));
//!     let (of_sources, of_producer) = (sources.poll_timeout(), producer.poll_timeout());
//!     let _until = of_sources.map(|due| due.0).into_iter().chain(of_producer.map(|due| due.0)).min();
//! }
//! assert_eq!((producer.pool().stats().edges, producer.pool().sequence().get()), (2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Outside
//! What travels on the wire and what identities mean (`ckf-protocol`); the filter itself (`ckf-core`); how
//! events and frames travel, and what time it is (the host). What the pool holds is not stored anywhere: a new
//! process is a new incarnation that learns it from the sources.
//!
//! | feature | adds |
//! |---|---|
//! | `std` (default) | checksums of frames by the CPU's own instruction where it has one; no API, no other behaviour |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod buckets;
mod budget;
mod check;
mod command;
mod config;
#[cfg(feature = "_model")]
mod corrupt;
mod dirty;
mod error;
mod event;
mod gain;
mod grow;
mod member;
mod ownership;
mod pool;
mod producer;
mod projection;
mod publish;
mod readmission;
pub mod source;
mod stats;

pub use batch::SealedBatch;
pub use buckets::{Changes, PoolBuckets};
pub use command::{Command, Outcome};
pub use config::PoolConfig;
#[cfg(feature = "_model")]
#[doc(hidden)]
pub use corrupt::Corruption;
pub use error::{CommandError, ConfigError, GrowError, SealError, Violation};
pub use event::PoolEvent;
pub use member::{DpRank, Member, WorkerId};
pub use ownership::HashSeeds;
pub use pool::Pool;
pub use producer::Producer;
pub use publish::{
    Due, EndedCounts, IgnoredRequest, IgnoredRequestCounts, LeaseEnd, ProducerEvent, PublishConfig,
    PublishConfigError, PublishStats, RejectedCounts, Request, SubscriberId, Traffic,
};
pub use stats::{PoolBytes, PoolStats};

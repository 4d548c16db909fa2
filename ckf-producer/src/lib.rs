//! Exact KV block ownership of one data center, projected into a cuckoo filter and published.
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
mod marks;
mod member;
mod ownership;
mod pool;
mod producer;
mod projection;
mod publish;
pub mod source;
mod stats;

pub use batch::SealedBatch;
pub use buckets::PoolBuckets;
pub use command::{Command, Outcome};
pub use config::PoolConfig;
#[cfg(feature = "_model")]
#[doc(hidden)]
pub use corrupt::Corruption;
pub use dirty::Changes;
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

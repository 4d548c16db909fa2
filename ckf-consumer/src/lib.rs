//! See the README.

mod consumer;
mod error;
mod lane;
mod lanes;
mod mask;
mod matches;
mod query;
mod row;
mod search;
mod session;
mod sync;
mod table;

pub use consumer::{Consumer, ConsumerConfig};
pub use error::ConsumerError;
pub use lane::LaneWriter;
pub use lanes::Backend;
pub use mask::{LaneIter, LaneMask};
pub use matches::Matches;
pub use query::{Freshness, QueryHandle, SearchMode};
pub use row::Line;
pub use session::{
    AssignError, Failure, FailureCounts, Handled, Ignored, IgnoredCounts, LaneSession, LaneStore,
    SessionConfig, SessionConfigError, SessionEvent, SessionState, SessionStats, SessionTimes,
    Waiting,
};

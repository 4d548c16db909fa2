//! See the README.

mod consumer;
mod ids;
mod lane;
mod mask;
mod matches;
mod query;
mod row;
mod session;
mod sync;
mod table;

pub use consumer::{Consumer, ConsumerConfig};
pub use lane::LaneWriter;
pub use mask::{LaneIter, LaneMask};
pub use matches::Matches;
pub use query::QueryHandle;
pub use row::Line;
pub use session::{
    AssignError, Failure, FailureCounts, Handled, Ignored, IgnoredCounts, LaneSession, LaneStore,
    SessionConfig, SessionConfigError, SessionEvent, SessionState, SessionStats, SessionTimes,
    Waiting,
};

//! Lock-free prefix lookups over the filters of many data centers.
//!
//! 1. A host makes a consumer from a manifest: one query handle, one session per lane.
//! 2. It hands each session the frames of its pool and sends what the session asks for.
//! 3. A session installs a snapshot into its lane, publishes the lane, and applies deltas.
//! 4. Any number of threads ask the query handle, meanwhile and without waiting.
//!
//! # Consistency
//! A query captures the ready lanes once, at its start, and reads the words of those lanes while
//! their writers go on. What its answer may mix, and what not:
//!
//! - *During a delta* an answer may be of the table before it, after it, or of any mixture. A
//!   relocation stores the gaining bucket before the losing one, and still a query whose two looks
//!   straddle the stores can miss a block that was there all the time. Once the delta is applied,
//!   queries that start find everything. Of a batch in several parts the same holds from the first
//!   part to the last, however long the link takes between them.
//! - *During a snapshot* the lane is absent. A query that had captured it leaves it out.
//! - *After a lane is retired* a query that had captured it may finish with its words, which stay
//!   as they were. One that starts later does not see the lane.
//! - *When a lane passes to another pool* no answer names one pool with words of the other: a lane
//!   whose tenancy began anew between start and end of a query is left out of the answer. Nothing
//!   is retried.
//! - *A lane's freshness* is of the tenancy that it names. Its sequence and its time may be one
//!   message apart.
//! - An absent lane is not a lane of depth 0.
//!
//! # Orderings
//! Three pairings order all of this. They are written in `src/table.rs`, each with the name of the
//! loom test that explores it; `src/sync.rs` is the only file that names atomics.
//!
//! # Trade-offs
//! - Readers never wait, so an answer can be a mixture. A router that acts on a stale depth loses
//!   a cache hit, not correctness.
//! - The filter says "yes" wrongly about once in 9,000 looks, so a depth can be too large, never too
//!   small for blocks that are held once a lane has settled.
//! - Walking is exact on the words; jumping is faster and may overlook a hole in the middle of a
//!   prefix. The walk is the default.
//! - Rows have room for a power of two of lanes: 17 lanes take the memory of 32.
//! - A jump is bound by memory latency, so huge pages matter more to it than vector instructions.

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

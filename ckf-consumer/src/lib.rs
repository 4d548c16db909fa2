//! Lock-free prefix lookups over the filters of many data centers.
//!
//! 1. A host makes a consumer from a manifest: one query handle, one session per lane.
//! 2. It hands each session the frames of its pool and sends what the session asks for.
//! 3. A session installs a snapshot into its lane, publishes the lane, and applies deltas.
//! 4. Any number of threads ask the query handle, meanwhile and without waiting.
//!
//! ```
//! use ckf_consumer::{Consumer, ConsumerConfig, LaneSession, QueryHandle, SearchMode};
//! use ckf_core::{BlockHash, Format};
//! use ckf_protocol::{
//!     ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, IndexerDomainId, Instant, Manifest,
//! };
//!
//! /// What a host has to one producer; frames are whole, and in order as far as the link keeps it.
//! trait Link {
//!     fn is_lost(&mut self) -> bool;
//!     fn send(&mut self, frame: &[u8]);
//!     fn receive(&mut self) -> Option<Vec<u8>>;
//! }
//!
//! /// 2. and 3. One turn of a lane's thread or task. Returns until when it may sleep.
//! fn turn(lane: &mut LaneSession, link: &mut impl Link, now: Instant) -> Option<Instant> {
//!     if link.is_lost() {
//!         lane.handle_disconnected(now);
//!     }
//!     while let Some(frame) = link.receive() {
//!         let _fate = lane.handle_frame(&frame, now);
//!     }
//!     lane.handle_timeout(now);
//!     while let Some(frame) = lane.poll_transmit() {
//!         link.send(&frame);
//!     }
//!     while let Some(event) = lane.poll_event() {
//!         println!("lane {}: {event:?}", lane.lane());
//!     }
//!     lane.poll_timeout().map(|(due, _why)| due)
//! }
//!
//! /// 4. A request, on any thread. Data centers that are absent, or hold nothing, are told apart by
//! /// load alone.
//! fn choose(queries: &QueryHandle, prompt: &[BlockHash], load: impl Fn(DcId) -> u32) -> Option<DcId> {
//!     let matches = queries.find_prefix(prompt);
//!     let held = matches.iter().filter(|&(_, _, depth)| depth > 0);
//!     held.max_by_key(|&(_, dc, depth)| (depth, std::cmp::Reverse(load(dc)))).map(|(_, dc, _)| dc)
//! }
//!
//! // 1. Two data centers, a lane each.
//! let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
//! let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
//! let dcs = [DcId::new(7), DcId::new(8)];
//! let manifest = Manifest::builder(domain, Format::any_count(1000, 42)?).dc(dcs[0]).dc(dcs[1]).build()?;
//! let config = ConsumerConfig::default().with_mode(SearchMode::JUMP).with_seed(12345);
//! let (queries, mut lanes) = Consumer::new(&manifest, config, ConsumerId::new(1))?;
//! for (lane, dc) in lanes.iter_mut().zip(dcs) {
//!     lane.assign(dc, Epoch::new(1), Instant::ZERO)?;
//! }
//!
//! # struct Nobody(usize);
//! # impl Link for Nobody {
//! #     fn is_lost(&mut self) -> bool { false }
//! #     fn send(&mut self, _: &[u8]) { self.0 += 1 }
//! #     fn receive(&mut self) -> Option<Vec<u8>> { None }
//! # }
//! # let mut link = Nobody(0);
//! // Nobody answers: the lane asks for its pool and waits. No lane is ready yet, so no answer names one.
//! let until = turn(&mut lanes[0], &mut link, Instant::ZERO);
//! assert_eq!(until, Some(Instant::from_millis(5000)));
//! assert_eq!(choose(&queries, &[BlockHash::new(11)], |_| 0), None);
//! # assert_eq!(link.0, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`LaneSession`] has an example with a producer's frames in it.
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
//!
//! # Outside
//! What a router makes of depths and load; how frames travel and what time it is (the host); what
//! frames say (`ckf-protocol`); how prompts become hashes ([`ckf_core::sequence`]).
//!
//! | feature | adds |
//! |---|---|
//! | `huge-pages` | asks Linux to back the rows with huge pages (dependency: `libc`) |
//!
//! The cfg `ckf_force_scalar` leaves only the scalar row scan.

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

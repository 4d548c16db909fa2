//! The packed cuckoo filter of the ckf family: which KV blocks does a data center probably hold?
//!
//! A block hash is mixed into a 16-bit fingerprint and two candidate buckets. A bucket is four
//! fingerprints packed in one `u64`:
//!
//! ```text
//!  63      48 47      32 31      16 15       0
//! +----------+----------+----------+----------+
//! |  slot 3  |  slot 2  |  slot 1  |  slot 0  |   0 = empty
//! +----------+----------+----------+----------+
//! ```
//!
//! What holds at all times:
//! - each stored fingerprint lies in one of its two candidate buckets;
//! - an insertion is planned first and then written, so that a refused one changes nothing;
//! - all of it is a function of its inputs: no clock, no randomness, no global state.
//!
//! ```
//! use ckf_core::{BlockHash, Sizing, Table};
//!
//! let sizing = Sizing::for_blocks(100_000, Sizing::DEFAULT_LOAD)?;
//! let format = sizing.format(42);
//! let mut table = Table::new(format)?;
//! for i in 0..100_000 {
//!     table.insert(&format.address(BlockHash::new(i)), |_change| ())?;
//! }
//! assert!((0..100_000).all(|i| table.contains(BlockHash::new(i))));
//!
//! // 2.2 bytes a block, and about one wrong "yes" in 9,100.
//! assert_eq!(sizing.bytes(), 222_224);
//! let wrong = (100_000..1_100_000).filter(|&i| table.contains(BlockHash::new(i))).count();
//! assert!((60..160).contains(&wrong), "{wrong}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Outside: who owns a block (`ckf-producer`), how tables travel (`ckf-protocol`), how many tables
//! are asked at once (`ckf-consumer`). The crate is `no_std` with `alloc` and has no features.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod bucket;
mod buckets;
mod digest;
mod error;
mod format;
mod key;
mod kick;
mod mix;
pub mod sequence;
mod sizing;
mod table;

pub use address::{Address, Addresser, Addressing, AnyCount, BucketIndex, Fingerprint, PowerOfTwo};
pub use bucket::BucketImage;
pub use buckets::{Buckets, Change, Copies, SlotIndex};
pub use digest::TableDigest;
pub use error::{AllocationError, FormatError, Full, SizingError};
pub use format::{Format, Indexing};
pub use key::{BlockHash, EngineBlockId, LocalHash};
pub use mix::{GOLDEN_GAMMA, mix64};
pub use sizing::Sizing;
pub use table::Table;

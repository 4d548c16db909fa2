//! Identities, messages and the bounded wire codec of the ckf family.
//!
//! The exchange between a consumer's lane and a pool's producer:
//!
//! ```text
//! consumer                                   producer
//!    | ---- Subscribe ---------------------->  |
//!    | <--- Reject  ------------------------   |   or
//!    | <--- SnapshotBegin (the lease) -------  |
//!    | <--- SnapshotChunk, Delta ... --------  |   in any mixture
//!    | <--- SnapshotEnd ---------------------  |   the lane is ready
//!    | <--- Delta, Heartbeat ... ------------  |
//!    | <--- Retire --------------------------  |   or  Unsubscribe --->
//! ```
//!
//! `docs/WIRE.md` specifies every byte. What holds at all times:
//! - a frame that is damaged, cut or spelled in another than the one canonical way is an error that
//!   names the field and its place, never a panic and never an allocation;
//! - what decodes encodes to the same bytes;
//! - a body holds no lease, so that one encoding serves all subscribers.
//!
//! A byte stream carries frames one after another; the header says where each ends:
//!
//! ```
//! use ckf_protocol::{Header, LeaseId, Limits, Message, Unsubscribe, decode, peek_header};
//!
//! let lease = LeaseId::new(7).expect("not 0");
//! let mut received = Unsubscribe { lease }.to_frame().to_bytes();
//! received.extend([0x43, 0x4B]); // The next frame has begun to arrive.
//!
//! let limits = Limits::default();
//! while received.len() >= Header::LEN {
//!     let len = peek_header(&received, &limits)?.frame_len();
//!     if received.len() < len {
//!         break;
//!     }
//!     let message = decode(&received[..len], &limits)?;
//!     assert_eq!(message, Message::Unsubscribe(Unsubscribe { lease }));
//!     received.drain(..len);
//! }
//! assert_eq!(received.len(), 2);
//! # Ok::<(), ckf_protocol::DecodeError>(())
//! ```
//!
//! Outside: when to send what (`ckf-producer`, `ckf-consumer`), and how bytes travel (the host).
//!
//! | feature | adds |
//! |---|---|
//! | `std` (default) | checksums by the CPU's own instruction where it has one; no API, no other behaviour |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod checksum;
mod codec;
mod control;
mod counts;
mod delta;
mod delta_writer;
mod error;
mod frame;
mod ids;
mod layout;
mod limits;
mod manifest;
mod message;
mod snapshot;
mod time;
mod version;

pub use control::{
    Heartbeat, Reject, RejectReason, Retire, RetireReason, SnapshotBegin, SnapshotEnd, Subscribe,
    Unsubscribe,
};
pub use delta::{DeltaView, Patch, Patches};
pub use delta_writer::{DeltaParts, DeltaWriter};
pub use error::{DecodeError, EncodeError, Fault, LaneError, ManifestError};
pub use frame::{Frame, Header, Kind, SharedBody, peek_header};
pub use ids::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Lane,
    LayoutGeneration, LeaseId, LeaseTerms, PoolId, ProducerExpectation, ProducerIdentity, Sequence,
};
pub use limits::{Limits, LimitsError};
pub use manifest::{Manifest, ManifestBuilder, Provenance};
pub use message::{Message, decode, decode_body};
pub use snapshot::{ChunkView, Words, encode_chunk};
pub use time::{Instant, Millis};
pub use version::{VersionRange, VersionRangeError};

//! Errors of this crate: one small type per operation.

use core::fmt;

use thiserror::Error;

use crate::DcId;

/// A lane number outside 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("lane {lane} is outside 0 to 63")]
pub struct LaneError {
    /// The number.
    pub lane: u8,
}

/// Why a [`Manifest`](crate::Manifest) is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A pool belongs to another domain than the manifest.
    #[error("the pool of lane {lane} belongs to another indexer domain")]
    MixedDomain {
        /// Its lane.
        lane: u8,
    },
    /// One pool has two lanes.
    #[error("lanes {first} and {second} name the same pool")]
    DuplicatePool {
        /// The lower lane.
        first: u8,
        /// The higher lane.
        second: u8,
    },
    /// Two pools of different domains share a data center.
    #[error("lanes {first} and {second} both name data center {dc}")]
    DuplicateDc {
        /// The lower lane.
        first: u8,
        /// The higher lane.
        second: u8,
        /// The data center.
        dc: DcId,
    },
    /// No pool was given.
    #[error("a manifest needs at least one lane")]
    NoLane,
    /// More than 64 pools were given.
    #[error("{lanes} lanes are more than 64")]
    TooManyLanes {
        /// How many were given.
        lanes: usize,
    },
}

/// Why bytes are not a frame or not a message: which field, where, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeError {
    /// The field, as `docs/WIRE.md` names it, for example `delta.count`.
    pub field: &'static str,
    /// Where it starts or where its fault shows, in bytes from the start of the frame.
    pub offset: u32,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.field, self.offset, self.fault)
    }
}

impl core::error::Error for DecodeError {}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes end before the field does.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the field takes, at least.
        needed: u32,
        /// Bytes that are left.
        left: u32,
    },
    /// Bytes are left after the last field.
    #[error("{count} bytes too many")]
    Trailing {
        /// How many.
        count: u32,
    },
    /// The value has no meaning there.
    #[error("value {value:#x} is not allowed")]
    Value {
        /// The value.
        value: u64,
    },
    /// The value is above a limit.
    #[error("value {value} is above the limit of {limit}")]
    Limit {
        /// The value.
        value: u64,
        /// The highest allowed value.
        limit: u64,
    },
    /// The checksum does not match the bytes.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// Checksum in the frame.
        found: u32,
        /// Checksum of the frame's bytes.
        expected: u32,
    },
    /// A wire version that this crate does not speak.
    #[error("wire version {version} is not spoken here")]
    Version {
        /// The version.
        version: u8,
    },
    /// A message kind that does not exist in this version.
    #[error("unknown message kind {kind}")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A number of varying length with leading zeros.
    #[error("number is not in its shortest form")]
    Overlong,
    /// A bucket is patched twice.
    #[error("bucket {bucket} comes twice")]
    Order {
        /// The bucket.
        bucket: u32,
    },
    /// A bucket outside the table.
    #[error("bucket {bucket} is outside a table of {count} buckets")]
    Bucket {
        /// The bucket.
        bucket: u64,
        /// Buckets of the table.
        count: u32,
    },
    /// A lease in a kind that has none, or none in a kind that needs one.
    #[error("a lease is present or absent against the rule of the kind")]
    Lease,
    /// An occupied slot holds 0, which stands for an empty one.
    #[error("an occupied slot holds 0")]
    EmptySlot,
}

/// Why something cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Buckets did not come in ascending order.
    #[error("bucket {bucket} repeats or goes back")]
    Order {
        /// The bucket that came too late.
        bucket: u32,
    },
    /// A bucket outside the table.
    #[error("bucket {bucket} is outside a table of {count} buckets")]
    Bucket {
        /// The bucket.
        bucket: u32,
        /// Buckets of the table.
        count: u32,
    },
    /// A chunk of no buckets, or of more than the limits allow.
    #[error("a chunk of {len} buckets is outside 1 to {limit}")]
    ChunkLen {
        /// How many there were.
        len: usize,
        /// How many may be.
        limit: u32,
    },
    /// A batch of more than 65,536 parts.
    #[error("the batch needs more than 65536 parts")]
    TooManyParts,
    /// Batch 0: there is none, since it would continue from nothing.
    #[error("a batch has a number from 1 on")]
    Sequence,
}

//! Every message as one type, and the way there from bytes.

use crate::control::{
    Heartbeat, Reject, Retire, SnapshotBegin, SnapshotEnd, Subscribe, Unsubscribe,
};
use crate::error::{DecodeError, Fault};
use crate::frame::{Frame, Header, Kind, peek_header};
use crate::layout::header;
use crate::{ChunkView, DeltaView, LeaseId, Limits};

/// One message. Borrows the frame's bytes where the content is large.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Consumer to producer: asks for a lease.
    Subscribe(Subscribe),
    /// Consumer to producer: gives a lease back.
    Unsubscribe(Unsubscribe),
    /// Producer to consumer: no lease.
    Reject(Reject),
    /// Producer to consumer: a lease, and a snapshot that starts.
    SnapshotBegin(SnapshotBegin),
    /// Producer to consumer: some buckets of the snapshot.
    SnapshotChunk {
        /// The lease that it belongs to.
        lease: LeaseId,
        /// Its content.
        chunk: ChunkView<'a>,
    },
    /// Producer to consumer: the snapshot is complete.
    SnapshotEnd {
        /// The lease that it belongs to.
        lease: LeaseId,
        /// Its content.
        end: SnapshotEnd,
    },
    /// Producer to consumer: a batch, or a part of one.
    Delta {
        /// The lease that it belongs to.
        lease: LeaseId,
        /// Its content.
        delta: DeltaView<'a>,
    },
    /// Producer to consumer: still there, and where.
    Heartbeat {
        /// The lease that it belongs to.
        lease: LeaseId,
        /// Its content.
        heartbeat: Heartbeat,
    },
    /// Producer to consumer: the lease ends.
    Retire {
        /// The lease that ends.
        lease: LeaseId,
        /// Its content.
        retire: Retire,
    },
}

impl Message<'_> {
    /// What it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Subscribe(_) => Kind::Subscribe,
            Self::Unsubscribe(_) => Kind::Unsubscribe,
            Self::Reject(_) => Kind::Reject,
            Self::SnapshotBegin(_) => Kind::SnapshotBegin,
            Self::SnapshotChunk { .. } => Kind::SnapshotChunk,
            Self::SnapshotEnd { .. } => Kind::SnapshotEnd,
            Self::Delta { .. } => Kind::Delta,
            Self::Heartbeat { .. } => Kind::Heartbeat,
            Self::Retire { .. } => Kind::Retire,
        }
    }

    /// The frame that says it, made from what was read: equal to the frame that it came in.
    pub fn to_frame(&self) -> Frame {
        match self {
            Self::Subscribe(subscribe) => subscribe.to_frame(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.to_frame(),
            Self::Reject(reject) => reject.to_frame(),
            Self::SnapshotBegin(begin) => begin.to_frame(),
            Self::SnapshotChunk { lease, chunk } => chunk.to_body().frame(*lease),
            Self::SnapshotEnd { lease, end } => end.to_body().frame(*lease),
            Self::Delta { lease, delta } => delta.to_body().frame(*lease),
            Self::Heartbeat { lease, heartbeat } => heartbeat.to_body().frame(*lease),
            Self::Retire { lease, retire } => retire.to_body().frame(*lease),
        }
    }

    /// The lease that it belongs to.
    pub const fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Subscribe(_) | Self::Reject(_) => None,
            Self::Unsubscribe(unsubscribe) => Some(unsubscribe.lease),
            Self::SnapshotBegin(begin) => Some(begin.terms.lease),
            Self::SnapshotChunk { lease, .. }
            | Self::SnapshotEnd { lease, .. }
            | Self::Delta { lease, .. }
            | Self::Heartbeat { lease, .. }
            | Self::Retire { lease, .. } => Some(*lease),
        }
    }
}

/// Reads the one message that `frame` is. Cost: one pass over the bytes; allocates nothing.
///
/// Bucket bounds are those of `limits`: give it the table's size where it is known.
///
/// # Errors
/// [`DecodeError`] unless `frame` is exactly one well-formed frame within the limits.
pub fn decode<'a>(frame: &'a [u8], limits: &Limits) -> Result<Message<'a>, DecodeError> {
    let header = peek_header(frame, limits)?;
    decode_body(&header, header.body(frame)?, limits)
}

/// Reads the message of a body that [`Header::body`] gave out.
///
/// # Errors
/// As [`decode`].
pub fn decode_body<'a>(
    header: &Header,
    body: &'a [u8],
    limits: &Limits,
) -> Result<Message<'a>, DecodeError> {
    let kind = header.kind()?;
    let leased = || {
        // `Header::kind` made sure of it.
        header.lease().ok_or(DecodeError {
            field: header::LEASE.name,
            offset: header::LEASE.at as u32,
            fault: Fault::Lease,
        })
    };
    Ok(match kind {
        Kind::Subscribe => Message::Subscribe(Subscribe::parse(body)?),
        Kind::Unsubscribe => Message::Unsubscribe(Unsubscribe::parse(leased()?, body)?),
        Kind::Reject => Message::Reject(Reject::parse(body)?),
        Kind::SnapshotBegin => Message::SnapshotBegin(SnapshotBegin::parse(leased()?, body)?),
        Kind::SnapshotChunk => {
            Message::SnapshotChunk { lease: leased()?, chunk: ChunkView::parse(body, limits)? }
        }
        Kind::SnapshotEnd => {
            Message::SnapshotEnd { lease: leased()?, end: SnapshotEnd::parse(body)? }
        }
        Kind::Delta => Message::Delta { lease: leased()?, delta: DeltaView::parse(body, limits)? },
        Kind::Heartbeat => {
            Message::Heartbeat { lease: leased()?, heartbeat: Heartbeat::parse(body)? }
        }
        Kind::Retire => Message::Retire { lease: leased()?, retire: Retire::parse(body)? },
    })
}

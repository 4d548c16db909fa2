//! What publication tells its host: the fate of requests, events, reasons and counters.

use ckf_protocol::{
    DecodeError, Frame, Kind, LeaseId, LeaseTerms, RejectReason, RetireReason, counts,
};

use super::SubscriberId;
use crate::PoolEvent;

/// What became of one frame from a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Request {
    /// A lease was granted; its snapshot can be polled.
    Granted(LeaseTerms),
    /// No lease was granted; the refusal can be polled.
    Rejected(RejectReason),
    /// The subscriber gave this lease back.
    Released(LeaseId),
    /// The frame changed nothing and was counted.
    Ignored(IgnoredRequest),
}

/// Why a frame from a subscriber was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoredRequest {
    /// It does not decode.
    Unreadable(DecodeError),
    /// A subscription that was granted before.
    Duplicate,
    /// A lease that this link does not hold.
    UnknownLease,
    /// A message that only a producer sends.
    WrongDirection,
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// By this side, or given back; the subscriber was told unless it knows.
    Retired(RetireReason),
    /// The host lost the link.
    Disconnected,
}

/// Why the next deadline is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Due {
    /// A subscriber has heard nothing for the heartbeat interval.
    Heartbeat,
    /// A subscriber must take its next snapshot chunk.
    SnapshotProgress,
}

/// Something that a host may log or act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerEvent {
    /// From the pool.
    Pool(PoolEvent),
    /// A lease was granted.
    Subscribed {
        /// On which link.
        subscriber: SubscriberId,
        /// To whom.
        terms: LeaseTerms,
    },
    /// A subscriber has been sent its whole snapshot.
    Live {
        /// On which link.
        subscriber: SubscriberId,
        /// To whom.
        terms: LeaseTerms,
    },
    /// A lease ended.
    Ended {
        /// On which link.
        subscriber: SubscriberId,
        /// Whose it was.
        terms: LeaseTerms,
        /// Why.
        end: LeaseEnd,
    },
    /// A subscription was refused.
    Rejected {
        /// On which link.
        subscriber: SubscriberId,
        /// Why.
        reason: RejectReason,
    },
}

counts! {
    /// Leases that ended, by reason.
    EndedCounts of LeaseEnd {
        /// [`RetireReason::Lagged`]
        lagged: LeaseEnd::Retired(RetireReason::Lagged),
        /// [`RetireReason::Replaced`]
        replaced: LeaseEnd::Retired(RetireReason::Replaced),
        /// [`RetireReason::LayoutChanged`]
        layout_changed: LeaseEnd::Retired(RetireReason::LayoutChanged),
        /// [`RetireReason::Fenced`]
        fenced: LeaseEnd::Retired(RetireReason::Fenced),
        /// [`RetireReason::Shutdown`]
        shutdown: LeaseEnd::Retired(RetireReason::Shutdown),
        /// [`RetireReason::Deadline`]
        deadline: LeaseEnd::Retired(RetireReason::Deadline),
        /// [`RetireReason::Unsubscribed`]; reasons of a later wire version never start here
        unsubscribed: LeaseEnd::Retired(_),
        /// [`LeaseEnd::Disconnected`]
        disconnected: LeaseEnd::Disconnected,
    }
}

counts! {
    /// Subscriptions refused, by reason.
    RejectedCounts of RejectReason {
        /// [`RejectReason::UnknownPool`]
        unknown_pool: RejectReason::UnknownPool,
        /// [`RejectReason::FormatMismatch`]
        format_mismatch: RejectReason::FormatMismatch { .. },
        /// [`RejectReason::TooManySubscribers`]
        too_many_subscribers: RejectReason::TooManySubscribers,
        /// [`RejectReason::StaleEpoch`]
        stale_epoch: RejectReason::StaleEpoch,
        /// [`RejectReason::VersionUnsupported`]
        version_unsupported: RejectReason::VersionUnsupported { .. },
        /// [`RejectReason::Fenced`]; reasons of a later wire version never start here
        fenced: _,
    }
}

counts! {
    /// Frames of subscribers that were ignored, by reason.
    IgnoredRequestCounts of IgnoredRequest {
        /// [`IgnoredRequest::Unreadable`]
        unreadable: IgnoredRequest::Unreadable(_),
        /// [`IgnoredRequest::Duplicate`]
        duplicate: IgnoredRequest::Duplicate,
        /// [`IgnoredRequest::UnknownLease`]
        unknown_lease: IgnoredRequest::UnknownLease,
        /// [`IgnoredRequest::WrongDirection`]
        wrong_direction: IgnoredRequest::WrongDirection,
    }
}

/// Frames handed to the host for sending, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        self.bytes += frame.len() as u64;
    }
}

/// Counters of one pool's publication since it was made. The first four describe the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishStats {
    /// Leases now.
    pub subscribers: u64,
    /// Of these, those whose snapshot is not complete.
    pub snapshots_running: u64,
    /// Messages that wait in the fullest outbox.
    pub outbox_messages_most: u64,
    /// Bytes that wait in the fullest outbox.
    pub outbox_bytes_most: u64,
    /// Leases granted.
    pub granted: u64,
    /// Leases ended, by reason.
    pub ended: EndedCounts,
    /// Subscriptions refused, by reason.
    pub rejected: RejectedCounts,
    /// Frames ignored, by reason.
    pub ignored: IgnoredRequestCounts,
    /// Batches encoded: those sealed while there was a subscriber.
    pub batches_encoded: u64,
    /// Chunks encoded.
    pub chunks_encoded: u64,
    /// Chunks sent that had been encoded for another subscriber.
    pub chunks_shared: u64,
    /// Deltas sent.
    pub deltas: Traffic,
    /// Snapshot messages sent.
    pub snapshots: Traffic,
    /// Heartbeats and drain markers sent.
    pub heartbeats: Traffic,
    /// Refusals and ends of leases sent.
    pub letters: Traffic,
    /// Refusals and ends of leases dropped, because their link did not fetch earlier ones.
    pub letters_dropped: u64,
    /// Events dropped because the host did not fetch them.
    pub events_dropped: u64,
}

impl PublishStats {
    pub(super) fn sent(&mut self, frame: &Frame) {
        match frame.kind() {
            Kind::Delta => &mut self.deltas,
            Kind::SnapshotBegin | Kind::SnapshotChunk | Kind::SnapshotEnd => &mut self.snapshots,
            Kind::Heartbeat => &mut self.heartbeats,
            _ => &mut self.letters,
        }
        .add(frame);
    }
}

//! What publication tells its host: the fate of requests, events, reasons and counters.

use ckf_protocol::{DecodeError, Frame, Kind, LeaseId, LeaseTerms, RejectReason, RetireReason};

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

/// Leases that ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedCounts {
    /// [`RetireReason::Lagged`]
    pub lagged: u64,
    /// [`RetireReason::Replaced`]
    pub replaced: u64,
    /// [`RetireReason::LayoutChanged`]
    pub layout_changed: u64,
    /// [`RetireReason::Fenced`]
    pub fenced: u64,
    /// [`RetireReason::Shutdown`]
    pub shutdown: u64,
    /// [`RetireReason::Deadline`]
    pub deadline: u64,
    /// [`RetireReason::Unsubscribed`]
    pub unsubscribed: u64,
    /// [`LeaseEnd::Disconnected`]
    pub disconnected: u64,
}

impl EndedCounts {
    pub(super) fn count(&mut self, end: LeaseEnd) {
        *match end {
            LeaseEnd::Disconnected => &mut self.disconnected,
            LeaseEnd::Retired(reason) => match reason {
                RetireReason::Lagged => &mut self.lagged,
                RetireReason::Replaced => &mut self.replaced,
                RetireReason::LayoutChanged => &mut self.layout_changed,
                RetireReason::Fenced => &mut self.fenced,
                RetireReason::Shutdown => &mut self.shutdown,
                RetireReason::Deadline => &mut self.deadline,
                // Reasons of a later wire version never start here.
                _ => &mut self.unsubscribed,
            },
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.lagged
            + self.replaced
            + self.layout_changed
            + self.fenced
            + self.shutdown
            + self.deadline
            + self.unsubscribed
            + self.disconnected
    }
}

/// Subscriptions refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RejectedCounts {
    /// [`RejectReason::UnknownPool`]
    pub unknown_pool: u64,
    /// [`RejectReason::FormatMismatch`]
    pub format_mismatch: u64,
    /// [`RejectReason::TooManySubscribers`]
    pub too_many_subscribers: u64,
    /// [`RejectReason::StaleEpoch`]
    pub stale_epoch: u64,
    /// [`RejectReason::Fenced`]
    pub fenced: u64,
    /// [`RejectReason::VersionUnsupported`]
    pub version_unsupported: u64,
}

impl RejectedCounts {
    pub(super) fn count(&mut self, reason: RejectReason) {
        *match reason {
            RejectReason::UnknownPool => &mut self.unknown_pool,
            RejectReason::FormatMismatch { .. } => &mut self.format_mismatch,
            RejectReason::TooManySubscribers => &mut self.too_many_subscribers,
            RejectReason::StaleEpoch => &mut self.stale_epoch,
            RejectReason::VersionUnsupported { .. } => &mut self.version_unsupported,
            // Reasons of a later wire version never start here.
            _ => &mut self.fenced,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.unknown_pool
            + self.format_mismatch
            + self.too_many_subscribers
            + self.stale_epoch
            + self.fenced
            + self.version_unsupported
    }
}

/// Frames of subscribers that were ignored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredRequestCounts {
    /// [`IgnoredRequest::Unreadable`]
    pub unreadable: u64,
    /// [`IgnoredRequest::Duplicate`]
    pub duplicate: u64,
    /// [`IgnoredRequest::UnknownLease`]
    pub unknown_lease: u64,
    /// [`IgnoredRequest::WrongDirection`]
    pub wrong_direction: u64,
}

impl IgnoredRequestCounts {
    pub(super) fn count(&mut self, reason: IgnoredRequest) {
        *match reason {
            IgnoredRequest::Unreadable(_) => &mut self.unreadable,
            IgnoredRequest::Duplicate => &mut self.duplicate,
            IgnoredRequest::UnknownLease => &mut self.unknown_lease,
            IgnoredRequest::WrongDirection => &mut self.wrong_direction,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.unreadable + self.duplicate + self.unknown_lease + self.wrong_direction
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

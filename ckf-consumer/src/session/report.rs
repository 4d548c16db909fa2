//! What a session tells its host: the fate of each frame, events, reasons and counters.

use ckf_protocol::{DecodeError, ProducerIdentity, RejectReason, RetireReason, Sequence};

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Handled {
    /// A new lease was accepted; its snapshot follows. The lane is not ready.
    Installing,
    /// A snapshot chunk was stored.
    Chunk,
    /// The snapshot is complete: the lane is ready as of this sequence.
    Ready(Sequence),
    /// A delta was applied; the lane is complete up to this sequence. A part of a larger batch
    /// leaves the sequence where it was.
    Applied(Sequence),
    /// A heartbeat or drain marker agreed with the lane.
    Alive(Sequence),
    /// The frame changed nothing and was counted.
    Ignored(Ignored),
    /// The producer refused the subscription; a new one follows after a back-off.
    Rejected(RejectReason),
    /// The lane was retired; a new subscription follows after a back-off.
    Retired(Failure),
}

/// Why a frame was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ignored {
    /// The session has no pool.
    Unassigned,
    /// Nothing is read of the frame's lease, or the header names none that could be compared.
    Unreadable,
    /// The lease is another one than the current one, or there is no current one.
    ForeignLease,
    /// An answer to another subscription: other consumer, lane or epoch.
    ForeignTerms,
    /// Something on the current lease that was applied before.
    Duplicate,
    /// A message that only a consumer sends.
    WrongDirection,
}

/// Why a lane was retired, or a subscription given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Batches or parts of one are missing, or came in another order.
    Gap {
        /// The sequence that the lane was complete up to.
        installed: Sequence,
        /// The sequence that the message named.
        found: Sequence,
    },
    /// Snapshot chunks are missing, or came in another order.
    SnapshotGap {
        /// The first bucket that was still to come.
        expected: u32,
        /// The first bucket of what came.
        found: u32,
    },
    /// A frame on the current lease does not decode.
    Malformed(DecodeError),
    /// The stream is of another pool, format or life than was subscribed to.
    IdentityMismatch,
    /// The words would not be those of the producer.
    DigestMismatch,
    /// The producer ended the lease.
    ByProducer(RetireReason),
    /// The producer refused the subscription.
    Rejected(RejectReason),
    /// No answer to a subscription in time.
    SubscribeDeadline,
    /// No snapshot chunk in time.
    SnapshotDeadline,
    /// Nothing heard of the producer for too long.
    Silence,
    /// The host lost the connection.
    Disconnected,
    /// The host took the pool away, or gave another.
    Unassigned,
    /// Assignment epochs are used up; the session has no pool any more.
    EpochsExhausted,
}

/// Why the next deadline is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Waiting {
    /// For an answer to a subscription.
    Subscribe,
    /// For the next snapshot chunk.
    SnapshotProgress,
    /// For any sign of life of a ready lane's producer.
    Silence,
    /// For the end of a back-off.
    BackOff,
}

/// Something that a host may log or act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// Queries may use the lane.
    Ready {
        /// Whose words it holds.
        identity: ProducerIdentity,
        /// As of which batch.
        sequence: Sequence,
    },
    /// The producer has sent all that it had up to this sequence, and the lane holds it.
    Drained {
        /// That sequence.
        sequence: Sequence,
    },
    /// The subscription was refused. [`RejectReason::FormatMismatch`] names the producer's format:
    /// only a host that makes a new consumer with it can join that pool.
    Rejected {
        /// Why.
        reason: RejectReason,
    },
    /// The lane was retired, or a subscription given up.
    Retired {
        /// Why.
        failure: Failure,
        /// Whether queries could use the lane until then.
        was_ready: bool,
    },
}

/// Frames ignored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredCounts {
    /// [`Ignored::Unassigned`]
    pub unassigned: u64,
    /// [`Ignored::Unreadable`]
    pub unreadable: u64,
    /// [`Ignored::ForeignLease`]
    pub foreign_lease: u64,
    /// [`Ignored::ForeignTerms`]
    pub foreign_terms: u64,
    /// [`Ignored::Duplicate`]
    pub duplicate: u64,
    /// [`Ignored::WrongDirection`]
    pub wrong_direction: u64,
}

impl IgnoredCounts {
    pub(super) fn count(&mut self, reason: Ignored) {
        *match reason {
            Ignored::Unassigned => &mut self.unassigned,
            Ignored::Unreadable => &mut self.unreadable,
            Ignored::ForeignLease => &mut self.foreign_lease,
            Ignored::ForeignTerms => &mut self.foreign_terms,
            Ignored::Duplicate => &mut self.duplicate,
            Ignored::WrongDirection => &mut self.wrong_direction,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.unassigned
            + self.unreadable
            + self.foreign_lease
            + self.foreign_terms
            + self.duplicate
            + self.wrong_direction
    }
}

/// Leases and subscriptions given up, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailureCounts {
    /// [`Failure::Gap`]
    pub gap: u64,
    /// [`Failure::SnapshotGap`]
    pub snapshot_gap: u64,
    /// [`Failure::Malformed`]
    pub malformed: u64,
    /// [`Failure::IdentityMismatch`]
    pub identity: u64,
    /// [`Failure::DigestMismatch`]
    pub digest: u64,
    /// [`Failure::ByProducer`]
    pub by_producer: u64,
    /// [`Failure::Rejected`]
    pub rejected: u64,
    /// [`Failure::SubscribeDeadline`]
    pub subscribe_deadline: u64,
    /// [`Failure::SnapshotDeadline`]
    pub snapshot_deadline: u64,
    /// [`Failure::Silence`]
    pub silence: u64,
    /// [`Failure::Disconnected`]
    pub disconnected: u64,
    /// [`Failure::Unassigned`] and [`Failure::EpochsExhausted`]
    pub unassigned: u64,
}

impl FailureCounts {
    pub(super) fn count(&mut self, failure: Failure) {
        *match failure {
            Failure::Gap { .. } => &mut self.gap,
            Failure::SnapshotGap { .. } => &mut self.snapshot_gap,
            Failure::Malformed(_) => &mut self.malformed,
            Failure::IdentityMismatch => &mut self.identity,
            Failure::DigestMismatch => &mut self.digest,
            Failure::ByProducer(_) => &mut self.by_producer,
            Failure::Rejected(_) => &mut self.rejected,
            Failure::SubscribeDeadline => &mut self.subscribe_deadline,
            Failure::SnapshotDeadline => &mut self.snapshot_deadline,
            Failure::Silence => &mut self.silence,
            Failure::Disconnected => &mut self.disconnected,
            Failure::Unassigned | Failure::EpochsExhausted => &mut self.unassigned,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.gap
            + self.snapshot_gap
            + self.malformed
            + self.identity
            + self.digest
            + self.by_producer
            + self.rejected
            + self.subscribe_deadline
            + self.snapshot_deadline
            + self.silence
            + self.disconnected
            + self.unassigned
    }
}

/// Counters of one session since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Subscriptions asked for. All but the first of each assignment are resynchronisations.
    pub subscribes: u64,
    /// Of these, the ones that followed a failure.
    pub resyncs: u64,
    /// Snapshots installed to the end.
    pub snapshots: u64,
    /// Snapshot chunks stored.
    pub chunks: u64,
    /// Delta messages applied; a batch in several parts counts several times.
    pub deltas: u64,
    /// Patches of these.
    pub patches: u64,
    /// Heartbeats and drain markers that agreed with the lane.
    pub heartbeats: u64,
    /// Bytes of all frames handed in.
    pub bytes: u64,
    /// Frames ignored, by reason.
    pub ignored: IgnoredCounts,
    /// Leases and subscriptions given up, by reason.
    pub failures: FailureCounts,
    /// Events that were dropped because the host did not fetch them.
    pub events_dropped: u64,
}

//! What a session tells its host: the fate of each frame, events, reasons and counters.

use std::ops::AddAssign;

use ckf_protocol::{DecodeError, ProducerIdentity, RejectReason, RetireReason, Sequence, counts};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Ignored {
    /// The session has no pool.
    #[error("the session has no pool")]
    Unassigned,
    /// Nothing is read of the frame's lease, or the header names none that could be compared.
    #[error("nothing can be read of the frame's lease")]
    Unreadable,
    /// The lease is another one than the current one, or there is no current one.
    #[error("the frame is of another lease")]
    ForeignLease,
    /// An answer to another subscription: other consumer, lane or epoch.
    #[error("the frame answers another subscription")]
    ForeignTerms,
    /// Something on the current lease that was applied before.
    #[error("the frame was applied before")]
    Duplicate,
    /// A message that only a consumer sends.
    #[error("only consumers send such a message")]
    WrongDirection,
}

/// Why a lane was retired, or a subscription given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Batches or parts of one are missing, or came in another order.
    #[error(
        "the lane held batch {installed} and {parts} parts of the next one, and the message was of {found}"
    )]
    Gap {
        /// The sequence that the lane was complete up to.
        installed: Sequence,
        /// Parts of the batch after it that the lane held.
        parts: u32,
        /// The sequence that the message named.
        found: Sequence,
    },
    /// Snapshot chunks are missing, came in another order, or are not as long as announced.
    #[error(
        "buckets from {expected} on were to come in a chunk of the announced length, and one came from {found} on"
    )]
    SnapshotGap {
        /// The first bucket that was still to come.
        expected: u32,
        /// The first bucket of what came.
        found: u32,
    },
    /// A frame on the current lease does not decode.
    #[error("a frame does not decode: {0}")]
    Malformed(DecodeError),
    /// The stream is of another pool, format or life than was subscribed to.
    #[error("the {field} of the stream is not the one that was subscribed to")]
    IdentityMismatch {
        /// What differs, in words for a log; of several, the first.
        field: &'static str,
    },
    /// The words would not be those of the producer.
    #[error("the words would not be those of the producer")]
    DigestMismatch,
    /// The producer ended the lease.
    #[error("the producer ended the lease: {0:?}")]
    ByProducer(RetireReason),
    /// The producer refused the subscription.
    #[error("the producer refused the subscription: {0:?}")]
    Rejected(RejectReason),
    /// No answer to a subscription in time.
    #[error("no answer to the subscription in time")]
    SubscribeDeadline,
    /// No snapshot chunk in time.
    #[error("no snapshot chunk in time")]
    SnapshotDeadline,
    /// Nothing heard of the producer for too long.
    #[error("nothing heard of the producer for too long")]
    Silence,
    /// The host lost the connection.
    #[error("the connection is lost")]
    Disconnected,
    /// The host took the pool away, or gave another.
    #[error("the host took the pool away")]
    Unassigned,
    /// Assignment epochs are used up; the session has no pool any more.
    #[error("assignment epochs are used up")]
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

counts! {
    /// Frames ignored, by reason.
    IgnoredCounts of Ignored {
        /// [`Ignored::Unassigned`]
        unassigned: Ignored::Unassigned,
        /// [`Ignored::Unreadable`]
        unreadable: Ignored::Unreadable,
        /// [`Ignored::ForeignLease`]
        foreign_lease: Ignored::ForeignLease,
        /// [`Ignored::ForeignTerms`]
        foreign_terms: Ignored::ForeignTerms,
        /// [`Ignored::Duplicate`]
        duplicate: Ignored::Duplicate,
        /// [`Ignored::WrongDirection`]
        wrong_direction: Ignored::WrongDirection,
    }
}

counts! {
    /// Leases and subscriptions given up, by reason.
    FailureCounts of Failure {
        /// [`Failure::Gap`]
        gap: Failure::Gap { .. },
        /// [`Failure::SnapshotGap`]
        snapshot_gap: Failure::SnapshotGap { .. },
        /// [`Failure::Malformed`]
        malformed: Failure::Malformed(_),
        /// [`Failure::IdentityMismatch`]
        identity: Failure::IdentityMismatch { .. },
        /// [`Failure::DigestMismatch`]
        digest: Failure::DigestMismatch,
        /// [`Failure::ByProducer`]
        by_producer: Failure::ByProducer(_),
        /// [`Failure::Rejected`]
        rejected: Failure::Rejected(_),
        /// [`Failure::SubscribeDeadline`]
        subscribe_deadline: Failure::SubscribeDeadline,
        /// [`Failure::SnapshotDeadline`]
        snapshot_deadline: Failure::SnapshotDeadline,
        /// [`Failure::Silence`]
        silence: Failure::Silence,
        /// [`Failure::Disconnected`]
        disconnected: Failure::Disconnected,
        /// [`Failure::Unassigned`]
        unassigned: Failure::Unassigned,
        /// [`Failure::EpochsExhausted`]
        epochs_exhausted: Failure::EpochsExhausted,
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

impl AddAssign for SessionStats {
    /// Adds up counters, for a view over several lanes.
    fn add_assign(&mut self, other: Self) {
        self.subscribes += other.subscribes;
        self.resyncs += other.resyncs;
        self.snapshots += other.snapshots;
        self.chunks += other.chunks;
        self.deltas += other.deltas;
        self.patches += other.patches;
        self.heartbeats += other.heartbeats;
        self.bytes += other.bytes;
        self.ignored += other.ignored;
        self.failures += other.failures;
        self.events_dropped += other.events_dropped;
    }
}

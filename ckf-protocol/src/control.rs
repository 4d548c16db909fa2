//! The small messages: asking for a lease, refusing it, and everything around a stream's content.

use ckf_core::{Format, Indexing, TableDigest};

use crate::codec::{Fields, put};
use crate::error::DecodeError;
use crate::frame::{Frame, Kind, SharedBody};
use crate::layout::{self, Field};
use crate::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Lane,
    LayoutGeneration, LeaseId, LeaseTerms, PoolId, ProducerExpectation, ProducerIdentity, Sequence,
    VersionRange,
};

/// Asks a producer for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscribe {
    /// Who reads.
    pub consumer: ConsumerId,
    /// In which lane.
    pub lane: Lane,
    /// In which of the lane's assignments.
    pub epoch: Epoch,
    /// What it must be, or nothing.
    pub expected: ProducerExpectation,
    /// Wire versions that the consumer reads.
    pub versions: VersionRange,
}

/// Why a producer gives no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// No such pool here.
    UnknownPool,
    /// The pool's table has another format.
    FormatMismatch {
        /// What it has.
        theirs: Format,
    },
    /// All places are taken.
    TooManySubscribers,
    /// A later epoch of this consumer's lane was seen.
    StaleEpoch,
    /// The producer's state is suspect; it gives no leases.
    Fenced,
    /// No wire version in common.
    VersionUnsupported {
        /// What the producer writes.
        theirs: VersionRange,
    },
}

/// Refuses a [`Subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reject {
    /// The pool that was asked for.
    pub pool: PoolId,
    /// Who asked.
    pub consumer: ConsumerId,
    /// For which lane.
    pub lane: Lane,
    /// For which of the lane's assignments.
    pub epoch: Epoch,
    /// Why not.
    pub reason: RejectReason,
}

/// Grants a lease and opens its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotBegin {
    /// What the lease binds together; the consumer compares it with what it asked for.
    pub terms: LeaseTerms,
    /// Whose stream it is.
    pub identity: ProducerIdentity,
    /// Deltas of this lease continue from here, those during the snapshot included.
    pub sequence: Sequence,
    /// Buckets of every chunk but the last, at least 1.
    pub chunk_buckets: u32,
}

/// Completes a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotEnd {
    /// The table is exactly that of this position.
    pub sequence: Sequence,
    /// Its digest.
    pub digest: TableDigest,
}

/// Tells where a producer is while there is nothing else to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The last batch that was sent.
    pub sequence: Sequence,
    /// Digest of the table then.
    pub digest: TableDigest,
    /// All commands given before the host asked to drain are in that batch.
    pub drain: bool,
}

/// Why a producer ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum RetireReason {
    /// The subscriber reads too slowly.
    Lagged = 1,
    /// A later subscription took the lease's place.
    Replaced = 2,
    /// The table has a new shape.
    LayoutChanged = 3,
    /// The producer's state is suspect.
    Fenced = 4,
    /// The producer goes away.
    Shutdown = 5,
    /// The snapshot made no progress in time.
    Deadline = 6,
    /// The subscriber gave the lease back.
    Unsubscribed = 7,
}

impl RetireReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Lagged,
        Self::Replaced,
        Self::LayoutChanged,
        Self::Fenced,
        Self::Shutdown,
        Self::Deadline,
        Self::Unsubscribed,
    ];

    /// The reason with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// Ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retire {
    /// Why.
    pub reason: RetireReason,
}

/// Gives a lease back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unsubscribe {
    /// The lease.
    pub lease: LeaseId,
}

impl Subscribe {
    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        use layout::subscribe as at;
        let mut body = [0; at::LEN];
        put(&mut body, at::CONSUMER, self.consumer.get().to_le_bytes());
        put(&mut body, at::EPOCH, self.epoch.get().to_le_bytes());
        put(&mut body, at::LANE, [self.lane.get()]);
        put(&mut body, at::MIN_VERSION, [self.versions.min()]);
        put(&mut body, at::MAX_VERSION, [self.versions.max()]);
        put(&mut body, at::POOL, pool_bytes(&self.expected.pool));
        put(&mut body, at::FORMAT, format_bytes(&self.expected.format));
        Frame::single(Kind::Subscribe, None, &body)
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        use layout::subscribe as at;
        let fields = body_of(body, at::LEN)?;
        fields.zero(at::RESERVED)?;
        Ok(Self {
            consumer: ConsumerId::new(fields.u64(at::CONSUMER)),
            lane: lane(fields, at::LANE)?,
            epoch: Epoch::new(fields.u64(at::EPOCH)),
            expected: ProducerExpectation {
                pool: pool(fields.inner(at::POOL))?,
                format: format(fields.inner(at::FORMAT))?,
            },
            versions: versions(fields, at::MIN_VERSION, at::MAX_VERSION)?,
        })
    }
}

impl Unsubscribe {
    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        Frame::single(Kind::Unsubscribe, Some(self.lease), &[])
    }

    pub(crate) fn parse(lease: LeaseId, body: &[u8]) -> Result<Self, DecodeError> {
        body_of(body, layout::unsubscribe::LEN)?;
        Ok(Self { lease })
    }
}

impl Reject {
    /// The refusal of a subscription.
    pub fn of(subscribe: &Subscribe, reason: RejectReason) -> Self {
        let Subscribe { consumer, lane, epoch, expected, .. } = *subscribe;
        Self { pool: expected.pool, consumer, lane, epoch, reason }
    }

    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        use layout::{reason, reject as at, reject_format as more};
        let mut body = [0; at::LEN + more::LEN];
        let mut len = at::LEN;
        put(&mut body, at::CONSUMER, self.consumer.get().to_le_bytes());
        put(&mut body, at::EPOCH, self.epoch.get().to_le_bytes());
        put(&mut body, at::LANE, [self.lane.get()]);
        put(&mut body, at::POOL, pool_bytes(&self.pool));
        let code = match self.reason {
            RejectReason::UnknownPool => reason::UNKNOWN_POOL,
            RejectReason::FormatMismatch { theirs } => {
                put(&mut body[at::LEN..], more::FORMAT, format_bytes(&theirs));
                len += more::LEN;
                reason::FORMAT_MISMATCH
            }
            RejectReason::TooManySubscribers => reason::TOO_MANY_SUBSCRIBERS,
            RejectReason::StaleEpoch => reason::STALE_EPOCH,
            RejectReason::Fenced => reason::FENCED,
            RejectReason::VersionUnsupported { theirs } => {
                put(&mut body, at::MIN_VERSION, [theirs.min()]);
                put(&mut body, at::MAX_VERSION, [theirs.max()]);
                reason::VERSION_UNSUPPORTED
            }
        };
        put(&mut body, at::REASON, [code]);
        Frame::single(Kind::Reject, None, &body[..len])
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        use layout::{reason, reject as at, reject_format as more};
        let (fields, rest) = Fields::prefix(body, layout::header::LEN, at::LEN)?;
        let code = fields.u8(at::REASON);
        if code != reason::VERSION_UNSUPPORTED {
            fields.zero(at::MIN_VERSION)?;
            fields.zero(at::MAX_VERSION)?;
        }
        let end = layout::header::LEN + at::LEN;
        let more_len = if code == reason::FORMAT_MISMATCH { more::LEN } else { 0 };
        let reason = match code {
            reason::UNKNOWN_POOL => RejectReason::UnknownPool,
            reason::FORMAT_MISMATCH => {
                let more_fields = Fields::exact(rest, end, more::LEN)?;
                RejectReason::FormatMismatch { theirs: format(more_fields.inner(more::FORMAT))? }
            }
            reason::TOO_MANY_SUBSCRIBERS => RejectReason::TooManySubscribers,
            reason::STALE_EPOCH => RejectReason::StaleEpoch,
            reason::FENCED => RejectReason::Fenced,
            reason::VERSION_UNSUPPORTED => RejectReason::VersionUnsupported {
                theirs: versions(fields, at::MIN_VERSION, at::MAX_VERSION)?,
            },
            _ => return Err(fields.value(at::REASON, u64::from(code))),
        };
        Fields::exact(rest, end, more_len)?;
        Ok(Self {
            pool: pool(fields.inner(at::POOL))?,
            consumer: ConsumerId::new(fields.u64(at::CONSUMER)),
            lane: lane(fields, at::LANE)?,
            epoch: Epoch::new(fields.u64(at::EPOCH)),
            reason,
        })
    }
}

impl SnapshotBegin {
    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        use layout::snapshot_begin as at;
        let mut body = [0; at::LEN];
        put(&mut body, at::CONSUMER, self.terms.consumer.get().to_le_bytes());
        put(&mut body, at::EPOCH, self.terms.epoch.get().to_le_bytes());
        put(&mut body, at::LANE, [self.terms.lane.get()]);
        put(&mut body, at::POOL, pool_bytes(&self.identity.pool));
        put(&mut body, at::FORMAT, format_bytes(&self.identity.format));
        put(&mut body, at::INCARNATION, self.identity.incarnation.get().to_le_bytes());
        put(&mut body, at::LAYOUT, self.identity.layout.get().to_le_bytes());
        put(&mut body, at::SEQUENCE, self.sequence.get().to_le_bytes());
        put(&mut body, at::CHUNK_BUCKETS, self.chunk_buckets.to_le_bytes());
        Frame::single(Kind::SnapshotBegin, Some(self.terms.lease), &body)
    }

    pub(crate) fn parse(lease: LeaseId, body: &[u8]) -> Result<Self, DecodeError> {
        use layout::snapshot_begin as at;
        let fields = body_of(body, at::LEN)?;
        fields.zero(at::RESERVED)?;
        let chunk_buckets = fields.u32(at::CHUNK_BUCKETS);
        if chunk_buckets == 0 {
            return Err(fields.value(at::CHUNK_BUCKETS, 0));
        }
        Ok(Self {
            terms: LeaseTerms {
                lease,
                consumer: ConsumerId::new(fields.u64(at::CONSUMER)),
                lane: lane(fields, at::LANE)?,
                epoch: Epoch::new(fields.u64(at::EPOCH)),
            },
            identity: ProducerIdentity {
                pool: pool(fields.inner(at::POOL))?,
                incarnation: Incarnation::new(fields.u64(at::INCARNATION)),
                layout: LayoutGeneration::new(fields.u64(at::LAYOUT))
                    .ok_or_else(|| fields.value(at::LAYOUT, 0))?,
                format: format(fields.inner(at::FORMAT))?,
            },
            sequence: Sequence::new(fields.u64(at::SEQUENCE)),
            chunk_buckets,
        })
    }
}

impl SnapshotEnd {
    /// The body that says it.
    pub fn to_body(&self) -> SharedBody {
        use layout::snapshot_end as at;
        let mut body = [0; at::LEN];
        put(&mut body, at::SEQUENCE, self.sequence.get().to_le_bytes());
        put(&mut body, at::DIGEST, self.digest.get().to_le_bytes());
        SharedBody::new(Kind::SnapshotEnd, &body)
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        use layout::snapshot_end as at;
        let fields = body_of(body, at::LEN)?;
        Ok(Self {
            sequence: Sequence::new(fields.u64(at::SEQUENCE)),
            digest: TableDigest::new(fields.u64(at::DIGEST)),
        })
    }
}

impl Heartbeat {
    /// The body that says it.
    pub fn to_body(&self) -> SharedBody {
        use layout::heartbeat as at;
        let mut body = [0; at::LEN];
        put(&mut body, at::SEQUENCE, self.sequence.get().to_le_bytes());
        put(&mut body, at::DIGEST, self.digest.get().to_le_bytes());
        put(&mut body, at::FLAGS, [if self.drain { layout::HEARTBEAT_DRAIN } else { 0 }]);
        SharedBody::new(Kind::Heartbeat, &body)
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        use layout::heartbeat as at;
        let fields = body_of(body, at::LEN)?;
        let flags = fields.u8(at::FLAGS);
        if flags & !layout::HEARTBEAT_DRAIN != 0 {
            return Err(fields.value(at::FLAGS, u64::from(flags)));
        }
        Ok(Self {
            sequence: Sequence::new(fields.u64(at::SEQUENCE)),
            digest: TableDigest::new(fields.u64(at::DIGEST)),
            drain: flags == layout::HEARTBEAT_DRAIN,
        })
    }
}

impl Retire {
    /// The body that says it.
    pub fn to_body(&self) -> SharedBody {
        let mut body = [0; layout::retire::LEN];
        put(&mut body, layout::retire::REASON, [self.reason.code()]);
        SharedBody::new(Kind::Retire, &body)
    }

    pub(crate) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        let fields = body_of(body, layout::retire::LEN)?;
        let code = fields.u8(layout::retire::REASON);
        match RetireReason::from_code(code) {
            Some(reason) => Ok(Self { reason }),
            None => Err(fields.value(layout::retire::REASON, u64::from(code))),
        }
    }
}

/// The fields of a body with a fixed length.
fn body_of(body: &[u8], len: usize) -> Result<Fields<'_>, DecodeError> {
    Fields::exact(body, layout::header::LEN, len)
}

fn lane(fields: Fields<'_>, field: Field) -> Result<Lane, DecodeError> {
    let lane = fields.u8(field);
    Lane::new(lane).map_err(|_| fields.value(field, u64::from(lane)))
}

fn versions(fields: Fields<'_>, min: Field, max: Field) -> Result<VersionRange, DecodeError> {
    let low = fields.u8(min);
    if low == 0 {
        return Err(fields.value(min, 0));
    }
    let high = fields.u8(max);
    VersionRange::new(low, high).map_err(|_| fields.value(max, u64::from(high)))
}

fn pool_bytes(pool: &PoolId) -> [u8; layout::pool::LEN] {
    use layout::pool as at;
    let code = |source| match source {
        IdentitySource::DefaultDerived => layout::source::DEFAULT_DERIVED,
        IdentitySource::Explicit => layout::source::EXPLICIT,
    };
    let IndexerDomainId { cache_semantics, routing_scope } = pool.domain;
    let mut bytes = [0; at::LEN];
    put(&mut bytes, at::CACHE_SEMANTICS, cache_semantics.digest);
    put(&mut bytes, at::ROUTING_SCOPE, routing_scope.digest);
    put(&mut bytes, at::DC, pool.dc.get().to_le_bytes());
    put(&mut bytes, at::CACHE_SEMANTICS_SOURCE, [code(cache_semantics.source)]);
    put(&mut bytes, at::ROUTING_SCOPE_SOURCE, [code(routing_scope.source)]);
    bytes
}

fn pool(fields: Fields<'_>) -> Result<PoolId, DecodeError> {
    use layout::pool as at;
    let half = |digest, source| {
        let source = match fields.u8(source) {
            layout::source::DEFAULT_DERIVED => IdentitySource::DefaultDerived,
            layout::source::EXPLICIT => IdentitySource::Explicit,
            code => return Err(fields.value(source, u64::from(code))),
        };
        Ok(IdentityHalf { digest: fields.digest(digest), source })
    };
    fields.zero(at::RESERVED)?;
    Ok(PoolId {
        domain: IndexerDomainId {
            cache_semantics: half(at::CACHE_SEMANTICS, at::CACHE_SEMANTICS_SOURCE)?,
            routing_scope: half(at::ROUTING_SCOPE, at::ROUTING_SCOPE_SOURCE)?,
        },
        dc: DcId::new(fields.u64(at::DC)),
    })
}

fn format_bytes(format: &Format) -> [u8; layout::format::LEN] {
    use layout::format as at;
    let mut bytes = [0; at::LEN];
    put(&mut bytes, at::SEED, format.seed().to_le_bytes());
    put(&mut bytes, at::BUCKET_COUNT, format.bucket_count().to_le_bytes());
    put(&mut bytes, at::VERSION, Format::VERSION.to_le_bytes());
    put(&mut bytes, at::FINGERPRINT_BITS, [Format::FINGERPRINT_BITS]);
    put(&mut bytes, at::SLOTS, [Format::SLOTS]);
    let indexing = match format.indexing() {
        Indexing::AnyCount => layout::indexing::ANY_COUNT,
        Indexing::PowerOfTwo => layout::indexing::POWER_OF_TWO,
    };
    put(&mut bytes, at::INDEXING, [indexing]);
    bytes
}

fn format(fields: Fields<'_>) -> Result<Format, DecodeError> {
    use layout::format as at;
    for (field, value, only) in [
        (at::VERSION, u64::from(fields.u16(at::VERSION)), u64::from(Format::VERSION)),
        (
            at::FINGERPRINT_BITS,
            u64::from(fields.u8(at::FINGERPRINT_BITS)),
            u64::from(Format::FINGERPRINT_BITS),
        ),
        (at::SLOTS, u64::from(fields.u8(at::SLOTS)), u64::from(Format::SLOTS)),
    ] {
        if value != only {
            return Err(fields.value(field, value));
        }
    }
    let indexing = match fields.u8(at::INDEXING) {
        layout::indexing::ANY_COUNT => Indexing::AnyCount,
        layout::indexing::POWER_OF_TWO => Indexing::PowerOfTwo,
        code => return Err(fields.value(at::INDEXING, u64::from(code))),
    };
    fields.zero(at::RESERVED)?;
    let count = u64::from(fields.u32(at::BUCKET_COUNT));
    Format::new(indexing, count, fields.u64(at::SEED))
        .map_err(|_| fields.value(at::BUCKET_COUNT, count))
}

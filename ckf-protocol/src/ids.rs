//! Who speaks, for whom, and where in the stream: one type for each, none interchangeable.

use core::fmt;
use core::num::NonZeroU64;

use ckf_core::{Format, GOLDEN_GAMMA, mix64};

use crate::error::LaneError;

/// Declares a plain number type: `new`, `get`, ordering, hexadecimal or decimal debug form.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the number as it is.
            #[inline]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// Where one half of an indexer domain's identity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentitySource {
    /// Derived from defaults such as names: equal in two places perhaps only by accident.
    DefaultDerived,
    /// Stated by the operator.
    Explicit,
}

/// One half of an indexer domain's identity. Halves with different sources are different.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityHalf {
    /// Digest of the identity material; how it is made is the host's affair.
    pub digest: [u8; 16],
    /// Where the material came from.
    pub source: IdentitySource,
}

impl fmt::Debug for IdentityHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:032x})", self.source, u128::from_be_bytes(self.digest))
    }
}

/// Caches that may be compared: only pools of one domain meet in a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexerDomainId {
    /// What makes block hashes comparable: hashing, block size, model and so on.
    pub cache_semantics: IdentityHalf,
    /// What may share routing: isolation.
    pub routing_scope: IdentityHalf,
}

number! {
    /// A data center.
    DcId(u64)
}

/// One pool: one producer, one publication stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// The domain that its blocks belong to.
    pub domain: IndexerDomainId,
    /// The data center that holds them.
    pub dc: DcId,
}

number! {
    /// One consumer instance. The host gives a fresh one at each process start.
    ConsumerId(u64)
}

/// A pool's column in one consumer's table, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lane(u8);

impl Lane {
    /// Lanes of one consumer at most.
    pub const MAX_COUNT: usize = 64;

    /// The lane with this number.
    ///
    /// # Errors
    /// [`LaneError`] from 64 on.
    #[inline]
    pub const fn new(lane: u8) -> Result<Self, LaneError> {
        if (lane as usize) < Self::MAX_COUNT { Ok(Self(lane)) } else { Err(LaneError { lane }) }
    }

    /// The number, 0 to 63.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number as a slice index.
    #[inline]
    pub const fn to_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

number! {
    /// Assignment epoch of a lane, strictly rising per consumer instance and lane.
    Epoch(u64)
}

impl Epoch {
    /// The following epoch; `None` at the end of the range.
    #[inline]
    pub const fn checked_next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

number! {
    /// One life of a producer process. The host gives a fresh one whenever exact state starts anew.
    Incarnation(u64)
}

/// One shape of a producer's table within an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LayoutGeneration(NonZeroU64);

impl LayoutGeneration {
    /// The first shape.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The generation with this number; `None` for 0.
    #[inline]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The number, never 0.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The following generation; `None` at the end of the range.
    #[inline]
    pub const fn checked_next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

number! {
    /// Position in a publication stream: counts batches, checked and never wrapped. 0 stands for
    /// the empty table before the first batch.
    Sequence(u64)
}

impl Sequence {
    /// Before the first batch.
    pub const ZERO: Self = Self(0);

    /// The following number; `None` at the end of the range.
    #[inline]
    pub const fn checked_next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

/// Names one lease. Opaque to everyone but the producer that minted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// The lease with these bits; `None` for 0, which on the wire means "no lease".
    #[inline]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// A producer's lease number `counter`.
    ///
    /// Within one pool and incarnation no two counters give the same lease. Those of different
    /// pools or incarnations are unrelated 64-bit values, so that a frame of a stream's former
    /// life does not pass for one of the present. `None` for the one counter that would give 0:
    /// take the next.
    pub const fn mint(dc: DcId, incarnation: Incarnation, counter: u64) -> Option<Self> {
        let life = mix(mix(dc.get()) ^ incarnation.get());
        Self::new(mix(life ^ counter))
    }

    /// The bits, never 0.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({:016x})", self.0)
    }
}

/// A bijection of the 64-bit numbers that leaves no trace of order.
const fn mix(value: u64) -> u64 {
    mix64(value.wrapping_add(GOLDEN_GAMMA))
}

/// What a subscriber wants to read: anything else is refused, not adapted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerExpectation {
    /// The pool.
    pub pool: PoolId,
    /// The format of its table.
    pub format: Format,
}

/// Everything that names one publication stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    /// The pool.
    pub pool: PoolId,
    /// The producer's life.
    pub incarnation: Incarnation,
    /// The table's shape within that life.
    pub layout: LayoutGeneration,
    /// What that shape is.
    pub format: Format,
}

impl ProducerIdentity {
    /// What is not as a subscriber asked for; `None` when all of it is. For a report: of several, the
    /// first one.
    pub fn mismatch(&self, expected: &ProducerExpectation) -> Option<&'static str> {
        let (ours, theirs) = (&self.pool, &expected.pool);
        let same = [
            ("data center", ours.dc == theirs.dc),
            ("cache semantics", ours.domain.cache_semantics == theirs.domain.cache_semantics),
            ("routing scope", ours.domain.routing_scope == theirs.domain.routing_scope),
            ("pool", ours == theirs),
            ("bucket count", self.format.bucket_count() == expected.format.bucket_count()),
            ("seed", self.format.seed() == expected.format.seed()),
            ("format", self.format == expected.format),
        ];
        same.into_iter().find(|&(_, same)| !same).map(|(field, _)| field)
    }
}

/// What a lease binds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    /// The lease.
    pub lease: LeaseId,
    /// Who reads.
    pub consumer: ConsumerId,
    /// In which lane.
    pub lane: Lane,
    /// In which of the lane's assignments.
    pub epoch: Epoch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn f34_leases_of_lives_and_pools_do_not_meet() {
        let mut seen = HashSet::new();
        for dc in 0..8 {
            for life in 0..8 {
                for counter in 0..500 {
                    let lease = LeaseId::mint(DcId::new(dc), Incarnation::new(life), counter);
                    assert!(seen.insert(lease.unwrap()), "{dc} {life} {counter}");
                }
            }
        }
    }

    #[test]
    fn numbers_end_instead_of_wrapping() {
        assert_eq!(Sequence::ZERO.checked_next(), Some(Sequence::new(1)));
        assert_eq!(Sequence::new(u64::MAX).checked_next(), None);
        assert_eq!(Epoch::new(u64::MAX).checked_next(), None);
        assert_eq!(LayoutGeneration::new(u64::MAX).unwrap().checked_next(), None);
        assert_eq!(LayoutGeneration::new(0), None);
        assert_eq!(Lane::new(63).unwrap().to_usize(), 63);
        assert_eq!(Lane::new(64), Err(LaneError { lane: 64 }));
    }
}

//! Dynamo's relay contract, `dynamo.kvrelay.v1`, in both directions.
//!
//! Its streams are translated to our frames and back, so that leases, silence, back-off and
//! everything else stays where it is: a router's lane cannot tell a Dynamo relay from ours, nor can
//! a Dynamo consumer tell ours from Dynamo's. Tables are compatible bucket by bucket, given a
//! power-of-two format.
//!
//! - [`cbi1`]: the payload of filter updates;
//! - [`import`], [`client`]: their updates to our frames, for routers;
//! - [`agree`]: what the relays of a pool have in common, for routers;
//! - [`watch`]: what relays say of readiness and load, for routers;
//! - [`export`], [`hub`], [`serve`]: our frames to their updates, for relays;
//! - [`reason`]: why something is refused, and what follows from that, for both;
//! - `serving`: readiness and load of our pools.

pub mod agree;
pub mod cbi1;
pub mod client;
pub mod export;
pub mod hub;
pub mod import;
pub mod reason;
pub mod serve;
mod serving;
pub mod watch;

use std::collections::HashSet;
use std::hash::Hash;

use ckf_core::{Format, Indexing};
use ckf_protocol::{
    DcId, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, LayoutGeneration, PoolId,
    ProducerIdentity,
};
use thiserror::Error;

use super::proto::dynamo as proto;

/// "KVR1", in every message.
pub const MARKER: u32 = 0x4B56_5231;
/// The one version there is.
pub const PROTOCOL_VERSION: u32 = 1;

/// Why a message of a Dynamo relay is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The marker or the version is another one.
    #[error("not an envelope of version 1")]
    Envelope,
    /// A field that must be there is not, or has a value that nobody knows.
    #[error("field `{field}` is missing or unknown")]
    Field {
        /// Which one.
        field: &'static str,
    },
    /// The update is of another producer than was subscribed to.
    #[error("another producer")]
    Producer,
    /// Updates are missing, repeated or out of order.
    #[error("sequence {found} where {expected} was expected")]
    Gap {
        /// What should have come.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The payload does not decode.
    #[error("payload: {0}")]
    Payload(#[from] cbi1::PayloadError),
}

/// Checks what every answer carries.
///
/// # Errors
/// [`ContractError::Envelope`]
pub fn check_envelope(marker: u32, version: u32) -> Result<(), ContractError> {
    if marker == MARKER && version == PROTOCOL_VERSION {
        Ok(())
    } else {
        Err(ContractError::Envelope)
    }
}

const fn missing(field: &'static str) -> ContractError {
    ContractError::Field { field }
}

/// A pool's identity, from theirs.
///
/// # Errors
/// [`ContractError::Field`] for anything that is missing or that we do not know.
pub fn pool_id(theirs: &proto::KvPoolId) -> Result<PoolId, ContractError> {
    if theirs.identity_version != 1 {
        return Err(missing("identity_version"));
    }
    let domain = theirs.indexer_domain.as_ref().ok_or(missing("indexer_domain"))?;
    let half = |half: &Option<proto::DigestIdentity>, field| {
        let half = half.as_ref().ok_or(missing(field))?;
        let source = match half.source() {
            proto::IdentitySource::DefaultDerived => IdentitySource::DefaultDerived,
            proto::IdentitySource::Explicit => IdentitySource::Explicit,
            proto::IdentitySource::Unspecified => return Err(missing(field)),
        };
        let digest = half.digest.as_ref().try_into().map_err(|_| missing(field))?;
        Ok(IdentityHalf { digest, source })
    };
    Ok(PoolId {
        domain: IndexerDomainId {
            cache_semantics: half(&domain.cache_semantics, "cache_semantics")?,
            routing_scope: half(&domain.routing_scope, "routing_scope")?,
        },
        dc: DcId::new(theirs.dc_id),
    })
}

/// A producer's identity, from theirs.
///
/// # Errors
/// [`ContractError::Field`] for anything that is missing or that we do not know.
pub fn identity(theirs: &proto::ProducerIdentity) -> Result<ProducerIdentity, ContractError> {
    let pool = pool_id(theirs.pool_id.as_ref().ok_or(missing("pool_id"))?)?;
    let format = theirs.ckf_format.as_ref().ok_or(missing("ckf_format"))?;
    if (format.format_version, format.fingerprint_bits, format.slots_per_bucket) != (1, 16, 4) {
        return Err(missing("ckf_format"));
    }
    Ok(ProducerIdentity {
        pool,
        incarnation: Incarnation::new(theirs.producer_incarnation),
        layout: LayoutGeneration::new(theirs.layout_generation)
            .ok_or(missing("layout_generation"))?,
        format: Format::power_of_two(format.bucket_count, format.seed)
            .map_err(|_| missing("bucket_count"))?,
    })
}

/// Whether no top-level key of an update stands there twice. One that does spoils the whole update:
/// which of the two is right, nobody knows.
pub fn distinct<K: Eq + Hash>(keys: impl IntoIterator<Item = K>) -> bool {
    let mut seen = HashSet::new();
    keys.into_iter().all(|key| seen.insert(key))
}

/// A producer's identity, to theirs; `None` for a format that Dynamo does not have.
pub fn to_identity(ours: &ProducerIdentity) -> Option<proto::ProducerIdentity> {
    if ours.format.indexing() != Indexing::PowerOfTwo {
        return None;
    }
    Some(proto::ProducerIdentity {
        pool_id: Some(to_pool_id(&ours.pool)),
        producer_incarnation: ours.incarnation.get(),
        layout_generation: ours.layout.get(),
        ckf_format: Some(proto::CkfFormat {
            format_version: 1,
            seed: ours.format.seed(),
            bucket_count: u64::from(ours.format.bucket_count()),
            fingerprint_bits: u32::from(Format::FINGERPRINT_BITS),
            slots_per_bucket: u32::from(Format::SLOTS),
        }),
    })
}

/// A pool's identity, to theirs.
pub fn to_pool_id(ours: &PoolId) -> proto::KvPoolId {
    let half = |half: &IdentityHalf| {
        let source = match half.source {
            IdentitySource::DefaultDerived => proto::IdentitySource::DefaultDerived,
            IdentitySource::Explicit => proto::IdentitySource::Explicit,
        };
        Some(proto::DigestIdentity { digest: half.digest.to_vec().into(), source: source.into() })
    };
    proto::KvPoolId {
        identity_version: 1,
        indexer_domain: Some(proto::IndexerDomainId {
            cache_semantics: half(&ours.domain.cache_semantics),
            routing_scope: half(&ours.domain.routing_scope),
        }),
        dc_id: ours.dc.get(),
    }
}

/// The format that Dynamo gives a filter for so many blocks.
///
/// # Errors
/// More blocks than its largest filter takes.
pub fn format_for(blocks: u64) -> Result<Format, ckf_core::FormatError> {
    let buckets = (blocks.saturating_mul(5).saturating_add(15) / 16).max(2);
    let buckets = buckets.checked_next_power_of_two().unwrap_or(u64::MAX);
    Format::power_of_two(buckets, Format::DYNAMO_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_equal_the_published_ones() {
        for (blocks, buckets) in [(1, 2), (10, 4), (100, 32), (6000, 2048), (1_000_000, 524_288)] {
            assert_eq!(format_for(blocks).unwrap().bucket_count(), buckets);
        }
        assert!(format_for(u64::MAX).is_err());
    }
}

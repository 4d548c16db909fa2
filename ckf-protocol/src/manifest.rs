//! Which pools one consumer joins, and in which lanes.

use alloc::vec::Vec;
use core::fmt;

use ckf_core::Format;

use crate::error::ManifestError;
use crate::{DcId, IdentitySource, IndexerDomainId, Lane, PoolId};

/// The pools of one consumer, one lane each, always valid: one domain, one format, no pool and no
/// data center twice, 1 to 64 lanes.
///
/// ```
/// use ckf_core::Format;
/// use ckf_protocol::{DcId, IdentityHalf, IdentitySource, IndexerDomainId, Manifest};
///
/// let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
/// let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
/// let manifest = Manifest::builder(domain, Format::any_count(1000, 42)?)
///     .dc(DcId::new(10))
///     .dc(DcId::new(20))
///     .build()?;
/// assert_eq!(manifest.lane_of(DcId::new(20)).map(|lane| lane.get()), Some(1));
/// assert!(!manifest.provenance().joins_on_defaults());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    domain: IndexerDomainId,
    format: Format,
    pools: Vec<PoolId>,
}

impl Manifest {
    /// Starts a manifest for one domain and one format.
    pub fn builder(domain: IndexerDomainId, format: Format) -> ManifestBuilder {
        ManifestBuilder { domain, format, pools: Vec::new(), excess: 0 }
    }

    /// The domain that all pools share.
    pub fn domain(&self) -> IndexerDomainId {
        self.domain
    }

    /// The format that all tables share.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of lanes, 1 to 64.
    #[expect(clippy::len_without_is_empty, reason = "a manifest is never empty")]
    pub fn len(&self) -> usize {
        self.pools.len()
    }

    /// The pools, lane 0 first.
    pub fn pools(&self) -> &[PoolId] {
        &self.pools
    }

    /// Lanes and their pools, lane 0 first.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = (Lane, PoolId)> + '_ {
        self.pools
            .iter()
            .enumerate()
            .map(|(i, &pool)| (Lane::new(i as u8).expect("a manifest has at most 64 pools"), pool))
    }

    /// The pool in a lane.
    pub fn pool(&self, lane: Lane) -> Option<PoolId> {
        self.pools.get(lane.to_usize()).copied()
    }

    /// The lane of a data center.
    pub fn lane_of(&self, dc: DcId) -> Option<Lane> {
        self.lanes().find(|(_, pool)| pool.dc == dc).map(|(lane, _)| lane)
    }

    /// On what ground the pools are joined. Worth a line in the host's log.
    pub fn provenance(&self) -> Provenance {
        let derived = |source| source == IdentitySource::DefaultDerived;
        Provenance {
            default_cache_semantics: derived(self.domain.cache_semantics.source),
            default_routing_scope: derived(self.domain.routing_scope.source),
            lanes: self.pools.len() as u8,
        }
    }
}

/// Collects the pools of a [`Manifest`] in lane order.
#[derive(Clone, Debug)]
#[must_use]
pub struct ManifestBuilder {
    domain: IndexerDomainId,
    format: Format,
    pools: Vec<PoolId>,
    /// Pools beyond the 64th; only counted, so that a long list costs no memory.
    excess: usize,
}

impl ManifestBuilder {
    /// Gives the next lane to a pool, whose domain is checked by [`build`](Self::build).
    pub fn pool(mut self, pool: PoolId) -> Self {
        if self.pools.len() < Lane::MAX_COUNT {
            self.pools.push(pool);
        } else {
            self.excess += 1;
        }
        self
    }

    /// Gives the next lane to the manifest's domain in a data center.
    pub fn dc(self, dc: DcId) -> Self {
        let domain = self.domain;
        self.pool(PoolId { domain, dc })
    }

    /// The manifest. Cost: quadratic in the number of pools, at most 2,016 comparisons.
    ///
    /// # Errors
    /// [`ManifestError`]; where several apply, about the number of lanes first, then about the
    /// lowest lane.
    pub fn build(self) -> Result<Manifest, ManifestError> {
        if self.excess > 0 {
            return Err(ManifestError::TooManyLanes { lanes: self.pools.len() + self.excess });
        }
        if self.pools.is_empty() {
            return Err(ManifestError::NoLane);
        }
        for (lane, pool) in self.pools.iter().enumerate() {
            if let Some(first) = self.pools[..lane].iter().position(|other| other.dc == pool.dc) {
                let (first, second) = (first as u8, lane as u8);
                return Err(if self.pools[usize::from(first)] == *pool {
                    ManifestError::DuplicatePool { first, second }
                } else {
                    ManifestError::DuplicateDc { first, second, dc: pool.dc }
                });
            }
            if pool.domain != self.domain {
                return Err(ManifestError::MixedDomain { lane: lane as u8 });
            }
        }
        Ok(Manifest { domain: self.domain, format: self.format, pools: self.pools })
    }
}

/// On what ground the pools of a manifest count as comparable.
///
/// Joining several data centers on an identity that was only derived by default is allowed, since
/// the defaults may well be equal on purpose; it is visible here so that a host can tell its
/// operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Provenance {
    /// The cache semantics were derived by default.
    pub default_cache_semantics: bool,
    /// The routing scope was derived by default.
    pub default_routing_scope: bool,
    /// How many pools are joined.
    pub lanes: u8,
}

impl Provenance {
    /// Whether several pools are joined on an identity that nobody stated.
    pub const fn joins_on_defaults(&self) -> bool {
        self.lanes > 1 && (self.default_cache_semantics || self.default_routing_scope)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |derived| if derived { "derived by default" } else { "explicit" };
        write!(
            f,
            "{} lanes, cache semantics {}, routing scope {}",
            self.lanes,
            name(self.default_cache_semantics),
            name(self.default_routing_scope)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IdentityHalf;
    use alloc::string::ToString;

    fn domain(byte: u8, source: IdentitySource) -> IndexerDomainId {
        let half = |digest| IdentityHalf { digest: [digest; 16], source };
        IndexerDomainId { cache_semantics: half(byte), routing_scope: half(9) }
    }

    fn pool(byte: u8, dc: u64) -> PoolId {
        PoolId { domain: domain(byte, IdentitySource::Explicit), dc: DcId::new(dc) }
    }

    fn build(pools: impl IntoIterator<Item = PoolId>) -> Result<Manifest, ManifestError> {
        let builder = Manifest::builder(
            domain(1, IdentitySource::Explicit),
            Format::any_count(10, 0).unwrap(),
        );
        pools.into_iter().fold(builder, ManifestBuilder::pool).build()
    }

    #[test]
    fn rules_are_typed_errors() {
        use ManifestError::*;
        let dc = DcId::new(5);
        assert_eq!(build([]), Err(NoLane));
        assert_eq!(build([pool(1, 5), pool(2, 6)]), Err(MixedDomain { lane: 1 }));
        assert_eq!(build([pool(1, 5), pool(1, 5)]), Err(DuplicatePool { first: 0, second: 1 }));
        assert_eq!(build([pool(1, 5), pool(2, 5)]), Err(DuplicateDc { first: 0, second: 1, dc }));
        assert_eq!(build((0..65).map(|i| pool(1, i))), Err(TooManyLanes { lanes: 65 }));
        let full = build((0..64).map(|i| pool(1, i))).unwrap();
        assert_eq!(full.len(), 64);
        assert_eq!(full.lane_of(DcId::new(63)), Some(Lane::new(63).unwrap()));
        assert_eq!(full.lane_of(DcId::new(64)), None);
    }

    #[test]
    fn equal_digests_of_other_sources_are_another_domain() {
        let mut derived = pool(1, 6);
        derived.domain.routing_scope.source = IdentitySource::DefaultDerived;
        assert_eq!(build([pool(1, 5), derived]), Err(ManifestError::MixedDomain { lane: 1 }));
    }

    #[test]
    fn joining_on_defaults_is_allowed_and_visible() {
        let format = Format::any_count(10, 0).unwrap();
        let derived = domain(1, IdentitySource::DefaultDerived);
        let one = Manifest::builder(derived, format).dc(DcId::new(1));
        assert!(!one.clone().build().unwrap().provenance().joins_on_defaults());
        let two = one.dc(DcId::new(2)).build().unwrap().provenance();
        assert!(two.joins_on_defaults());
        assert_eq!(
            two.to_string(),
            "2 lanes, cache semantics derived by default, routing scope derived by default"
        );
    }
}

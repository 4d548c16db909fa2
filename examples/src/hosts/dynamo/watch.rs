//! What a Dynamo relay says about one pool beside its filter, for a router: whether it can be used,
//! and how full its caches are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_protocol::PoolId;
use futures::StreamExt;
use tokio::time::timeout;

use super::client::{DynamoLink, Updates};
use super::reason::Refused;
use super::{ContractError, check_envelope, distinct, pool_id};
use crate::hosts::HostResult;
use crate::hosts::lock;
use crate::hosts::proto::dynamo as proto;

/// Pause before a stream that ended is asked for again; twice as long after each refusal.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Silence after which a stream is given up: three of a relay's heartbeats.
const SILENCE: Duration = Duration::from_secs(30);

/// What is known now.
#[derive(Debug, Default)]
pub struct ServingBoard(Mutex<ServingReport>);

/// See [`ServingBoard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServingReport {
    /// Whether the pool can be used; `None` while nobody says.
    pub ready: Option<bool>,
    /// Blocks used, and blocks in all; `None` unless all ranks were counted.
    pub kv: Option<(u64, u64)>,
}

impl ServingBoard {
    /// What it says now.
    pub fn read(&self) -> ServingReport {
        *lock(&self.0)
    }
}

/// Keeps the board up to date until the process ends.
pub async fn watch(link: DynamoLink, pool: PoolId, board: Arc<ServingBoard>) {
    let readiness = keep(
        || link.clone().readiness(),
        |update| {
            check_envelope(update.contract_marker, update.protocol_version)?;
            Ok(readiness_of(&update, pool))
        },
        |ready| lock(&board.0).ready = ready,
    );
    let load = keep(
        || link.clone().load(),
        |update| {
            check_envelope(update.contract_marker, update.protocol_version)?;
            Ok(load_of(&update, pool))
        },
        |kv| lock(&board.0).kv = kv,
    );
    tokio::join!(readiness, load);
}

/// Shows what a stream says for as long as it comes and is believed, then nothing, and asks anew.
async fn keep<T, U, F: Future<Output = HostResult<Updates<T>>>>(
    ask: impl Fn() -> F,
    read: impl Fn(T) -> Result<Option<U>, ContractError>,
    show: impl Fn(Option<U>),
) {
    let mut pause = PAUSE;
    loop {
        let followed: HostResult<()> = async {
            let mut updates = ask().await?;
            while let Some(update) = timeout(SILENCE, updates.next()).await? {
                show(read(update?)?);
                pause = PAUSE;
            }
            Ok(())
        }
        .await;
        show(None);
        if followed.is_err_and(|error| error.is::<Refused>()) {
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Of all services that the pool is a member of, one that can be used is enough. An update that names a
/// service twice says nothing.
fn readiness_of(update: &proto::ServingReadinessUpdate, pool: PoolId) -> Option<bool> {
    let services = update.entries.iter();
    if !distinct(services.map(|entry| (&entry.namespace, &entry.canonical_model_id))) {
        return None;
    }
    let is_member = |member: &proto::TopologyMember| {
        member.pool_id.as_ref().is_some_and(|id| pool_id(id) == Ok(pool))
    };
    let states = update.entries.iter().filter(|entry| entry.members.iter().any(is_member));
    let states = states.map(|entry| match entry.state() {
        proto::ServingReadinessState::Ready => Some(true),
        proto::ServingReadinessState::Unavailable => Some(false),
        proto::ServingReadinessState::Unknown => None,
    });
    states.reduce(|a, b| match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    })?
}

/// A sum over some of the ranks, or of no capacity, says nothing: unknown, never idle. The same of an
/// update that names a pool twice.
fn load_of(update: &proto::KvPoolLoadUpdate, pool: PoolId) -> Option<(u64, u64)> {
    let named =
        |entry: &proto::KvPoolLoadEntry| pool_id(entry.producer.as_ref()?.pool_id.as_ref()?).ok();
    if !distinct(update.pools.iter().filter_map(named)) {
        return None;
    }
    let entry = update.pools.iter().find(|entry| named(entry) == Some(pool))?;
    let whole = entry.kv_observed_ranks == entry.kv_expected_ranks && entry.total_kv_blocks > 0;
    whole.then_some((entry.kv_used_blocks, entry.total_kv_blocks))
}

#[cfg(test)]
mod tests {
    use ckf_protocol::{DcId, IdentityHalf, IdentitySource, IndexerDomainId};

    use super::*;
    use crate::hosts::dynamo::to_pool_id;

    fn pool() -> PoolId {
        let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
        let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
        PoolId { domain, dc: DcId::new(7) }
    }

    #[test]
    fn a_load_that_names_a_pool_twice_says_nothing() {
        let producer =
            proto::ProducerIdentity { pool_id: Some(to_pool_id(&pool())), ..Default::default() };
        let entry = proto::KvPoolLoadEntry {
            producer: Some(producer),
            kv_used_blocks: 1,
            total_kv_blocks: 4,
            ..Default::default()
        };
        let update = |pools| proto::KvPoolLoadUpdate { pools, ..Default::default() };
        assert_eq!(load_of(&update(vec![entry.clone()]), pool()), Some((1, 4)));
        assert_eq!(load_of(&update(vec![entry.clone(), entry]), pool()), None);
    }

    #[test]
    fn a_readiness_that_names_a_service_twice_says_nothing() {
        let member =
            proto::TopologyMember { pool_id: Some(to_pool_id(&pool())), ..Default::default() };
        let service = |namespace: &str| proto::TopologyEntry {
            namespace: namespace.into(),
            state: proto::ServingReadinessState::Ready.into(),
            members: vec![member.clone()],
            ..Default::default()
        };
        let update = |entries| proto::ServingReadinessUpdate { entries, ..Default::default() };
        assert_eq!(readiness_of(&update(vec![service("a"), service("b")]), pool()), Some(true));
        assert_eq!(readiness_of(&update(vec![service("a"), service("a")]), pool()), None);
    }
}

//! What a Dynamo relay says about one pool beside its filter, for a router: whether it can be used,
//! and how full its caches are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_protocol::PoolId;
use futures::{Stream, StreamExt};
use tokio::time::timeout;

use super::client::DynamoLink;
use super::{check_envelope, pool_id};
use crate::hosts::HostResult;
use crate::hosts::lock;
use crate::hosts::proto::dynamo as proto;

/// Pause before a stream that ended is asked for again.
const PAUSE: Duration = Duration::from_secs(1);
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
    let readiness = async {
        loop {
            let _ = follow(link.readiness().await, |update| {
                check_envelope(update.contract_marker, update.protocol_version)?;
                lock(&board.0).ready = readiness_of(&update, pool);
                Ok(())
            })
            .await;
            lock(&board.0).ready = None;
            tokio::time::sleep(PAUSE).await;
        }
    };
    let load = async {
        loop {
            let _ = follow(link.load().await, |update| {
                check_envelope(update.contract_marker, update.protocol_version)?;
                lock(&board.0).kv = load_of(&update, pool);
                Ok(())
            })
            .await;
            lock(&board.0).kv = None;
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::join!(readiness, load);
}

/// Takes all updates of a stream, as long as they come and are believed.
async fn follow<T>(
    updates: HostResult<impl Stream<Item = HostResult<T>> + Unpin>,
    mut take: impl FnMut(T) -> HostResult<()>,
) -> HostResult<()> {
    let mut updates = updates?;
    while let Some(update) = timeout(SILENCE, updates.next()).await? {
        take(update?)?;
    }
    Ok(())
}

/// Of all services that the pool is a member of, one that can be used is enough.
fn readiness_of(update: &proto::ServingReadinessUpdate, pool: PoolId) -> Option<bool> {
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

/// A sum over some of the ranks, or of no capacity, says nothing: unknown, never idle.
fn load_of(update: &proto::KvPoolLoadUpdate, pool: PoolId) -> Option<(u64, u64)> {
    let is_pool = |entry: &&proto::KvPoolLoadEntry| {
        let id = entry.producer.as_ref().and_then(|producer| producer.pool_id.as_ref());
        id.is_some_and(|id| pool_id(id) == Ok(pool))
    };
    let entry = update.pools.iter().find(is_pool)?;
    let whole = entry.kv_observed_ranks == entry.kv_expected_ranks && entry.total_kv_blocks > 0;
    whole.then_some((entry.kv_used_blocks, entry.total_kv_blocks))
}

//! What a relay says about its pools beside their filters: whether they can be used, and how full
//! their caches are.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio_stream::wrappers::{IntervalStream, WatchStream};

use super::hub::Hub;
use super::{MARKER, PROTOCOL_VERSION, to_pool_id};
use crate::hosts::proto::dynamo as proto;
use ckf_producer::source::StreamState;

/// Span of one load window.
const WINDOW: Duration = Duration::from_secs(1);

/// The one role that our engines have.
const ROLE: proto::WorkerRole = proto::WorkerRole::Aggregated;

/// The catalog's entry of a pool; `None` while nobody publishes it.
pub(super) fn describe(hub: &Hub, model: &str) -> Option<proto::KvPoolDescriptor> {
    let producer = hub.producer.borrow().clone()?;
    let base = proto::BaseModelTarget { base_model: model.to_owned() };
    let target = Some(proto::model_target::Target::Base(base));
    Some(proto::KvPoolDescriptor {
        producer: Some(producer),
        serving_endpoint: Some(endpoint(hub)),
        registrations: vec![proto::ModelRegistration {
            canonical_model_id: model.to_owned(),
            target: Some(proto::ModelTarget { target }),
            aliases: Vec::new(),
        }],
        query_semantics: Some(proto::KvQuerySemantics {
            kv_block_size: hub.handle.plan.block_size.get(),
            hash_format: proto::KvQueryHashFormat::DynamoStandardV1.into(),
        }),
        pool_roles: vec![ROLE.into()],
    })
}

/// Each pool is a namespace of its own, so that pools of one model do not count as one service.
fn endpoint(hub: &Hub) -> proto::DynamoEndpointId {
    proto::DynamoEndpointId {
        namespace: hub.handle.plan.name.clone(),
        component: "engines".to_owned(),
        endpoint: "generate".to_owned(),
    }
}

/// The source of both streams.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    hubs: Arc<Vec<Hub>>,
    relay: proto::RelayIdentity,
    model: String,
    heartbeat: Duration,
    load: watch::Receiver<proto::KvPoolLoadUpdate>,
}

impl Serving {
    /// Starts to measure windows.
    pub(super) fn start(
        hubs: Arc<Vec<Hub>>,
        relay: proto::RelayIdentity,
        model: String,
        heartbeat: Duration,
    ) -> Self {
        let (windows, load) = watch::channel(empty_window(relay));
        tokio::spawn(measure(hubs.clone(), windows));
        Self { hubs, relay, model, heartbeat, load }
    }

    /// At once, on every change, and as a heartbeat.
    pub(super) fn readiness(&self) -> impl Stream<Item = proto::ServingReadinessUpdate> + use<> {
        let changes = self.hubs.iter().map(|hub| WatchStream::new(hub.producer.clone()));
        let beats = IntervalStream::new(tokio::time::interval(self.heartbeat));
        let serving = self.clone();
        let due = stream::select(stream::select_all(changes).map(drop), beats.map(drop));
        due.scan(0, move |revision, ()| {
            *revision += 1;
            std::future::ready(Some(serving.readiness_update(*revision)))
        })
    }

    fn readiness_update(&self, revision: u64) -> proto::ServingReadinessUpdate {
        let entry = |hub: &Hub| {
            let (state, present, missing) = if hub.producer.borrow().is_some() {
                (proto::ServingReadinessState::Ready, vec![ROLE.into()], vec![])
            } else {
                (proto::ServingReadinessState::Unavailable, vec![], vec![ROLE.into()])
            };
            proto::TopologyEntry {
                namespace: hub.handle.plan.name.clone(),
                canonical_model_id: self.model.clone(),
                state: state.into(),
                present_roles: present,
                missing_roles: missing,
                members: vec![proto::TopologyMember {
                    endpoint: Some(endpoint(hub)),
                    roles: vec![ROLE.into()],
                    pool_id: Some(to_pool_id(&hub.handle.plan.id)),
                }],
                ..Default::default()
            }
        };
        proto::ServingReadinessUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.relay),
            revision,
            entries: self.hubs.iter().map(entry).collect(),
            contract_marker: MARKER,
        }
    }

    /// The present window at once, then each one that is over; who is slow misses some.
    pub(super) fn load(&self) -> impl Stream<Item = proto::KvPoolLoadUpdate> + use<> {
        WatchStream::new(self.load.clone())
    }
}

fn empty_window(relay: proto::RelayIdentity) -> proto::KvPoolLoadUpdate {
    proto::KvPoolLoadUpdate {
        protocol_version: PROTOCOL_VERSION,
        relay: Some(relay),
        window_ms: WINDOW.as_millis() as u64,
        contract_marker: MARKER,
        ..Default::default()
    }
}

/// One measurement a window, for all subscribers, until nobody can ask any more.
async fn measure(hubs: Arc<Vec<Hub>>, windows: watch::Sender<proto::KvPoolLoadUpdate>) {
    let mut ticks = tokio::time::interval(WINDOW);
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = windows.closed() => return,
        }
        let mut pools = Vec::new();
        for hub in hubs.iter() {
            pools.extend(pool_load(hub).await);
        }
        windows.send_modify(|window| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            window.window_sequence = number;
            window.observed_ms = since.as_millis() as u64;
            window.pools = pools;
        });
    }
}

/// Engines' events tell which blocks are held, not how many could be: the capacity is 0, which
/// consumers take for unknown.
async fn pool_load(hub: &Hub) -> Option<proto::KvPoolLoadEntry> {
    let producer = hub.producer.borrow().clone()?;
    let report = hub.handle.report().await?;
    let live = report.members.iter().filter(|(_, _, state, _)| *state == StreamState::Live);
    Some(proto::KvPoolLoadEntry {
        producer: Some(producer),
        kv_used_blocks: report.pool.edges,
        total_kv_blocks: 0,
        kv_observed_ranks: live.count() as u32,
        kv_expected_ranks: report.members.len() as u32,
    })
}

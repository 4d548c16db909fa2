//! Dynamo's relay contract, served from our pools.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::hub::{Hub, HubLimits, Joined};
use super::reason::{Reason, ReasonCounters};
use super::serving::{Serving, describe};
use super::{MARKER, PROTOCOL_VERSION, to_pool_id};
use crate::hosts::HostResult;
use crate::hosts::clock::Clock;
use crate::hosts::listen::{AcceptCounters, accept_plain};
use crate::hosts::proto::dynamo as proto;
use crate::hosts::relay::feed::{KeepAlive, server};
use crate::hosts::relay::pool::PoolHandle;

/// Connections at one time.
const CONNECTIONS: usize = 256;
/// Streams of each kind at one time; those of pools have limits of their own.
const STREAMS: usize = 64;
/// Bytes of one request at most.
const MAX_REQUEST: usize = 4096;

/// The service.
#[derive(Clone, Debug)]
pub struct DynamoRelay {
    identity: proto::RelayIdentity,
    hubs: Arc<Vec<Hub>>,
    model: String,
    serving: Serving,
    /// Places for streams: catalog, readiness, load.
    places: [Arc<Semaphore>; 3],
    /// Reasons given.
    given: Arc<ReasonCounters>,
}

impl DynamoRelay {
    /// Follows the pools, which must have power-of-two formats.
    pub fn start(
        pools: &[PoolHandle],
        incarnation: u64,
        model: String,
        limits: HubLimits,
        clock: Clock,
        given: Arc<ReasonCounters>,
    ) -> Self {
        let identity =
            proto::RelayIdentity { drt_instance_id: incarnation, relay_incarnation: incarnation };
        let hubs = pools.iter().map(|handle| Hub::start(handle.clone(), identity, clock, limits));
        let hubs = Arc::new(hubs.collect::<Vec<_>>());
        let serving = Serving::start(hubs.clone(), identity, model.clone(), limits.heartbeat);
        let places = std::array::from_fn(|_| Arc::new(Semaphore::new(STREAMS)));
        Self { identity, hubs, model, serving, places, given }
    }

    /// Serves without TLS, which the contract leaves to a proxy.
    ///
    /// # Errors
    /// Those of the listener.
    pub async fn serve(
        self,
        listener: TcpListener,
        accepts: Arc<AcceptCounters>,
        keep_alive: KeepAlive,
    ) -> HostResult<()> {
        let service = proto::kv_event_relay_server::KvEventRelayServer::new(self);
        server(keep_alive)
            .add_service(service.max_decoding_message_size(MAX_REQUEST))
            .serve_with_incoming(accept_plain(
                listener,
                CONNECTIONS,
                keep_alive.patience(),
                accepts,
            ))
            .await?;
        Ok(())
    }

    fn catalog(&self, revision: u64) -> proto::KvPoolCatalogUpdate {
        let pools = self.hubs.iter().filter_map(|hub| describe(hub, &self.model)).collect();
        proto::KvPoolCatalogUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.identity),
            revision,
            snapshot: Some(proto::KvPoolCatalogSnapshot { pools }),
            contract_marker: MARKER,
        }
    }
}

impl DynamoRelay {
    /// The stream of the producer that a subscriber expects.
    async fn join(&self, expected: proto::ProducerIdentity) -> Result<Joined, Reason> {
        let ours = |hub: &&Hub| expected.pool_id == Some(to_pool_id(&hub.handle.plan.id));
        let hub = self.hubs.iter().find(ours).ok_or(Reason::PoolNotFound)?;
        hub.join(expected).await
    }

    /// The stream that answers a believable request. The reason of its refusal or end is counted.
    fn answer<T: 'static, S>(
        &self,
        marker: u32,
        subscriber: &str,
        updates: impl FnOnce() -> Result<S, Reason>,
    ) -> Result<Response<Answers<T>>, Status>
    where
        S: Stream<Item = Result<T, Status>> + Send + 'static,
    {
        let updates = check(marker, subscriber).and_then(|()| updates());
        let given = self.given.clone();
        let note = move |status: &Status| given.count(status);
        let updates = updates.map_err(Reason::status).inspect_err(&note)?;
        Ok(Response::new(Box::pin(updates.inspect(move |update| {
            let _ = update.as_ref().inspect_err(|status| note(status));
        }))))
    }

    /// The same for updates without an end, each stream of which takes one of the places of its kind.
    fn keep_up<T: 'static>(
        &self,
        kind: usize,
        marker: u32,
        subscriber: &str,
        updates: impl Stream<Item = T> + Send + 'static,
    ) -> Result<Response<Answers<T>>, Status> {
        self.answer(marker, subscriber, || {
            let place = self.places[kind].clone().try_acquire_owned();
            let place = place.map_err(|_| Reason::ResourceLimit)?;
            Ok(updates.map(move |update| {
                let _held = &place;
                Ok(update)
            }))
        })
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::kv_event_relay_server::KvEventRelay for DynamoRelay {
    async fn get_relay_info(
        &self,
        request: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        check_marker(request.get_ref().contract_marker)
            .map_err(Reason::status)
            .inspect_err(|status| self.given.count(status))?;
        Ok(Response::new(proto::RelayInfo {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.identity),
            contract_marker: MARKER,
        }))
    }

    type WatchKvPoolCatalogStream = Answers<proto::KvPoolCatalogUpdate>;

    async fn watch_kv_pool_catalog(
        &self,
        request: Request<proto::WatchKvPoolCatalogRequest>,
    ) -> Result<Response<Self::WatchKvPoolCatalogStream>, Status> {
        let request = request.get_ref();
        let changes = self.hubs.iter().map(|hub| WatchStream::new(hub.producer.clone()));
        let relay = self.clone();
        let updates = stream::select_all(changes).scan(0, move |revision, _| {
            *revision += 1;
            std::future::ready(Some(relay.catalog(*revision)))
        });
        self.keep_up(0, request.contract_marker, &request.subscriber_id, updates)
    }

    type SubscribeServingReadinessStream = Answers<proto::ServingReadinessUpdate>;

    async fn subscribe_serving_readiness(
        &self,
        request: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Result<Response<Self::SubscribeServingReadinessStream>, Status> {
        let request = request.get_ref();
        let updates = self.serving.readiness();
        self.keep_up(1, request.contract_marker, &request.subscriber_id, updates)
    }

    type SubscribeKvPoolLoadStream = Answers<proto::KvPoolLoadUpdate>;

    async fn subscribe_kv_pool_load(
        &self,
        request: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolLoadStream>, Status> {
        let request = request.get_ref();
        let updates = self.serving.load();
        self.keep_up(2, request.contract_marker, &request.subscriber_id, updates)
    }

    type SubscribeKvPoolStream = Answers<proto::FilterUpdate>;

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        let request = request.into_inner();
        let joined = match request.expected_producer {
            Some(expected) => self.join(expected).await,
            None => Err(Reason::InvalidRequest),
        };
        self.answer(request.contract_marker, &request.subscriber_id, || {
            joined.map(Joined::into_stream)
        })
    }
}

fn check_marker(marker: u32) -> Result<(), Reason> {
    if marker == MARKER { Ok(()) } else { Err(Reason::ContractMismatch) }
}

fn check(marker: u32, subscriber: &str) -> Result<(), Reason> {
    check_marker(marker)?;
    let good = (1..=128).contains(&subscriber.len()) && !subscriber.chars().any(char::is_control);
    if good { Ok(()) } else { Err(Reason::InvalidRequest) }
}

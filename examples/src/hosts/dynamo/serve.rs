//! Dynamo's relay contract, served from our pools.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tonic::{Request, Response, Status};

use super::hub::Hub;
use super::reason::{Reason, refuse};
use super::serving::{Serving, describe};
use super::{MARKER, PROTOCOL_VERSION};
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
}

impl DynamoRelay {
    /// Follows the pools, which must have power-of-two formats.
    pub fn start(pools: &[PoolHandle], incarnation: u64, model: String, clock: Clock) -> Self {
        let identity =
            proto::RelayIdentity { drt_instance_id: incarnation, relay_incarnation: incarnation };
        let hubs = pools.iter().map(|handle| Hub::start(handle.clone(), identity, clock));
        let hubs = Arc::new(hubs.collect::<Vec<_>>());
        let serving = Serving::start(hubs.clone(), identity, model.clone());
        let places = std::array::from_fn(|_| Arc::new(Semaphore::new(STREAMS)));
        Self { identity, hubs, model, serving, places }
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
    /// An answer that holds one of the places for its kind of streams.
    fn stream<T: 'static>(
        &self,
        kind: usize,
        updates: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Result<Response<Answers<T>>, Status> {
        let place = self.places[kind].clone().try_acquire_owned();
        let place = place.map_err(|_| refuse(Reason::ResourceLimit))?;
        Ok(Response::new(Box::pin(updates.inspect(move |_| {
            let _held = &place;
        }))))
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::kv_event_relay_server::KvEventRelay for DynamoRelay {
    async fn get_relay_info(
        &self,
        request: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        check_marker(request.get_ref().contract_marker)?;
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
        let proto::WatchKvPoolCatalogRequest { subscriber_id, contract_marker } = request.get_ref();
        check(*contract_marker, subscriber_id)?;
        let changes = self.hubs.iter().map(|hub| WatchStream::new(hub.producer.clone()));
        let relay = self.clone();
        let updates = stream::select_all(changes).scan(0, move |revision, _| {
            *revision += 1;
            std::future::ready(Some(Ok(relay.catalog(*revision))))
        });
        self.stream(0, updates)
    }

    type SubscribeServingReadinessStream = Answers<proto::ServingReadinessUpdate>;

    async fn subscribe_serving_readiness(
        &self,
        request: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Result<Response<Self::SubscribeServingReadinessStream>, Status> {
        let proto::SubscribeServingReadinessRequest { subscriber_id, contract_marker } =
            request.get_ref();
        check(*contract_marker, subscriber_id)?;
        self.stream(1, self.serving.readiness().map(Ok))
    }

    type SubscribeKvPoolLoadStream = Answers<proto::KvPoolLoadUpdate>;

    async fn subscribe_kv_pool_load(
        &self,
        request: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolLoadStream>, Status> {
        let proto::SubscribeKvPoolLoadRequest { subscriber_id, contract_marker } =
            request.get_ref();
        check(*contract_marker, subscriber_id)?;
        self.stream(2, self.serving.load().map(Ok))
    }

    type SubscribeKvPoolStream = Answers<proto::FilterUpdate>;

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        let request = request.into_inner();
        check(request.contract_marker, &request.subscriber_id)?;
        let expected = request.expected_producer.ok_or_else(|| refuse(Reason::InvalidRequest))?;
        let ours = |hub: &&Hub| {
            hub.producer.borrow().as_ref().map(|p| &p.pool_id) == Some(&expected.pool_id)
        };
        let hub = self.hubs.iter().find(ours).ok_or_else(|| refuse(Reason::PoolNotFound))?;
        let updates = hub.join(expected).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(updates))))
    }
}

fn check_marker(marker: u32) -> Result<(), Status> {
    if marker == MARKER { Ok(()) } else { Err(refuse(Reason::ContractMismatch)) }
}

fn check(marker: u32, subscriber: &str) -> Result<(), Status> {
    check_marker(marker)?;
    let good = (1..=128).contains(&subscriber.len()) && !subscriber.chars().any(char::is_control);
    if good { Ok(()) } else { Err(refuse(Reason::InvalidRequest)) }
}

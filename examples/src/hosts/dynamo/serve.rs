//! Dynamo's relay contract, served from our pools.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ckf_protocol::Instant;
use futures::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Response, Status};

use super::export::{Exporter, Step};
use super::{MARKER, PROTOCOL_VERSION, to_identity};
use crate::hosts::HostResult;
use crate::hosts::clock::Clock;
use crate::hosts::listen::{AcceptCounters, accept_plain};
use crate::hosts::proto::dynamo as proto;
use crate::hosts::relay::feed::{KeepAlive, server};
use crate::hosts::relay::pool::PoolHandle;

/// Updates under way to one subscriber; one more ends its stream.
const QUEUE: usize = 16;
/// Subscribers of one pool at one time.
const SUBSCRIBERS: usize = 64;
/// Connections at one time.
const CONNECTIONS: usize = 256;
/// Catalog streams at one time.
const CATALOGS: usize = 64;
/// Silence after which subscribers hear a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

type Update = Result<proto::FilterUpdate, Status>;
/// The producer that a subscriber expects, and where its updates are to be had.
type Join = (proto::ProducerIdentity, oneshot::Sender<Result<mpsc::Receiver<Update>, Status>>);

/// One pool: its follower's task, and who runs now.
#[derive(Clone, Debug)]
struct Hub {
    joins: mpsc::Sender<Join>,
    producer: watch::Receiver<Option<proto::ProducerIdentity>>,
    handle: PoolHandle,
}

/// The service.
#[derive(Clone, Debug)]
pub struct DynamoRelay {
    identity: proto::RelayIdentity,
    hubs: Arc<Vec<Hub>>,
    model: String,
    catalogs: Arc<tokio::sync::Semaphore>,
}

impl DynamoRelay {
    /// Follows the pools, which must have power-of-two formats.
    pub fn start(pools: &[PoolHandle], incarnation: u64, model: String, clock: Clock) -> Self {
        let identity =
            proto::RelayIdentity { drt_instance_id: incarnation, relay_incarnation: incarnation };
        let hubs = pools.iter().map(|handle| Hub::start(handle.clone(), identity, clock)).collect();
        let catalogs = Arc::new(tokio::sync::Semaphore::new(CATALOGS));
        Self { identity, hubs: Arc::new(hubs), model, catalogs }
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
            .add_service(service.max_decoding_message_size(4096))
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
        let describe = |hub: &Hub| {
            let producer = hub.producer.borrow().clone()?;
            let base = proto::BaseModelTarget { base_model: self.model.clone() };
            Some(proto::KvPoolDescriptor {
                producer: Some(producer),
                serving_endpoint: Some(proto::DynamoEndpointId {
                    namespace: "ckf".to_owned(),
                    component: hub.handle.plan.name.clone(),
                    endpoint: "generate".to_owned(),
                }),
                registrations: vec![proto::ModelRegistration {
                    canonical_model_id: self.model.clone(),
                    target: Some(proto::ModelTarget {
                        target: Some(proto::model_target::Target::Base(base)),
                    }),
                    aliases: Vec::new(),
                }],
                query_semantics: Some(proto::KvQuerySemantics {
                    kv_block_size: hub.handle.plan.block_size.get(),
                    hash_format: proto::KvQueryHashFormat::DynamoStandardV1.into(),
                }),
                pool_roles: vec![proto::WorkerRole::Aggregated.into()],
            })
        };
        let pools = self.hubs.iter().filter_map(describe).collect();
        proto::KvPoolCatalogUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.identity),
            revision,
            snapshot: Some(proto::KvPoolCatalogSnapshot { pools }),
            contract_marker: MARKER,
        }
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
        check_marker(request.get_ref().contract_marker)?;
        check_subscriber(&request.get_ref().subscriber_id)?;
        let place = self.catalogs.clone().try_acquire_owned();
        let place = place.map_err(|_| refuse(Reason::ResourceLimit))?;
        // Each stream gives the present value first.
        let changes = self.hubs.iter().map(|hub| WatchStream::new(hub.producer.clone()));
        let relay = self.clone();
        let updates = stream::select_all(changes).scan(0, move |revision, _| {
            let _held = &place;
            *revision += 1;
            std::future::ready(Some(Ok(relay.catalog(*revision))))
        });
        Ok(Response::new(Box::pin(updates)))
    }

    type SubscribeKvPoolStream = Answers<proto::FilterUpdate>;

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        let request = request.into_inner();
        check_marker(request.contract_marker)?;
        check_subscriber(&request.subscriber_id)?;
        let expected = request.expected_producer.ok_or_else(|| refuse(Reason::InvalidRequest))?;
        let ours = |hub: &&Hub| {
            hub.producer.borrow().as_ref().map(|p| &p.pool_id) == Some(&expected.pool_id)
        };
        let hub = self.hubs.iter().find(ours).ok_or_else(|| refuse(Reason::PoolNotFound))?;
        let (answer, updates) = oneshot::channel();
        let gone = |_| refuse(Reason::PublicationUnavailable);
        hub.joins
            .send((expected, answer))
            .await
            .map_err(|_| refuse(Reason::PublicationUnavailable))?;
        let updates = updates.await.map_err(gone)??;
        Ok(Response::new(Box::pin(ReceiverStream::new(updates))))
    }
}

fn check_marker(marker: u32) -> Result<(), Status> {
    if marker == MARKER { Ok(()) } else { Err(refuse(Reason::ContractMismatch)) }
}

fn check_subscriber(id: &str) -> Result<(), Status> {
    let good = (1..=128).contains(&id.len()) && !id.chars().any(char::is_control);
    if good { Ok(()) } else { Err(refuse(Reason::InvalidRequest)) }
}

/// Why a request is refused or a stream ends, as the contract tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    ContractMismatch,
    InvalidRequest,
    PoolNotFound,
    ProducerChanged,
    ResourceLimit,
    SubscriberLagged,
    PublicationUnavailable,
}

fn refuse(reason: Reason) -> Status {
    let (code, name) = match reason {
        Reason::ContractMismatch => (Code::FailedPrecondition, "CONTRACT_MISMATCH"),
        Reason::InvalidRequest => (Code::InvalidArgument, "INVALID_REQUEST"),
        Reason::PoolNotFound => (Code::NotFound, "POOL_NOT_FOUND"),
        Reason::ProducerChanged => (Code::FailedPrecondition, "PRODUCER_CHANGED"),
        Reason::ResourceLimit => (Code::ResourceExhausted, "RESOURCE_LIMIT"),
        Reason::SubscriberLagged => (Code::ResourceExhausted, "SUBSCRIBER_LAGGED"),
        Reason::PublicationUnavailable => (Code::Unavailable, "PUBLICATION_UNAVAILABLE"),
    };
    let mut status = Status::new(code, name);
    let name = format!("RELAY_ERROR_REASON_{name}");
    let name = AsciiMetadataValue::try_from(name).expect("ASCII");
    status.metadata_mut().insert("kv-relay-error-reason", name);
    status
}

impl Hub {
    fn start(handle: PoolHandle, relay: proto::RelayIdentity, clock: Clock) -> Self {
        let (joins, joining) = mpsc::channel(16);
        let (known, producer) = watch::channel(None);
        let plan = &handle.plan;
        let exporter = Exporter::new(plan.id, plan.format, relay, clock.now());
        let task =
            HubTask { exporter, subscribers: Vec::new(), known, handle: handle.clone(), clock };
        tokio::spawn(task.run(joining));
        Self { joins, producer, handle }
    }
}

struct HubTask {
    exporter: Exporter,
    subscribers: Vec<mpsc::Sender<Update>>,
    known: watch::Sender<Option<proto::ProducerIdentity>>,
    handle: PoolHandle,
    clock: Clock,
}

impl HubTask {
    async fn run(mut self, mut joining: mpsc::Receiver<Join>) {
        let mut frames: Option<mpsc::Receiver<bytes::Bytes>> = None;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            let now = self.clock.now();
            while let Some(frame) = self.exporter.session().poll_transmit() {
                if frames.is_none() {
                    frames = self.handle.open(frame.into()).await;
                }
            }
            while self.exporter.session().poll_event().is_some() {}
            let timeout = self.exporter.session().poll_timeout().map(|(at, _)| at);
            tokio::select! {
                frame = receive(&mut frames) => match frame {
                    Some(frame) => {
                        self.handle.wake.notify_one();
                        if self.step(&frame, now) {
                            heartbeat.reset();
                        }
                    }
                    None => {
                        frames = None;
                        self.exporter.session().handle_disconnected(now);
                        self.over();
                    }
                },
                join = joining.recv() => match join {
                    Some((expected, answer)) => {
                        let _ = answer.send(self.join(&expected));
                    }
                    None => return,
                },
                _ = heartbeat.tick() => {
                    if let Some(update) = self.exporter.heartbeat() {
                        self.tell(&update);
                    }
                }
                () = self.clock.sleep_until(timeout) => {
                    self.exporter.session().handle_timeout(self.clock.now());
                    if self.exporter.identity().is_none() {
                        self.over();
                    }
                }
            }
        }
    }

    /// Acts on a frame of the pool; `true` when subscribers heard something.
    fn step(&mut self, frame: &[u8], now: Instant) -> bool {
        match self.exporter.handle(frame, now) {
            Step::Quiet => false,
            Step::Ready => {
                let identity = self.exporter.identity().and_then(|identity| to_identity(&identity));
                self.known.send_replace(identity);
                false
            }
            Step::Update(update) => {
                self.tell(&update);
                true
            }
            Step::Over => {
                self.over();
                false
            }
        }
    }

    fn tell(&mut self, update: &proto::FilterUpdate) {
        self.subscribers.retain(|subscriber| {
            // One place is kept for the reason of the end.
            if subscriber.capacity() <= 1 {
                let _ = subscriber.try_send(Err(refuse(Reason::SubscriberLagged)));
                return false;
            }
            subscriber.try_send(Ok(update.clone())).is_ok()
        });
    }

    /// There is nothing to read any more: all streams end.
    fn over(&mut self) {
        self.known.send_replace(None);
        for subscriber in self.subscribers.drain(..) {
            let _ = subscriber.try_send(Err(refuse(Reason::PublicationUnavailable)));
        }
    }

    fn join(
        &mut self,
        expected: &proto::ProducerIdentity,
    ) -> Result<mpsc::Receiver<Update>, Status> {
        self.subscribers.retain(|subscriber| !subscriber.is_closed());
        if self.known.borrow().as_ref() != Some(expected) {
            return Err(refuse(Reason::ProducerChanged));
        }
        if self.subscribers.len() >= SUBSCRIBERS {
            return Err(refuse(Reason::ResourceLimit));
        }
        let snapshot =
            self.exporter.snapshot().ok_or_else(|| refuse(Reason::PublicationUnavailable))?;
        let (updates, receiver) = mpsc::channel(QUEUE + snapshot.len() + 1);
        for update in snapshot {
            let _ = updates.try_send(Ok(update));
        }
        self.subscribers.push(updates);
        Ok(receiver)
    }
}

async fn receive(frames: &mut Option<mpsc::Receiver<bytes::Bytes>>) -> Option<bytes::Bytes> {
    match frames {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

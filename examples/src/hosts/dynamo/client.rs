//! Subscribing to a Dynamo relay.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ckf_core::Format;
use ckf_protocol::{IndexerDomainId, Limits, Message, PoolId, decode};
use futures::{Stream, StreamExt, stream};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use super::import::Importer;
use super::reason::Refusals;
use super::{MARKER, check_envelope, distinct, identity, pool_id};
use crate::hosts::HostResult;
use crate::hosts::proto::dynamo as proto;
use crate::hosts::proto::dynamo::kv_event_relay_client::KvEventRelayClient;
use crate::hosts::router::link::{Channels, Frames};

/// Longest time for an answer to begin, and for the catalog to name the pool.
const OPEN: Duration = Duration::from_secs(5);
/// Bytes of one message at most: a full chunk of 4 MiB and its envelope.
const MAX_MESSAGE: usize = 5 << 20;

/// A way to one relay that speaks Dynamo's contract.
#[derive(Clone, Debug)]
pub struct DynamoLink {
    channels: Channels,
    /// What the relay's log calls this router.
    subscriber: String,
    refusals: Arc<Refusals>,
}

/// The messages of a stream, and the error that ends it.
pub type Updates<T> = Pin<Box<dyn Stream<Item = HostResult<T>> + Send>>;

/// Whom a question goes to: errors are about them.
#[derive(Clone, Debug)]
struct Asked {
    relay: proto::RelayIdentity,
    producer: Option<proto::ProducerIdentity>,
}

impl DynamoLink {
    /// Over connections that are made when they are needed.
    pub fn new(channels: Channels, subscriber: String) -> Self {
        Self { channels, subscriber, refusals: Arc::default() }
    }

    fn client(&self) -> KvEventRelayClient<Channel> {
        KvEventRelayClient::new(self.channels.get()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// What the relay refused so far.
    pub fn refusals(&self) -> Arc<Refusals> {
        self.refusals.clone()
    }

    /// Subscribes to the pool that our Subscribe frame names, whatever its present producer is, and
    /// gives its stream in our frames.
    ///
    /// # Errors
    /// No connection, another contract, no such pool, or a refusal that still holds.
    pub async fn open(&self, subscribe: &[u8]) -> HostResult<Frames> {
        let Message::Subscribe(subscribe) = decode(subscribe, &Limits::default())? else {
            return Err("not a Subscribe frame".into());
        };
        let pool = subscribe.expected.pool;
        let (relay, found) = timeout(OPEN, self.find(|_, id| id == pool)).await??;
        let producer = found.producer.ok_or("a pool without producer")?;
        self.refusals.may_ask_for(&producer)?;
        let mut importer = Importer::new(&subscribe, producer.clone())?;
        let request = proto::SubscribeKvPoolRequest {
            subscriber_id: self.subscriber.clone(),
            expected_producer: Some(producer.clone()),
            contract_marker: MARKER,
        };
        let mut client = self.client();
        let asked = Asked { relay, producer: Some(producer) };
        let updates = self.updates(client.subscribe_kv_pool(request), Some(asked)).await?;
        let frames = updates.flat_map(move |update| {
            let frames = update.and_then(|update| Ok(importer.handle(&update)?));
            stream::iter(match frames {
                Ok(frames) => frames.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        Ok(Box::pin(frames.scan(false, |failed, frame: HostResult<Bytes>| {
            // Nothing counts after the first error.
            let over = std::mem::replace(failed, frame.is_err());
            std::future::ready((!over).then_some(frame))
        })))
    }

    /// Which pools can be used, from now on.
    ///
    /// # Errors
    /// No connection, or a relay without this stream.
    pub async fn readiness(self) -> HostResult<Updates<proto::ServingReadinessUpdate>> {
        let request = proto::SubscribeServingReadinessRequest {
            subscriber_id: self.subscriber.clone(),
            contract_marker: MARKER,
        };
        let mut client = self.client();
        self.updates(client.subscribe_serving_readiness(request), None).await
    }

    /// How full the caches of pools are, from now on.
    ///
    /// # Errors
    /// No connection, or a relay without this stream.
    pub async fn load(self) -> HostResult<Updates<proto::KvPoolLoadUpdate>> {
        let request = proto::SubscribeKvPoolLoadRequest {
            subscriber_id: self.subscriber.clone(),
            contract_marker: MARKER,
        };
        let mut client = self.client();
        self.updates(client.subscribe_kv_pool_load(request), None).await
    }

    /// The domain and format of the relay's pool for this model and block size.
    ///
    /// # Errors
    /// No connection, another contract, or no such pool in time.
    pub async fn discover(
        &self,
        model: &str,
        block_size: u32,
    ) -> HostResult<(IndexerDomainId, Format)> {
        let serves = |pool: &proto::KvPoolDescriptor, _| {
            let names = |registration: &proto::ModelRegistration| {
                registration.canonical_model_id == model
                    || registration.aliases.iter().any(|alias| alias == model)
            };
            let standard = proto::KvQueryHashFormat::DynamoStandardV1;
            pool.query_semantics.is_some_and(|semantics| {
                semantics.kv_block_size == block_size && semantics.hash_format() == standard
            }) && pool.registrations.iter().any(names)
        };
        let (_, pool) = timeout(OPEN, self.find(serves)).await??;
        let identity = identity(pool.producer.as_ref().ok_or("a pool without producer")?)?;
        Ok((identity.pool.domain, identity.format))
    }

    /// Waits until the catalog names a pool like that. Pools that make no sense are passed over.
    async fn find(
        &self,
        wanted: impl Fn(&proto::KvPoolDescriptor, PoolId) -> bool,
    ) -> HostResult<(proto::RelayIdentity, proto::KvPoolDescriptor)> {
        self.refusals.may_ask()?;
        let mut client = self.client();
        let info = client.get_relay_info(proto::RelayInfoRequest { contract_marker: MARKER }).await;
        let info = info.map_err(|status| self.refusals.note(status, None, None))?.into_inner();
        check_envelope(info.contract_marker, info.protocol_version)?;
        let relay = info.relay.ok_or("a relay without identity")?;
        self.refusals.may_ask_relay(relay)?;
        let request = proto::WatchKvPoolCatalogRequest {
            subscriber_id: self.subscriber.clone(),
            contract_marker: MARKER,
        };
        let asked = Asked { relay, producer: None };
        let mut catalog = self.updates(client.watch_kv_pool_catalog(request), Some(asked)).await?;
        while let Some(update) = catalog.next().await.transpose()? {
            check_envelope(update.contract_marker, update.protocol_version)?;
            let pools = update.snapshot.unwrap_or_default().pools;
            let ids = pools.iter().filter_map(|pool| pool.producer.as_ref()?.pool_id.as_ref());
            if !distinct(ids.filter_map(|id| pool_id(id).ok())) {
                return Err("a catalog that names a pool twice".into());
            }
            for pool in pools {
                let id = pool.producer.as_ref().and_then(|producer| identity(producer).ok());
                if id.is_some_and(|id| wanted(&pool, id.pool)) {
                    return Ok((relay, pool));
                }
            }
        }
        Err("the catalog ended".into())
    }

    /// The updates that answer a question, once they begin. What the relay refuses is taken note of.
    async fn updates<T: Send + 'static>(
        &self,
        answer: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
        asked: Option<Asked>,
    ) -> HostResult<Updates<T>> {
        let refusals = self.refusals.clone();
        let note = move |status| match &asked {
            Some(Asked { relay, producer }) => {
                refusals.note(status, Some(*relay), producer.as_ref())
            }
            None => refusals.count(status),
        };
        let updates = timeout(OPEN, answer).await?.map_err(&note)?.into_inner();
        Ok(Box::pin(updates.map(move |update| update.map_err(|status| note(status).into()))))
    }
}

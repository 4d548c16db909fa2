//! A Dynamo relay that plays the recorded session, and refuses what the test wants.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ckf_examples::hosts::dynamo::MARKER;
use ckf_examples::hosts::proto::dynamo as proto;
use futures::Stream;
use prost::Message as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{TcpListenerStream, WatchStream};
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use crate::support::{Process, ROUTER, args, http, local, ports, shared};

/// The recorded messages, by kind.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) info: proto::RelayInfo,
    pub(crate) catalog: Vec<proto::KvPoolCatalogUpdate>,
    pub(crate) subscribe: proto::SubscribeKvPoolRequest,
    pub(crate) updates: Vec<proto::FilterUpdate>,
    pub(crate) readiness: Vec<proto::ServingReadinessUpdate>,
    pub(crate) load: Vec<proto::KvPoolLoadUpdate>,
    pub(crate) about: Value,
}

pub(crate) fn recording() -> Option<Recording> {
    let path = shared("relay/kvrelay_v1_session.kvrcap")?;
    let about = std::fs::read_to_string(path.with_extension("json")).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let mut rest = bytes.strip_prefix(b"KVRCAP01").expect("a recording");
    let mut recording = Recording {
        info: Default::default(),
        catalog: Vec::new(),
        subscribe: Default::default(),
        updates: Vec::new(),
        readiness: Vec::new(),
        load: Vec::new(),
        about: serde_json::from_str(&about).unwrap(),
    };
    while let [kind, a, b, c, d, tail @ ..] = rest {
        let (message, tail) = tail.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        match kind {
            1 => recording.info = proto::RelayInfo::decode(message).unwrap(),
            2 => recording.catalog.push(proto::KvPoolCatalogUpdate::decode(message).unwrap()),
            3 => recording.updates.push(proto::FilterUpdate::decode(message).unwrap()),
            4 => recording.readiness.push(proto::ServingReadinessUpdate::decode(message).unwrap()),
            5 => recording.load.push(proto::KvPoolLoadUpdate::decode(message).unwrap()),
            103 => recording.subscribe = proto::SubscribeKvPoolRequest::decode(message).unwrap(),
            _ => {}
        }
        rest = tail;
    }
    Some(recording)
}

/// Plays the recorded session to whoever subscribes.
#[derive(Clone)]
pub(crate) struct Player {
    /// What is played now.
    pub(crate) recording: watch::Sender<Recording>,
    /// In place of the recorded readiness.
    pub(crate) readiness: Option<watch::Receiver<proto::ServingReadinessUpdate>>,
    /// In place of the pool's stream.
    pub(crate) refusal: watch::Sender<Option<Status>>,
    /// How often the pool's stream was asked for.
    pub(crate) asked: Arc<AtomicU64>,
}

impl Player {
    pub(crate) fn new(recording: Recording) -> Self {
        Self {
            recording: watch::Sender::new(recording),
            readiness: None,
            refusal: watch::Sender::new(None),
            asked: Arc::default(),
        }
    }

    /// Another load, to those who follow it as well.
    pub(crate) fn tell_load(&self, used: u64) {
        self.recording.send_modify(|recording| {
            recording.load.last_mut().unwrap().pools[0].kv_used_blocks = used;
        });
    }

    fn now(&self) -> Recording {
        self.recording.borrow().clone()
    }

    /// Its port.
    pub(crate) async fn serve(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(self.server().serve_with_incoming(TcpListenerStream::new(listener)));
        port
    }

    pub(crate) fn server(&self) -> Router {
        let service = proto::kv_event_relay_server::KvEventRelayServer::new(self.clone());
        tonic::transport::Server::builder().add_service(service)
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn play<T: Send + 'static>(messages: Vec<T>) -> Response<Answers<T>> {
    let open_end = tokio_stream::iter(messages.into_iter().map(Ok)).chain(tokio_stream::pending());
    Response::new(Box::pin(open_end))
}

#[tonic::async_trait]
impl proto::kv_event_relay_server::KvEventRelay for Player {
    async fn get_relay_info(
        &self,
        request: Request<proto::RelayInfoRequest>,
    ) -> Result<Response<proto::RelayInfo>, Status> {
        assert_eq!(request.get_ref().contract_marker, MARKER);
        Ok(Response::new(self.now().info))
    }

    type WatchKvPoolCatalogStream = Answers<proto::KvPoolCatalogUpdate>;

    async fn watch_kv_pool_catalog(
        &self,
        _: Request<proto::WatchKvPoolCatalogRequest>,
    ) -> Result<Response<Self::WatchKvPoolCatalogStream>, Status> {
        Ok(play(self.now().catalog))
    }

    type SubscribeKvPoolStream = Answers<proto::FilterUpdate>;

    async fn subscribe_kv_pool(
        &self,
        request: Request<proto::SubscribeKvPoolRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolStream>, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(refusal) = self.refusal.borrow().clone() {
            return Err(refusal);
        }
        assert_eq!(request.get_ref().expected_producer, self.now().subscribe.expected_producer);
        Ok(play(self.now().updates))
    }

    type SubscribeServingReadinessStream = Answers<proto::ServingReadinessUpdate>;

    async fn subscribe_serving_readiness(
        &self,
        _: Request<proto::SubscribeServingReadinessRequest>,
    ) -> Result<Response<Self::SubscribeServingReadinessStream>, Status> {
        Ok(match self.readiness.clone() {
            Some(updates) => Response::new(Box::pin(WatchStream::new(updates).map(Ok))),
            None => play(self.now().readiness),
        })
    }

    type SubscribeKvPoolLoadStream = Answers<proto::KvPoolLoadUpdate>;

    async fn subscribe_kv_pool_load(
        &self,
        _: Request<proto::SubscribeKvPoolLoadRequest>,
    ) -> Result<Response<Self::SubscribeKvPoolLoadStream>, Status> {
        let later = WatchStream::from_changes(self.recording.subscribe());
        let later = later.filter_map(|recording| recording.load.last().cloned());
        let updates = tokio_stream::iter(self.now().load).chain(later);
        Ok(Response::new(Box::pin(updates.map(Ok))))
    }
}

pub(crate) fn router(relay: u16, engine: u16, dc: u64, model: &str) -> (Process, u16, u16) {
    let [listen, admin] = ports();
    let process = Process::start(
        "router",
        ROUTER,
        &args(&format!(
            "--protocol dynamo --listen {} --admin {} --model {model} --silence-ms 60000 \
         --dc id={dc},relay={},endpoint={}",
            local(listen),
            local(admin),
            http(relay, ""),
            http(engine, ""),
        )),
    );
    (process, listen, admin)
}

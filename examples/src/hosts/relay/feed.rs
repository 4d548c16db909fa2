//! Subscribers over gRPC: each stream is one lease.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ckf_core::Indexing;
use ckf_protocol::{Limits, Message, Subscribe, decode};
use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::rustls::ServerConfig;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::pool::PoolHandle;
use crate::hosts::HostResult;
use crate::hosts::listen::{AcceptCounters, Patience, accept_tls};
use crate::hosts::metrics::Counter;
use crate::hosts::proto::feed as proto;
use crate::hosts::tls::Renewed;

/// Connections at one time.
const CONNECTIONS: usize = 256;
/// Streams of one connection at one time.
const STREAMS: u32 = 64;
/// Bytes of one request at most: a subscription has about a hundred.
const MAX_REQUEST: usize = 4096;
/// Bytes of all headers of a request.
const MAX_HEADERS: u32 = 8192;
/// Longest time for a request to come and its answer to begin.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Bytes of requests under way: of one stream, of one connection.
const WINDOWS: [u32; 2] = [64 << 10, 256 << 10];

/// Longest time for a peer to take what it is sent; its lease ends earlier.
const STALL: Duration = Duration::from_secs(60);

/// Patience with peers that may be gone without a word.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// How often a peer is pinged.
    pub interval: Duration,
    /// How long it may take to answer.
    pub timeout: Duration,
}

impl KeepAlive {
    /// Pings so often, and half of that to answer.
    pub fn every(interval: Duration) -> Self {
        Self { interval, timeout: interval / 2 }
    }

    /// Peers that answer pings are never silent for so long.
    pub fn patience(self) -> Patience {
        Patience { silence: Some(2 * self.interval + self.timeout), stall: STALL }
    }
}

/// What became of requests.
#[derive(Debug, Default)]
pub struct FeedCounters {
    /// Streams opened.
    pub opened: Counter,
    /// Requests whose frame is no subscription to a pool of this relay.
    pub refused: Counter,
    /// Streams opened too early: the pool's sources have not told enough.
    pub unready: Counter,
}

/// The service.
#[derive(Clone, Debug)]
pub struct FeedService {
    /// The pools that it serves.
    pub pools: Arc<Vec<PoolHandle>>,
    /// What became of requests.
    pub counters: Arc<FeedCounters>,
}

/// Serves subscribers until the process ends.
///
/// # Errors
/// Those of the listener.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<Renewed<Arc<ServerConfig>>>,
    service: FeedService,
    accepts: Arc<AcceptCounters>,
    keep_alive: KeepAlive,
) -> HostResult<()> {
    let service =
        proto::feed_server::FeedServer::new(service).max_decoding_message_size(MAX_REQUEST);
    server(keep_alive)
        .add_service(service)
        .serve_with_incoming(accept_tls(listener, tls, CONNECTIONS, keep_alive.patience(), accepts))
        .await?;
    Ok(())
}

/// A server with the limits that all services of a relay share.
pub fn server(keep_alive: KeepAlive) -> Server {
    Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(WINDOWS[0])
        .initial_connection_window_size(WINDOWS[1])
        .timeout(REQUEST_TIME)
        .http2_keepalive_interval(Some(keep_alive.interval))
        .http2_keepalive_timeout(Some(keep_alive.timeout))
}

#[tonic::async_trait]
impl proto::feed_server::Feed for FeedService {
    type OpenStream = FrameStream;

    async fn open(
        &self,
        request: Request<proto::OpenRequest>,
    ) -> Result<Response<FrameStream>, Status> {
        let frame = request.into_inner().frame;
        let subscribe = read(&frame).inspect_err(|_| self.counters.refused.up())?;
        let pool = subscribe.expected.pool;
        // A pool that is not here: any producer refuses it in the words of the protocol.
        let handle = self.pools.iter().find(|handle| handle.plan.id == pool);
        let handle = handle.or(self.pools.first()).ok_or(Status::unavailable("no pools"))?;
        let Some(frames) = handle.open_ready(frame).await else {
            self.counters.unready.up();
            return Err(Status::unavailable("the pool's sources are not ready"));
        };
        self.counters.opened.up();
        Ok(Response::new(FrameStream { frames, wake: handle.wake.clone() }))
    }

    async fn list_pools(
        &self,
        _: Request<proto::ListPoolsRequest>,
    ) -> Result<Response<proto::ListPoolsReply>, Status> {
        let mut pools = Vec::new();
        for handle in self.pools.iter() {
            let Some(report) = handle.report().await else { continue };
            let format = report.identity.format;
            pools.push(proto::PoolInfo {
                name: handle.plan.name.clone(),
                dc_id: report.identity.pool.dc.get(),
                incarnation: report.identity.incarnation.get(),
                layout_generation: report.identity.layout.get(),
                bucket_count: format.bucket_count(),
                seed: format.seed(),
                power_of_two: format.indexing() == Indexing::PowerOfTwo,
                sequence: report.sequence.get(),
            });
        }
        Ok(Response::new(proto::ListPoolsReply { pools }))
    }
}

fn read(frame: &[u8]) -> Result<Subscribe, Status> {
    match decode(frame, &Limits::default()) {
        Ok(Message::Subscribe(subscribe)) => Ok(subscribe),
        Ok(_) => Err(Status::invalid_argument("not a Subscribe frame")),
        Err(error) => Err(Status::invalid_argument(error.to_string())),
    }
}

/// The frames of one lease. Its end tells the pool that the subscriber is gone.
#[derive(Debug)]
pub struct FrameStream {
    frames: mpsc::Receiver<Bytes>,
    wake: Arc<Notify>,
}

impl Stream for FrameStream {
    type Item = Result<proto::FeedFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frame = std::task::ready!(self.frames.poll_recv(cx));
        // There is room for another one.
        self.wake.notify_one();
        Poll::Ready(frame.map(|frame| Ok(proto::FeedFrame { frame })))
    }
}

impl Drop for FrameStream {
    fn drop(&mut self) {
        self.frames.close();
        self.wake.notify_one();
    }
}

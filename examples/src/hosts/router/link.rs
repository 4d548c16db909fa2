//! How frames come from a relay: a Subscribe frame goes out, a stream of frames comes back.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ckf_protocol::{Kind, Limits, peek_header};
use futures::{Stream, TryStreamExt};
use tonic::transport::Channel;

use crate::hosts::HostResult;
use crate::hosts::dynamo::client::DynamoLink;
use crate::hosts::nats::bind::NatsLink;
use crate::hosts::proto::feed as proto;
use crate::hosts::proto::feed::feed_client::FeedClient;
use crate::hosts::tls::{Renewed, TlsCounters, TlsFiles};

/// Longest time for a connection and the head of an answer.
const OPEN: Duration = Duration::from_secs(3);
/// Bytes of one message at most.
const MAX_MESSAGE: usize = 2 << 20;

/// Frames of one lease. Its end is the end of the lease.
pub type Frames = Pin<Box<dyn Stream<Item = HostResult<Bytes>> + Send>>;

/// A way to one relay.
#[derive(Clone, Debug)]
pub enum Link {
    /// Over gRPC: one stream per lease.
    Grpc(Arc<Renewed<FeedClient<Channel>>>),
    /// Over gRPC, to a relay that speaks Dynamo's contract.
    Dynamo(DynamoLink),
    /// Through a NATS server: the frames of one lease serve all routers.
    Nats(NatsLink),
}

impl Link {
    /// A gRPC link. Connects when it is first used, and again whenever it has to.
    ///
    /// # Errors
    /// An address or files that make no sense.
    pub fn grpc(
        url: &str,
        tls: &TlsFiles,
        keep_alive: Duration,
        counters: Arc<TlsCounters>,
    ) -> HostResult<Self> {
        let url = url.to_owned();
        let client = move |tls: &TlsFiles| {
            let client = FeedClient::new(channel(&url, Some(tls), keep_alive)?);
            Ok(client.max_decoding_message_size(MAX_MESSAGE))
        };
        Ok(Self::Grpc(Renewed::new(tls, counters, client)?))
    }

    /// Sends a Subscribe frame. Dropping the stream gives the lease back.
    ///
    /// # Errors
    /// No connection, or no answer in time.
    pub async fn open(&self, subscribe: Vec<u8>) -> HostResult<Frames> {
        match self {
            Self::Grpc(client) => {
                let request = proto::OpenRequest { frame: subscribe.into() };
                let mut client = client.get();
                let answer = tokio::time::timeout(OPEN, client.open(request)).await??;
                Ok(Box::pin(
                    answer.into_inner().map_ok(|message| message.frame).map_err(Into::into),
                ))
            }
            Self::Dynamo(link) => link.open(&subscribe).await,
            Self::Nats(link) => link.open(subscribe).await,
        }
    }
}

/// Whether a frame of a session asks for a lease; the others give one back.
pub fn is_request(frame: &[u8]) -> bool {
    let header = peek_header(frame, &Limits::default());
    header.and_then(|header| header.kind()) == Ok(Kind::Subscribe)
}

/// Connections to one relay, all alike. Where they prove themselves by files, new files are taken up.
#[derive(Clone, Debug)]
pub enum Channels {
    /// Plain text.
    Plain(Channel),
    /// With certificates.
    Tls(Arc<Renewed<Channel>>),
}

impl Channels {
    /// Of the kind that [`channel`] makes.
    ///
    /// # Errors
    /// An address or files that make no sense.
    pub fn new(
        url: &str,
        tls: Option<&TlsFiles>,
        keep_alive: Duration,
        counters: Arc<TlsCounters>,
    ) -> HostResult<Self> {
        let Some(files) = tls else { return channel(url, None, keep_alive).map(Self::Plain) };
        let url = url.to_owned();
        let make = move |tls: &TlsFiles| channel(&url, Some(tls), keep_alive);
        Ok(Self::Tls(Renewed::new(files, counters, make)?))
    }

    /// The one for the next question.
    pub fn get(&self) -> Channel {
        match self {
            Self::Plain(channel) => channel.clone(),
            Self::Tls(channel) => channel.get(),
        }
    }
}

/// A connection to a relay that is made when it is needed, pinged while silent, and given up when
/// nobody answers.
///
/// # Errors
/// An address or files that make no sense.
pub fn channel(url: &str, tls: Option<&TlsFiles>, keep_alive: Duration) -> HostResult<Channel> {
    let mut endpoint = Channel::from_shared(url.to_owned())?;
    if let Some(tls) = tls {
        let host = endpoint.uri().host().ok_or("a relay needs a host")?;
        let host = host.trim_matches(['[', ']']).to_owned();
        endpoint = endpoint.tls_config(tls.client(&host)?)?;
    }
    Ok(endpoint
        .connect_timeout(OPEN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .keep_alive_while_idle(true)
        .connect_lazy())
}

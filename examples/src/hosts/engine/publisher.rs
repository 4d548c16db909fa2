//! The two sockets of an engine's event publisher: PUB for live batches, ROUTER for replay.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_stream::StreamExt;

use crate::hosts::listen::{Guarded, Patience, accept_plain};
use crate::hosts::source::zmtp::{Connection, Role, ZmtpError};
use crate::hosts::{HostResult, lock};

/// Batches kept for replay.
const BUFFER_STEPS: usize = 10_000;
/// Batches under way to one subscriber; who is slower misses some, as with any PUB socket.
const WAITING: usize = 1024;
/// Connections of one socket at one time.
const CONNECTIONS: usize = 64;
/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Silence is normal here; who takes nothing for so long is cut off.
const PATIENCE: Patience = Patience { silence: None, stall: Duration::from_secs(30) };
/// Topics of one subscriber at most.
const TOPICS: usize = 16;

/// A batch and its number.
type Batch = (u64, Bytes);
/// The batches kept, oldest first.
type Buffer = Arc<Mutex<VecDeque<Batch>>>;
type Peer = Connection<Guarded<TcpStream>>;

/// Numbers batches and publishes them in order.
#[derive(Debug)]
pub struct Publisher {
    next: u64,
    buffer: Buffer,
    live: broadcast::Sender<Batch>,
}

impl Publisher {
    /// Binds the sockets; as with real engines, the one for replay is optional. Numbering starts at 0,
    /// as with every start of an engine.
    ///
    /// # Errors
    /// Addresses that cannot be bound.
    pub async fn bind(
        events: SocketAddr,
        replay: Option<SocketAddr>,
        topic: String,
    ) -> HostResult<Self> {
        let topic = Bytes::from(topic);
        let (live, _) = broadcast::channel(WAITING);
        let buffer = Buffer::default();
        serve(events, Role::Pub, {
            let (live, topic) = (live.clone(), topic.clone());
            move |peer| publish(peer, live.subscribe(), topic.clone())
        })
        .await?;
        if let Some(replay) = replay {
            let buffer = buffer.clone();
            serve(replay, Role::Router, move |peer| answer(peer, buffer.clone(), topic.clone()))
                .await?;
        }
        Ok(Self { next: 0, buffer, live })
    }

    /// Publishes one batch and keeps it for replay.
    pub fn publish(&mut self, payload: Vec<u8>) {
        let batch = (self.next, Bytes::from(payload));
        self.next += 1;
        let mut buffer = lock(&self.buffer);
        if buffer.len() == BUFFER_STEPS {
            buffer.pop_front();
        }
        buffer.push_back(batch.clone());
        // An error says that nobody listens.
        let _ = self.live.send(batch);
    }

    /// Batches published.
    pub fn published(&self) -> u64 {
        self.next
    }
}

/// Serves each connection to a socket in a task of its own.
async fn serve<F>(
    address: SocketAddr,
    role: Role,
    each: impl Fn(Peer) -> F + Send + Sync + 'static,
) -> HostResult<()>
where
    F: Future<Output = Result<(), ZmtpError>> + Send,
{
    let listener = TcpListener::bind(address).await?;
    let mut accepted = accept_plain(listener, CONNECTIONS, PATIENCE, Arc::default());
    let each = Arc::new(each);
    tokio::spawn(async move {
        while let Some(Ok(stream)) = accepted.next().await {
            let each = each.clone();
            tokio::spawn(async move {
                let greeted = tokio::time::timeout(HANDSHAKE, Connection::accept(stream, role));
                if let Ok(Ok(peer)) = greeted.await {
                    // Whatever ended it: the subscriber comes again.
                    let _ = each(peer).await;
                }
            });
        }
    });
    Ok(())
}

/// Sends batches to one subscriber, once it wants their topic.
async fn publish(
    mut peer: Peer,
    mut live: broadcast::Receiver<Batch>,
    topic: Bytes,
) -> Result<(), ZmtpError> {
    let mut topics: Vec<Bytes> = Vec::new();
    loop {
        tokio::select! {
            message = peer.receive() => match &message?[..] {
                [wish] if wish.starts_with(b"\x01") && topics.len() < TOPICS => {
                    topics.push(wish.slice(1..));
                }
                [wish] if wish.starts_with(b"\0") => topics.retain(|topic| topic != &wish[1..]),
                _ => return Err(ZmtpError::Protocol("no subscription")),
            },
            batch = live.recv() => match batch {
                Ok((number, payload)) => {
                    if topics.iter().any(|wanted| topic.starts_with(wanted)) {
                        peer.send(&[&topic, &number.to_be_bytes(), &payload]).await?;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            },
        }
    }
}

/// Answers one peer's questions for past batches; what is no question is passed over.
async fn answer(mut peer: Peer, buffer: Buffer, topic: Bytes) -> Result<(), ZmtpError> {
    loop {
        let question = peer.receive().await?;
        let [_, start] = &question[..] else { continue };
        let Ok(start) = start.as_ref().try_into().map(u64::from_be_bytes) else { continue };
        let batches: Vec<_> = lock(&buffer).iter().filter(|(n, _)| *n >= start).cloned().collect();
        for (number, payload) in batches {
            peer.send(&[b"", &topic, &number.to_be_bytes(), &payload]).await?;
        }
        peer.send(&[b"", b"", &u64::MAX.to_be_bytes(), b""]).await?;
    }
}

//! The two sockets of an engine's event publisher: PUB for live batches, ROUTER for replay.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use crate::hosts::HostResult;
use crate::hosts::lock;

/// Batches kept for replay.
const BUFFER_STEPS: usize = 10_000;

/// The batches kept, oldest first.
type Buffer = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

/// Numbers batches and publishes them in order.
#[derive(Debug)]
pub struct Publisher {
    next: u64,
    buffer: Buffer,
    live: mpsc::UnboundedSender<(u64, Bytes)>,
}

impl Publisher {
    /// Binds both sockets. Numbering starts at 0, as with every start of an engine.
    ///
    /// # Errors
    /// Addresses that cannot be bound.
    pub async fn bind(events: SocketAddr, replay: SocketAddr, topic: String) -> HostResult<Self> {
        let mut publisher = PubSocket::new();
        publisher.bind(&format!("tcp://{events}")).await?;
        let mut router = RouterSocket::new();
        router.bind(&format!("tcp://{replay}")).await?;
        let (live, mut batches) = mpsc::unbounded_channel();
        let buffer = Buffer::default();
        let topic = Bytes::from(topic);
        tokio::spawn({
            let topic = topic.clone();
            async move {
                while let Some((number, payload)) = batches.recv().await {
                    let _ =
                        publisher.send(frames([topic.clone(), sequence(number), payload])).await;
                }
            }
        });
        tokio::spawn(answer(router, buffer.clone(), topic));
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
        let _ = self.live.send(batch);
    }

    /// Batches published.
    pub fn published(&self) -> u64 {
        self.next
    }
}

/// Serves questions for past batches.
async fn answer(mut router: RouterSocket, buffer: Buffer, topic: Bytes) {
    loop {
        let Ok(question) = router.recv().await else { continue };
        let (Some(peer), Some(start), 3) = (question.get(0), question.get(2), question.len())
        else {
            continue;
        };
        let Ok(start) = start.as_ref().try_into().map(u64::from_be_bytes) else { continue };
        let peer = peer.clone();
        let batches: Vec<_> = lock(&buffer).iter().filter(|(n, _)| *n >= start).cloned().collect();
        let end = [peer.clone(), Bytes::new(), Bytes::new(), sequence(u64::MAX), Bytes::new()];
        for (number, payload) in batches {
            let batch = [peer.clone(), Bytes::new(), topic.clone(), sequence(number), payload];
            if router.send(frames(batch)).await.is_err() {
                break;
            }
        }
        let _ = router.send(frames(end)).await;
    }
}

fn sequence(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn frames<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    ZmqMessage::try_from(Vec::from(frames)).expect("a message of at least one frame")
}

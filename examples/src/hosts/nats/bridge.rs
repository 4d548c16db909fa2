//! The relay's side: publishes a pool's frames, and starts a new snapshot round when somebody joins.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Subject};
use bytes::Bytes;
use ckf_protocol::{
    ConsumerId, Epoch, Kind, Lane, Limits, Message, ProducerExpectation, Reject, RejectReason,
    Sequence, Subscribe, VersionRange, decode, peek_header,
};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{ERROR, ERROR_CODE, NatsCounters, feed_subject, join_subject};
use crate::hosts::relay::pool::{PoolHandle, next_frame};
use crate::hosts::{HostResult, draw};
use crate::log_about;

/// Shortest time from the end of one round to the start of the next: who joins meanwhile waits for
/// the others.
const PAUSE: Duration = Duration::from_millis(200);

/// Pause after an error.
const RESTART: Duration = Duration::from_secs(1);

/// Why a message is no request.
struct NoRequest(String);

/// One pool's publisher.
pub struct Bridge {
    client: Client,
    pool: PoolHandle,
    counters: Arc<NatsCounters>,
    consumer: ConsumerId,
    rounds: u64,
    /// The lease whose frames go out now.
    live: Option<mpsc::Receiver<Bytes>>,
    /// The last batch that went out whole.
    position: Sequence,
    /// A snapshot is under way.
    installing: bool,
    /// Somebody waits for a snapshot.
    wanted: bool,
    /// When the next round may start.
    rest: Instant,
}

impl Bridge {
    /// For one pool. Nothing happens, and no lease is taken, until somebody joins.
    fn new(client: Client, pool: PoolHandle, counters: Arc<NatsCounters>) -> Self {
        Self {
            client,
            pool,
            counters,
            consumer: ConsumerId::new(draw()),
            rounds: 0,
            live: None,
            position: Sequence::ZERO,
            installing: false,
            wanted: false,
            rest: Instant::now(),
        }
    }

    /// Publishes until the pool ends. After an error, who follows needs a new snapshot.
    pub async fn keep(client: Client, pool: PoolHandle, counters: Arc<NatsCounters>) {
        while let Err(error) = Self::new(client.clone(), pool.clone(), counters.clone()).run().await
        {
            counters.errors.up();
            log_about!(format_args!("pool {}: NATS", pool.plan.name), "{error}");
            if pool.input.is_closed() {
                return;
            }
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn run(mut self) -> HostResult<()> {
        let mut joins = self.client.subscribe(join_subject(&self.pool.plan.id)).await?;
        loop {
            let may_start = self.wanted && !self.installing;
            tokio::select! {
                join = joins.next() => {
                    let Some(join) = join else { return Ok(()) };
                    let answer = self.joined(&join.payload);
                    if let Some(reply) = join.reply {
                        self.answer(reply, answer).await?;
                    }
                }
                frame = next_frame(&mut self.live) => match frame {
                    Some(frame) => self.publish(frame).await?,
                    // Who followed this lease needs another one to go on.
                    None => {
                        self.live = None;
                        self.installing = false;
                        self.wanted = true;
                        self.rest = Instant::now() + PAUSE;
                    }
                },
                () = tokio::time::sleep_until(self.rest), if may_start => self.start().await?,
            }
        }
    }

    /// Takes note of a request: an empty answer, or the frame that refuses it. What is no request
    /// at all is counted.
    fn joined(&mut self, frame: &[u8]) -> Result<Bytes, NoRequest> {
        let subscribe = match decode(frame, &Limits::default()) {
            Ok(Message::Subscribe(subscribe)) => subscribe,
            Ok(_) => return Err(self.garbage("not a Subscribe frame".to_owned())),
            Err(error) => return Err(self.garbage(error.to_string())),
        };
        let plan = &self.pool.plan;
        let reason = if subscribe.expected.pool != plan.id {
            RejectReason::UnknownPool
        } else if subscribe.expected.format != plan.format {
            RejectReason::FormatMismatch { theirs: plan.format }
        } else {
            self.wanted = true;
            return Ok(Bytes::new());
        };
        Ok(Reject::of(&subscribe, reason).to_frame().to_bytes().into())
    }

    fn garbage(&self, why: String) -> NoRequest {
        self.counters.garbage_requests.up();
        NoRequest(why)
    }

    async fn answer(&self, reply: Subject, answer: Result<Bytes, NoRequest>) -> HostResult<()> {
        match answer {
            Ok(frame) => self.client.publish(reply, frame).await?,
            Err(NoRequest(why)) => {
                let mut headers = HeaderMap::new();
                headers.insert(ERROR_CODE, "400");
                headers.insert(ERROR, why.as_str());
                self.client.publish_with_headers(reply, headers, Bytes::new()).await?;
            }
        }
        Ok(())
    }

    /// A new lease beside the present one. The two are spliced where the new one begins, so that
    /// who follows misses nothing and who joins gets no batch before its snapshot.
    async fn start(&mut self) -> HostResult<()> {
        self.rounds += 1;
        self.rest = Instant::now() + PAUSE;
        let subscribe = Subscribe {
            consumer: self.consumer,
            // Two lanes in turn: a lease of the same one would end the present lease at once.
            lane: Lane::new((self.rounds % 2) as u8)?,
            epoch: Epoch::new(self.rounds),
            versions: VersionRange::SUPPORTED,
            expected: ProducerExpectation {
                pool: self.pool.plan.id,
                format: self.pool.plan.format,
            },
        };
        let frame = subscribe.to_frame().to_bytes().into();
        let Some(mut fresh) = self.pool.open_ready(frame).await else { return Ok(()) };
        let Some(first) = self.receive(&mut fresh).await else { return Ok(()) };
        let Ok(Message::SnapshotBegin(begin)) = decode(&first, &Limits::default()) else {
            return Ok(());
        };
        while self.position < begin.sequence {
            let Some(frame) = next_of(self.live.as_mut()).await else { break };
            self.pool.wake.notify_one();
            self.publish(frame).await?;
        }
        self.wanted = false;
        self.installing = true;
        self.position = begin.sequence;
        self.live = Some(fresh);
        self.publish(first).await
    }

    async fn receive(&self, frames: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
        let frame = frames.recv().await;
        self.pool.wake.notify_one();
        frame
    }

    async fn publish(&mut self, frame: Bytes) -> HostResult<()> {
        self.pool.wake.notify_one();
        match peek_header(&frame, &Limits::default()).and_then(|header| header.kind()) {
            Ok(Kind::Delta) => {
                if let Ok(Message::Delta { delta, .. }) = decode(&frame, &Limits::default())
                    && delta.last()
                {
                    self.position = delta.sequence();
                }
            }
            Ok(Kind::SnapshotEnd) => {
                self.installing = false;
                self.rest = Instant::now() + PAUSE;
            }
            _ => {}
        }
        Ok(self.client.publish(feed_subject(&self.pool.plan.id), frame).await?)
    }
}

/// The next frame of a lease that there may not be.
async fn next_of(live: Option<&mut mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    live?.recv().await
}

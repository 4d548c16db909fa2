//! One pool of a relay that speaks Dynamo's contract: follows the pool once, for all subscribers.

use std::time::Duration;

use bytes::Bytes;
use ckf_protocol::Instant;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use super::export::{Exporter, Step};
use super::reason::{Reason, refuse};
use super::to_identity;
use crate::hosts::clock::Clock;
use crate::hosts::proto::dynamo as proto;
use crate::hosts::relay::pool::{PoolHandle, next_frame};
use crate::hosts::router::link::is_request;

/// Updates under way to one subscriber; one more ends its stream.
const QUEUE: usize = 16;
/// Subscribers of one pool at one time.
const SUBSCRIBERS: usize = 64;
/// Of these, how many may have a whole snapshot under way.
const STARTING: usize = 4;
/// Silence after which subscribers hear a heartbeat.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

/// An update, or the reason of the end.
pub(super) type Update = Result<proto::FilterUpdate, Status>;
/// The producer that a subscriber expects, and where its updates are to be had.
type Join = (proto::ProducerIdentity, oneshot::Sender<Result<mpsc::Receiver<Update>, Status>>);

/// How others reach a pool's task, and who publishes now.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    joins: mpsc::Sender<Join>,
    pub(super) producer: watch::Receiver<Option<proto::ProducerIdentity>>,
    pub(super) handle: PoolHandle,
}

impl Hub {
    /// Starts the task.
    pub(super) fn start(handle: PoolHandle, relay: proto::RelayIdentity, clock: Clock) -> Self {
        let (joins, joining) = mpsc::channel(16);
        let (known, producer) = watch::channel(None);
        let plan = &handle.plan;
        let exporter = Exporter::new(plan.id, plan.format, relay, clock.now());
        let task =
            HubTask { exporter, subscribers: Vec::new(), known, handle: handle.clone(), clock };
        tokio::spawn(task.run(joining));
        Self { joins, producer, handle }
    }

    /// A stream of the producer that runs now, if it is the expected one.
    pub(super) async fn join(
        &self,
        expected: proto::ProducerIdentity,
    ) -> Result<mpsc::Receiver<Update>, Status> {
        let (answer, updates) = oneshot::channel();
        let gone = || refuse(Reason::PublicationUnavailable);
        self.joins.send((expected, answer)).await.map_err(|_| gone())?;
        updates.await.map_err(|_| gone())?
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
        let mut frames: Option<mpsc::Receiver<Bytes>> = None;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            let now = self.clock.now();
            while let Some(frame) = self.exporter.session().poll_transmit() {
                // A request opens a link in place of the former one; anything else ends that one.
                frames = None;
                if is_request(&frame) {
                    frames = self.handle.open_ready(frame.into()).await;
                    if frames.is_none() {
                        self.exporter.session().handle_disconnected(now);
                    }
                }
            }
            while self.exporter.session().poll_event().is_some() {}
            let timeout = self.exporter.session().poll_timeout().map(|(at, _)| at);
            tokio::select! {
                frame = next_frame(&mut frames) => match frame {
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
        self.known.send_if_modified(|known| known.take().is_some());
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
        let starting = |subscriber: &&mpsc::Sender<Update>| {
            subscriber.max_capacity() - subscriber.capacity() > QUEUE
        };
        if self.subscribers.iter().filter(starting).count() >= STARTING {
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

//! One pool of a relay that speaks Dynamo's contract: follows the pool once, for all subscribers.

use std::time::Duration;

use bytes::Bytes;
use ckf_protocol::{Instant, Millis};
use futures::{Stream, stream};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use super::export::{Exporter, Step};
use super::reason::Reason;
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
/// How often snapshots are looked after.
const LOOK: Duration = Duration::from_millis(500);

/// What an operator decides about streams.
#[derive(Clone, Copy, Debug)]
pub struct HubLimits {
    /// Silence after which subscribers hear a heartbeat.
    pub heartbeat: Duration,
    /// Longest time for each part of a snapshot to be taken.
    pub snapshot_progress: Millis,
}

impl Default for HubLimits {
    /// 10 s and 60 s, as in release 1.6.1.
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), snapshot_progress: Millis::from_secs(60) }
    }
}

/// The producer that a subscriber expects, and where its stream is to be had.
type Join = (proto::ProducerIdentity, oneshot::Sender<Result<Joined, Reason>>);

/// A subscriber's end of its stream.
#[derive(Debug)]
pub(super) struct Joined {
    updates: mpsc::Receiver<proto::FilterUpdate>,
    end: oneshot::Receiver<Reason>,
}

impl Joined {
    /// The updates, and the reason of the end as soon as there is one: what waits then counts no
    /// more.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<proto::FilterUpdate, Status>> {
        stream::unfold(Some(self), async |joined| {
            let mut joined = joined?;
            tokio::select! {
                biased;
                reason = &mut joined.end => {
                    let reason = reason.unwrap_or(Reason::PublicationUnavailable);
                    Some((Err(reason.status()), None))
                }
                Some(update) = joined.updates.recv() => Some((Ok(update), Some(joined))),
            }
        })
    }
}

/// The pool's end of a subscriber's stream.
struct Subscriber {
    updates: mpsc::Sender<proto::FilterUpdate>,
    end: oneshot::Sender<Reason>,
    /// Updates that the snapshot has, that were sent in all, and that were taken; since when.
    snapshot: usize,
    sent: usize,
    taken: usize,
    since: Instant,
}

impl Subscriber {
    /// Sends one more, if there is room for it.
    fn send(&mut self, update: proto::FilterUpdate) -> bool {
        let sent = self.updates.try_send(update).is_ok();
        self.sent += usize::from(sent);
        sent
    }

    /// Whether a part of the snapshot still waits; takes note of progress.
    fn is_starting(&mut self, now: Instant) -> bool {
        let waiting = self.updates.max_capacity() - self.updates.capacity();
        let taken = self.sent - waiting;
        if taken > self.taken {
            (self.taken, self.since) = (taken, now);
        }
        taken < self.snapshot
    }
}

/// How others reach a pool's task, and who publishes now.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    joins: mpsc::Sender<Join>,
    pub(super) producer: watch::Receiver<Option<proto::ProducerIdentity>>,
    pub(super) handle: PoolHandle,
}

impl Hub {
    /// Starts the task.
    pub(super) fn start(
        handle: PoolHandle,
        relay: proto::RelayIdentity,
        clock: Clock,
        limits: HubLimits,
    ) -> Self {
        let (joins, joining) = mpsc::channel(16);
        let (known, producer) = watch::channel(None);
        let plan = &handle.plan;
        let exporter = Exporter::new(plan.id, plan.format, relay, clock.now());
        let task = HubTask {
            exporter,
            subscribers: Vec::new(),
            known,
            handle: handle.clone(),
            clock,
            limits,
        };
        tokio::spawn(task.run(joining));
        Self { joins, producer, handle }
    }

    /// A stream of the producer that runs now, if it is the expected one.
    pub(super) async fn join(&self, expected: proto::ProducerIdentity) -> Result<Joined, Reason> {
        let (answer, joined) = oneshot::channel();
        let gone = Reason::PublicationUnavailable;
        self.joins.send((expected, answer)).await.map_err(|_| gone)?;
        joined.await.map_err(|_| gone)?
    }
}

struct HubTask {
    exporter: Exporter,
    subscribers: Vec<Subscriber>,
    known: watch::Sender<Option<proto::ProducerIdentity>>,
    handle: PoolHandle,
    clock: Clock,
    limits: HubLimits,
}

impl HubTask {
    async fn run(mut self, mut joining: mpsc::Receiver<Join>) {
        let mut frames: Option<mpsc::Receiver<Bytes>> = None;
        let mut heartbeat = tokio::time::interval(self.limits.heartbeat);
        let mut looks = tokio::time::interval(LOOK);
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
                _ = looks.tick() => self.look(),
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
        self.end_some(|subscriber| {
            (!subscriber.send(update.clone())).then_some(Reason::SubscriberLagged)
        });
    }

    /// Ends the streams of those that do not take their snapshots.
    fn look(&mut self) {
        let (now, progress) = (self.clock.now(), self.limits.snapshot_progress);
        self.end_some(|subscriber| {
            let stalls =
                subscriber.is_starting(now) && now.saturating_since(subscriber.since) >= progress;
            stalls.then_some(Reason::SnapshotProgressTimeout)
        });
    }

    /// There is nothing to read any more: all streams end.
    fn over(&mut self) {
        self.known.send_if_modified(|known| known.take().is_some());
        self.end_some(|_| Some(Reason::PublicationUnavailable));
    }

    /// Ends the streams for which there is a reason, and forgets those that are closed.
    fn end_some(&mut self, mut judge: impl FnMut(&mut Subscriber) -> Option<Reason>) {
        for mut subscriber in std::mem::take(&mut self.subscribers) {
            if subscriber.updates.is_closed() {
                continue;
            }
            match judge(&mut subscriber) {
                Some(reason) => drop(subscriber.end.send(reason)),
                None => self.subscribers.push(subscriber),
            }
        }
    }

    fn join(&mut self, expected: &proto::ProducerIdentity) -> Result<Joined, Reason> {
        self.end_some(|_| None);
        match self.known.borrow().as_ref() {
            None => return Err(Reason::PublicationUnavailable),
            Some(known) if known != expected => return Err(Reason::ProducerChanged),
            Some(_) => {}
        }
        let now = self.clock.now();
        let starting = self.subscribers.iter_mut().filter_map(|s| s.is_starting(now).then_some(()));
        if starting.count() >= STARTING || self.subscribers.len() >= SUBSCRIBERS {
            return Err(Reason::ResourceLimit);
        }
        let snapshot = self.exporter.snapshot().ok_or(Reason::PublicationUnavailable)?;
        let (updates, receiver) = mpsc::channel(QUEUE + snapshot.len());
        let (end, ended) = oneshot::channel();
        let mut subscriber =
            Subscriber { updates, end, snapshot: snapshot.len(), sent: 0, taken: 0, since: now };
        for update in snapshot {
            subscriber.send(update);
        }
        self.subscribers.push(subscriber);
        Ok(Joined { updates: receiver, end: ended })
    }
}

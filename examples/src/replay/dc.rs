//! One data center: its workers' event streams, stage 1, the producer, and the links between.

use ckf_core::{AllocationError, Format};
use ckf_producer::source::{
    Direct, PoolSources, PoolSourcesConfig, ReadyRule, SourceConfig, SourceRequest, StreamState,
};
use ckf_producer::{HashSeeds, Member, PoolConfig, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{DcId, Incarnation, Instant, Kind, Millis, PoolId};

use super::cache::{LruCache, Served};
use super::worker::{Content, EventLog, FromWorker};
use crate::link::{Faults, Link};
use crate::rng::Rng;

/// What a DC is made of.
#[derive(Debug, Clone, Copy)]
pub struct DcConfig {
    /// Its pool.
    pub pool: PoolId,
    /// The format of its filter, the same in all DCs.
    pub format: Format,
    /// Its workers.
    pub workers: u32,
    /// Commands between two batches, at least 1.
    pub publish_every: u64,
    /// Faults of the links inside the DC.
    pub faults: Faults,
    /// Seed of the links and of the exact sets.
    pub seed: u64,
}

/// The two directions between a DC's producer and the consumer's lane.
#[derive(Debug)]
pub struct Wire {
    /// Frames of the producer.
    pub to_consumer: Link<Vec<u8>>,
    /// Frames of the lane session.
    pub to_producer: Link<Vec<u8>>,
}

impl Wire {
    /// A connection with nothing under way.
    pub fn new(faults: Faults, seed: u64, dc: DcId) -> Self {
        let dc = dc.get();
        Self {
            to_consumer: Link::new(faults, Rng::new(seed, dc << 8 | 1)),
            to_producer: Link::new(faults, Rng::new(seed, dc << 8 | 2)),
        }
    }

    /// Loses what is under way, as a broken connection does.
    pub fn cut(&mut self) {
        self.to_consumer.cut();
        self.to_producer.cut();
    }

    /// Ends the faults.
    pub fn heal(&mut self) {
        self.to_consumer.heal();
        self.to_producer.heal();
    }

    /// When the next frame arrives at either end.
    pub fn next_due(&self) -> Option<u64> {
        self.to_consumer.next_due().into_iter().chain(self.to_producer.next_due()).min()
    }
}

/// What a DC has done since the start, over all lives of its producer.
#[derive(Debug, Clone, Copy, Default)]
pub struct DcCounts {
    /// Events published by workers.
    pub events: u64,
    /// Commands that stage 1 gave to the producer.
    pub commands: u64,
    /// Batches published.
    pub batches: u64,
    /// Images in them.
    pub images: u64,
    /// Bytes of deltas and of snapshots sent.
    pub wire: [u64; 2],
}

/// Milliseconds between two heartbeats of a worker.
const HEARTBEAT: u64 = 1_000;

/// One data center.
#[derive(Debug)]
pub struct Dc {
    config: DcConfig,
    workers: Vec<EventLog>,
    /// From the workers to stage 1, and back.
    events: Link<FromWorker>,
    questions: Link<SourceRequest>,
    sources: PoolSources<Direct>,
    producer: Producer,
    incarnation: Incarnation,
    subscriber: SubscriberId,
    next_heartbeat: u64,
    unpublished: u64,
    counts: DcCounts,
}

impl Dc {
    /// A DC at its start: empty caches, an empty filter.
    ///
    /// # Errors
    /// [`AllocationError`] when there is no memory for the filter.
    pub fn new(config: DcConfig) -> Result<Self, AllocationError> {
        let dc = config.pool.dc.get();
        let rng = |stream| Rng::new(config.seed, dc << 8 | stream);
        let member = |worker| Member::new(u64::from(worker), 0);
        let incarnation = Incarnation::new(1);
        let mut dc = Self {
            config,
            workers: (0..config.workers).map(|worker| EventLog::new(member(worker))).collect(),
            events: Link::new(config.faults, rng(3)),
            questions: Link::new(config.faults, rng(4)),
            sources: sources(&config, 0),
            producer: producer(&config, incarnation)?,
            incarnation,
            subscriber: SubscriberId::new(0),
            next_heartbeat: HEARTBEAT,
            unpublished: 0,
            counts: DcCounts::default(),
        };
        dc.discover(0);
        Ok(dc)
    }

    /// The producer, for looking.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// What happened so far.
    pub fn counts(&self) -> DcCounts {
        let images = self.counts.images + self.producer.pool().stats().images;
        DcCounts { images, ..self.counts }
    }

    /// Bytes of deltas and of snapshots sent so far.
    pub fn wire_bytes(&self) -> [u64; 2] {
        self.counts.wire
    }

    /// Whether stage 1 knows exactly what every worker holds.
    pub fn is_live(&self) -> bool {
        let streams = self.workers.iter().map(|worker| self.sources.stream(worker.member()));
        streams.flatten().all(|stream| stream.state() == StreamState::Live)
    }

    /// A worker served a prompt: publishes what that did to its cache.
    pub fn served(&mut self, worker: usize, served: Served, now: u64) {
        if let Some(event) = self.workers[worker].event(served) {
            self.counts.events += 1;
            self.events.send(event, now);
        }
    }

    /// A worker comes back with an empty cache; the DC's discovery tells stage 1.
    pub fn restart_worker(&mut self, worker: usize, now: u64) {
        self.workers[worker].restart();
        self.announce(worker, now);
    }

    /// The producer's process starts again: a new incarnation that knows nothing and asks its
    /// sources. Connections break.
    ///
    /// # Errors
    /// [`AllocationError`] when there is no memory for the filter.
    pub fn restart_producer(&mut self, wire: &mut Wire, now: u64) -> Result<(), AllocationError> {
        let incarnation = Incarnation::new(self.incarnation.get() + 1);
        let fresh = producer(&self.config, incarnation)?;
        self.counts.images += self.producer.pool().stats().images;
        self.producer = fresh;
        self.incarnation = incarnation;
        self.unpublished = 0;
        self.sources = sources(&self.config, now);
        self.events.cut();
        self.questions.cut();
        wire.cut();
        self.discover(now);
        Ok(())
    }

    /// The consumer's process is gone; another one connects.
    pub fn replace_subscriber(&mut self, now: u64) {
        self.producer.handle_disconnected(self.subscriber, Instant::from_millis(now));
        self.subscriber = SubscriberId::new(self.subscriber.get() + 1);
    }

    /// Ends the faults of the links inside the DC.
    pub fn heal(&mut self) {
        self.events.heal();
        self.questions.heal();
    }

    /// Publishes what waits, and tells the consumer that this was all.
    pub fn drain(&mut self, now: u64) {
        let published = self.producer.drain(Instant::from_millis(now));
        let published = published.expect("a replay does not use up 2^64 sequence numbers");
        self.counts.batches += u64::from(published.is_some());
        self.unpublished = 0;
    }

    /// When something is to be done without anything happening outside.
    pub fn next_due(&self) -> u64 {
        let links = [self.events.next_due(), self.questions.next_due()];
        let machines = [
            self.sources.poll_timeout().map(|(at, _)| at.as_millis()),
            self.producer.poll_timeout().map(|(at, _)| at.as_millis()),
        ];
        let due = links.into_iter().chain(machines).flatten().min();
        due.unwrap_or(u64::MAX).min(self.next_heartbeat)
    }

    /// Does all that can be done at `now`, except what needs the other end of the wire. Returns
    /// whether anything arrived or was sent. `cache` gives a worker's cache.
    pub fn pump<'a>(
        &mut self,
        cache: impl Fn(usize) -> &'a LruCache,
        wire: &mut Wire,
        now: u64,
    ) -> bool {
        let at = Instant::from_millis(now);
        let mut busy = false;
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT;
            for worker in &self.workers {
                self.events.send(worker.heartbeat(), now);
            }
        }
        self.sources.handle_timeout(at);
        while let Some(message) = self.events.receive(now) {
            busy = true;
            self.hand_to_stage_1(message, at);
            self.run_commands(at);
        }
        self.run_commands(at);
        while let Some(question) = self.sources.poll_request() {
            self.questions.send(question, now);
        }
        while let Some(question) = self.questions.receive(now) {
            busy = true;
            let worker = question.member.worker.get() as usize;
            for answer in self.workers[worker].answer(&question, cache(worker)) {
                self.events.send(answer, now);
            }
        }
        // A producer that is still collecting what its workers hold takes no subscriptions yet.
        while self.sources.readiness().ready.is_some() {
            let Some(frame) = wire.to_producer.receive(now) else { break };
            busy = true;
            let _request = self.producer.handle_frame(self.subscriber, &frame, at);
        }
        self.producer.handle_timeout(at);
        while let Some(frame) = self.producer.poll_frame(self.subscriber, at) {
            busy = true;
            match frame.kind() {
                Kind::Delta => self.counts.wire[0] += frame.len() as u64,
                Kind::SnapshotBegin | Kind::SnapshotChunk | Kind::SnapshotEnd => {
                    self.counts.wire[1] += frame.len() as u64;
                }
                _ => {}
            }
            wire.to_consumer.send(frame.to_bytes(), now);
        }
        // A real host would log these.
        while self.sources.poll_notice().is_some() {}
        while self.producer.poll_event().is_some() {}
        busy
    }

    fn hand_to_stage_1(&mut self, message: FromWorker, at: Instant) {
        let FromWorker { member, generation, content } = message;
        let sources = &mut self.sources;
        // All members are expected, so none is refused; what became of a message is only counted.
        let _handled = match content {
            Content::Event(id, changes) => {
                sources.handle_event(member, generation, id, changes, at)
            }
            Content::Heartbeat(last) => sources.handle_heartbeat(member, generation, last, at),
            Content::HistoryEnd(request) => Ok(sources.handle_history_end(member, request, at)),
            Content::FullState(request, state) => {
                Ok(sources.handle_full_state(member, request, state, at))
            }
        };
    }

    fn run_commands(&mut self, at: Instant) {
        while let Some(command) = self.sources.poll_command() {
            self.counts.commands += 1;
            self.unpublished += 1;
            if self.producer.apply(&command).error.is_some()
                && let Some(member) = command.member()
            {
                self.sources.handle_suspect(member, at);
            }
            if self.unpublished >= self.config.publish_every {
                let published = self.producer.publish(at);
                let published = published.expect("a replay does not use up 2^64 sequence numbers");
                self.counts.batches += u64::from(published.is_some());
                self.unpublished = 0;
            }
        }
    }

    /// Discovery at the start of a producer: all workers are expected, then found.
    fn discover(&mut self, now: u64) {
        let at = Instant::from_millis(now);
        for worker in &self.workers {
            let expected = self.sources.expect(worker.member(), at);
            expected.expect("there are fewer workers than stage 1 takes");
        }
        for worker in 0..self.workers.len() {
            self.announce(worker, now);
        }
    }

    fn announce(&mut self, worker: usize, now: u64) {
        let worker = &self.workers[worker];
        let (member, generation) = (worker.member(), worker.generation());
        let announced = self.sources.announce(member, generation, Instant::from_millis(now));
        announced.expect("there are fewer workers than stage 1 takes");
    }
}

fn sources(config: &DcConfig, now: u64) -> PoolSources<Direct> {
    let ready = ReadyRule::new(100, Millis::from_secs(30)).expect("100 per cent is a share");
    let sources = PoolSourcesConfig::new(SourceConfig::new(config.seed), ready)
        .with_max_members(config.workers as usize)
        .expect("a DC has at least one worker");
    PoolSources::new(sources, Direct, Instant::from_millis(now))
}

fn producer(config: &DcConfig, incarnation: Incarnation) -> Result<Producer, AllocationError> {
    // A real host draws these seeds at random; here every run must repeat.
    let mut rng = Rng::new(config.seed, config.pool.dc.get() << 8 | 5);
    let seeds = HashSeeds::new([(); 4].map(|()| rng.next_u64()));
    let pool = PoolConfig::new(config.format, seeds);
    Producer::new(pool, PublishConfig::default(), config.pool, incarnation)
}

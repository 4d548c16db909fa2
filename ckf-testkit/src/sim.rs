//! A long random life of many pools and consumers in virtual time.
//!
//! Every pool is read by every consumer over a faulty link of its own. Commands, batches, restarts
//! of either side, lost connections, partitions and slow readers happen at random; from time to
//! time all faults cease and every lane must become exactly its producer. One seed decides all.

use std::collections::BTreeMap;

use ckf_consumer::{Failure, Handled, SessionConfig, SessionStats};
use ckf_core::{BlockHash, BucketImage};
use ckf_producer::{Command, EndedCounts, Member, Producer, PublishConfig, SubscriberId, WorkerId};
use ckf_protocol::{Incarnation, Limits, Millis, Sequence, peek_header};

use crate::net::{Faults, Link, LinkStats};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::scenario::{self, Session, at, hashes};

/// Sizes of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Producers.
    pub pools: usize,
    /// Consumers, each with a lane for every pool.
    pub consumers: usize,
    /// Commands, batches, frames and mishaps in all.
    pub steps: u64,
    /// Buckets of each table.
    pub buckets: u32,
}

/// What happened in a simulation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Steps taken.
    pub steps: u64,
    /// Virtual milliseconds passed.
    pub millis: u64,
    /// Times that everything had to converge and did.
    pub convergences: u64,
    /// Restarts of producers, of consumers, lost connections, partitions, pauses, layout changes.
    pub mishaps: [u64; 6],
    /// What links did to frames.
    pub links: LinkStats,
    /// Counters of all sessions, those of ended consumers included.
    pub sessions: SessionStats,
    /// Leases ended by producers, those of ended producers included.
    pub ended: EndedCounts,
}

struct Pool {
    producer: Producer,
    oracle: Oracle,
    incarnation: u64,
    /// Published words of the batches that some lane may still be at.
    history: BTreeMap<(Incarnation, Sequence), Vec<u64>>,
}

struct Lane {
    session: Session,
    up: Link,
    down: Link,
    /// The producer's name for the connection.
    link: u64,
    paused_until: u64,
    partitioned_until: u64,
}

struct Sim {
    rng: Rng,
    now: u64,
    size: Size,
    pools: Vec<Pool>,
    /// By consumer, then by pool.
    lanes: Vec<Vec<Lane>>,
    next_consumer: u64,
    next_link: u64,
    calm: bool,
    report: Report,
}

/// Runs one simulation.
///
/// # Errors
/// What went wrong, in words, with the step at which it did.
pub fn run(size: Size, seed: u64) -> Result<Report, String> {
    let mut sim = Sim::new(size, seed);
    let rounds = (size.steps / 50_000).max(1);
    for round in 1..=rounds {
        while sim.report.steps < size.steps * round / rounds {
            sim.step().map_err(|what| format!("step {}: {what}", sim.report.steps))?;
        }
        sim.converge().map_err(|what| format!("step {}: {what}", sim.report.steps))?;
    }
    Ok(sim.finish())
}

/// Heartbeats of half a second, chunks of 16 buckets, parts of 8 patches, outboxes of 16 messages.
fn publish_config() -> PublishConfig {
    let limits = Limits::new(1024, 8, 64).expect("legal limits");
    PublishConfig::new(limits)
        .with_chunk_buckets(16)
        .and_then(|config| config.with_outbox(16, 1 << 14))
        .and_then(|config| config.with_heartbeat(Millis::new(500)))
        .and_then(|config| config.with_snapshot_progress(Millis::new(2000)))
        .expect("legal sizes")
}

fn faults(rng: &mut Rng) -> Faults {
    // Most links are bad in one or two ways, some in none, few in all.
    let mut chance =
        |most: f64| if rng.chance(0.4) { rng.below(1000) as f64 / 1000.0 * most } else { 0.0 };
    let (loss, duplicate, reorder) = (chance(0.05), chance(0.1), chance(0.05));
    let (truncate, flip) = (chance(0.01), chance(0.01));
    let delay_min = rng.below(40);
    let jitter = if rng.chance(0.1) { rng.below(5) } else { 0 };
    let delay_max = delay_min + jitter;
    Faults { loss, duplicate, reorder, truncate, flip, delay_min, delay_max, hold_max: 30 }
}

impl Sim {
    fn new(size: Size, seed: u64) -> Self {
        let mut sim = Self {
            rng: Rng::new(seed),
            now: 0,
            size,
            pools: Vec::new(),
            lanes: Vec::new(),
            next_consumer: 1,
            next_link: 1,
            calm: false,
            report: Report::default(),
        };
        for dc in 0..size.pools {
            let mut pool = Pool {
                producer: sim.producer(dc, 1),
                oracle: Oracle::new(),
                incarnation: 1,
                history: BTreeMap::new(),
            };
            pool.record();
            sim.pools.push(pool);
        }
        for _ in 0..size.consumers {
            let consumer = sim.fresh_consumer();
            let lanes = (0..size.pools).map(|dc| sim.lane(consumer, dc)).collect();
            sim.lanes.push(lanes);
        }
        sim
    }

    fn producer(&self, dc: usize, incarnation: u64) -> Producer {
        let format = scenario::format(self.size.buckets);
        scenario::producer(dc as u64, incarnation, format, publish_config())
    }

    fn fresh_consumer(&mut self) -> u64 {
        self.next_consumer += 1;
        self.next_consumer
    }

    fn fresh_link(&mut self) -> u64 {
        self.next_link += 1;
        self.next_link
    }

    fn session(&self, consumer: u64, dc: usize) -> Session {
        let format = scenario::format(self.size.buckets);
        let config: SessionConfig = scenario::quick_session();
        let mut session = scenario::session(consumer, dc as u8, format, config);
        scenario::assign(&mut session, dc as u64, self.now);
        session
    }

    fn lane(&mut self, consumer: u64, dc: usize) -> Lane {
        let (up, down) = (faults(&mut self.rng), faults(&mut self.rng));
        Lane {
            session: self.session(consumer, dc),
            up: Link::new(up, self.rng.next_u64()),
            down: Link::new(down, self.rng.next_u64()),
            link: self.fresh_link(),
            paused_until: 0,
            partitioned_until: 0,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(1000) {
            0..300 => self.command(),
            300..500 => self.publish(),
            500..990 => return self.tick(),
            _ => self.mishap(),
        }
        self.report.steps += 1;
        Ok(())
    }

    fn command(&mut self) {
        let rng = &mut self.rng;
        let pool = &mut self.pools[rng.below(self.size.pools as u64) as usize];
        let member = Member::new(rng.below(3), rng.below(2) as u32);
        // Half of all slots at most, so that hardly anything is omitted.
        let blocks = u64::from(self.size.buckets) * 2;
        let count = 1 + rng.below(6);
        let picked = hashes((0..count).map(|_| rng.below(blocks)));
        let command = match rng.below(100) {
            0..55 => Command::Store { member, hashes: picked },
            55..92 => Command::Remove { member, hashes: picked },
            92..97 => Command::ReplaceMember { member, hashes: picked },
            97..99 => Command::ClearMember { member },
            _ => Command::RemoveWorker { worker: WorkerId::new(rng.below(3)) },
        };
        pool.producer.apply(&command);
        pool.oracle.apply(&command);
    }

    fn publish(&mut self) {
        let pool = &mut self.pools[self.rng.below(self.size.pools as u64) as usize];
        pool.publish(self.now);
    }

    fn mishap(&mut self) {
        let dc = self.rng.below(self.size.pools as u64) as usize;
        let consumer = self.rng.below(self.size.consumers as u64) as usize;
        let kind = self.rng.below(6) as usize;
        self.report.mishaps[kind] += 1;
        match kind {
            0 => self.restart_producer(dc),
            1 => self.restart_consumer(consumer),
            2 => self.disconnect(consumer, dc),
            3 => self.lanes[consumer][dc].partitioned_until = self.now + self.rng.below(10_000),
            4 => self.lanes[consumer][dc].paused_until = self.now + self.rng.below(10_000),
            _ => {
                let pool = &mut self.pools[dc];
                pool.producer.grow(pool.producer.pool().format()).expect("memory is there");
                pool.record();
            }
        }
    }

    /// A new incarnation, rebuilt from what its sources hold.
    fn restart_producer(&mut self, dc: usize) {
        let incarnation = self.pools[dc].incarnation + 1;
        let mut producer = self.producer(dc, incarnation);
        for member in self.pools[dc].oracle.members() {
            let owned: Vec<_> = self.pools[dc].oracle.owned(member).collect();
            producer.replace_member(member, &owned);
        }
        let pool = &mut self.pools[dc];
        self.report.ended += pool.producer.stats().ended;
        (pool.producer, pool.incarnation) = (producer, incarnation);
        pool.record();
        // Some consumers' connections break at once, the others find out by themselves.
        for consumer in 0..self.size.consumers {
            if self.rng.chance(0.5) {
                self.disconnect(consumer, dc);
            }
        }
    }

    fn restart_consumer(&mut self, consumer: usize) {
        let id = self.fresh_consumer();
        for dc in 0..self.size.pools {
            self.absorb(consumer, dc);
            self.lanes[consumer][dc].session = self.session(id, dc);
            if self.rng.chance(0.5) {
                self.disconnect(consumer, dc);
            }
        }
    }

    fn disconnect(&mut self, consumer: usize, dc: usize) {
        let link = self.fresh_link();
        let lane = &mut self.lanes[consumer][dc];
        let old = SubscriberId::new(lane.link);
        self.pools[dc].producer.handle_disconnected(old, at(self.now));
        lane.session.handle_disconnected(at(self.now));
        lane.link = link;
        lane.up.cut();
        lane.down.cut();
    }

    /// Time passes; everything that is due happens.
    fn tick(&mut self) -> Result<(), String> {
        self.now += self.rng.between(1, 10);
        let now = self.now;
        self.report.steps += 1;
        for pool in &mut self.pools {
            if pool.producer.poll_timeout().is_some_and(|(due, _)| due <= at(now)) {
                pool.producer.handle_timeout(at(now));
            }
        }
        for consumer in 0..self.size.consumers {
            for dc in 0..self.size.pools {
                let (lane, pool) = (&mut self.lanes[consumer][dc], &mut self.pools[dc]);
                let most = if self.calm { u64::MAX } else { self.rng.below(5) };
                self.report.steps += lane
                    .pump(pool, now, most, self.calm)
                    .map_err(|what| format!("consumer {consumer}, pool {dc}: {what}"))?;
            }
        }
        Ok(())
    }

    /// Without faults, every lane must come to equal its producer, and nothing owned be missing.
    fn converge(&mut self) -> Result<(), String> {
        self.calm = true;
        for pool in &mut self.pools {
            pool.publish(self.now);
        }
        let deadline = self.now + 30_000;
        while let Some((consumer, dc)) = self.first_apart() {
            if self.now > deadline {
                let lane = &self.lanes[consumer][dc].session;
                let stats = lane.stats();
                return Err(format!(
                    "consumer {consumer} does not converge with pool {dc}: {:?}, {stats:?}",
                    lane.state()
                ));
            }
            self.tick()?;
        }
        self.calm = false;
        self.report.convergences += 1;
        self.check_nothing_is_missing()
    }

    fn first_apart(&self) -> Option<(usize, usize)> {
        let lanes = self.lanes.iter().enumerate();
        lanes.flat_map(|(consumer, lanes)| (0..lanes.len()).map(move |dc| (consumer, dc))).find(
            |&(consumer, dc)| {
                let session = &self.lanes[consumer][dc].session;
                !scenario::converged(&self.pools[dc].producer, session)
            },
        )
    }

    fn check_nothing_is_missing(&self) -> Result<(), String> {
        let format = scenario::format(self.size.buckets);
        for (dc, pool) in self.pools.iter().enumerate() {
            let holds = |words: &[u64], hash: BlockHash| {
                let address = format.address(hash);
                [address.first, address.second].into_iter().any(|bucket| {
                    BucketImage::new(words[bucket.to_usize()]).contains(address.fingerprint)
                })
            };
            for lanes in &self.lanes {
                let words = lanes[dc].session.store().words();
                let owned = pool.oracle.distinct();
                let missing = owned.into_iter().filter(|&hash| !holds(words, hash)).count() as u64;
                if missing > pool.producer.pool().stats().omitted {
                    return Err(format!("pool {dc}: {missing} owned blocks are not found"));
                }
            }
        }
        Ok(())
    }

    /// Adds up what a lane has seen.
    fn absorb(&mut self, consumer: usize, dc: usize) {
        self.report.sessions += *self.lanes[consumer][dc].session.stats();
    }

    fn finish(mut self) -> Report {
        for consumer in 0..self.size.consumers {
            for dc in 0..self.size.pools {
                self.absorb(consumer, dc);
                let lane = &self.lanes[consumer][dc];
                for stats in [lane.up.stats(), lane.down.stats()] {
                    self.report.links += stats;
                }
            }
        }
        for pool in &self.pools {
            self.report.ended += pool.producer.stats().ended;
        }
        self.report.millis = self.now;
        self.report
    }
}

impl Pool {
    fn record(&mut self) {
        let pool = self.producer.pool();
        let words = pool.published_words(0..pool.format().bucket_count()).expect("all of it");
        let key = (self.producer.identity().incarnation, pool.sequence());
        self.history.insert(key, words.collect());
        // Far longer than any outbox and delay.
        while self.history.len() > 1000 {
            self.history.pop_first();
        }
    }

    fn publish(&mut self, now: u64) {
        if self.producer.publish(at(now)).expect("numbers last").is_some() {
            self.record();
        }
    }
}

impl Lane {
    /// Moves frames both ways and lets time act. Returns how many frames were delivered.
    fn pump(&mut self, pool: &mut Pool, now: u64, most: u64, calm: bool) -> Result<u64, String> {
        if self.session.poll_timeout().is_some_and(|(due, _)| due <= at(now)) {
            self.session.handle_timeout(at(now));
        }
        let cut = !calm && self.partitioned_until > now;
        self.up.set_partitioned(cut);
        self.down.set_partitioned(cut);
        self.up.set_calm(calm);
        self.down.set_calm(calm);
        while let Some(frame) = self.session.poll_transmit() {
            self.up.send(&frame, now);
        }
        let link = SubscriberId::new(self.link);
        if calm || self.paused_until <= now {
            for _ in 0..most {
                let Some(frame) = pool.producer.poll_frame(link, at(now)) else { break };
                self.down.send(&frame.to_bytes(), now);
            }
        }
        let mut delivered = 0;
        while let Some(frame) = self.up.deliver(now) {
            let _ = pool.producer.handle_frame(link, &frame, at(now));
            delivered += 1;
        }
        while let Some(frame) = self.down.deliver(now) {
            self.receive(pool, &frame, now)?;
            delivered += 1;
        }
        while self.session.poll_event().is_some() {}
        Ok(delivered)
    }

    /// Hands a frame to the session and checks what it did.
    fn receive(&mut self, pool: &Pool, frame: &[u8], now: u64) -> Result<(), String> {
        let lease = peek_header(frame, &Limits::default()).ok().and_then(|header| header.lease());
        let (current, stores) = (self.session.lease(), self.session.store().stores());
        let was_ready = self.session.store().is_ready();
        let handled = self.session.handle_frame(frame, at(now));
        let touched = self.session.store().stores() != stores;
        if touched && (lease.is_none() || lease != current) {
            return Err(format!("a foreign frame changed words: {handled:?}"));
        }
        let stored = matches!(handled, Handled::Chunk | Handled::Applied(_));
        if touched && !stored {
            return Err(format!("words changed although the frame was {handled:?}"));
        }
        // A chunk that a delta overtook is found out at the end of the snapshot, which is fine.
        if was_ready && handled == Handled::Retired(Failure::DigestMismatch) {
            return Err("a ready lane had diverged".into());
        }
        let ready = self.session.is_between_batches();
        if !ready || !matches!(handled, Handled::Ready(_) | Handled::Applied(_)) {
            return Ok(());
        }
        let (identity, sequence) = self.session.position().expect("it is ready");
        let words = pool.history.get(&(identity.incarnation, sequence));
        match words {
            Some(words) if words == self.session.store().words() => Ok(()),
            Some(_) => Err(format!("a ready lane differs from its producer at {sequence}")),
            None => Err(format!("a ready lane is at {sequence}, of long ago or never published")),
        }
    }
}

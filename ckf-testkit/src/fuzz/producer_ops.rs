use std::collections::BTreeMap;

use ckf_core::BlockHash;
use ckf_producer::{
    Command, HashSeeds, Member, PoolConfig, Producer, PublishConfig, Request, SubscriberId,
    WorkerId,
};
use ckf_protocol::{
    ConsumerId, Epoch, Incarnation, Instant, Lane, LeaseTerms, Limits, Millis, ProducerExpectation,
    Subscribe, Unsubscribe, VersionRange,
};

use super::Choices;
use crate::oracle::Oracle;
use crate::scenario::{self, Session};

/// Blocks that commands speak of. One of them is the end of the range (report F03).
const BLOCKS: u64 = 96;
/// The link of the one subscriber that behaves.
const GOOD: SubscriberId = SubscriberId::new(0);
const MAX_SUBSCRIBERS: u64 = 4;

/// Calls on one producer in any order: commands, batches, new layouts, refused memory, and
/// subscribers of every kind, in time that jumps and goes back. Ownership is exact after every
/// command, the pool's own check holds, outboxes stay within their bounds, and a subscriber that
/// reads holds what was published last.
pub fn producer_ops(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    // From far too small to roomy.
    let buckets = 4 + choices.below(40) as u32;
    let mut bench = Bench::new(buckets);
    while !choices.is_empty() {
        bench.step(&mut choices);
    }
    bench.finish();
}

struct Bench {
    producer: Producer,
    oracle: Oracle,
    reader: Session,
    readers: u64,
    now: Instant,
    /// Leases granted to subscribers that do not behave.
    granted: BTreeMap<SubscriberId, LeaseTerms>,
}

fn block(choice: u8) -> BlockHash {
    match u64::from(choice) % BLOCKS {
        95 => BlockHash::new(u64::MAX),
        number => BlockHash::new(number),
    }
}

fn publish_config() -> PublishConfig {
    let limits = Limits::new(256, 6, 16).expect("legal limits");
    PublishConfig::new(limits)
        .with_max_subscribers(MAX_SUBSCRIBERS as u32)
        .and_then(|config| config.with_outbox(20, 3000))
        .and_then(|config| config.with_heartbeat(Millis::new(1000)))
        .expect("not 0")
}

impl Bench {
    fn new(buckets: u32) -> Self {
        let format = scenario::format(buckets);
        let config = PoolConfig::new(format, HashSeeds::new([5, 6, 7, 8]));
        let id = scenario::pool_id(7);
        let producer = Producer::new(config, publish_config(), id, Incarnation::new(1));
        let mut bench = Self {
            producer: producer.expect("a small pool"),
            oracle: Oracle::new(),
            reader: scenario::session(1000, 0, format, scenario::quick_session()),
            readers: 0,
            now: Instant::ZERO,
            granted: BTreeMap::new(),
        };
        bench.new_reader();
        bench
    }

    /// The subscriber that behaves starts anew, as after a change of format.
    fn new_reader(&mut self) {
        self.readers += 1;
        let format = self.producer.pool().format();
        let consumer = 1000 + self.readers;
        self.reader = scenario::session(consumer, 0, format, scenario::quick_session());
        scenario::assign(&mut self.reader, 7, self.now.as_millis());
        // It has the place that it had, if others have not taken all.
        self.read();
    }

    fn read(&mut self) {
        let now = self.now.as_millis();
        scenario::exchange(&mut self.producer, GOOD, &mut self.reader, now);
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 24 {
            0..11 => self.command(&command(choices)),
            11..13 => self.publish(),
            13 => {
                let buckets = 4 + choices.below(40) as u32;
                if self.producer.grow(scenario::format(buckets)).is_ok() {
                    self.read();
                    self.new_reader();
                }
            }
            14 => {
                let room = u64::from(choices.u16());
                self.producer.set_max_bytes(self.producer.pool().stats().bytes.total() + room);
            }
            15 => self.producer.set_max_bytes(u64::MAX),
            16 => self.subscribe(choices),
            17 => {
                let link = SubscriberId::new(u64::from(choices.byte() % 8));
                let Some(terms) = self.granted.get(&link) else { return };
                let frame = Unsubscribe { lease: terms.lease }.to_frame().to_bytes();
                let _ = self.producer.handle_frame(link, &frame, self.now);
            }
            18 => {
                let link = SubscriberId::new(1 + u64::from(choices.byte() % 8));
                for _ in 0..choices.byte() % 8 {
                    let _ = self.producer.poll_frame(link, self.now);
                }
            }
            19 => {
                let link = SubscriberId::new(1 + u64::from(choices.byte() % 8));
                self.producer.handle_disconnected(link, self.now);
            }
            20 => {
                let link = SubscriberId::new(u64::from(choices.byte() % 8));
                let _ = self.producer.handle_frame(link, choices.take(40), self.now);
            }
            21 => self.now = self.now.saturating_add(Millis::new(u64::from(choices.u16()))),
            22 => self.producer.handle_timeout(Instant::from_millis(u64::from(choices.u16()))),
            _ => {
                if let Some((due, _)) = self.producer.poll_timeout() {
                    self.now = self.now.latest(due);
                    self.producer.handle_timeout(self.now);
                }
            }
        }
        self.check();
    }

    fn subscribe(&mut self, choices: &mut Choices<'_>) {
        let link = SubscriberId::new(1 + u64::from(choices.byte() % 8));
        let odd = choices.byte();
        let mut expected = ProducerExpectation {
            pool: scenario::pool_id(7),
            format: self.producer.pool().format(),
        };
        match odd {
            0 => expected.pool = scenario::pool_id(8),
            1 => expected.format = scenario::format(99),
            _ => {}
        }
        let request = Subscribe {
            consumer: ConsumerId::new(u64::from(odd % 6)),
            lane: Lane::new(0).expect("below 64"),
            epoch: Epoch::new(u64::from(choices.byte() % 4)),
            expected,
            versions: VersionRange::SUPPORTED,
        };
        let bytes = request.to_frame().to_bytes();
        if let Request::Granted(terms) = self.producer.handle_frame(link, &bytes, self.now) {
            assert!(odd > 1, "what was asked for is not here");
            self.granted.insert(link, terms);
        }
    }

    fn command(&mut self, command: &Command) {
        let before = self.oracle.clone();
        self.oracle.apply(command);
        let outcome = self.producer.apply(command);
        assert_eq!(outcome.failed > 0, outcome.error.is_some(), "{outcome:?}");
        let (Command::Store { member, .. } | Command::ReplaceMember { member, .. }) = command
        else {
            assert_eq!(outcome.error, None, "only gaining blocks needs memory");
            return;
        };
        if outcome.error.is_some() {
            // Blocks were refused: the member has a part of what it should have, and what it had.
            let pool = self.producer.pool();
            let owned = (0..BLOCKS as u8).map(block).filter(|&hash| pool.owns(*member, hash));
            let owned: Vec<_> = owned.collect();
            let wanted: Vec<_> = self.oracle.owned(*member).collect();
            assert!(owned.iter().all(|hash| wanted.contains(hash)));
            let mut kept = before.owned(*member).filter(|hash| wanted.contains(hash));
            assert!(kept.all(|hash| owned.contains(&hash)), "a failure lost a block");
            self.oracle.replace_member(*member, &owned);
        }
    }

    fn publish(&mut self) {
        self.producer.drain(self.now).expect("numbers last");
        self.read();
        let pool = self.producer.pool();
        let published = pool.published_words(0..pool.format().bucket_count());
        assert!(published.into_iter().flatten().eq(pool.words()), "nothing is left unpublished");
        if self.reader.store().is_ready() {
            assert!(scenario::converged(&self.producer, &self.reader));
        }
    }

    fn check(&mut self) {
        let stats = self.producer.stats();
        assert!(stats.subscribers <= MAX_SUBSCRIBERS);
        assert!(stats.outbox_messages_most <= 20 && stats.outbox_bytes_most <= 3000);
        assert!(self.producer.events().count() <= 1100);
    }

    fn finish(&mut self) {
        self.producer.set_max_bytes(u64::MAX);
        assert_eq!(self.producer.check(), Ok(()));
        self.publish();
        let pool = self.producer.pool();
        for hash in (0..BLOCKS as u8).map(block) {
            assert_eq!(pool.owners(hash) as usize, self.oracle.owners(hash), "{hash}");
        }
        let distinct = self.oracle.distinct();
        assert_eq!(pool.stats().distinct_blocks, distinct.len() as u64);
        let missing = distinct.iter().filter(|&&hash| !pool.table().contains(hash)).count() as u64;
        assert!(missing <= pool.stats().omitted, "{missing} owned blocks are not found");
        self.producer.shutdown(self.now);
        assert_eq!(self.producer.stats().subscribers, 0);
    }
}

fn command(choices: &mut Choices<'_>) -> Command {
    let kind = choices.byte();
    let member = Member::new(u64::from(kind >> 4) % 3, u32::from(kind >> 6) % 2);
    let len = choices.below(40);
    let hashes = |choices: &mut Choices<'_>| choices.take(len).iter().map(|&b| block(b)).collect();
    match kind % 8 {
        0..4 => Command::Store { member, hashes: hashes(choices) },
        4 | 5 => Command::Remove { member, hashes: hashes(choices) },
        6 if len == 0 => Command::RemoveWorker { worker: WorkerId::new(member.worker.get()) },
        6 if len == 1 => Command::ClearMember { member },
        6 => Command::ReplaceMember { member, hashes: hashes(choices) },
        _ => Command::Flush,
    }
}

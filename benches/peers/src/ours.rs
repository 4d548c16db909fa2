//! The one file that knows the crates of this repository. Everything else calls these functions.

use std::hint::black_box;

use ckf_core::{BlockHash, Format, Sizing, Table};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig, PublishConfig, Request, SubscriberId};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant,
    Lane, PoolId, ProducerExpectation, Subscribe, VersionRange,
};

use crate::filter;
use crate::load;
use crate::lookups::{Row, Side, Writer};
use crate::producer::Subject;
use crate::schedule::Step;
use crate::wire::Publishing;
use crate::workload::{Chain, Query, Workload};

/// Tables filled with one workload.
pub struct Ours;

impl Side for Ours {
    fn build(_workload: &dyn Workload) -> Self {
        Self
    }

    fn rows(&self, _queries: &[Query]) -> Vec<Row> {
        Vec::new()
    }

    fn written(self, _workload: &dyn Workload, _queries: &[Query]) -> Vec<(Row, Writer)> {
        Vec::new()
    }
}

/// Producers and consumer of the load test.
pub enum Load {}

impl load::Subject for Load {
    type Request = ();
    type Event = ();
    type Writer = ();
    type Reader = ();

    fn start(_blocks_per_pool: usize) -> ((), ()) {
        unimplemented!("the consumer is not wired in yet")
    }

    fn request(_chain: &Chain) {}

    fn events(_step: &Step) -> Vec<()> {
        Vec::new()
    }

    fn write((): &mut (), _pool: usize, (): ()) {}

    fn find((): &(), (): &()) -> u32 {
        0
    }

    fn drained((): &()) -> bool {
        false
    }
}

/// The producer of one pool: exact state, projection and batches.
pub struct Producer {
    pool: Pool,
    cadence: usize,
    pending: usize,
}

/// Blocks that a member gains (true) or loses.
pub struct Command {
    member: Member,
    blocks: Vec<BlockHash>,
    store: bool,
}

impl Subject for Producer {
    type Command = Command;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        let pool = Pool::new(pool_config(bucket_count)).expect("memory");
        Self { pool, cadence, pending: 0 }
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Command {
        Command {
            member: self::member(member),
            blocks: blocks(&chain.sequence[from..to]),
            store: true,
        }
    }

    fn remove(member: usize, hashes: &[u64]) -> Command {
        Command { member: self::member(member), blocks: blocks(hashes), store: false }
    }

    fn apply(&mut self, command: Command) -> usize {
        let outcome = if command.store {
            self.pool.store(command.member, &command.blocks)
        } else {
            self.pool.remove(command.member, &command.blocks)
        };
        assert!(outcome.error.is_none() && outcome.omitted == 0, "{outcome:?}");
        self.pending += 1;
        if self.pending < self.cadence {
            return 0;
        }
        self.pending = 0;
        let Some(batch) = self.pool.seal().expect("not fenced") else {
            return 0;
        };
        // A host without subscribers would not even look; Dynamo's producer hands out a list.
        batch.changes().map(|change| black_box(change).after).count()
    }

    fn filter_bytes(&self) -> usize {
        self.pool.stats().bytes.filter as usize
    }

    fn own_bytes(&self) -> usize {
        let bytes = self.pool.stats().bytes;
        (bytes.total() - bytes.filter) as usize
    }

    fn edges(&self) -> usize {
        self.pool.stats().edges as usize
    }
}

/// A producer with one subscriber, whose frames are counted.
pub struct Published {
    producer: ckf_producer::Producer,
    cadence: usize,
    pending: usize,
}

impl Published {
    fn command(&mut self, command: &Command) {
        let outcome = if command.store {
            self.producer.store(command.member, &command.blocks)
        } else {
            self.producer.remove(command.member, &command.blocks)
        };
        assert!(outcome.error.is_none(), "{outcome:?}");
        self.pending += 1;
        if self.pending >= self.cadence {
            self.pending = 0;
            self.producer.publish(NOW).expect("not fenced");
        }
    }

    fn sent(&mut self) -> usize {
        let frames = std::iter::from_fn(|| self.producer.poll_frame(LINK, NOW));
        frames.map(|frame| frame.len()).sum()
    }
}

impl Subject for Published {
    type Command = Command;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        let config = pool_config(bucket_count);
        let producer = ckf_producer::Producer::new(
            config,
            PublishConfig::default(),
            pool_id(0),
            Incarnation::new(1),
        )
        .expect("memory");
        Self { producer, cadence, pending: 0 }
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Command {
        <Producer as Subject>::store(member, chain, from, to)
    }

    fn remove(member: usize, hashes: &[u64]) -> Command {
        <Producer as Subject>::remove(member, hashes)
    }

    fn apply(&mut self, command: Command) -> usize {
        self.command(&command);
        self.sent()
    }

    fn filter_bytes(&self) -> usize {
        self.producer.pool().stats().bytes.filter as usize
    }

    fn own_bytes(&self) -> usize {
        let bytes = self.producer.pool().stats().bytes;
        (bytes.total() - bytes.filter) as usize
    }

    fn edges(&self) -> usize {
        self.producer.pool().stats().edges as usize
    }
}

impl Publishing for Published {
    fn snapshot_bytes(&mut self) -> usize {
        let subscribe = Subscribe {
            consumer: ConsumerId::new(9),
            lane: Lane::new(0).expect("below 64"),
            epoch: Epoch::new(1),
            expected: ProducerExpectation {
                pool: pool_id(0),
                format: self.producer.pool().format(),
            },
            versions: VersionRange::SUPPORTED,
        };
        let answer = self.producer.handle_frame(LINK, &subscribe.to_frame().to_bytes(), NOW);
        assert!(matches!(answer, Request::Granted(_)), "{answer:?}");
        self.sent()
    }

    fn published_bytes(&mut self, command: Command) -> usize {
        self.command(&command);
        self.sent()
    }
}

/// Buckets that the default load asks for.
pub fn tight_bucket_count(blocks: usize) -> usize {
    let sizing = Sizing::for_blocks(blocks as u64, Sizing::DEFAULT_LOAD).expect("a legal size");
    sizing.bucket_count() as usize
}

/// The bare table.
pub struct Filter(Table);

impl filter::Subject for Filter {
    const NAME: &'static str = "ours";

    fn new(items: usize) -> Self {
        Self(Table::new(format(tight_bucket_count(items))).expect("memory"))
    }

    #[inline]
    fn insert(&mut self, item: u64) -> bool {
        let address = self.0.format().address(BlockHash::new(item));
        self.0.insert(&address, |_| ()).is_ok()
    }

    #[inline]
    fn contains(&self, item: u64) -> bool {
        self.0.contains(BlockHash::new(item))
    }

    #[inline]
    fn remove(&mut self, item: u64) -> bool {
        let address = self.0.format().address(BlockHash::new(item));
        self.0.remove(&address, |_| ())
    }

    fn bytes(&self) -> usize {
        self.0.format().table_bytes() as usize
    }
}

const SEED: u64 = 42;
const LINK: SubscriberId = SubscriberId::new(1);
const NOW: Instant = Instant::from_millis(1);

fn format(bucket_count: usize) -> Format {
    Format::any_count(bucket_count as u64, SEED).expect("a legal count")
}

fn pool_config(bucket_count: usize) -> PoolConfig {
    PoolConfig::new(format(bucket_count), HashSeeds::new([1, 2, 3, 4]))
}

fn pool_id(dc: usize) -> PoolId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
    PoolId { domain, dc: DcId::new(dc as u64) }
}

fn member(number: usize) -> Member {
    Member::new(number as u64, 0)
}

fn blocks(hashes: &[u64]) -> Vec<BlockHash> {
    hashes.iter().copied().map(BlockHash::new).collect()
}

//! The one file that knows the crates of this repository. Everything else calls these functions.

use std::cell::RefCell;
use std::hint::black_box;

use ckf_consumer::{
    Consumer, ConsumerConfig, Handled, LaneSession, Matches, QueryHandle, SearchMode,
};
use ckf_core::{BlockHash, Format, LocalHash, Sizing, Table, sequence};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig, PublishConfig, Request, SubscriberId};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Instant,
    Manifest, PoolId,
};

use crate::filter;
use crate::load;
use crate::lookups::{Cost, Row, Side, WRITE_BLOCKS, WRITES, Writer, nth_write};
use crate::measure::{Clock, in_pairs};
use crate::producer::Subject;
use crate::schedule::{POOLS, Step};
use crate::wire::Publishing;
use crate::workload::{Chain, Depths, MAX_LANES, Query, Workload, fresh_chain};

const SEED: u64 = 42;
const LINK: SubscriberId = SubscriberId::new(1);
const NOW: Instant = Instant::from_millis(1);

/// Buckets that the default load asks for.
pub fn tight_bucket_count(blocks: usize) -> usize {
    let sizing = Sizing::for_blocks(blocks as u64, Sizing::DEFAULT_LOAD).expect("a legal size");
    sizing.bucket_count() as usize
}

fn format(bucket_count: usize) -> Format {
    Format::any_count(bucket_count as u64, SEED).expect("a legal count")
}

fn pool_config(bucket_count: usize) -> PoolConfig {
    PoolConfig::new(format(bucket_count), HashSeeds::new([1, 2, 3, 4]))
}

fn domain() -> IndexerDomainId {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) }
}

fn dc(number: usize) -> DcId {
    DcId::new(number as u64 + 1)
}

fn blocks(hashes: &[u64]) -> Vec<BlockHash> {
    hashes.iter().copied().map(BlockHash::new).collect()
}

/// Blocks that a member gains (true) or loses.
pub struct Command {
    member: Member,
    blocks: Vec<BlockHash>,
    store: bool,
}

impl Command {
    fn store(member: usize, hashes: &[u64]) -> Self {
        Self { member: Member::new(member as u64, 0), blocks: blocks(hashes), store: true }
    }

    fn remove(member: usize, hashes: &[u64]) -> Self {
        Self { store: false, ..Self::store(member, hashes) }
    }
}

/// The producer of one pool, without subscribers: exact state, projection and batches.
pub struct Producer {
    pool: Pool,
    cadence: usize,
    pending: usize,
}

impl Subject for Producer {
    type Command = Command;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        let pool = Pool::new(pool_config(bucket_count)).expect("memory");
        Self { pool, cadence, pending: 0 }
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Command {
        Command::store(member, &chain.sequence[from..to])
    }

    fn remove(member: usize, hashes: &[u64]) -> Command {
        Command::remove(member, hashes)
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
        batch.changes().map(|change| usize::from(black_box(change).bucket.get() < u32::MAX)).sum()
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

/// A producer with one subscriber.
pub struct Stream {
    producer: ckf_producer::Producer,
    cadence: usize,
    pending: usize,
}

impl Stream {
    fn of_pool(bucket_count: usize, number: usize) -> Self {
        let pool = PoolId { domain: domain(), dc: dc(number) };
        let (config, publish) = (pool_config(bucket_count), PublishConfig::default());
        let producer = ckf_producer::Producer::new(config, publish, pool, Incarnation::new(1));
        Self { producer: producer.expect("memory"), cadence: 1, pending: 0 }
    }

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

    /// Everything for the subscriber, as bytes.
    fn frames(&mut self) -> impl Iterator<Item = Vec<u8>> {
        std::iter::from_fn(|| Some(self.producer.poll_frame(LINK, NOW)?.to_bytes()))
    }

    /// Gives the lane a lease and a snapshot; returns the ticks that the lane took for it.
    fn install(&mut self, session: &mut LaneSession, number: usize) -> u64 {
        let epoch = session.epoch().map_or(1, |epoch| epoch.get() + 1);
        session.assign(dc(number), Epoch::new(epoch), NOW).expect("newer epoch");
        while let Some(frame) = session.poll_transmit() {
            let answer = self.producer.handle_frame(LINK, &frame, NOW);
            assert!(matches!(answer, Request::Granted(_) | Request::Ignored(_)), "{answer:?}");
        }
        let frames: Vec<_> = self.frames().collect();
        let before = Clock::ticks();
        let last = frames.iter().map(|frame| session.handle_frame(frame, NOW)).last();
        let ticks = Clock::ticks() - before;
        assert!(matches!(last, Some(Handled::Ready(_))), "{last:?}");
        ticks
    }
}

impl Subject for Stream {
    type Command = Command;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        Self { cadence, ..Self::of_pool(bucket_count, 0) }
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Command {
        Command::store(member, &chain.sequence[from..to])
    }

    fn remove(member: usize, hashes: &[u64]) -> Command {
        Command::remove(member, hashes)
    }

    fn apply(&mut self, command: Command) -> usize {
        self.published_bytes(command)
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

impl Publishing for Stream {
    fn snapshot_bytes(&mut self) -> usize {
        let (_, mut sessions) = consumer(1, self.producer.pool().format());
        let session = &mut sessions[0];
        session.assign(dc(0), Epoch::new(1), NOW).expect("first epoch");
        let subscribe = session.poll_transmit().expect("a subscription");
        let answer = self.producer.handle_frame(LINK, &subscribe, NOW);
        assert!(matches!(answer, Request::Granted(_)), "{answer:?}");
        self.frames().map(|frame| frame.len()).sum()
    }

    fn published_bytes(&mut self, command: Command) -> usize {
        self.command(&command);
        self.frames().map(|frame| frame.len()).sum()
    }
}

fn consumer(lanes: usize, format: Format) -> (QueryHandle, Vec<LaneSession>) {
    let manifest = (0..lanes)
        .fold(Manifest::builder(domain(), format), |builder, lane| builder.dc(dc(lane)))
        .build()
        .expect("distinct pools of one domain");
    Consumer::new(&manifest, ConsumerConfig::default(), ConsumerId::new(9)).expect("memory")
}

/// A table filled with one workload.
pub struct Ours {
    queries: QueryHandle,
    sessions: Vec<LaneSession>,
    cost: Cost,
}

impl Ours {
    /// The producer of one lane, fed with all that the lane holds.
    fn producer(workload: &dyn Workload, lane: usize) -> Stream {
        let mut stream = Stream::of_pool(tight_bucket_count(workload.blocks_per_lane()), lane);
        for place in workload.lane_placements(lane) {
            let chain = workload.chain(place.chain);
            stream.command(&Command::store(0, &chain.sequence[place.from..place.to]));
        }
        assert_eq!(stream.producer.pool().stats().omitted, 0, "sized for this");
        stream
    }
}

impl Side for Ours {
    fn build(workload: &dyn Workload) -> Self {
        let format = format(tight_bucket_count(workload.blocks_per_lane()));
        let ((queries, sessions, installs), mut cost) = Cost::of(|| {
            let (queries, mut sessions) = consumer(workload.lanes(), format);
            let producer = |lane| Self::producer(workload, lane);
            let install =
                |lane: usize, mut stream: Stream| stream.install(&mut sessions[lane], lane);
            let installs = in_pairs(workload.lanes(), producer, install);
            (queries, sessions, installs)
        });
        cost.installs = installs;
        cost.load = Some(workload.blocks_per_lane() as f64 / format.slot_count() as f64);
        Self { queries, sessions, cost }
    }

    fn rows(&self, queries: &[Query]) -> Vec<Row> {
        vec![
            self.row("ours.jump", queries, SearchMode::JUMP),
            self.row("ours.walk", queries, SearchMode::Walk),
            self.local_row(queries),
            self.batch_row(queries),
        ]
    }

    fn written(mut self, workload: &dyn Workload, queries: &[Query]) -> Vec<(Row, Writer)> {
        let row = self.row("ours.jump", queries, SearchMode::JUMP);
        let mut stream = Self::producer(workload, 0);
        stream.install(&mut self.sessions[0], 0);
        let mut frames = Vec::new();
        for write in 0..WRITES {
            let (number, store) = nth_write(write);
            let chain = fresh_chain(number, WRITE_BLOCKS);
            stream.command(&Command { store, ..Command::store(0, &chain.sequence) });
            frames.extend(stream.frames());
        }
        let mut sessions = self.sessions;
        let write = move || {
            for frame in &frames {
                let handled = sessions[0].handle_frame(frame, NOW);
                assert!(matches!(handled, Handled::Applied(_)), "{handled:?}");
            }
            frames.len()
        };
        vec![(row, Box::new(write))]
    }
}

impl Ours {
    /// A row that takes sequence hashes.
    fn row(&self, name: &'static str, queries: &[Query], mode: SearchMode) -> Row {
        let requests: Vec<_> = queries.iter().map(|query| blocks(&query.chain.sequence)).collect();
        let handle = self.queries.clone().with_mode(mode);
        let (check, checked) = (handle.clone(), requests.clone());
        let answer = RefCell::new(Matches::NONE);
        let find = move |query: &Vec<BlockHash>| {
            handle.find_prefix_into(query, &mut answer.borrow_mut());
            black_box(&answer);
        };
        Row::single(name, requests, find)
            .checked(move |number| depths(&check.find_prefix(&checked[number])))
            .costing(&self.cost)
    }

    /// A row that takes block-local hashes, as the exact indexes do.
    fn local_row(&self, queries: &[Query]) -> Row {
        let local = |query: &Query| query.chain.local.iter().copied().map(LocalHash::new).collect();
        let requests: Vec<Vec<LocalHash>> = queries.iter().map(local).collect();
        let handle = self.queries.clone().with_mode(SearchMode::JUMP);
        let (check, checked) = (handle.clone(), requests.clone());
        let answer = RefCell::new(Matches::NONE);
        let find = move |query: &Vec<LocalHash>| {
            handle.find_prefix_local_into(query, &mut answer.borrow_mut());
            black_box(&answer);
        };
        Row::single("ours.local", requests, find)
            .checked(move |number| depths(&check.find_prefix_local(&checked[number])))
            .costing(&self.cost)
    }

    fn batch_row(&self, queries: &[Query]) -> Row {
        const BATCH: usize = 8;
        let requests: Vec<_> = queries.iter().map(|query| blocks(&query.chain.sequence)).collect();
        let handle = self.queries.clone().with_mode(SearchMode::JUMP);
        let (check, checked) = (handle.clone(), requests.clone());
        let answers = RefCell::new(Vec::new());
        let find = move |batch: &[Vec<BlockHash>]| {
            let prefixes: [&[BlockHash]; BATCH] = std::array::from_fn(|at| &batch[at][..]);
            handle.find_prefix_batch(&prefixes, &mut answers.borrow_mut());
            black_box(&answers);
        };
        Row::batch("ours.batch8", BATCH, requests, find)
            .checked(move |number| {
                let mut answers = Vec::new();
                check.find_prefix_batch(&[&checked[number]], &mut answers);
                depths(&answers[0])
            })
            .costing(&self.cost)
    }
}

fn depths(matches: &Matches) -> Depths {
    let mut depths = [0; MAX_LANES];
    for (lane, _, depth) in matches.iter() {
        depths[lane.to_usize()] = depth;
    }
    depths
}

/// Producers and consumer of the load test.
pub struct Load;

/// What an engine reports: block-local hashes after a parent, or hashes that are gone.
pub enum Event {
    Stored { member: Member, parent: Option<BlockHash>, local: Vec<LocalHash> },
    Removed(Command),
}

/// All producers, each with the lane it feeds.
pub struct LoadWriter(Vec<(Stream, LaneSession)>);

impl load::Subject for Load {
    type Request = Vec<LocalHash>;
    type Event = Event;
    type Writer = LoadWriter;
    type Reader = QueryHandle;

    fn start(blocks_per_pool: usize) -> (LoadWriter, QueryHandle) {
        let buckets = tight_bucket_count(blocks_per_pool);
        let (queries, sessions) = consumer(POOLS, format(buckets));
        let pair = |(lane, mut session): (usize, LaneSession)| {
            let mut stream = Stream::of_pool(buckets, lane);
            stream.install(&mut session, lane);
            (stream, session)
        };
        let lanes = sessions.into_iter().enumerate().map(pair).collect();
        (LoadWriter(lanes), queries.with_mode(SearchMode::JUMP))
    }

    fn request(chain: &Chain) -> Vec<LocalHash> {
        chain.local.iter().copied().map(LocalHash::new).collect()
    }

    fn events(step: &Step) -> Vec<Event> {
        let member = Member::new(step.member as u64, 0);
        let mut events = Vec::new();
        if step.held < step.chain.local.len() {
            let parent = step.held.checked_sub(1).map(|at| BlockHash::new(step.chain.sequence[at]));
            let local = step.chain.local[step.held..].iter().copied().map(LocalHash::new).collect();
            events.push(Event::Stored { member, parent, local });
        }
        if !step.evicted.is_empty() {
            events.push(Event::Removed(Command::remove(step.member, &step.evicted)));
        }
        events
    }

    fn write(writer: &mut LoadWriter, pool: usize, event: Event) {
        let (stream, session) = &mut writer.0[pool];
        let command = match event {
            Event::Stored { member, parent, local } => {
                // Dynamo's producer hashes what it is told; so is it here.
                let blocks = sequence::roll_all(parent, local).collect();
                Command { member, blocks, store: true }
            }
            Event::Removed(command) => command,
        };
        stream.command(&command);
        for frame in stream.frames() {
            let handled = session.handle_frame(&frame, NOW);
            assert!(matches!(handled, Handled::Applied(_)), "{handled:?}");
        }
    }

    fn find(reader: &QueryHandle, request: &Vec<LocalHash>) -> u32 {
        reader.find_prefix_local(request).best_depth().unwrap_or(0)
    }

    fn drained(writer: &LoadWriter) -> bool {
        writer.0.iter().all(|(stream, session)| {
            let position = session.position().map(|(_, sequence)| sequence);
            position == Some(stream.producer.pool().sequence())
        })
    }
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

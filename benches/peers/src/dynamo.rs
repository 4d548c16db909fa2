//! `dynamo-kv-router` 1.6.1, called as its documentation shows.

use std::sync::Arc;

use dynamo_kv_router::identity::{
    CacheSemanticsId, DcId, IdentitySource, IndexerDomainId, PoolId, RoutingScopeId,
};
use dynamo_kv_router::indexer::WorkerTask;
use dynamo_kv_router::indexer::cuckoo::{
    CkfConfig, ConsumerInstanceId, DcCkfFormatIdentity, DcCkfPublicationBatch, DcCkfState,
    GlobalCkfDelta, GlobalCkfIndexer, GlobalCkfIngestOutcome, GlobalCkfLaneIngestor,
    GlobalCkfManifest, GlobalCkfQueryResult, GlobalCkfSnapshot, LaneLease, PrefixSearchConfig,
    ProducerIdentity,
};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, LocalBlockHash, RouterEvent, SyncIndexer};

use crate::load;
use crate::measure::{Clock, in_pairs, pin};
use crate::producer::Subject;
use crate::schedule::{POOLS, Step};
use crate::wire::Publishing;
use crate::workload::{Chain, Depths, MAX_LANES, Query, Workload};

/// Lanes that [`GlobalCkfIndexer`] is compiled for.
pub const FILTER_LANES: usize = dynamo_kv_router::indexer::cuckoo::CKF_LANE_COUNT;

/// The event of a worker that stored blocks `from..to` of `chain`.
pub fn store_event(worker: u64, chain: &Chain, from: usize, to: usize) -> RouterEvent {
    let blocks = (from..to)
        .map(|at| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(chain.sequence[at]),
            tokens_hash: LocalBlockHash(chain.local[at]),
            mm_extra_info: None,
        })
        .collect();
    let parent_hash = from.checked_sub(1).map(|at| ExternalSequenceBlockHash(chain.sequence[at]));
    let data = KvCacheStoreData { parent_hash, start_position: None, blocks };
    event(worker, KvCacheEventData::Stored(data))
}

/// The event of a worker that dropped these blocks.
pub fn remove_event(worker: u64, hashes: &[u64]) -> RouterEvent {
    let block_hashes = hashes.iter().copied().map(ExternalSequenceBlockHash).collect();
    event(worker, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
}

fn event(worker: u64, data: KvCacheEventData) -> RouterEvent {
    RouterEvent::new(worker, KvCacheEvent { event_id: 0, data, dp_rank: 0 })
}

/// A request as the peers take it.
pub fn local_hashes(queries: &[Query]) -> Vec<Vec<LocalBlockHash>> {
    queries
        .iter()
        .map(|query| query.chain.local.iter().copied().map(LocalBlockHash).collect())
        .collect()
}

/// The transposed filter with one ingestor per lane.
pub struct Filter {
    indexer: GlobalCkfIndexer,
    lanes: Vec<FilterLane>,
}

/// One lane: its ingestion side and the stream identity it was assigned.
pub struct FilterLane {
    ingestor: GlobalCkfLaneIngestor,
    identity: ProducerIdentity,
    lease: LaneLease,
    sequence: u64,
}

impl FilterLane {
    /// Installs one producer's buckets; returns the ticks that took.
    pub fn install(&mut self, buckets: Box<[u64]>) -> u64 {
        let epoch = self.lease.assignment_epoch() + 1;
        self.lease =
            LaneLease::new(self.lease.consumer_instance(), self.lease.physical_lane(), epoch);
        self.sequence = 1;
        self.ingestor.assign(self.identity, self.lease).expect("newer epoch");
        let snapshot = GlobalCkfSnapshot::new(self.identity, self.lease, self.sequence, buckets);
        let before = Clock::ticks();
        let outcome = self.ingestor.install_snapshot(&snapshot);
        let ticks = Clock::ticks() - before;
        assert!(matches!(outcome, GlobalCkfIngestOutcome::SnapshotInstalled { .. }), "{outcome:?}");
        ticks
    }

    /// Wraps the producer's images in the next delta of the stream, and applies it.
    pub fn apply(&mut self, batch: &DcCkfPublicationBatch) {
        let images = batch.images().to_vec();
        if images.is_empty() {
            return;
        }
        let next = self.sequence + 1;
        let delta = GlobalCkfDelta::new(self.identity, self.lease, self.sequence, next, images);
        let outcome = self.ingestor.apply_delta(&delta);
        assert!(matches!(outcome, GlobalCkfIngestOutcome::DeltaApplied { .. }), "{outcome:?}");
        self.sequence = next;
    }
}

fn config(workload: &dyn Workload) -> CkfConfig {
    CkfConfig::new(workload.blocks_per_lane())
}

/// The producer of one lane, fed with all that the lane holds.
fn producer(workload: &dyn Workload, lane: usize) -> DcCkfState {
    let mut state = DcCkfState::new(config(workload)).expect("memory");
    for place in workload.lane_placements(lane) {
        let chain = workload.chain(place.chain);
        let outcome = state.apply_event(store_event(0, &chain, place.from, place.to));
        assert!(outcome.first_error().is_none(), "{:?}", outcome.first_error());
    }
    state
}

impl Filter {
    /// An empty filter of `lanes` lanes for producers of this format.
    pub fn new(lanes: usize, format: DcCkfFormatIdentity) -> Self {
        let domain = IndexerDomainId::new(
            CacheSemanticsId::new([1; 16], IdentitySource::Explicit),
            RoutingScopeId::new([2; 16], IdentitySource::Explicit),
        );
        let pool = |lane: usize| PoolId::new(domain, DcId::new(lane as u64 + 1));
        let consumer = ConsumerInstanceId::new(7);
        let pools = std::array::from_fn(|lane| (lane < lanes).then(|| pool(lane)));
        let manifest = GlobalCkfManifest::new(consumer, domain, format, pools).expect("manifest");
        let indexer =
            GlobalCkfIndexer::new(manifest, PrefixSearchConfig::default()).expect("memory");
        let lanes = (0..lanes)
            .map(|lane| FilterLane {
                ingestor: indexer.claim_lane(lane).expect("first claim"),
                identity: ProducerIdentity::new(pool(lane), 1, 1, format),
                lease: LaneLease::new(consumer, lane as u8, 1),
                sequence: 0,
            })
            .collect();
        Self { indexer, lanes }
    }

    /// Runs one producer per lane over the workload and installs its snapshot. Returns the filter and the ticks of each installation.
    pub fn build(workload: &dyn Workload) -> (Self, Vec<u64>) {
        let format = DcCkfState::new(config(workload)).expect("memory").format();
        let mut filter = Self::new(workload.lanes(), format);
        let snapshot = |lane| producer(workload, lane).barrier_snapshot().expect("memory").1;
        let install = |lane: usize, buckets| filter.lanes[lane].install(buckets);
        let ticks = in_pairs(workload.lanes(), snapshot, install);
        (filter, ticks)
    }

    /// Takes lane 0 out for a thread of its own, together with the producer that feeds it.
    pub fn take_first_lane(&mut self, workload: &dyn Workload) -> (FilterLane, DcCkfState) {
        let mut lane = self.lanes.remove(0);
        let mut state = producer(workload, 0);
        lane.install(state.barrier_snapshot().expect("memory").1);
        (lane, state)
    }

    /// Bytes of the table, from its published shape.
    pub fn own_bytes(&self) -> usize {
        self.indexer.manifest().format().bucket_count() * FILTER_LANES * size_of::<u64>()
    }

    /// How full a lane with this many blocks is.
    pub fn load(&self, blocks: usize) -> f64 {
        blocks as f64 / (4 * self.indexer.manifest().format().bucket_count()) as f64
    }

    /// The lookup; its sequence hashing is inside.
    #[inline]
    pub fn find(&self, query: &[LocalBlockHash]) -> GlobalCkfQueryResult {
        self.indexer.find_prefix_matches(query).expect("lanes are ready")
    }

    pub fn depths(&self, query: &[LocalBlockHash]) -> Depths {
        let mut depths = [0; MAX_LANES];
        let result = self.find(query);
        for found in result.lanes().iter().flatten() {
            depths[usize::from(found.physical_lane())] = found.prefix_depth();
        }
        depths
    }
}

/// The exact compressed radix tree.
pub struct Tree {
    pub index: Arc<ConcurrentRadixTreeCompressed>,
}

impl Tree {
    /// Feeds the workload through one worker thread, as the thread pool around the tree does, and
    /// lets the thread (with its per-worker maps, which lookups do not use) end.
    pub fn build(workload: &dyn Workload) -> Self {
        let index = Arc::new(ConcurrentRadixTreeCompressed::new());
        let (events, receiver) = flume::bounded(1024);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(1);
                index.worker(receiver, None).expect("no error");
            });
            for place in workload.placements() {
                let chain = workload.chain(place.chain);
                let event = store_event(place.lane as u64, &chain, place.from, place.to);
                events.send(WorkerTask::Event(event)).expect("worker lives");
            }
            events.send(WorkerTask::Terminate).expect("worker lives");
        });
        Self { index }
    }

    pub fn depths(&self, query: &[LocalBlockHash]) -> Depths {
        let mut depths = [0; MAX_LANES];
        for (worker, &score) in &self.index.find_matches(query, false).scores {
            depths[worker.worker_id as usize] = score;
        }
        depths
    }
}

/// Applies these events on the calling thread, as one of the tree's workers; returns how many.
pub fn run_worker(index: &ConcurrentRadixTreeCompressed, events: Vec<RouterEvent>) -> usize {
    let count = events.len();
    let (sender, receiver) = flume::unbounded();
    for event in events {
        sender.send(WorkerTask::Event(event)).expect("receiver lives");
    }
    sender.send(WorkerTask::Terminate).expect("receiver lives");
    index.worker(receiver, None).expect("no error");
    count
}

/// The producer of one pool.
pub struct Producer(DcCkfState);

impl Subject for Producer {
    type Command = RouterEvent;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        let mut config = CkfConfig::new(bucket_count * 16 / 5);
        config.publish_every_n_events = cadence;
        let state = DcCkfState::new(config).expect("memory");
        assert_eq!(state.format().bucket_count(), bucket_count);
        Self(state)
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> RouterEvent {
        store_event(member as u64, chain, from, to)
    }

    fn remove(member: usize, hashes: &[u64]) -> RouterEvent {
        remove_event(member as u64, hashes)
    }

    fn apply(&mut self, event: RouterEvent) -> usize {
        let outcome = self.0.apply_event(event);
        assert!(outcome.first_error().is_none(), "{:?}", outcome.first_error());
        outcome.publication().map_or(0, |batch| batch.images().len())
    }

    fn filter_bytes(&self) -> usize {
        self.0.stats().memory().filter_bytes()
    }

    /// Its maps, from their capacities: 16 bytes an entry and one control byte, at 7/8 load.
    fn own_bytes(&self) -> usize {
        let memory = self.0.stats().memory();
        (memory.source_lineage_capacity() + memory.canonical_owner_capacity()) / 7 * 8 * 17
    }

    fn edges(&self) -> usize {
        self.0.stats().aggregation().contribution_count()
    }
}

impl Publishing for Producer {
    fn snapshot_bytes(&mut self) -> usize {
        const CHUNK_BUCKETS: usize = 524_288;
        let (_, words) = self.0.barrier_snapshot().expect("memory");
        words.chunks(CHUNK_BUCKETS).map(|chunk| 48 + 16 + 8 * chunk.len()).sum()
    }

    fn published_bytes(&mut self, event: RouterEvent) -> usize {
        match self.apply(event) {
            0 => 0,
            images => 48 + 12 + 12 * images,
        }
    }
}

/// Producers and consumer of the load test.
pub struct Load;

/// All producers, each with the lane it feeds.
pub struct LoadWriter(Vec<(DcCkfState, FilterLane)>);

impl load::Subject for Load {
    type Request = Vec<LocalBlockHash>;
    type Event = RouterEvent;
    type Writer = LoadWriter;
    type Reader = GlobalCkfIndexer;

    fn start(blocks_per_pool: usize) -> (LoadWriter, GlobalCkfIndexer) {
        let config = CkfConfig::new(blocks_per_pool);
        let state = || DcCkfState::new(config).expect("memory");
        let filter = Filter::new(POOLS, state().format());
        let pair = |mut lane: FilterLane| {
            let mut state = state();
            lane.install(state.barrier_snapshot().expect("memory").1);
            (state, lane)
        };
        (LoadWriter(filter.lanes.into_iter().map(pair).collect()), filter.indexer)
    }

    fn request(chain: &Chain) -> Vec<LocalBlockHash> {
        chain.local.iter().copied().map(LocalBlockHash).collect()
    }

    fn events(step: &Step) -> Vec<RouterEvent> {
        let mut events = Vec::new();
        if step.held < step.chain.local.len() {
            events.push(store_event(
                step.member as u64,
                &step.chain,
                step.held,
                step.chain.local.len(),
            ));
        }
        if !step.evicted.is_empty() {
            events.push(remove_event(step.member as u64, &step.evicted));
        }
        events
    }

    fn write(writer: &mut LoadWriter, pool: usize, event: RouterEvent) {
        let (state, lane) = &mut writer.0[pool];
        // A full filter leaves blocks out and says so; that is no failure of the stream.
        if let Some(batch) = state.apply_event(event).into_publication() {
            lane.apply(&batch);
        }
    }

    fn find(reader: &GlobalCkfIndexer, request: &Vec<LocalBlockHash>) -> u32 {
        let result = reader.find_prefix_matches(request).expect("lanes are ready");
        result.lanes().iter().flatten().map(|lane| lane.prefix_depth()).max().unwrap_or(0)
    }

    fn drained(writer: &LoadWriter) -> bool {
        writer.0.iter().all(|(state, lane)| {
            !state.has_pending_publication()
                && lane.ingestor.installed_sequence() == Some(lane.sequence)
        })
    }
}

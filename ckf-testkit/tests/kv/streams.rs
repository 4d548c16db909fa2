//! Recorded publishers, loss and replay included, through stage 1 into a pool.

use core::num::NonZeroU32;
use std::collections::BTreeMap;

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId, Sizing};
use ckf_producer::source::{
    ChainedIds, EngineEvent, EventId, Front, Medium, RequestKind, SourceConfig, SourceGeneration,
    SourceStream, StreamState, Tokens, Translator, TranslatorConfig,
};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};
use ckf_protocol::Instant;
use ckf_testkit::kv_events::{Batch, Capture, Channel};
use ckf_testkit::rng::Rng;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{chains, shared};

const BLOCK: usize = 16;
const STREAMS: [&str; 4] =
    ["vllm_0.23_array", "vllm_0.33_map", "sglang_0.5.23_map", "trtllm_stream"];

/// A recording with what stands beside it.
struct Recording {
    name: &'static str,
    /// Channel, sequence number, payload; a replay request has no payload.
    records: Vec<(Channel, u64, Vec<u8>)>,
    beside: Value,
    /// The trace rows that are asked for: tokens of their full blocks.
    queries: Vec<(Vec<u32>, usize)>,
}

impl Recording {
    fn load(name: &'static str) -> Option<Self> {
        let bytes = shared::read(&format!("kv_events/streams/{name}.kvcap"))?;
        let beside = shared::json(&format!("kv_events/streams/{name}.json"))?;
        let mut records = Vec::new();
        for record in Capture::new(&bytes).unwrap() {
            let record = record.unwrap();
            let (number, payload) = match record.channel {
                Channel::ReplayRequest => (record.requested().unwrap(), Vec::new()),
                _ => record.batch().map(|(number, payload)| (number, payload.to_vec())).unwrap(),
            };
            records.push((record.channel, number, payload));
        }
        let count = |channel| records.iter().filter(|record| record.0 == channel).count() as u64;
        assert_eq!(Some(count(Channel::Live)), beside["records"]["live"].as_u64());
        assert_eq!(Some(count(Channel::ReplayAnswer)), beside["records"]["replay_reply"].as_u64());

        let trace = shared::read("traces/mooncake_fast25_conversation.jsonl")?;
        let rows: Vec<&[u8]> = trace.split(|byte| *byte == b'\n').collect();
        let queries: Vec<(Vec<u32>, usize)> = beside["queries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|query| {
                let [row, blocks, depth] = [0, 1, 2].map(|i| query[i].as_u64().unwrap() as usize);
                let row: Value = serde_json::from_slice(rows[row]).unwrap();
                let ids = row["hash_ids"].as_array().unwrap()[..blocks].iter();
                let tokens = |id: &Value| {
                    let first = id.as_u64().unwrap() as u32 * BLOCK as u32 + 100;
                    first..first + BLOCK as u32
                };
                (ids.flat_map(tokens).collect(), depth)
            })
            .collect();
        assert_eq!(queries.len(), 200);
        Some(Self { name, records, beside, queries })
    }

    fn is_vllm(&self) -> bool {
        self.name.starts_with("vllm")
    }

    /// Streams whose numbering starts at 0 say so; the others begin with a clear.
    fn config(&self) -> SourceConfig {
        let first = self.beside["first_sequence"].as_u64().unwrap();
        SourceConfig::new(1).with_first_event((first == 0).then_some(EventId::new(0)))
    }

    /// Every block that was ever stored: its hash from tokens, found by following parents.
    fn all_blocks(&self) -> BTreeMap<EngineBlockId, BlockHash> {
        let mut batches: BTreeMap<u64, &[u8]> = BTreeMap::new();
        for (channel, number, payload) in &self.records {
            if *channel != Channel::ReplayRequest && !payload.is_empty() {
                batches.insert(*number, payload);
            }
        }
        let mut blocks = BTreeMap::new();
        for payload in batches.values() {
            for event in Batch::decode(payload).unwrap().into_engine_events() {
                let EngineEvent::Stored(stored) = event else { continue };
                let Tokens::Plain(tokens) = &stored.tokens else { panic!("no pairs here") };
                let parent = stored.parent.map(|parent| blocks[&parent]);
                let locals = Scope::default().local_hashes(tokens, BLOCK);
                let hashes = ckf_core::sequence::roll_all(parent, locals);
                blocks.extend(stored.ids.iter().copied().zip(hashes));
            }
        }
        blocks
    }

    /// Digest of ids in the order of the numbers that the engine publishes.
    fn digest(&self, mut ids: Vec<EngineBlockId>) -> String {
        match self.is_vllm() {
            true => ids.sort_unstable_by_key(|id| id.get()),
            false => ids.sort_unstable_by_key(|id| id.get() as i64),
        }
        let mut sha = Sha256::new();
        ids.iter().for_each(|id| sha.update(id.get().to_le_bytes()));
        sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A stream and a pool that follow a recording.
struct Follower<F: Front> {
    stream: SourceStream<F>,
    pool: Pool,
}

const LIFE: SourceGeneration = SourceGeneration::new(1);
const NOW: Instant = Instant::ZERO;

impl<F: Front<Event = Vec<EngineEvent>>> Follower<F> {
    fn new(recording: &Recording, front: F) -> Self {
        let rank = recording.beside["data_parallel_rank"].as_u64().unwrap() as u32;
        let format = Sizing::for_blocks(6000, 600).unwrap().format(42);
        let pool = Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]))).unwrap();
        let stream = SourceStream::new(Member::new(1, rank), recording.config(), front);
        Self { stream, pool }
    }

    fn member(&self) -> Member {
        self.stream.member()
    }

    fn event(&mut self, number: u64, payload: &[u8]) {
        let batch = Batch::decode(payload).unwrap();
        assert_eq!(batch.rank, Some(self.member().rank.get()));
        let events = batch.into_engine_events();
        self.stream.handle_event(LIFE, EventId::new(number), events, NOW);
        while let Some(command) = self.stream.poll_command() {
            assert_eq!(self.pool.apply(&command).error, None);
        }
    }

    /// Follows the recording as it was made.
    fn follow(&mut self, recording: &Recording) {
        let checkpoints: BTreeMap<u64, u64> = recording.beside["checkpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|at| (at[0].as_u64().unwrap(), at[1].as_u64().unwrap()))
            .collect();
        let mut seen = 0;
        let mut request = None;
        for (channel, number, payload) in &recording.records {
            match channel {
                Channel::ReplayRequest => {
                    let asked = self.stream.poll_request().expect("a gap is open");
                    let RequestKind::History { from, .. } = asked.kind else { panic!("{asked:?}") };
                    assert_eq!(from.get(), *number, "the question that was recorded");
                    request = Some(asked.id);
                }
                Channel::ReplayAnswer if payload.is_empty() => {
                    self.stream.handle_history_end(request.expect("asked before"), NOW);
                }
                _ => {
                    self.event(*number, payload);
                    let applied = self.stream.applied().map(EventId::get);
                    if let Some(resident) = checkpoints.get(&applied.unwrap_or(u64::MAX)) {
                        let owned = self.pool.owned_blocks(self.member());
                        assert_eq!(owned, *resident, "{}: after {applied:?}", recording.name);
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen + 1 >= checkpoints.len(), "one may fall into the middle of the replay");
        assert_eq!(self.stream.poll_request(), None);
        let stats = self.stream.stats();
        assert_eq!((stats.recoveries, stats.full_states, stats.requests), (1, 0, 1));
    }

    /// Checks the end state: resident count, digest, and every depth, exact and in the filter.
    fn check(
        &self,
        recording: &Recording,
        blocks: &BTreeMap<EngineBlockId, BlockHash>,
        query: impl Fn(&[u32]) -> Vec<BlockHash>,
    ) {
        let name = recording.name;
        assert_eq!(self.stream.state(), StreamState::Live, "{name}");
        let last = recording.beside["last_sequence"].as_u64().map(EventId::new);
        assert_eq!(self.stream.applied(), last, "{name}");
        let member = self.member();
        let resident: Vec<EngineBlockId> = blocks
            .iter()
            .filter(|(_, hash)| self.pool.owns(member, **hash))
            .map(|(id, _)| *id)
            .collect();
        let end = &recording.beside["final"];
        assert_eq!(Some(resident.len() as u64), end["resident_blocks"].as_u64(), "{name}");
        assert_eq!(self.pool.owned_blocks(member), resident.len() as u64, "{name}");
        assert_eq!(Some(&*recording.digest(resident)), end["resident_digest"].as_str(), "{name}");
        for (tokens, depth) in &recording.queries {
            let prompt = query(tokens);
            let exact = prompt.iter().take_while(|hash| self.pool.owns(member, **hash)).count();
            let seen = prompt.iter().take_while(|hash| self.pool.table().contains(**hash)).count();
            assert_eq!((exact, seen), (*depth, *depth), "{name}");
        }
    }
}

fn translator() -> Translator {
    Translator::new(TranslatorConfig::new(NonZeroU32::new(BLOCK as u32).unwrap(), shared::SEEDS))
}

fn canonical(tokens: &[u32]) -> Vec<BlockHash> {
    Scope::default().block_hashes(tokens, BLOCK).collect()
}

#[test]
fn recorded_streams_end_in_the_recorded_state() {
    for name in STREAMS {
        let Some(recording) = Recording::load(name) else { return };
        let mut follower = Follower::new(&recording, translator());
        follower.follow(&recording);
        let blocks = recording.all_blocks();
        follower.check(&recording, &blocks, canonical);
        let stats = follower.stream.front().stats();
        assert_eq!((stats.orphans, stats.opaque, stats.ambiguous, stats.refused), (0, 0, 0, 0));
        assert_eq!(stats.unknown_removals, 0);
        assert_eq!(follower.stream.front().blocks(), (6000, 6000));
        assert_eq!(follower.pool.check(), Ok(()));
    }
}

#[test]
fn recorded_streams_with_the_engines_own_hashes_end_in_the_recorded_state() {
    for name in STREAMS {
        let Some(recording) = Recording::load(name) else { return };
        let mut follower = Follower::new(&recording, ChainedIds::new(Medium::Device));
        follower.follow(&recording);
        // What the pool holds are the ids themselves, and readers rebuild them.
        let ids = recording.all_blocks().into_keys();
        let blocks = ids.map(|id| (id, BlockHash::new(id.get()))).collect();
        follower.check(&recording, &blocks, |tokens| match name {
            "vllm_0.23_array" => chains::vllm("0", tokens, BLOCK),
            "vllm_0.33_map" => chains::vllm("vllm-none-hash", tokens, BLOCK),
            _ => chains::sglang(tokens, BLOCK),
        });
    }
}

#[test]
fn recorded_streams_survive_any_loss_that_the_source_can_answer() {
    for (seed, name) in (0..).zip(STREAMS.iter().cycle().take(12)) {
        let Some(recording) = Recording::load(name) else { return };
        let mut batches: BTreeMap<u64, &[u8]> = BTreeMap::new();
        for (channel, number, payload) in &recording.records {
            if *channel != Channel::ReplayRequest && !payload.is_empty() {
                batches.insert(*number, payload);
            }
        }
        let mut rng = Rng::new(seed);
        let mut follower = Follower::new(&recording, translator());
        // The source's first batch makes the state known; of the others a third are lost, and some
        // come twice or late. Every question is answered in the end, as replay sockets do: from
        // the number asked to the newest batch.
        let mut late = Vec::new();
        let first = *batches.keys().next().unwrap();
        for (number, payload) in &batches {
            if *number == first || rng.chance(0.6) {
                follower.event(*number, payload);
            } else if rng.chance(0.3) {
                late.push((*number, *payload));
            }
            if rng.chance(0.05) {
                late.drain(..).for_each(|(number, payload)| follower.event(number, payload));
                follower.event(*number, payload);
            }
            if rng.chance(0.1)
                && let Some(request) = follower.stream.poll_request()
            {
                let RequestKind::History { from, .. } = request.kind else { panic!("{request:?}") };
                for (number, payload) in batches.range(from.get()..=*number) {
                    follower.event(*number, payload);
                }
                follower.stream.handle_history_end(request.id, NOW);
            }
        }
        let last = *batches.keys().last().unwrap();
        follower.stream.handle_heartbeat(LIFE, Some(EventId::new(last)), NOW);
        while let Some(request) = follower.stream.poll_request() {
            let RequestKind::History { from, .. } = request.kind else { panic!("{request:?}") };
            for (number, payload) in batches.range(from.get()..) {
                follower.event(*number, payload);
            }
            follower.stream.handle_history_end(request.id, NOW);
        }
        follower.check(&recording, &recording.all_blocks(), canonical);
    }
}

//! The synthetic families: who holds what, which queries are asked, and the exact truth.

use std::collections::HashSet;
use std::path::Path;

use dynamo_kv_router::LocalBlockHash;
use dynamo_kv_router::protocols::compute_seq_hash_for_block;

use crate::measure::{Rng, mix};

/// Most lanes that any index here has.
pub const MAX_LANES: usize = 64;
/// Depth found per lane; lanes beyond the configured ones stay 0.
pub type Depths = [u32; MAX_LANES];

/// One chain of blocks: block-local hashes and the canonical sequence hashes that follow from them.
#[derive(Clone, Default)]
pub struct Chain {
    pub local: Vec<u64>,
    pub sequence: Vec<u64>,
}

impl Chain {
    pub fn new(local: Vec<u64>) -> Self {
        let wrapped: Vec<_> = local.iter().copied().map(LocalBlockHash).collect();
        Self { sequence: compute_seq_hash_for_block(&wrapped), local }
    }
}

/// A request and the depth that each lane truly holds of it.
pub struct Query {
    pub chain: Chain,
    pub truth: Depths,
}

/// One `store` that a lane sees: blocks `from..to` of chain `chain`, after block `from - 1`.
#[derive(Clone, Copy)]
pub struct Placement {
    pub chain: usize,
    pub lane: usize,
    pub from: usize,
    pub to: usize,
}

/// Everything the lookup benchmark needs to know about its data.
pub trait Workload: Sync {
    fn lanes(&self) -> usize;
    /// Chains are made on demand: at full size they would fill the memory being measured.
    fn chain(&self, chain: usize) -> Chain;
    /// Every placement, in the order in which the indexes are fed.
    fn placements(&self) -> Vec<Placement>;
    /// Those of one lane.
    fn lane_placements(&self, lane: usize) -> Vec<Placement>;
    fn queries(&self, count: usize) -> Vec<Query>;
    /// Distinct blocks in the fullest lane: what a filter is sized for.
    fn blocks_per_lane(&self) -> usize;
}

/// A chain that no workload holds and no query asks for.
pub fn fresh_chain(number: usize, length: usize) -> Chain {
    let base = !SEED ^ mix(number as u64 + 1);
    Chain::new((0..length as u64).map(|at| mix(base.wrapping_add(at))).collect())
}

/// Families of equal length. The home lane holds a family whole; every other lane holds, with
/// probability 1/4, a prefix of random length.
pub struct Families {
    lanes: usize,
    length: usize,
    /// Blocks held of family `f` by lane `l`, at `f * lanes + l`.
    held: Vec<u16>,
    queries: QueryLength,
}

/// How long the queries are.
#[derive(Clone, Copy)]
pub enum QueryLength {
    /// Uniform in this range, both ends included.
    Uniform(usize, usize),
    /// Always this many.
    Fixed(usize),
}

const SEED: u64 = 0xC0FF_EE00_5EED;

impl Families {
    /// As many families as give each lane about `blocks_per_lane` blocks.
    pub fn new(lanes: usize, blocks_per_lane: usize, length: usize, queries: QueryLength) -> Self {
        assert!((1..=MAX_LANES).contains(&lanes) && length < usize::from(u16::MAX));
        let mean_prefix = (1 + length) as f64 / 2.0;
        let per_home = length as f64 + (lanes - 1) as f64 * 0.25 * mean_prefix;
        let homes = (blocks_per_lane as f64 / per_home).round().max(1.0) as usize;
        let mut rng = Rng::new(SEED);
        let mut held = vec![0u16; homes * lanes * lanes];
        for (family, row) in held.chunks_exact_mut(lanes).enumerate() {
            for (lane, blocks) in row.iter_mut().enumerate() {
                if lane == family % lanes {
                    *blocks = length as u16;
                } else if rng.below(4) == 0 {
                    *blocks = 1 + rng.below(length) as u16;
                }
            }
        }
        Self { lanes, length, held, queries }
    }

    fn families(&self) -> usize {
        self.held.len() / self.lanes
    }
}

impl Workload for Families {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn chain(&self, family: usize) -> Chain {
        let base = SEED ^ mix(family as u64 + 1);
        Chain::new((0..self.length as u64).map(|at| mix(base.wrapping_add(at))).collect())
    }

    fn placements(&self) -> Vec<Placement> {
        let mut all = Vec::new();
        for (chain, row) in self.held.chunks_exact(self.lanes).enumerate() {
            let home = chain % self.lanes;
            let order = (0..self.lanes).map(|step| (home + step) % self.lanes);
            all.extend(order.filter(|&lane| row[lane] > 0).map(|lane| Placement {
                chain,
                lane,
                from: 0,
                to: usize::from(row[lane]),
            }));
        }
        all
    }

    fn lane_placements(&self, lane: usize) -> Vec<Placement> {
        let held = self.held.iter().skip(lane).step_by(self.lanes).enumerate();
        held.filter(|(_, blocks)| **blocks > 0)
            .map(|(chain, &blocks)| Placement { chain, lane, from: 0, to: usize::from(blocks) })
            .collect()
    }

    fn queries(&self, count: usize) -> Vec<Query> {
        let mut rng = Rng::new(SEED ^ 1);
        (0..count)
            .map(|_| {
                let length = match self.queries {
                    QueryLength::Uniform(low, high) => low + rng.below(high - low + 1),
                    QueryLength::Fixed(length) => length,
                };
                let family = rng.below(self.families());
                let unknown = rng.below(5) == 0;
                let mut truth = [0; MAX_LANES];
                if !unknown {
                    let row = &self.held[family * self.lanes..][..self.lanes];
                    for (depth, &held) in truth.iter_mut().zip(row) {
                        *depth = u32::from(held).min(length as u32);
                    }
                }
                // Families past the last one exist nowhere.
                let number = if unknown { self.families() + family } else { family };
                let mut chain = self.chain(number);
                chain.local.truncate(length);
                chain.sequence.truncate(length);
                Query { chain, truth }
            })
            .collect()
    }

    fn blocks_per_lane(&self) -> usize {
        (0..self.lanes)
            .map(|lane| {
                self.held.iter().skip(lane).step_by(self.lanes).map(|&b| usize::from(b)).sum()
            })
            .max()
            .unwrap_or(0)
    }
}

/// The block-local hashes of each request of a Mooncake file (`hash_ids` per line; an id stands for
/// a whole prefix, so equal ids imply equal predecessors).
pub fn mooncake_chains(path: &Path) -> Result<Vec<Vec<u64>>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let request = |line: &str| {
        let row: serde_json::Value =
            serde_json::from_str(line).map_err(|e| format!("{}: {e}", path.display()))?;
        let ids = row["hash_ids"].as_array().ok_or("row without hash_ids")?;
        // The last id may stand for a partial block, which no engine caches.
        let full = row["input_length"].as_u64().ok_or("row without input_length")? as usize / 512;
        let ids = ids.iter().take(full).filter_map(|id| id.as_u64());
        Ok(ids.map(|id| mix(SEED ^ (id + 1))).collect())
    };
    text.lines().filter(|line| !line.is_empty()).map(request).collect()
}

/// A recorded trace: its older half fills the lanes, its newer half is asked.
pub struct Trace {
    lanes: usize,
    chains: Vec<Vec<u64>>,
    placements: Vec<Placement>,
    first_query: usize,
    held: Vec<HashSet<u64>>,
}

impl Trace {
    /// Spreads a Mooncake trace over the lanes.
    ///
    /// A request goes to the lane that holds most of it if that is at least half, three times in
    /// four, and otherwise to any lane, as a router that also watches load would send it.
    pub fn mooncake(path: &Path, lanes: usize) -> Result<Self, String> {
        let chains = mooncake_chains(path)?;
        let mut trace = Self {
            lanes,
            first_query: chains.len() / 2,
            chains,
            placements: Vec::new(),
            held: vec![HashSet::new(); lanes],
        };
        trace.place();
        Ok(trace)
    }

    fn place(&mut self) {
        let mut rng = Rng::new(SEED ^ 2);
        for number in 0..self.first_query {
            let chain = self.chain(number);
            let truth = self.truth(&chain);
            let best = (0..self.lanes).max_by_key(|&lane| truth[lane]).unwrap_or(0);
            let worth = truth[best] > 0 && 2 * truth[best] as usize >= chain.local.len();
            let lane = if worth && rng.below(4) > 0 { best } else { rng.below(self.lanes) };
            let (from, to) = (truth[lane] as usize, chain.local.len());
            if from == to {
                continue;
            }
            self.held[lane].extend(&chain.sequence);
            self.placements.push(Placement { chain: number, lane, from, to });
        }
    }

    fn truth(&self, chain: &Chain) -> Depths {
        std::array::from_fn(|lane| {
            self.held.get(lane).map_or(0, |held| {
                chain.sequence.iter().take_while(|hash| held.contains(hash)).count() as u32
            })
        })
    }
}

impl Workload for Trace {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn chain(&self, chain: usize) -> Chain {
        Chain::new(self.chains[chain].clone())
    }

    fn placements(&self) -> Vec<Placement> {
        self.placements.clone()
    }

    fn lane_placements(&self, lane: usize) -> Vec<Placement> {
        self.placements.iter().filter(|place| place.lane == lane).copied().collect()
    }

    fn queries(&self, count: usize) -> Vec<Query> {
        (self.first_query..self.chains.len())
            .map(|number| self.chain(number))
            .filter(|chain| !chain.local.is_empty())
            .take(count)
            .map(|chain| Query { truth: self.truth(&chain), chain })
            .collect()
    }

    fn blocks_per_lane(&self) -> usize {
        self.held.iter().map(HashSet::len).max().unwrap_or(0)
    }
}

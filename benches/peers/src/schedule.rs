//! What the load test offers: the conversation trace, several tenants at once, on 16 pools.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use crate::measure::{Rng, mix};
use crate::workload::{Chain, mooncake_chains};

/// Pools, and caches (members) in each.
pub const POOLS: usize = 16;
const MEMBERS: usize = 4;

/// One request: it is looked up, and then what its cache lacks is stored and what falls out of the
/// cache is removed.
pub struct Step {
    pub chain: Chain,
    pub pool: usize,
    pub member: usize,
    /// Blocks that the cache held already.
    pub held: usize,
    pub evicted: Vec<u64>,
}

impl Step {
    /// Block operations: blocks looked up, stored and removed.
    pub fn operations(&self) -> usize {
        2 * self.chain.local.len() - self.held + self.evicted.len()
    }
}

/// A schedule: steps that fill the caches, then steps that are offered at a rate.
pub struct Schedule {
    pub warm: Vec<Step>,
    pub timed: Vec<Step>,
}

impl Schedule {
    /// Replays the trace for as many tenants as it takes: caches of `blocks_per_pool` blocks a pool
    /// are filled first, then `operations` block operations follow.
    pub fn new(path: &Path, blocks_per_pool: usize, operations: usize) -> Result<Self, String> {
        let chains = mooncake_chains(path)?;
        let blocks: usize = chains.iter().map(Vec::len).sum();
        // About half of the blocks of a request are new to its cache.
        let tenants = (operations + 4 * POOLS * blocks_per_pool).div_ceil(2 * blocks).max(1);
        let mut fleet = Fleet::new(blocks_per_pool);
        let mut schedule = Self { warm: Vec::new(), timed: Vec::new() };
        let mut left = operations;
        for ids in &chains {
            for tenant in 0..tenants {
                let salt = mix(tenant as u64 + 1);
                let step = fleet.serve(Chain::new(ids.iter().map(|id| mix(id ^ salt)).collect()));
                if !fleet.full() {
                    schedule.warm.push(step);
                    continue;
                }
                left = left.saturating_sub(step.operations());
                schedule.timed.push(step);
                if left == 0 {
                    return Ok(schedule);
                }
            }
        }
        Ok(schedule)
    }
}

/// All caches, and which of them took each block last.
struct Fleet {
    caches: Vec<Cache>,
    holder: HashMap<u64, u32>,
    rng: Rng,
}

impl Fleet {
    fn new(blocks_per_pool: usize) -> Self {
        let cache = || Cache::new((blocks_per_pool / MEMBERS).max(1));
        Self {
            caches: (0..POOLS * MEMBERS).map(|_| cache()).collect(),
            holder: HashMap::new(),
            rng: Rng::new(21),
        }
    }

    /// Whether most caches have begun to evict.
    fn full(&self) -> bool {
        self.caches.iter().filter(|cache| cache.evicting).count() * 2 > self.caches.len()
    }

    fn serve(&mut self, chain: Chain) -> Step {
        let deepest = chain.sequence.iter().rev().find_map(|hash| self.holder.get(hash));
        let number = match deepest {
            Some(&holder) if self.rng.below(8) > 0 => holder as usize,
            _ => self.rng.below(self.caches.len()),
        };
        let cache = &mut self.caches[number];
        let held = cache.prefix(&chain.sequence);
        let evicted = cache.touch(&chain.sequence);
        self.holder.extend(chain.sequence.iter().map(|&hash| (hash, number as u32)));
        Step { chain, pool: number / MEMBERS, member: number % MEMBERS, held, evicted }
    }
}

/// A cache that evicts what was used longest ago, ends of chains first.
struct Cache {
    capacity: usize,
    clock: u64,
    used: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    evicting: bool,
}

impl Cache {
    fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, used: HashMap::new(), order: VecDeque::new(), evicting: false }
    }

    fn prefix(&self, chain: &[u64]) -> usize {
        chain.iter().take_while(|hash| self.used.contains_key(hash)).count()
    }

    /// Uses the whole chain; returns what had to go.
    fn touch(&mut self, chain: &[u64]) -> Vec<u64> {
        for &hash in chain.iter().rev() {
            self.clock += 1;
            self.used.insert(hash, self.clock);
            self.order.push_back((hash, self.clock));
        }
        let mut evicted = Vec::new();
        while self.used.len() > self.capacity {
            let Some((hash, stamp)) = self.order.pop_front() else { break };
            if self.used.get(&hash) == Some(&stamp) {
                self.used.remove(&hash);
                evicted.push(hash);
            }
        }
        self.evicting |= !evicted.is_empty();
        evicted
    }
}

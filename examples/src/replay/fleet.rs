//! The caches of all DCs and the router inside each DC.

use ckf_core::BlockHash;

use super::cache::{LruCache, Served};
use super::policy::{Policy, deepest_or_idlest, idlest};

/// Workers of every DC, with their caches and their recent load.
#[derive(Debug)]
pub struct Fleet {
    dcs: Vec<Vec<Worker>>,
    requests: u64,
}

#[derive(Debug)]
struct Worker {
    cache: LruCache,
    load: u64,
}

impl Fleet {
    /// `dcs` times `workers` empty caches of `blocks` blocks each.
    pub fn new(dcs: usize, workers: usize, blocks: usize) -> Self {
        let worker = || Worker { cache: LruCache::new(blocks), load: 0 };
        let dc = || (0..workers).map(|_| worker()).collect();
        Self { dcs: (0..dcs).map(|_| dc()).collect(), requests: 0 }
    }

    /// The DC a policy picks. `depths`, one a DC, are asked for only by the prefix policy.
    pub fn choose(
        &self,
        policy: Policy,
        depths: impl FnOnce() -> Vec<usize>,
        blocks: usize,
    ) -> usize {
        match policy {
            Policy::Prefix => deepest_or_idlest(&depths(), &self.loads(), blocks),
            Policy::Load => idlest(&self.loads()),
            Policy::RoundRobin => (self.requests % self.dcs.len() as u64) as usize,
        }
    }

    /// Serves a prompt in a DC: its own router knows its workers exactly and picks the one with the
    /// longest prefix, ties by load. Returns the worker and what happened to its cache.
    pub fn serve(&mut self, dc: usize, prompt: &[BlockHash]) -> (usize, Served) {
        let workers = &self.dcs[dc];
        let depths: Vec<_> = workers.iter().map(|worker| worker.cache.leading(prompt)).collect();
        let loads: Vec<_> = workers.iter().map(|worker| worker.load).collect();
        let chosen = deepest_or_idlest(&depths, &loads, prompt.len());

        self.requests += 1;
        for worker in self.dcs.iter_mut().flatten() {
            worker.load -= worker.load / LOAD_MEMORY;
        }
        let worker = &mut self.dcs[dc][chosen];
        let served = worker.cache.serve(prompt);
        let computed = (prompt.len() - served.hits) as u64;
        worker.load += (computed + 1) * LOAD_MEMORY;
        (chosen, served)
    }

    /// Empties the cache of one worker.
    pub fn restart(&mut self, dc: usize, worker: usize) {
        let cache = &mut self.dcs[dc][worker].cache;
        *cache = LruCache::new(cache.capacity());
    }

    /// The cache of one worker.
    pub fn cache(&self, dc: usize, worker: usize) -> &LruCache {
        &self.dcs[dc][worker].cache
    }

    fn loads(&self) -> Vec<u64> {
        self.dcs.iter().map(|dc| dc.iter().map(|worker| worker.load).sum()).collect()
    }
}

/// Load is the sum of the blocks computed, forgotten over about this many requests.
const LOAD_MEMORY: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(from: u64, len: u64) -> Vec<BlockHash> {
        (from..from + len).map(BlockHash::new).collect()
    }

    #[test]
    fn a_prompt_returns_to_the_worker_that_has_it() {
        let mut fleet = Fleet::new(2, 3, 100);
        let (worker, served) = fleet.serve(1, &prompt(0, 10));
        assert_eq!(served.hits, 0);
        for i in 1..9 {
            fleet.serve(1, &prompt(1_000 * i, 10));
        }
        let (again, served) = fleet.serve(1, &prompt(0, 10));
        assert_eq!((again, served.hits), (worker, 10));
        fleet.restart(1, worker);
        assert!(fleet.cache(1, worker).is_empty());
        assert_eq!(fleet.serve(1, &prompt(0, 10)).1.hits, 0);
    }

    #[test]
    fn each_policy_picks_as_it_says() {
        let mut fleet = Fleet::new(3, 1, 100);
        let no_depths = || -> Vec<usize> { unreachable!("only prefix asks for depths") };
        for turn in 0..6 {
            let dc = fleet.choose(Policy::RoundRobin, no_depths, 5);
            assert_eq!(dc, turn % 3);
            fleet.serve(dc, &prompt(100 * turn as u64, if dc == 1 { 1 } else { 5 }));
        }
        assert_eq!(fleet.choose(Policy::Load, no_depths, 5), 1);
        assert_eq!(fleet.choose(Policy::Prefix, || vec![0, 0, 4], 5), 2);
        assert_eq!(fleet.choose(Policy::Prefix, || vec![0, 0, 0], 5), 1);
    }
}

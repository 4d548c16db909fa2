//! The caches of all DCs and the router inside each DC.

use ckf_core::BlockHash;

use super::args::Args;
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
    /// Empty caches as the options say.
    pub fn new(args: &Args) -> Self {
        let blocks = args.blocks_per_worker as usize;
        let worker = || Worker { cache: LruCache::new(blocks), load: 0 };
        let dc = || (0..args.workers).map(|_| worker()).collect();
        Self { dcs: (0..args.dcs).map(|_| dc()).collect(), requests: 0 }
    }

    /// The DC that a policy picks for a prompt of so many blocks. `depths` has one entry a DC,
    /// `None` where nothing is known of it: to the prefix policy that is a miss.
    pub fn choose(&self, policy: Policy, depths: &[Option<usize>], blocks: usize) -> usize {
        match policy {
            Policy::Prefix => {
                let depths: Vec<_> = depths.iter().map(|depth| depth.unwrap_or(0)).collect();
                deepest_or_idlest(&depths, &self.loads(), blocks)
            }
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
    use clap::Parser;

    fn prompt(from: u64, len: u64) -> Vec<BlockHash> {
        (from..from + len).map(BlockHash::new).collect()
    }

    fn fleet(options: &str) -> Fleet {
        Fleet::new(&Args::parse_from(std::iter::once("replay").chain(options.split(' '))))
    }

    #[test]
    fn a_prompt_returns_to_the_worker_that_has_it() {
        let mut fleet = fleet("--dcs 2 --workers 3 --blocks-per-worker 100");
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
        let mut fleet = fleet("--dcs 3 --workers 1 --blocks-per-worker 100");
        let deep = [Some(0), None, Some(4)];
        for turn in 0..6 {
            let dc = fleet.choose(Policy::RoundRobin, &deep, 5);
            assert_eq!(dc, turn % 3);
            fleet.serve(dc, &prompt(100 * turn as u64, if dc == 1 { 1 } else { 5 }));
        }
        assert_eq!(fleet.choose(Policy::Load, &deep, 5), 1);
        assert_eq!(fleet.choose(Policy::Prefix, &deep, 5), 2);
        assert_eq!(fleet.choose(Policy::Prefix, &[Some(0); 3], 5), 1);
    }
}

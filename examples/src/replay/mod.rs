//! The multi-DC replay: requests, caches, the whole path through the crates, and the exact truth
//! beside it.
//!
//! What happens to a request:
//! 1. the clock advances to its arrival, and all that was due until then is done;
//! 2. the consumer is asked how long a prefix each DC holds, and the oracle judges each answer;
//! 3. the policy picks a DC, whose own router picks a worker; the worker's cache serves the prompt;
//! 4. the worker's event goes through stage 1 into the producer, whose frames go over the wire to
//!    the lane session, which updates the consumer's table.
//!
//! Time is a simulated clock in integer milliseconds. Only the duration of lookups is real.

pub mod args;
pub mod cache;
pub mod consumer;
pub mod dc;
pub mod figures;
pub mod fleet;
pub mod histogram;
pub mod judge;
pub mod oracle;
pub mod policy;
pub mod report;
pub mod restarts;
pub mod svg;
pub mod timeline;
pub mod worker;

use std::time::Instant as Stopwatch;

use ckf_core::Sizing;
use ckf_protocol::{DcId, IdentityHalf, IdentitySource, IndexerDomainId, Manifest, PoolId};

use crate::trace::Request;
use args::Args;
use consumer::ConsumerHost;
use dc::{Dc, DcConfig, Wire};
use figures::{Figures, PolicyFigures, ratio};
use fleet::Fleet;
use histogram::Histogram;
use judge::Judge;
use oracle::Oracle;
use policy::Policy;
use restarts::{Restart, Restarts};
use timeline::{Timeline, Window};

/// Longer pauses of the trace are shortened to this many milliseconds: nothing happens in them.
const LONGEST_PAUSE: u64 = 60_000;

/// Simulated milliseconds that the final drain may take: several times the longest back-off.
const LONGEST_DRAIN: u64 = 15 * 60_000;

/// Why a replay could not be set up or continued.
pub type Error = Box<dyn std::error::Error>;

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    now: u64,
    last_arrival: Option<u64>,
    /// The policies side by side, each with caches of its own. The first one's caches feed all that
    /// follows; the others only show what hit rate they would have had.
    runs: Vec<Run>,
    oracle: Oracle,
    dcs: Vec<Dc>,
    wires: Vec<Wire>,
    consumer: ConsumerHost,
    restarts: Restarts,
    judge: Judge,
    lookups: Histogram,
    timeline: Timeline,
    blocks_queried: u64,
}

#[derive(Debug)]
struct Run {
    policy: Policy,
    fleet: Fleet,
    hits: u64,
}

impl Replay {
    /// Empty data centers, and a consumer that has just connected to them.
    ///
    /// # Errors
    /// When the filters would be too large for the format or for the memory.
    pub fn new(args: &Args) -> Result<Self, Error> {
        let blocks = u64::from(args.workers) * u64::from(args.blocks_per_worker);
        let format = Sizing::for_blocks(blocks, Sizing::DEFAULT_LOAD)?.format(args.seed);
        let explicit = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
        let domain = IndexerDomainId { cache_semantics: explicit(1), routing_scope: explicit(2) };
        let ids = || (0..u64::from(args.dcs)).map(DcId::new);
        let manifest =
            ids().fold(Manifest::builder(domain, format), |all, dc| all.dc(dc)).build()?;
        let new_dc = |dc| {
            Dc::new(DcConfig {
                pool: PoolId { domain, dc },
                format,
                workers: args.workers,
                publish_every: args.publish_every,
                faults: args.faults(),
                seed: args.seed,
            })
        };
        let new_run = |policy| Run { policy, fleet: Fleet::new(args), hits: 0 };
        let mut replay = Self {
            now: 0,
            last_arrival: None,
            runs: args.policies().into_iter().map(new_run).collect(),
            oracle: Oracle::new(args.dcs as usize),
            dcs: ids().map(new_dc).collect::<Result<_, _>>()?,
            wires: ids().map(|dc| Wire::new(args.faults(), args.seed, dc)).collect(),
            consumer: ConsumerHost::new(manifest, args.seed)?,
            restarts: Restarts::new(args),
            judge: Judge::default(),
            lookups: Histogram::default(),
            timeline: Timeline::default(),
            blocks_queried: 0,
        };
        replay.pump();
        Ok(replay)
    }

    /// Replays one request. Cost: the prompt's blocks, times the DCs and the policies.
    ///
    /// # Errors
    /// When memory for a restarted producer or consumer is refused.
    pub fn request(&mut self, request: &Request) -> Result<(), Error> {
        let pause = request.at.saturating_sub(self.last_arrival.unwrap_or(request.at));
        self.last_arrival = self.last_arrival.max(Some(request.at));
        self.advance(self.now + pause.min(LONGEST_PAUSE));
        if let Some(restart) = self.restarts.due() {
            self.restart(restart)?;
        }
        let wire_before = self.wire_bytes();
        let prompt = &request.blocks;

        let query = self.consumer.query();
        let stopwatch = Stopwatch::now();
        let matches = query.find_prefix(prompt);
        self.lookups.record(stopwatch.elapsed().as_nanos() as u64);
        let depths = consumer::depths(&matches, self.dcs.len());
        self.judge.judge(&depths, &self.oracle, prompt);

        let mut hits = Vec::with_capacity(self.runs.len());
        for (i, run) in self.runs.iter_mut().enumerate() {
            let dc = run.fleet.choose(run.policy, &depths, prompt.len());
            let (worker, served) = run.fleet.serve(dc, prompt);
            run.hits += served.hits as u64;
            hits.push(served.hits as u64);
            if i == 0 {
                self.oracle.served(dc, &served);
                self.dcs[dc].served(worker, served, self.now);
            }
        }
        self.pump();

        self.blocks_queried += prompt.len() as u64;
        let wire = self.wire_bytes();
        self.timeline.add(&Window {
            requests: 1,
            ends_at: self.now,
            blocks: prompt.len() as u64,
            hits,
            depths: depths
                .iter()
                .map(|depth| depth.map_or((0, 0), |depth| (1, depth as u64)))
                .collect(),
            wire: [wire[0] - wire_before[0], wire[1] - wire_before[1]],
        });
        Ok(())
    }

    /// Ends the faults and lets everything recover. Returns whether it did: every lane is ready
    /// and equals its producer's filter word for word, and every producer owns exactly as many
    /// blocks as the oracle says.
    pub fn drain(&mut self) -> bool {
        self.dcs.iter_mut().for_each(Dc::heal);
        self.wires.iter_mut().for_each(Wire::heal);
        let end = self.now + LONGEST_DRAIN;
        while self.now < end {
            for dc in &mut self.dcs {
                if dc.is_live() {
                    dc.drain(self.now);
                }
            }
            self.pump();
            if self.has_converged() {
                return true;
            }
            self.advance(self.now + 500);
        }
        false
    }

    /// The figures so far. `converged` is what [`drain`](Self::drain) said.
    pub fn figures(&self, converged: bool) -> Figures {
        let mut figures = Figures {
            requests: self.lookups.samples(),
            blocks_queried: self.blocks_queried,
            snapshots: self.consumer.counts().snapshots,
            resyncs: self.consumer.counts().resyncs,
            answers: self.judge.answers(),
            answers_equal: self.judge.equal,
            answers_over: self.judge.over,
            answers_under: self.judge.under,
            best_dc_wrong: self.judge.best_dc_wrong,
            lookup_ns_p50: self.lookups.percentile(0.50),
            lookup_ns_p99: self.lookups.percentile(0.99),
            converged,
            ..Figures::default()
        };
        for dc in &self.dcs {
            let counts = dc.counts();
            figures.events += counts.events;
            figures.commands += counts.commands;
            figures.batches += counts.batches;
            figures.images += counts.images;
            figures.wire_bytes_delta += counts.wire[0];
            figures.wire_bytes_snapshot += counts.wire[1];
            figures.omitted += dc.producer().pool().stats().omitted;
        }
        let rate = |run: &Run| ratio(run.hits, self.blocks_queried);
        figures.hit_rate = rate(&self.runs[0]);
        for run in &self.runs {
            figures.policies.insert(run.policy.name(), PolicyFigures { hit_rate: rate(run) });
        }
        figures
    }

    /// The course of the run, window by window.
    pub fn windows(&self) -> &[Window] {
        self.timeline.windows()
    }

    /// The durations of all lookups.
    pub fn lookups(&self) -> &Histogram {
        &self.lookups
    }

    /// Moves the clock, stopping wherever something is due.
    fn advance(&mut self, to: u64) {
        loop {
            let dcs = self.dcs.iter().map(Dc::next_due);
            let wires = self.wires.iter().filter_map(Wire::next_due);
            let due = dcs.chain(wires).chain(self.consumer.next_due()).min().unwrap_or(u64::MAX);
            if due > to {
                break;
            }
            // Always a step forward, even should something be due for ever.
            self.now = due.max(self.now + 1).min(to);
            self.pump();
            if self.now == to {
                return;
            }
        }
        self.now = to;
    }

    /// Does all that can be done now.
    fn pump(&mut self) {
        let fleet = &self.runs[0].fleet;
        for (i, (dc, wire)) in self.dcs.iter_mut().zip(&mut self.wires).enumerate() {
            let cache = |worker| fleet.cache(i, worker);
            while dc.pump(cache, wire, self.now) | self.consumer.pump(i, wire, self.now) {}
        }
    }

    fn restart(&mut self, restart: Restart) -> Result<(), Error> {
        match restart {
            Restart::Worker { dc, worker } => {
                self.oracle.lost(dc, self.runs[0].fleet.cache(dc, worker).blocks());
                for run in &mut self.runs {
                    run.fleet.restart(dc, worker);
                }
                self.dcs[dc].restart_worker(worker, self.now);
            }
            Restart::Producer { dc } => {
                self.dcs[dc].restart_producer(&mut self.wires[dc], self.now)?;
                self.consumer.disconnected(dc, self.now);
            }
            Restart::Consumer => {
                self.wires.iter_mut().for_each(Wire::cut);
                self.dcs.iter_mut().for_each(|dc| dc.replace_subscriber(self.now));
                self.consumer.restart(self.now)?;
            }
        }
        self.pump();
        Ok(())
    }

    fn has_converged(&self) -> bool {
        let same = |(i, dc): (usize, &Dc)| {
            let pool = dc.producer().pool();
            dc.is_live()
                && pool.stats().distinct_blocks == self.oracle.len(i) as u64
                && self.consumer.holds(i, &pool.format(), &pool.words().collect::<Vec<_>>())
        };
        self.dcs.iter().enumerate().all(same)
    }

    fn wire_bytes(&self) -> [u64; 2] {
        let sum = |[a, b]: [u64; 2], dc: &Dc| [a + dc.wire_bytes()[0], b + dc.wire_bytes()[1]];
        self.dcs.iter().fold([0, 0], sum)
    }
}

//! Lookups: every index over the same queries, in alternating rounds.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dynamo_kv_router::protocols::compute_seq_hash_for_block;
use dynamo_kv_router::{RouterEvent, SyncIndexer};
use serde_json::{Map, Value, json};

use crate::dynamo::{self, Filter, Tree};
use crate::kvindex::{self, ChainIdx};
use crate::measure::{Clock, Memory, Polluter, Samples, Summary, pin, round1};
use crate::ours;
use crate::workload::{Depths, MAX_LANES, Query, Workload, fresh_chain};

/// What an index cost to build and to hold.
#[derive(Clone, Default)]
pub struct Cost {
    pub build_s: f64,
    pub resident: i64,
    pub heap: i64,
    /// What the index itself says it uses, where it says so.
    pub own: Option<usize>,
    /// Ticks of each snapshot installation.
    pub installs: Vec<u64>,
}

impl Cost {
    /// Builds something and accounts for it.
    pub fn of<T>(build: impl FnOnce() -> T) -> (T, Cost) {
        let before = Memory::now();
        let start = Instant::now();
        let built = build();
        let build_s = start.elapsed().as_secs_f64();
        let used = Memory::since(before);
        (built, Cost { build_s, resident: used.resident, heap: used.heap, ..Cost::default() })
    }
}

/// One line of the comparison: an index called in one way.
pub struct Row {
    name: &'static str,
    /// Requests answered by one call.
    per_call: usize,
    /// Times every call of one round.
    round: Box<dyn Fn(&mut Samples)>,
    depths: Option<Box<dyn Fn(usize) -> Depths>>,
    cost: Option<Cost>,
    samples: Samples,
    first_round_p50: f64,
}

impl Row {
    /// A row that answers one request per call.
    pub fn single<Q: 'static, R>(
        name: &'static str,
        requests: Vec<Q>,
        call: impl Fn(&Q) -> R + 'static,
    ) -> Self {
        Self::batch(name, 1, requests, move |batch| call(&batch[0]))
    }

    /// A row that answers `per_call` requests per call.
    pub fn batch<Q: 'static, R>(
        name: &'static str,
        per_call: usize,
        requests: Vec<Q>,
        call: impl Fn(&[Q]) -> R + 'static,
    ) -> Self {
        let round = move |samples: &mut Samples| {
            for batch in requests.chunks_exact(per_call) {
                let before = Clock::ticks();
                black_box(call(black_box(batch)));
                samples.push(Clock::ticks() - before);
            }
        };
        Self {
            name,
            per_call,
            round: Box::new(round),
            depths: None,
            cost: None,
            samples: Samples::default(),
            first_round_p50: 0.0,
        }
    }

    /// Lets the row's answers to query `n` be compared with the truth.
    pub fn checked(mut self, depths: impl Fn(usize) -> Depths + 'static) -> Self {
        self.depths = Some(Box::new(depths));
        self
    }

    /// States what the index behind the row cost.
    pub fn costing(mut self, cost: &Cost) -> Self {
        self.cost = Some(cost.clone());
        self
    }
}

/// How to run the comparison.
#[derive(Clone, Copy)]
pub struct Options {
    pub queries: usize,
    pub rounds: usize,
    /// Also measure each filter while one of its lanes is being written.
    pub writer: bool,
}

/// Runs all rows over one workload. Keys of the result: the rows' names, `busy`, `workload`.
pub fn compare(workload: &dyn Workload, options: Options, clock: &Clock) -> Map<String, Value> {
    let queries: Rc<[Query]> = workload.queries(options.queries).into();
    let mut ours = ours::lookup_rows(workload, &queries);
    let mut theirs = peer_rows(workload, &queries);
    // Alternate, so that no index profits from the row before having touched the same lines.
    let mut rows = Vec::new();
    while !ours.is_empty() || !theirs.is_empty() {
        rows.extend(ours.drain(..ours.len().min(1)));
        rows.extend(theirs.drain(..theirs.len().min(1)));
    }
    let mut polluter = Polluter::new();
    for round in 0..options.rounds {
        let turn = round % rows.len();
        rows.rotate_left(turn);
        for row in &mut rows {
            let mut samples = Samples::default();
            samples.reserve(queries.len());
            polluter.run();
            (row.round)(&mut samples);
            if round == 0 {
                row.first_round_p50 = samples.summary(clock, row.per_call as f64).p50;
            }
            row.samples.append(samples);
        }
        rows.rotate_right(turn);
    }
    let mut out = Map::new();
    for row in &mut rows {
        let summary = row.samples.summary(clock, row.per_call as f64);
        out.insert(row.name.into(), row_json(row, &summary, &queries, clock));
    }
    drop(rows);
    let blocks: usize = queries.iter().map(|query| query.chain.local.len()).sum();
    out.insert(
        "workload".into(),
        json!({
            "lanes": workload.lanes(), "fullest_lane_blocks": workload.blocks_per_lane(),
            "queries": queries.len(), "rounds": options.rounds,
            "mean_query_blocks": round1(blocks as f64 / queries.len().max(1) as f64),
        }),
    );
    if options.writer {
        out.insert("busy".into(), busy(workload, &queries, clock));
    }
    out
}

fn row_json(row: &Row, summary: &Summary, queries: &[Query], clock: &Clock) -> Value {
    let mut json = summary.json();
    json["first_round_p50_ns"] = json!(round1(row.first_round_p50));
    if let Some(depths) = &row.depths {
        let (mut over, mut under, mut wrong_best) = (0u64, 0u64, 0u64);
        for (number, query) in queries.iter().enumerate() {
            let found = depths(number);
            for (found, truth) in found.iter().zip(&query.truth) {
                over += u64::from(found > truth);
                under += u64::from(found < truth);
            }
            // The lane a router would take, against the deepest there is.
            let (best, _) =
                found.iter().enumerate().rev().max_by_key(|(_, depth)| **depth).unwrap_or((0, &0));
            wrong_best += u64::from(Some(&query.truth[best]) < query.truth.iter().max());
        }
        json["over"] = json!(over);
        json["under"] = json!(under);
        json["wrong_best"] = json!(wrong_best);
    }
    if let Some(cost) = &row.cost {
        json["mem_bytes"] = json!(cost.resident.max(cost.heap));
        json["resident_bytes"] = json!(cost.resident);
        json["heap_bytes"] = json!(cost.heap);
        json["own_bytes"] = json!(cost.own);
        json["build_s"] = json!(round1(cost.build_s));
        if !cost.installs.is_empty() {
            let mut ticks = cost.installs.clone();
            ticks.sort_unstable();
            json["install_ms"] = json!(clock.ns(ticks[ticks.len() / 2]) / 1e6);
        }
    }
    json
}

fn peer_rows(workload: &dyn Workload, queries: &Rc<[Query]>) -> Vec<Row> {
    let local = || dynamo::local_hashes(queries);
    let content = || kvindex::content_hashes(queries);
    let mut rows = Vec::new();
    if workload.lanes() <= dynamo::FILTER_LANES {
        let ((filter, installs), mut cost) = Cost::of(|| Filter::build(workload));
        cost.own = Some(filter.own_bytes());
        cost.installs = installs;
        let (filter, checked) = (Rc::new(filter), local());
        let same = Rc::clone(&filter);
        rows.push(
            Row::single("dynamo.filter", local(), move |query| filter.find(query))
                .checked(move |number| same.depths(&checked[number]))
                .costing(&cost),
        );
    }
    let (chain, mut cost) = Cost::of(|| ChainIdx::build(workload));
    cost.own = Some(chain.own_bytes());
    let chain = Rc::new(chain);
    let (calls, same, checked) = (Rc::clone(&chain), Rc::clone(&chain), content());
    let row = if workload.lanes() <= 16 {
        Row::single("kvindex.chain", content(), move |query| calls.score::<16>(query))
    } else {
        Row::single("kvindex.chain", content(), move |query| calls.score::<MAX_LANES>(query))
    };
    rows.push(row.checked(move |number| same.score(&checked[number])).costing(&cost));
    let (tree, cost) = Cost::of(|| Tree::build(workload));
    let tree = Rc::new(tree);
    let (calls, same, checked) = (Rc::clone(&tree), tree, local());
    rows.push(
        Row::single("dynamo.tree", local(), move |query| calls.index.find_matches(query, false))
            .checked(move |number| same.depths(&checked[number]))
            .costing(&cost),
    );
    let hash = |query: &Vec<_>| compute_seq_hash_for_block(query);
    rows.push(Row::single("dynamo.hashing", local(), hash));
    let calls = chain;
    rows.push(Row::single("kvindex.find_matches", content(), move |query| {
        calls.index.find_matches(query, false)
    }));
    rows
}

/// Each index idle, then with a second thread storing and removing in lane 0 at full speed.
fn busy(workload: &dyn Workload, queries: &Rc<[Query]>, clock: &Clock) -> Value {
    let mut out = Map::new();
    if let Some((row, writer)) = ours::lookup_with_writer(workload, queries) {
        out.insert(row.name.into(), with_writer(&row, writer, clock));
    }
    for peer in [filter_with_writer, chain_with_writer, tree_with_writer] {
        if let Some((row, writer)) = peer(workload, queries) {
            out.insert(row.name.into(), with_writer(&row, writer, clock));
        }
    }
    out.into()
}

fn filter_with_writer(workload: &dyn Workload, queries: &Rc<[Query]>) -> Option<(Row, Writer)> {
    if workload.lanes() > dynamo::FILTER_LANES {
        return None;
    }
    let (mut filter, _) = Filter::build(workload);
    let (mut lane, mut state) = filter.take_first_lane(workload);
    let batches: Vec<_> =
        dynamo_writes().filter_map(|event| state.apply_event(event).into_publication()).collect();
    let row = Row::single("dynamo.filter", dynamo::local_hashes(queries), move |query| {
        filter.find(query)
    });
    let write = move || batches.iter().map(|batch| lane.apply(batch)).count();
    Some((row, Box::new(write)))
}

fn chain_with_writer(workload: &dyn Workload, queries: &Rc<[Query]>) -> Option<(Row, Writer)> {
    let index = Arc::new(ChainIdx::build(workload));
    let reads = Arc::clone(&index);
    let row = Row::single("kvindex.chain", kvindex::content_hashes(queries), move |query| {
        reads.score::<MAX_LANES>(query)
    });
    let writes: Vec<_> = (0..WRITES)
        .map(|write| {
            let (number, store) = nth_write(write);
            (fresh_chain(number, WRITE_BLOCKS), store)
        })
        .collect();
    let write = move || index.write(0, &writes);
    Some((row, Box::new(write)))
}

fn tree_with_writer(workload: &dyn Workload, queries: &Rc<[Query]>) -> Option<(Row, Writer)> {
    let tree = Tree::build(workload);
    let index = Arc::clone(&tree.index);
    let row = Row::single("dynamo.tree", dynamo::local_hashes(queries), move |query| {
        tree.index.find_matches(query, false)
    });
    let events: Vec<_> = dynamo_writes().collect();
    let write = move || dynamo::run_worker(&index, events);
    Some((row, Box::new(write)))
}

fn dynamo_writes() -> impl Iterator<Item = RouterEvent> {
    (0..WRITES).map(|write| {
        let (number, store) = nth_write(write);
        let chain = fresh_chain(number, WRITE_BLOCKS);
        if store {
            dynamo::store_event(0, &chain, 0, WRITE_BLOCKS)
        } else {
            dynamo::remove_event(0, &chain.sequence)
        }
    })
}

/// Deltas that a writer applies while queries run, and the blocks of each.
pub const WRITES: usize = 40_000;
pub const WRITE_BLOCKS: usize = 128;
const WRITE_WINDOW: usize = 64;

/// Which fresh chain the writer's step number `write` stores (true) or removes: at most
/// a small window of them is held at a time.
pub fn nth_write(write: usize) -> (usize, bool) {
    if write < WRITE_WINDOW {
        return (write, true);
    }
    let past = write - WRITE_WINDOW;
    if past % 2 == 0 { (past / 2, false) } else { (WRITE_WINDOW + past / 2, true) }
}

/// Writes everything it has at full speed; returns the number of deltas or events.
pub type Writer = Box<dyn FnOnce() -> usize + Send>;

fn with_writer(row: &Row, writer: Writer, clock: &Clock) -> Value {
    let mut polluter = Polluter::new();
    let mut round = || {
        let mut samples = Samples::default();
        polluter.run();
        (row.round)(&mut samples);
        samples
    };
    let mut idle = Samples::default();
    for _ in 0..3 {
        idle.append(round());
    }
    let done = AtomicBool::new(false);
    let mut busy = Samples::default();
    let (applied, seconds) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            pin(1);
            let start = Instant::now();
            let applied = writer();
            done.store(true, Ordering::Relaxed);
            (applied, start.elapsed().as_secs_f64())
        });
        while !done.load(Ordering::Relaxed) {
            let samples = round();
            // A round that outlived the writer was not wholly busy; keep it only if there is none.
            if !done.load(Ordering::Relaxed) || busy.is_empty() {
                busy.append(samples);
            }
        }
        writer.join().expect("writer does not panic")
    });
    let (idle, busy) = (idle.summary(clock, 1.0), busy.summary(clock, 1.0));
    json!({
        "idle": idle.json(), "busy": busy.json(), "p50_ratio": busy.p50 / idle.p50,
        "writes": applied, "writes_per_s": round1(applied as f64 / seconds),
    })
}

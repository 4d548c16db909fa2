//! Lookups: every index over the same queries, in alternating rounds.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::measure::{Clock, Memory, Polluter, Samples, Summary, pin, quiet, round1};
use crate::ours::Ours;
use crate::peers::Peers;
use crate::workload::{Depths, Query, Workload};

/// What an index cost to build and to hold.
#[derive(Clone, Default)]
pub struct Cost {
    pub build_s: f64,
    pub resident: i64,
    pub heap: i64,
    /// What the index itself says it uses, where it says so.
    pub own: Option<usize>,
    /// Of a filter: how full its fullest lane is.
    pub load: Option<f64>,
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

/// A request, as an index takes it.
pub trait Request {
    /// Reads it, so that it is as near as one that was made just before it is asked.
    fn bring_near(&self);
}

impl<T: Copy> Request for Vec<T> {
    fn bring_near(&self) {
        self.iter().for_each(|&item| _ = black_box(item));
    }
}

/// One line of the comparison: an index called in one way.
pub struct Row {
    name: &'static str,
    /// Requests answered by one call.
    per_call: usize,
    /// Times every call of one round.
    time: Box<dyn Fn() -> Samples>,
    depths: Option<Box<dyn Fn(usize) -> Depths>>,
    cost: Option<Cost>,
    samples: Samples,
    first_round_p50: f64,
}

impl Row {
    /// A row that answers one request per call.
    pub fn single<Q: Request + 'static, R>(
        name: &'static str,
        requests: Vec<Q>,
        call: impl Fn(&Q) -> R + 'static,
    ) -> Self {
        Self::batch(name, 1, requests, move |batch| call(&batch[0]))
    }

    /// A row that answers `per_call` requests per call.
    pub fn batch<Q: Request + 'static, R>(
        name: &'static str,
        per_call: usize,
        requests: Vec<Q>,
        call: impl Fn(&[Q]) -> R + 'static,
    ) -> Self {
        let time = move || {
            let mut samples = Samples::default();
            samples.reserve(requests.len() / per_call);
            for batch in requests.chunks_exact(per_call) {
                batch.iter().for_each(Request::bring_near);
                let before = Clock::ticks();
                black_box(call(black_box(batch)));
                samples.push(Clock::ticks() - before);
            }
            samples
        };
        Self {
            name,
            per_call,
            time: Box::new(time),
            depths: None,
            cost: None,
            samples: Samples::default(),
            first_round_p50: 0.0,
        }
    }

    fn round(&self) -> Samples {
        (self.time)()
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

/// Indexes filled with one workload: ours, or the peers'.
pub trait Side: Sized {
    fn build(workload: &dyn Workload) -> Self;
    /// Every way of calling every index.
    fn rows(&self, queries: &[Query]) -> Vec<Row>;
    /// Rows to be measured while lane 0 is written, with the writer of each.
    fn written(self, workload: &dyn Workload, queries: &[Query]) -> Vec<(Row, Writer)>;
}

/// Runs all rows over one workload. Keys of the result: the rows' names, `busy`, `workload`.
pub fn compare(workload: &dyn Workload, options: Options, clock: &Clock) -> Map<String, Value> {
    let queries = workload.queries(options.queries);
    let (ours, theirs) = (Ours::build(workload), Peers::build(workload));
    let mut rows = alternate(ours.rows(&queries), theirs.rows(&queries));
    let mut polluter = Polluter::new();
    quiet("lookups", || {
        // A round of each that does not count: what was built first may have lain untouched for
        // minutes, and the system takes such pages back.
        for row in &mut rows {
            row.first_round_p50 = row.round().summary(clock, row.per_call as f64).p50;
        }
        for round in 0..options.rounds {
            let turn = round % rows.len();
            rows.rotate_left(turn);
            for row in &mut rows {
                polluter.run();
                row.samples.append(row.round());
            }
            rows.rotate_right(turn);
        }
    });
    let mut out = Map::new();
    for row in &mut rows {
        let medians = row.samples.medians(options.rounds).summary(clock, row.per_call as f64);
        let summary = row.samples.summary(clock, row.per_call as f64);
        let mut json = row_json(row, &summary, &queries, clock);
        json["median_p99_ns"] = json!(round1(medians.p99));
        out.insert(row.name.into(), json);
    }
    drop(rows);
    if options.writer {
        let mut busy = Map::new();
        let ours = ours.written(workload, &queries).into_iter();
        for (row, writer) in ours.chain(theirs.written(workload, &queries)) {
            let found = quiet("busy", || with_writer(&row, writer, &mut polluter, clock));
            busy.insert(row.name.into(), found);
        }
        out.insert("busy".into(), busy.into());
    }
    let blocks: usize = queries.iter().map(|query| query.chain.local.len()).sum();
    out.insert(
        "workload".into(),
        json!({
            "lanes": workload.lanes(), "fullest_lane_blocks": workload.blocks_per_lane(),
            "queries": queries.len(), "rounds": options.rounds,
            "mean_query_blocks": round1(blocks as f64 / queries.len().max(1) as f64),
        }),
    );
    out
}

/// One of each in turn.
fn alternate(ours: Vec<Row>, theirs: Vec<Row>) -> Vec<Row> {
    let (mut ours, mut theirs) = (ours.into_iter(), theirs.into_iter());
    let mut rows = Vec::new();
    loop {
        let pair = [ours.next(), theirs.next()];
        if pair.iter().all(Option::is_none) {
            return rows;
        }
        rows.extend(pair.into_iter().flatten());
    }
}

fn row_json(row: &Row, summary: &Summary, queries: &[Query], clock: &Clock) -> Value {
    let mut json = summary.json();
    json["requests_per_s"] = json!((1e9 / summary.mean).round());
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
        json["load"] = json!(cost.load);
        json["build_s"] = json!(round1(cost.build_s));
        if !cost.installs.is_empty() {
            let mut ticks = cost.installs.clone();
            ticks.sort_unstable();
            json["install_ms"] = json!(clock.ns(ticks[ticks.len() / 2]) / 1e6);
        }
    }
    json
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
    if past.is_multiple_of(2) { (past / 2, false) } else { (WRITE_WINDOW + past / 2, true) }
}

/// Writes everything it has at full speed; returns the number of deltas or events.
pub type Writer = Box<dyn FnOnce() -> usize + Send>;

/// The row idle, then with a second thread writing at full speed.
fn with_writer(row: &Row, writer: Writer, polluter: &mut Polluter, clock: &Clock) -> Value {
    let mut round = || {
        polluter.run();
        row.round()
    };
    round();
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

//! Producers: exact ownership plus filter plus publication, fed with the same commands.

use std::mem::take;
use std::time::Instant;

use dynamo_kv_router::LocalBlockHash;
use dynamo_kv_router::protocols::compute_seq_hash_for_block;
use serde_json::{Map, Value, json};

use crate::measure::{Clock, Memory, Rng, Samples, Summary, round1};
use crate::workload::{Chain, fresh_chain};
use crate::{dynamo, ours};

const MEMBERS: usize = 64;
const EVENT_BLOCKS: usize = 128;
/// Ours and theirs take turns; each scenario is cut into this many turns.
const TURNS: usize = 8;
/// Small sizes are measured with one pair of producers after another, until so many blocks were
/// stored: one fill of 100 thousand takes milliseconds, of which one pause of the machine is a tenth.
const AT_LEAST: usize = 1_000_000;
/// Commands made ahead of the clock, so that making them is not measured.
const AHEAD: usize = 256;

/// A producer under test. Making a command is not timed; applying it is.
pub trait Subject {
    type Command;
    /// An empty producer with this bucket count that publishes every `cadence` commands.
    fn new(bucket_count: usize, cadence: usize) -> Self;
    /// Blocks `from..to` of the chain become owned by the member.
    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Self::Command;
    fn remove(member: usize, hashes: &[u64]) -> Self::Command;
    /// Applies one command and takes the batch that it completes, if any; returns its images.
    fn apply(&mut self, command: Self::Command) -> usize;
    /// Bytes of the filter, which the ownership figure leaves out.
    fn filter_bytes(&self) -> usize;
    /// Bytes of exact state by the producer's own account.
    fn own_bytes(&self) -> usize;
    /// (Member, block) pairs held: shows that the commands did what they said.
    fn edges(&self) -> usize;
}

/// A command, independent of who executes it.
#[derive(Clone)]
enum Op {
    /// Blocks of fresh chain `number`.
    Store { member: usize, number: usize, from: usize, to: usize },
    /// Whole fresh chain `number`, up to `to`.
    Drop { member: usize, number: usize, to: usize },
    /// These blocks.
    Remove { member: usize, hashes: Vec<u64> },
}

impl Op {
    fn blocks(&self) -> usize {
        match self {
            Op::Store { from, to, .. } => to - from,
            Op::Drop { to, .. } => *to,
            Op::Remove { hashes, .. } => hashes.len(),
        }
    }

    fn command<S: Subject>(&self) -> S::Command {
        match self {
            Op::Store { member, number, from, to } => {
                S::store(*member, &fresh_chain(*number, *to), *from, *to)
            }
            Op::Drop { member, number, to } => {
                S::remove(*member, &fresh_chain(*number, *to).sequence)
            }
            Op::Remove { member, hashes } => S::remove(*member, hashes),
        }
    }
}

/// One producer with what was measured of it.
struct Run<S> {
    subject: S,
    measured: Measured,
    used: Memory,
}

/// Commands applied, and what they took.
#[derive(Default)]
struct Measured {
    samples: Samples,
    blocks: usize,
    images: usize,
}

impl<S: Subject> Run<S> {
    fn new(bucket_count: usize, cadence: usize) -> Self {
        let before = Memory::now();
        let subject = S::new(bucket_count, cadence);
        let used = Memory::since(before);
        Self { subject, measured: Measured::default(), used }
    }

    fn turn(&mut self, ops: &[Op]) {
        let before = Memory::now();
        let mut samples = Samples::default();
        for ahead in ops.chunks(AHEAD) {
            let commands: Vec<_> = ahead.iter().map(Op::command::<S>).collect();
            for command in commands {
                let start = Clock::ticks();
                self.measured.images += self.subject.apply(command);
                samples.push(Clock::ticks() - start);
            }
        }
        self.measured.blocks += ops.iter().map(Op::blocks).sum::<usize>();
        let held = samples.bytes();
        self.measured.samples.append(samples);
        let used = Memory::since(before);
        self.used.resident += used.resident - held;
        self.used.heap += used.heap - held;
    }

    /// Memory for each of `edges` ownerships, the filter left out.
    fn memory(&self, edges: usize) -> Value {
        let filter = self.subject.filter_bytes();
        let each = |bytes: i64| round1((bytes - filter as i64) as f64 / edges as f64);
        json!({
            "bytes_per_edge": each(self.used.heap), "resident_bytes_per_edge": each(self.used.resident),
            "own_bytes_per_edge": round1(self.subject.own_bytes() as f64 / edges as f64),
            "filter_bytes": filter,
        })
    }
}

impl Measured {
    fn append(&mut self, other: Self) {
        self.samples.append(other.samples);
        self.blocks += other.blocks;
        self.images += other.images;
    }

    fn phase(mut self, clock: &Clock) -> Phase {
        let summary = self.samples.summary(clock, 1.0);
        Phase { summary, blocks: self.blocks, images: self.images }
    }
}

struct Phase {
    summary: Summary,
    blocks: usize,
    images: usize,
}

impl Phase {
    fn blocks_per_s(&self) -> f64 {
        self.blocks as f64 / self.summary.total_s
    }

    fn json(&self) -> Value {
        let mut json = self.summary.json();
        json["blocks"] = json!(self.blocks);
        json["images"] = json!(self.images);
        json["blocks_per_s"] = json!(self.blocks_per_s().round());
        json
    }
}

/// The two producers, taking turns.
struct Pair {
    ours: Run<ours::Producer>,
    theirs: Run<dynamo::Producer>,
}

impl Pair {
    fn new(bucket_count: usize, cadence: usize) -> Self {
        Self { ours: Run::new(bucket_count, cadence), theirs: Run::new(bucket_count, cadence) }
    }

    /// Runs all commands on both; `[ours, theirs]`.
    fn run(&mut self, ops: &[Op]) -> [Measured; 2] {
        for turn in ops.chunks(ops.len().div_ceil(TURNS).max(1)) {
            self.ours.turn(turn);
            self.theirs.turn(turn);
        }
        assert_eq!(
            self.ours.subject.edges(),
            self.theirs.subject.edges(),
            "both did what the commands say"
        );
        [take(&mut self.ours.measured), take(&mut self.theirs.measured)]
    }
}

/// All producer scenarios. `sizes` are blocks held; the shared and decode scenarios run at
/// `shared_size`.
pub fn compare(sizes: &[usize], shared_size: usize, clock: &Clock) -> Value {
    let mut sides = [Map::new(), Map::new()];
    let headline = [
        "store_blocks_per_s",
        "remove_blocks_per_s",
        "bytes_per_edge",
        "p999_command_ns",
        "worst_command_ns",
    ];
    for &size in sizes {
        for (side, found) in sides.iter_mut().zip(exclusive(size, clock)) {
            for key in headline {
                side.insert(key.into(), found[key].clone());
            }
            side.insert(format!("held_{size}"), found);
        }
    }
    for (key, found) in
        [("mixed", mixed(shared_size, clock)), ("decode", decode(shared_size, clock))]
    {
        for (side, phase) in sides.iter_mut().zip(found) {
            let found = phase.json();
            side.insert(format!("{key}_blocks_per_s"), found["blocks_per_s"].clone());
            side.insert(key.into(), found);
        }
    }
    let [ours, theirs] = sides;
    json!({
        "ours": ours, "dynamo": theirs, "held": shared_size as f64,
        "hashing_ns_per_block": round1(hashing_ns_per_block()),
    })
}

/// The power of two of buckets whose load with `blocks` is nearest to 60 %: Dynamo's filter takes
/// only powers of two, and both shall work at the same load.
pub fn bucket_count(blocks: usize) -> usize {
    let load = |buckets: usize| blocks as f64 / (4 * buckets) as f64;
    (1..40)
        .map(|power| 1 << power)
        .min_by(|&a, &b| (load(a) - 0.6).abs().total_cmp(&(load(b) - 0.6).abs()))
        .unwrap_or(2)
}

/// Each block has one owner: fill, then remove everything in random order.
fn exclusive(size: usize, clock: &Clock) -> [Value; 2] {
    let buckets = bucket_count(size);
    let events = size.div_ceil(EVENT_BLOCKS);
    let blocks_of = |event: usize| EVENT_BLOCKS.min(size - event * EVENT_BLOCKS);
    let store =
        |event| Op::Store { member: event % MEMBERS, number: event, from: 0, to: blocks_of(event) };
    let stores: Vec<_> = (0..events).map(store).collect();
    let removes = random_removes(events, blocks_of);
    let mut pair = Pair::new(buckets, 1);
    let mut stored = pair.run(&stores);
    let memory = [pair.ours.memory(size), pair.theirs.memory(size)];
    let mut removed = pair.run(&removes);
    drop(pair);
    for _ in 1..AT_LEAST / size {
        let mut pair = Pair::new(buckets, 1);
        append(&mut stored, pair.run(&stores));
        append(&mut removed, pair.run(&removes));
    }
    let (stored, removed) =
        (stored.map(|side| side.phase(clock)), removed.map(|side| side.phase(clock)));
    let side = |side: usize| {
        let (stored, removed) = (&stored[side], &removed[side]);
        let mut json = memory[side].clone();
        json["load"] = json!(size as f64 / (4 * buckets) as f64);
        json["store_blocks_per_s"] = json!(stored.blocks_per_s().round());
        json["remove_blocks_per_s"] = json!(removed.blocks_per_s().round());
        json["p999_command_ns"] = json!(round1(stored.summary.p999));
        json["worst_command_ns"] = json!(round1(stored.summary.worst.max(removed.summary.worst)));
        json["store"] = stored.json();
        json["remove"] = removed.json();
        json
    };
    [side(0), side(1)]
}

fn append(sides: &mut [Measured; 2], more: [Measured; 2]) {
    sides.iter_mut().zip(more).for_each(|(side, more)| side.append(more));
}

/// Every member's blocks in random order, in events of the usual size, members mixed.
fn random_removes(events: usize, blocks_of: impl Fn(usize) -> usize) -> Vec<Op> {
    let mut rng = Rng::new(11);
    let mut ops = Vec::new();
    for member in 0..MEMBERS.min(events) {
        let mut hashes: Vec<u64> = (member..events)
            .step_by(MEMBERS)
            .flat_map(|event| fresh_chain(event, blocks_of(event)).sequence)
            .collect();
        rng.shuffle(&mut hashes);
        let event = |hashes: &[u64]| Op::Remove { member, hashes: hashes.to_vec() };
        ops.extend(hashes.chunks(EVENT_BLOCKS).map(event));
    }
    rng.shuffle(&mut ops);
    ops
}

/// Eight members; every second chain is held by all of them. Then stores and removals alternate.
fn mixed(size: usize, clock: &Clock) -> [Phase; 2] {
    const SHARERS: usize = 8;
    let chains = size.div_ceil(EVENT_BLOCKS);
    let mut held: Vec<(usize, usize)> = (0..chains)
        .flat_map(|number| {
            let sharers = if number % 2 == 0 { SHARERS } else { 1 };
            (0..sharers).map(move |step| ((number / 2 + step) % SHARERS, number))
        })
        .collect();
    let store = |(member, number)| Op::Store { member, number, from: 0, to: EVENT_BLOCKS };
    let drop = |(member, number)| Op::Drop { member, number, to: EVENT_BLOCKS };
    let fill: Vec<_> = held.iter().copied().map(store).collect();
    let mut rng = Rng::new(12);
    rng.shuffle(&mut held);
    // What was removed comes back a while later, so that the state stays as it is.
    let absent = held.len().min(256);
    let mut ops: Vec<_> = held[..absent].iter().copied().map(drop).collect();
    for step in 0..2 * chains {
        ops.push(store(held[step % held.len()]));
        ops.push(drop(held[(step + absent) % held.len()]));
    }
    let mut pair = Pair::new(bucket_count(size), 1);
    pair.run(&fill);
    pair.run(&ops).map(|side| side.phase(clock))
}

/// Every member extends one of its chains block by block; a batch every 16 commands.
fn decode(size: usize, clock: &Clock) -> [Phase; 2] {
    const CADENCE: usize = 16;
    let chains = size.div_ceil(EVENT_BLOCKS);
    let fill: Vec<_> = (0..chains)
        .map(|number| Op::Store { member: number % MEMBERS, number, from: 0, to: EVENT_BLOCKS })
        .collect();
    let steps = size / 4;
    let growing = chains.min(2048);
    let ops: Vec<_> = (0..steps)
        .map(|step| {
            let (number, at) = (step % growing, EVENT_BLOCKS + step / growing);
            Op::Store { member: number % MEMBERS, number, from: at, to: at + 1 }
        })
        .collect();
    let mut pair = Pair::new(bucket_count(size), CADENCE);
    pair.run(&fill);
    pair.run(&ops).map(|side| side.phase(clock))
}

/// Time of the sequence hashing that Dynamo's store includes, alone.
fn hashing_ns_per_block() -> f64 {
    let chain: Vec<_> =
        fresh_chain(0, EVENT_BLOCKS).local.into_iter().map(LocalBlockHash).collect();
    let start = Instant::now();
    const TIMES: usize = 20_000;
    for _ in 0..TIMES {
        std::hint::black_box(compute_seq_hash_for_block(std::hint::black_box(&chain)));
    }
    start.elapsed().as_nanos() as f64 / (TIMES * EVENT_BLOCKS) as f64
}

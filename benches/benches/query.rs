//! Lookups by lanes, length, depth, size and threads, with and without a writer.

#![allow(missing_docs, reason = "criterion makes public functions")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ckf_benches::hashes;
use ckf_benches::world::{FAMILY, NOW, World, frames};
use ckf_core::BlockHash;
use ckf_producer::Member;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const REQUESTS: usize = 512;

fn requests(world: &World, len: usize) -> Vec<Vec<BlockHash>> {
    (0..REQUESTS).map(|number| world.request(number, len)).collect()
}

/// Requests of 8 to 127 blocks.
fn mixed(world: &World) -> Vec<Vec<BlockHash>> {
    (0..REQUESTS).map(|number| world.request(number, 8 + number * 37 % 120)).collect()
}

fn ask(world: &World, requests: &[Vec<BlockHash>]) -> u32 {
    requests.iter().fold(0, |sum, request| {
        sum.wrapping_add(world.query.find_prefix(black_box(request)).best_depth().unwrap_or(0))
    })
}

fn by_lanes_and_size(c: &mut Criterion) {
    let mut group = c.benchmark_group("query/lanes, blocks a lane");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    for (lanes, blocks) in [(1, 100_000), (4, 100_000), (16, 100_000), (64, 50_000), (16, 500_000)]
    {
        let world = World::new(lanes, blocks);
        let requests = mixed(&world);
        group.bench_function(BenchmarkId::new(lanes.to_string(), blocks), |b| {
            b.iter(|| ask(&world, &requests));
        });
    }
    group.finish();
}

fn by_length_and_depth(c: &mut Criterion) {
    let world = World::new(16, 100_000);
    let mut group = c.benchmark_group("query/16 lanes, length");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    for len in [1, 8, 32, FAMILY] {
        let requests = requests(&world, len);
        group.bench_function(BenchmarkId::from_parameter(len), |b| {
            b.iter(|| ask(&world, &requests));
        });
    }
    let unknown = hashes(999, 4096);
    group.throughput(Throughput::Elements(1));
    for (name, depth) in [("4096 of which 0", 0), ("4096 of which 128", FAMILY)] {
        let request = [&world.families[0][..depth], &unknown[depth..]].concat();
        group.bench_function(name, |b| b.iter(|| world.query.find_prefix(black_box(&request))));
    }
    group.finish();
}

fn by_threads(c: &mut Criterion) {
    let world = World::new(16, 100_000);
    let requests = mixed(&world);
    let mut group = c.benchmark_group("query/16 lanes, threads");
    for threads in [1, 2] {
        group.throughput(Throughput::Elements((threads * REQUESTS) as u64));
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter_custom(|rounds| {
                let start = Instant::now();
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            (0..rounds).for_each(|_| _ = black_box(ask(&world, &requests)))
                        });
                    }
                });
                start.elapsed()
            });
        });
    }
    group.finish();
}

/// Lookups while a second thread makes and applies deltas of one lane as fast as it can.
fn with_a_writer(c: &mut Criterion) {
    let World { query, mut sessions, mut producers, families } = World::new(16, 100_000);
    let (mut session, mut producer) = (sessions.remove(0), producers.remove(0));
    let world = World { query, sessions, producers, families };
    let requests = mixed(&world);
    let extra = hashes(5, 64 * 128);
    let mut group = c.benchmark_group("query/16 lanes, deltas meanwhile");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    group.bench_function("none", |b| b.iter(|| ask(&world, &requests)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for blocks in extra.chunks(64).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                producer.store(Member::new(2, 0), blocks);
                producer.publish(NOW).expect("numbers left");
                producer.remove(Member::new(2, 0), blocks);
                producer.publish(NOW).expect("numbers left");
                for frame in frames(&mut producer) {
                    let _ = session.handle_frame(&frame, NOW);
                }
            }
        });
        group.bench_function("one lane", |b| b.iter(|| ask(&world, &requests)));
        stop.store(true, Ordering::Relaxed);
    });
    group.finish();
}

criterion_group!(benches, by_lanes_and_size, by_length_and_depth, by_threads, with_a_writer);
criterion_main!(benches);

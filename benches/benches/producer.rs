//! Commands of the pool, sealing included: by size and by how many members share the blocks.

#![allow(missing_docs, reason = "criterion makes public functions")]

use ckf_benches::{hashes, pool};
use ckf_core::BlockHash;
use ckf_producer::{Member, Pool};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Blocks of one command.
const COMMAND: usize = 128;
/// Commands of one measurement.
const COMMANDS: usize = 64;

fn member(number: usize) -> Member {
    Member::new(number as u64, 0)
}

/// A pool in which `members` members hold `blocks` blocks in all, none twice.
fn held(blocks: usize, members: usize) -> Pool {
    let mut pool = pool(blocks + COMMAND * COMMANDS, 600);
    for (number, part) in hashes(1, blocks).chunks(COMMAND).enumerate() {
        pool.store(member(number % members), part);
    }
    drop(pool.seal());
    pool
}

/// Every command stores blocks, every second one removes what was stored before it.
fn store_and_remove(pool: &mut Pool, members: usize, commands: &[&[BlockHash]]) {
    for (number, blocks) in commands.iter().enumerate() {
        pool.store(member(number % members), blocks);
        drop(pool.seal());
    }
    for (number, blocks) in commands.iter().enumerate() {
        pool.remove(member(number % members), blocks);
        drop(pool.seal());
    }
}

fn by_size(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool/store and remove");
    group.throughput(Throughput::Elements((2 * COMMAND * COMMANDS) as u64));
    let extra = hashes(2, COMMAND * COMMANDS);
    let commands: Vec<&[BlockHash]> = extra.chunks(COMMAND).collect();
    for blocks in [100_000, 1_000_000] {
        let mut pool = held(blocks, 64);
        group.bench_function(BenchmarkId::new("64 members", blocks), |b| {
            b.iter(|| store_and_remove(&mut pool, 64, &commands));
        });
    }
    group.finish();
}

fn by_sharing(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool/shared");
    group.throughput(Throughput::Elements((2 * COMMAND * COMMANDS) as u64));
    for sharers in [1, 2, 8, 64] {
        // As many commands as ever, but `sharers` of them name the same blocks.
        let distinct = hashes(3, COMMAND * COMMANDS / sharers);
        let commands: Vec<&[BlockHash]> =
            distinct.chunks(COMMAND).flat_map(|part| vec![part; sharers]).collect();
        let mut pool = held(100_000, 64);
        group.bench_function(BenchmarkId::from_parameter(sharers), |b| {
            b.iter(|| store_and_remove(&mut pool, 64, &commands));
        });
    }
    group.finish();
}

fn single_blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool/one block a command, sealed every 16");
    let extra = hashes(4, 4096);
    group.throughput(Throughput::Elements(2 * extra.len() as u64));
    let mut pool = held(1_000_000, 64);
    group.bench_function("store and remove", |b| {
        b.iter(|| {
            for (number, block) in extra.chunks(1).enumerate() {
                pool.store(member(number % 64), block);
                if number % 16 == 15 {
                    drop(pool.seal());
                }
            }
            for (number, block) in extra.chunks(1).enumerate() {
                pool.remove(member(number % 64), block);
                if number % 16 == 15 {
                    drop(pool.seal());
                }
            }
        });
    });
    group.finish();
}

fn replace_and_clear(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool/member of 4096 blocks");
    let (old, extra) = (hashes(5, 4096), hashes(6, 41));
    let new: Vec<BlockHash> = old[41..].iter().chain(&extra).copied().collect();
    let mut pool = held(1_000_000, 64);
    group.throughput(Throughput::Elements(old.len() as u64));
    group.bench_function("replace, 1 % differs", |b| {
        let mut turn = false;
        b.iter(|| {
            turn = !turn;
            pool.replace_member(member(100), if turn { &new } else { &old });
            drop(pool.seal());
        });
    });
    group.bench_function("store and clear", |b| {
        b.iter(|| {
            pool.store(member(101), &extra);
            pool.clear_member(member(101));
            pool.store(member(101), &new);
            pool.clear_member(member(101));
            drop(pool.seal());
        });
    });
    group.finish();
}

criterion_group!(benches, by_size, by_sharing, single_blocks, replace_and_clear);
criterion_main!(benches);

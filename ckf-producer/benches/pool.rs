//! The pool alone, sealing included: store and random removal by number of blocks held, mixed
//! commands on shared blocks, commands of one block. Not a test: it prints figures.
//!
//! `cargo bench -p ckf-producer --bench pool -- 100000 1000000 10000000`; `exclusive`, `mixed` or
//! `decode` before the sizes pick scenarios.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use ckf_core::{BlockHash, Sizing};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};

const MEMBERS: usize = 64;
const BLOCKS: usize = 128;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let mut sizes: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![100_000];
    }
    let names: Vec<_> = args.iter().filter(|arg| arg.parse::<usize>().is_err()).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| *wanted == name);
    for &size in &sizes {
        if wanted("exclusive") {
            exclusive(size);
        }
        if wanted("mixed") {
            mixed(size.min(1_000_000));
        }
        if wanted("decode") {
            decode(size.min(1_000_000));
        }
    }
}

fn pool(blocks: usize) -> Pool {
    let sizing = Sizing::for_blocks(blocks as u64, 600).expect("a legal size");
    let format = sizing.format(7);
    Pool::new(PoolConfig::new(format, HashSeeds::new([11, 12, 13, 14]))).expect("memory")
}

/// A command of one member: its blocks come, or go.
struct Command {
    member: Member,
    blocks: Vec<BlockHash>,
    comes: bool,
}

/// Runs commands with a batch every `cadence` commands; returns the changed buckets.
fn run(name: &str, pool: &mut Pool, commands: &[Command], cadence: usize) {
    let mut times = Vec::with_capacity(commands.len());
    let (mut images, mut blocks) = (0u64, 0usize);
    for (number, command) in commands.iter().enumerate() {
        let start = Instant::now();
        let outcome = match command.comes {
            true => pool.store(command.member, &command.blocks),
            false => pool.remove(command.member, &command.blocks),
        };
        if number % cadence == 0 {
            images += pool.seal().expect("numbers").map_or(0, |batch| u64::from(batch.len()));
        }
        times.push(start.elapsed());
        assert_eq!((outcome.error, outcome.unknown, outcome.already_owned), (None, 0, 0));
        blocks += command.blocks.len();
    }
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    println!(
        "{name:<22} {:>6.2} M blocks/s  p50 {:>8.1?}  p99.9 {:>8.1?}  worst {:>8.1?}  images {images}",
        blocks as f64 / total.as_secs_f64() / 1e6,
        at(500),
        at(999),
        at(1000),
    );
}

fn exclusive(size: usize) {
    let mut pool = pool(size);
    let hashes: Vec<_> = (0..size as u64).map(|i| BlockHash::new(mix(i))).collect();
    let member = |number: usize| Member::new((number % MEMBERS) as u64, 0);
    let chunks = hashes.chunks(BLOCKS).enumerate();
    let stores: Vec<_> =
        chunks.map(|(number, blocks)| command(member(number), blocks.to_vec(), true)).collect();
    run(&format!("store {size}"), &mut pool, &stores, 1);
    let bytes = pool.stats().bytes;
    println!(
        "{:<22} {:.1} bytes an edge, {:.1} with published images; {:?}",
        "",
        (bytes.member_sets + bytes.refcounts) as f64 / size as f64,
        (bytes.total() - bytes.filter) as f64 / size as f64,
        bytes
    );
    let mut removes = Vec::new();
    let mut state = 1;
    for owner in 0..MEMBERS {
        let mut own: Vec<_> =
            stores.iter().skip(owner).step_by(MEMBERS).flat_map(|c| c.blocks.clone()).collect();
        shuffle(&mut own, &mut state);
        removes.extend(own.chunks(BLOCKS).map(|b| command(member(owner), b.to_vec(), false)));
    }
    drop(stores);
    shuffle(&mut removes, &mut state);
    run(&format!("remove {size}"), &mut pool, &removes, 1);
    assert_eq!(pool.stats().edges, 0);
}

fn mixed(size: usize) {
    const SHARERS: usize = 8;
    let mut pool = pool(size);
    let chain = |number: usize| -> Vec<BlockHash> {
        (0..BLOCKS).map(|i| BlockHash::new(mix((number * BLOCKS + i) as u64))).collect()
    };
    let chains = size / BLOCKS;
    let mut held: Vec<(usize, usize)> = (0..chains)
        .flat_map(|number| {
            let sharers = if number % 2 == 0 { SHARERS } else { 1 };
            (0..sharers).map(move |step| ((number / 2 + step) % SHARERS, number))
        })
        .collect();
    let of = |(member, number): (usize, usize), comes| {
        command(Member::new(member as u64, 0), chain(number), comes)
    };
    for &pair in &held {
        let command = of(pair, true);
        pool.store(command.member, &command.blocks);
    }
    shuffle(&mut held, &mut 2);
    let absent = held.len().min(256);
    held[..absent].iter().for_each(|&pair| {
        let command = of(pair, false);
        pool.remove(command.member, &command.blocks);
    });
    let mut commands = Vec::new();
    for step in 0..chains {
        commands.push(of(held[step % held.len()], true));
        commands.push(of(held[(step + absent) % held.len()], false));
    }
    run(&format!("mixed {size}"), &mut pool, &commands, 1);
}

fn decode(size: usize) {
    let mut pool = pool(size + size / 4);
    let member = |number: usize| Member::new((number % MEMBERS) as u64, 0);
    let hashes: Vec<_> = (0..size as u64).map(|i| BlockHash::new(mix(i))).collect();
    for (number, blocks) in hashes.chunks(BLOCKS).enumerate() {
        pool.store(member(number), blocks);
    }
    let fresh = (size as u64..(size + size / 4) as u64).map(|i| vec![BlockHash::new(mix(i))]);
    let commands: Vec<_> =
        fresh.enumerate().map(|(number, block)| command(member(number), block, true)).collect();
    run(&format!("one block {size}"), &mut pool, &commands, 16);
}

fn command(member: Member, blocks: Vec<BlockHash>, comes: bool) -> Command {
    Command { member, blocks, comes }
}

fn mix(value: u64) -> u64 {
    let mut x = value.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn shuffle<T>(items: &mut [T], state: &mut u64) {
    for last in (1..items.len()).rev() {
        *state += 1;
        items.swap(last, (mix(*state) % (last as u64 + 1)) as usize);
    }
}

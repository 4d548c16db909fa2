//! Runs one piece of work a fixed number of times, for an instruction counter to watch.
//!
//! `instructions lookup|jump|shared|batch|store|delta`. The work is prepared outside of the functions named
//! `counted_*`; `ci/instructions.sh` counts inside of them only.

use std::hint::black_box;
use std::process::ExitCode;

use ckf_benches::world::{NOW, World, frames};
use ckf_benches::{hashes, pool};
use ckf_consumer::{LaneSession, Matches, QueryHandle, SearchMode};
use ckf_core::BlockHash;
use ckf_producer::{Member, Pool};

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_lookup(query: &QueryHandle, request: &[BlockHash]) -> u32 {
    query.find_prefix(black_box(request)).best_depth().unwrap_or(0)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_jump(query: &QueryHandle, request: &[BlockHash], answer: &mut Matches) {
    query.find_prefix_into(black_box(request), answer);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_batch(query: &QueryHandle, requests: &[&[BlockHash]], answers: &mut Vec<Matches>) {
    query.find_prefix_batch(black_box(requests), answers);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_store(pool: &mut Pool, blocks: &[BlockHash]) -> u32 {
    pool.store(Member::new(1, 0), black_box(blocks));
    pool.seal().expect("numbers left").map_or(0, |batch| batch.len())
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_delta(session: &mut LaneSession, frame: &[u8]) {
    let _ = black_box(session.handle_frame(black_box(frame), NOW));
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    match what.as_str() {
        "lookup" => {
            let world = World::new(16, 20_000);
            // 67 blocks, the mean of the published comparisons; a family that some lanes know.
            let request = world.request(1, 67);
            for _ in 0..100 {
                black_box(counted_lookup(&world.query, &request));
            }
        }
        "jump" => {
            let world = World::new(16, 20_000);
            let query = world.query.clone().with_mode(SearchMode::JUMP);
            let mut answer = Matches::NONE;
            for family in 0..100 {
                let request = world.request(family, 67);
                counted_jump(&query, &request, &mut answer);
                black_box(&answer);
            }
        }
        "shared" => {
            let mut world = World::new(16, 20_000);
            let query = world.query.clone().with_mode(SearchMode::JUMP);
            // A preamble that all lanes hold, then 62 blocks that nobody does.
            let preamble = hashes(4, 5);
            for (producer, session) in world.producers.iter_mut().zip(&mut world.sessions) {
                producer.store(Member::new(2, 0), &preamble);
                producer.publish(NOW).expect("numbers left");
                for frame in frames(producer) {
                    let _ = session.handle_frame(&frame, NOW);
                }
            }
            let mut answer = Matches::NONE;
            for number in 0..100 {
                let request = [&preamble[..], &hashes(1000 + number, 62)].concat();
                counted_jump(&query, &request, &mut answer);
                assert_eq!(answer.best().len(), 16, "all lanes hold the preamble");
            }
        }
        "batch" => {
            let world = World::new(16, 20_000);
            let query = world.query.clone().with_mode(SearchMode::JUMP);
            let requests: Vec<_> = (0..8).map(|family| world.request(family, 67)).collect();
            let requests: Vec<_> = requests.iter().map(Vec::as_slice).collect();
            let mut answers = Vec::new();
            for _ in 0..100 {
                counted_batch(&query, &requests, &mut answers);
                black_box(&answers);
            }
        }
        "store" => {
            let mut pool = pool(100_000, 600);
            for blocks in hashes(1, 50_000).chunks(128) {
                pool.store(Member::new(1, 0), blocks);
            }
            drop(pool.seal());
            for blocks in hashes(2, 128 * 100).chunks(128) {
                black_box(counted_store(&mut pool, blocks));
            }
        }
        "delta" => {
            let mut world = World::new(16, 20_000);
            let producer = &mut world.producers[0];
            for blocks in hashes(3, 16 * 100).chunks(16) {
                producer.store(Member::new(2, 0), blocks);
                producer.publish(NOW).expect("numbers left");
                for frame in frames(producer) {
                    counted_delta(&mut world.sessions[0], &frame);
                }
            }
        }
        _ => {
            eprintln!("usage: instructions lookup|jump|shared|batch|store|delta");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

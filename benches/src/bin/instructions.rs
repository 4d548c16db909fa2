//! Runs one piece of work a fixed number of times, for an instruction counter to watch.
//!
//! `instructions lookup|store|delta COUNT`. The work is prepared outside of the functions named
//! `counted_*`; `ci/instructions.sh` counts inside of them only.

use std::hint::black_box;
use std::process::ExitCode;

use ckf_benches::world::{NOW, World, frames};
use ckf_benches::{hashes, pool};
use ckf_consumer::{LaneSession, QueryHandle};
use ckf_core::BlockHash;
use ckf_producer::{Member, Pool};

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_lookup(query: &QueryHandle, request: &[BlockHash]) -> u32 {
    query.find_prefix(black_box(request)).best_depth().unwrap_or(0)
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
            eprintln!("usage: instructions lookup|store|delta");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

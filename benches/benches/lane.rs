//! One lane's side: applying deltas and installing snapshots, decoding and checks included.

#![allow(missing_docs, reason = "criterion makes public functions")]

use std::time::{Duration, Instant};

use ckf_benches::hashes;
use ckf_benches::world::{NOW, World, frames, snapshot};
use ckf_consumer::{LaneSession, SessionState};
use ckf_producer::Member;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Blocks of one batch.
const BATCH: usize = 16;
const BATCHES: usize = 1024;

/// The time that the session takes for the frames.
fn handle(session: &mut LaneSession, frames: &[Vec<u8>]) -> Duration {
    let start = Instant::now();
    for frame in frames {
        let _ = session.handle_frame(frame, NOW);
    }
    let taken = start.elapsed();
    assert_eq!(session.state(), SessionState::Ready);
    taken
}

fn deltas(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane/blocks by deltas of 16");
    group.throughput(Throughput::Elements((2 * BATCH * BATCHES) as u64)).sample_size(10);
    let extra = hashes(7, BATCH * BATCHES);
    for lanes in [1, 16] {
        let mut world = World::new(lanes, 200_000);
        group.bench_function(BenchmarkId::new("lanes", lanes), |b| {
            b.iter_custom(|rounds| {
                let (producer, session) = (&mut world.producers[0], &mut world.sessions[0]);
                let member = Member::new(2, 0);
                (0..rounds)
                    .map(|_| {
                        let mut sent = Vec::new();
                        for blocks in extra.chunks(BATCH) {
                            producer.store(member, blocks);
                            producer.publish(NOW).expect("numbers left");
                            sent.append(&mut frames(producer));
                        }
                        for blocks in extra.chunks(BATCH) {
                            producer.remove(member, blocks);
                            producer.publish(NOW).expect("numbers left");
                            sent.append(&mut frames(producer));
                        }
                        handle(session, &sent)
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

fn install(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane/snapshot, bytes of words");
    group.sample_size(10);
    for (lanes, blocks) in [(1, 500_000), (16, 200_000)] {
        let mut world = World::new(lanes, blocks);
        let (producer, session) = (&mut world.producers[0], &mut world.sessions[0]);
        group.throughput(Throughput::Bytes(producer.pool().format().table_bytes()));
        group.bench_function(BenchmarkId::new(format!("{lanes} lanes"), blocks), |b| {
            b.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let sent = snapshot(session, producer);
                        handle(session, &sent)
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, deltas, install);
criterion_main!(benches);

//! `threads`: one writer, many readers, no lock between them. Runs for about a second.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant as Stopwatch};

use ckf_consumer::{Consumer, ConsumerConfig, QueryHandle};
use ckf_core::BlockHash;
use ckf_examples::rng::Rng;
use ckf_examples::setup::{exchange, format, manifest, producer};
use ckf_producer::Member;
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant};

const READERS: u64 = 4;
const RUN: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let format = format(200_000)?;
    let mut producer = producer(0, 1, format)?;
    let (query, mut sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let session = &mut sessions[0];
    session.assign(DcId::new(0), Epoch::new(1), Instant::ZERO)?;

    // These blocks stay; the writer stores and removes others around them all the time.
    let stable = chain(0, 100);
    producer.store(Member::new(0, 0), &stable);
    producer.publish(Instant::ZERO)?;
    exchange(&mut producer, session, Instant::ZERO);

    let (running, lookups, short) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
    let start = Stopwatch::now();
    let batches = thread::scope(|scope| {
        for _ in 0..READERS {
            let (query, stable) = (query.clone(), &stable);
            scope.spawn(|| read(query, stable, &running, &lookups, &short));
        }
        // The writer: the producer and the lane session belong to this thread alone.
        let mut rng = Rng::new(1, 1);
        let mut batches = 0;
        while start.elapsed() < RUN {
            let now = Instant::from_millis(start.elapsed().as_millis() as u64);
            let others = chain(rng.between(1, 2_000), 64);
            if rng.chance(0.5) {
                producer.store(Member::new(1, 0), &others);
            } else {
                producer.remove(Member::new(1, 0), &others);
            }
            batches += u64::from(producer.publish(now)?.is_some());
            exchange(&mut producer, session, now);
        }
        running.store(false, Relaxed);
        Ok::<_, ckf_producer::SealError>(batches)
    })?;

    println!("writer    {batches} batches applied to the table");
    println!(
        "readers   {} lookups of {} blocks by {READERS} threads",
        lookups.into_inner(),
        stable.len()
    );
    println!("          {} saw less than the blocks that never went", short.into_inner());
    println!("          (allowed: a batch in the middle may hide a block for an instant)");
    let settled = query.find_prefix(&stable).best_depth();
    println!("settled   depth {settled:?} of {}", stable.len());
    Ok(())
}

fn read(
    query: QueryHandle,
    stable: &[BlockHash],
    running: &AtomicBool,
    lookups: &AtomicU64,
    short: &AtomicU64,
) {
    while running.load(Relaxed) {
        let depth = query.find_prefix(stable).best_depth();
        lookups.fetch_add(1, Relaxed);
        short.fetch_add(u64::from(depth != Some(stable.len() as u32)), Relaxed);
    }
}

/// The blocks of some prompt.
fn chain(prompt: u64, blocks: u64) -> Vec<BlockHash> {
    let mut rng = Rng::new(prompt, 2);
    (0..blocks).map(|_| BlockHash::new(rng.next_u64())).collect()
}

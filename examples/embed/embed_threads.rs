//! A host made of threads: the producer and each lane session live on a thread of their own, queries
//! go from any thread. The links are channels here; any transport that keeps frames whole will do.

use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant as Stopwatch};

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession};
use ckf_core::BlockHash;
use ckf_examples::setup::{LINK, format, manifest, producer};
use ckf_producer::{Member, Producer};
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant};

type Frame = Vec<u8>;

fn main() -> Result<(), Box<dyn Error>> {
    let (format, clock) = (format(10_000)?, Stopwatch::now());
    let blocks: Vec<BlockHash> = (1..=40).map(BlockHash::new).collect();
    // Small on purpose: what waits, waits in the producer, which bounds it.
    let ((up, above), (down, below)) = (sync_channel(1), sync_channel(8));

    let mut pool = producer(0, 1, format)?;
    pool.store(Member::new(1, 0), &blocks);
    thread::spawn(move || serve(pool, &above, &down, clock));

    let (query, mut sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let mut session = sessions.remove(0);
    session.assign(DcId::new(0), Epoch::new(1), now(clock))?;
    thread::spawn(move || follow(session, &below, &up, clock));

    while query.find_prefix(&blocks).best_depth() != Some(40) {
        thread::sleep(Duration::from_millis(1));
    }
    println!("all 40 blocks found after {:?}", clock.elapsed());
    Ok(())
}

/// The machines are told the time; they never ask for it.
fn now(clock: Stopwatch) -> Instant {
    Instant::from_millis(clock.elapsed().as_millis() as u64)
}

/// How long a thread may sleep before a machine has something to do.
fn pause(due: Option<Instant>, clock: Stopwatch) -> Duration {
    let span = due.map_or(1000, |due| due.saturating_since(now(clock)).get());
    Duration::from_millis(span.min(1000))
}

/// The producer's thread. Commands of stage 1 would come through the same channel.
fn serve(mut pool: Producer, from: &Receiver<Frame>, to: &SyncSender<Frame>, clock: Stopwatch) {
    while pool.publish(now(clock)).is_ok() {
        pool.handle_timeout(now(clock));
        while let Some(frame) = pool.poll_frame(LINK, now(clock)) {
            let Ok(()) = to.send(frame.to_bytes()) else { return };
        }
        match from.recv_timeout(pause(pool.poll_timeout().map(|(at, _)| at), clock)) {
            Ok(frame) => drop(pool.handle_frame(LINK, &frame, now(clock))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A lane's thread. It never waits to send, or both sides might; what is lost is asked again.
fn follow(mut lane: LaneSession, from: &Receiver<Frame>, to: &SyncSender<Frame>, clock: Stopwatch) {
    loop {
        lane.handle_timeout(now(clock));
        while let Some(frame) = lane.poll_transmit() {
            drop(to.try_send(frame));
        }
        match from.recv_timeout(pause(lane.poll_timeout().map(|(at, _)| at), clock)) {
            Ok(frame) => drop(lane.handle_frame(&frame, now(clock))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return, // Real ones connect again.
        }
    }
}

//! A host made of tokio tasks: each machine in a `select!` over its link and its next deadline. The
//! links are channels here; `hosts::router::lane` is the same loop around gRPC and NATS.

use std::error::Error;
use std::time::Duration;

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession};
use ckf_core::BlockHash;
use ckf_examples::hosts::clock::Clock;
use ckf_examples::setup::{LINK, format, manifest, producer};
use ckf_producer::{Member, Producer};
use ckf_protocol::{ConsumerId, DcId, Epoch};
use tokio::sync::mpsc::{Receiver, Sender, channel};

type Frame = Vec<u8>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (format, clock) = (format(10_000)?, Clock::start());
    let blocks: Vec<BlockHash> = (1..=40).map(BlockHash::new).collect();
    // Small on purpose: what waits, waits in the producer, which bounds it.
    let ((up, above), (down, below)) = (channel(1), channel(8));

    let mut pool = producer(0, 1, format)?;
    pool.store(Member::new(1, 0), &blocks);
    tokio::spawn(serve(pool, above, down, clock));

    let (query, mut sessions) =
        Consumer::new(&manifest(1, format)?, ConsumerConfig::default(), ConsumerId::new(1))?;
    let mut session = sessions.remove(0);
    session.assign(DcId::new(0), Epoch::new(1), clock.now())?;
    tokio::spawn(follow(session, below, up, clock));

    while query.find_prefix(&blocks).best_depth() != Some(40) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("all 40 blocks found after {} ms", clock.now().as_millis());
    Ok(())
}

/// The producer's task. Commands of stage 1 would be another arm of the `select!`.
async fn serve(mut pool: Producer, mut from: Receiver<Frame>, to: Sender<Frame>, clock: Clock) {
    while pool.publish(clock.now()).is_ok() {
        pool.handle_timeout(clock.now());
        while let Some(frame) = pool.poll_frame(LINK, clock.now()) {
            let Ok(()) = to.send(frame.to_bytes()).await else { return };
        }
        tokio::select! {
            frame = from.recv() => match frame {
                Some(frame) => drop(pool.handle_frame(LINK, &frame, clock.now())),
                None => return,
            },
            () = clock.sleep_until(pool.poll_timeout().map(|(at, _)| at)) => {}
        }
    }
}

/// A lane's task. It never waits to send, or both sides might; what is lost is asked again.
async fn follow(mut lane: LaneSession, mut from: Receiver<Frame>, to: Sender<Frame>, clock: Clock) {
    loop {
        while let Some(frame) = lane.poll_transmit() {
            drop(to.try_send(frame));
        }
        tokio::select! {
            frame = from.recv() => match frame {
                Some(frame) => drop(lane.handle_frame(&frame, clock.now())),
                // A real host calls `handle_disconnected`, and connects again.
                None => return,
            },
            () = clock.sleep_until(lane.poll_timeout().map(|(at, _)| at)) => {
                lane.handle_timeout(clock.now());
            }
        }
    }
}

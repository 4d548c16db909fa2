//! Engines with a replay socket that does not tell all: it forgot the beginning, or a part of it cannot
//! be read. And blocks whose parents nobody ever tells.

use crate::publisher::{Publisher, Trial, batch};
use crate::support::ports;

const GARBAGE: [u8; 3] = [0x93, 0xFF, 0];

async fn engine() -> Publisher {
    let [port, replay] = ports();
    Publisher::start_with_replay(port, replay).await
}

/// A relay that starts beside an engine whose buffer begins at batch 50 of 100: what the buffer tells
/// is as certain as what comes live. The same after a restart of the relay.
#[tokio::test]
async fn an_evicted_buffer_tells_what_it_still_has() {
    let engine = engine().await;
    (50..100).for_each(|number| engine.keep(number, batch(number as u32, None)));
    let mut trial = Trial::new(&engine, "").await;
    trial.until_blocks(50.0).await;
    for number in 100..103 {
        engine.keep(number, batch(number as u32, None));
        engine.publish(number, number as u32);
    }
    trial.until_blocks(53.0).await;
    trial.restart(&engine).await;
    trial.until_blocks(53.0).await;
    engine.publish(103, 103);
    trial.until_blocks(54.0).await;
}

/// One batch of the buffer cannot be read: what it said may be that blocks from before it went. What
/// was stored after it is there.
#[tokio::test]
async fn garbage_in_a_buffer_costs_what_was_before_it_only() {
    let engine = engine().await;
    (0..20).for_each(|number| engine.keep(number, batch(number as u32, None)));
    engine.keep(20, GARBAGE.to_vec());
    (21..30).for_each(|number| engine.keep(number, batch(number as u32, None)));
    let mut trial = Trial::new(&engine, "").await;
    trial.until_blocks(9.0).await;
    trial.restart(&engine).await;
    trial.until_blocks(9.0).await;
    engine.publish(30, 30);
    trial.until_blocks(10.0).await;
}

/// A number far ahead in a replay is none of the engine's: believed, it would make duplicates of all
/// that comes live.
#[tokio::test]
async fn a_far_number_in_a_replay_does_not_silence_the_engine() {
    let engine = engine().await;
    (0..10).for_each(|number| engine.keep(number, batch(number as u32, None)));
    engine.keep(1 << 63, batch(77, None));
    let trial = Trial::new(&engine, "").await;
    trial.until("failed_replays", 1.0).await;
    trial.until_blocks(10.0).await;
    (10..15).for_each(|number| engine.publish(number, number as u32));
    trial.until_blocks(15.0).await;
}

/// The same live: the batch cannot be read by replay either.
#[tokio::test]
async fn garbage_that_comes_live_costs_what_was_before_it_only() {
    let engine = engine().await;
    let tell = |number: u64, payload: Vec<u8>| {
        engine.keep(number, payload.clone());
        engine.send(number, payload);
    };
    let trial = Trial::new(&engine, "").await;
    (0..5).for_each(|number| tell(number, batch(number as u32, None)));
    trial.until_blocks(5.0).await;
    tell(5, GARBAGE.to_vec());
    (6..9).for_each(|number| tell(number, batch(number as u32, None)));
    trial.until_blocks(3.0).await;
    tell(9, batch(9, None));
    trial.until_blocks(4.0).await;
    assert_eq!(trial.started_over().await, 2.0, "at first contact, and for the gap");
}

/// Blocks whose parent was never heard are counted. The pool keeps all that it rightly holds, whether
/// the engine can be asked or not, whatever it answers; and the log says it once.
#[tokio::test]
async fn orphans_cost_nothing_and_are_mentioned_once() {
    for asked in [true, false] {
        let [port] = ports();
        let publisher = if asked { engine().await } else { Publisher::start(port).await };
        let trial = Trial::new(&publisher, "").await;
        (0..40).for_each(|number| publisher.publish(number, number as u32));
        trial.until_blocks(40.0).await;
        let started_over = trial.started_over().await;
        (40..540).for_each(|number| publisher.send(number, batch(number as u32, Some(9_999_999))));
        trial.until_metric("ckf_source_events_total", "orphan_block", 500.0).await;
        publisher.publish(540, 540);
        trial.until_blocks(41.0).await;
        assert_eq!(trial.started_over().await, started_over, "{asked}");
        let log = trial.log();
        assert_eq!(log.matches("Orphans").count(), 1, "{log}");
        assert!(log.lines().count() < 30, "{log}");
    }
}

/// An engine that does wrong a hundred times a second does not fill the log; the counters have it all.
#[tokio::test]
async fn a_bad_engine_does_not_flood_the_log() {
    let [port] = ports();
    let engine = Publisher::start(port).await;
    let trial = Trial::new(&engine, "").await;
    for round in 0..200 {
        // Another life, a gap, a payload that is no batch.
        engine.publish(0, round);
        engine.publish(3, round + 1000);
        engine.send(4, GARBAGE.to_vec());
    }
    trial.until("garbage", 200.0).await;
    assert!(trial.count("restarts").await >= 199.0);
    let log = trial.log();
    assert!(log.lines().count() < 40, "{} lines: {log}", log.lines().count());
}

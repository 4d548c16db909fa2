//! Engines without a replay socket, as most are run: what can be known of them, and what is forgotten.

use std::time::Duration;

use ckf_examples::hosts::source::zmtp::{Connection, Role};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::publisher::{Publisher, Trial};
use crate::site::{Engine, Site};
use crate::support::{local, ports};

/// A publisher that has told three blocks.
async fn three_blocks(more: &str) -> (Publisher, Trial) {
    let [port] = ports();
    let publisher = Publisher::start(port).await;
    let trial = Trial::new(&publisher, more).await;
    (0..3).for_each(|number| publisher.publish(u64::from(number), number));
    trial.until_blocks(3.0).await;
    (publisher, trial)
}

/// The process is gone: so are its blocks, before any new batch could show it.
#[tokio::test]
async fn an_engine_that_ends_is_forgotten_at_once() {
    let (publisher, trial) = three_blocks("").await;
    let port = publisher.stop();
    trial.until_blocks(0.0).await;
    assert_eq!(trial.count("restarts").await, 1.0);
    let publisher = Publisher::start(port).await;
    trial.until("connects", 2.0).await;
    publisher.publish(0, 7);
    trial.until_blocks(1.0).await;
    assert_eq!((trial.count("restarts").await, trial.count("given_up").await), (1.0, 0.0));
}

/// The connection broke and nothing was missed: nothing is cleared (report F15 c).
#[tokio::test]
async fn f15_a_hiccup_of_the_network_clears_nothing() {
    let (publisher, trial) = three_blocks("").await;
    let started_over = trial.started_over().await;
    for round in 1..=3 {
        publisher.cut();
        trial.until("connects", 1.0 + f64::from(round)).await;
        assert_eq!(trial.blocks().await, f64::from(2 + round), "nothing is cleared");
        publisher.publish(u64::from(2 + round), 2 + round);
        trial.until_blocks(f64::from(3 + round)).await;
    }
    assert_eq!(trial.count("restarts").await, 0.0);
    assert_eq!(trial.started_over().await, started_over);
}

/// What was missed cannot be asked for: the member starts from nothing with what came after, be it
/// missed while the connection was lost or on the way.
#[tokio::test]
async fn a_gap_starts_the_member_from_nothing() {
    let (publisher, trial) = three_blocks("").await;
    let started_over = trial.started_over().await;
    publisher.publish(4, 10);
    trial.until_blocks(1.0).await;
    assert_eq!(trial.started_over().await, started_over + 1.0);
    publisher.publish(5, 11);
    trial.until_blocks(2.0).await;
    publisher.cut();
    trial.until("connects", 2.0).await;
    publisher.publish(60, 12);
    publisher.publish(61, 13);
    trial.until_blocks(2.0).await;
    assert_eq!(trial.started_over().await, started_over + 2.0);
    publisher.publish(62, 14);
    trial.until_blocks(3.0).await;
    assert_eq!(trial.count("restarts").await, 0.0);
}

/// Numbers that start again, after a new connection or on the same one, are another life.
#[tokio::test]
async fn f15_numbers_that_start_again_are_another_life() {
    let (publisher, trial) = three_blocks("").await;
    publisher.cut();
    trial.until("connects", 2.0).await;
    publisher.publish(2, 20);
    trial.until_blocks(1.0).await;
    assert_eq!(trial.count("restarts").await, 1.0);
    publisher.publish(0, 21);
    publisher.publish(1, 22);
    trial.until("restarts", 2.0).await;
    trial.until_blocks(2.0).await;
}

/// First contact in the middle of a life: what came before is unknown, what comes counts.
#[tokio::test]
async fn first_contact_in_the_middle_starts_from_nothing() {
    let [port] = ports();
    let publisher = Publisher::start(port).await;
    let trial = Trial::new(&publisher, "").await;
    publisher.publish(57, 1);
    trial.until_blocks(1.0).await;
    publisher.publish(58, 2);
    trial.until_blocks(2.0).await;
    assert!(trial.started_over().await >= 1.0);
}

/// Back, but silent: nothing proves that it is the same engine, so its blocks are not believed in
/// for ever. The same holds for one that stays away, replay socket or not.
#[tokio::test]
async fn what_nothing_proves_is_not_believed_for_ever() {
    let (publisher, trial) = three_blocks("--away-ms 1500").await;
    publisher.cut();
    trial.until("connects", 2.0).await;
    assert_eq!(trial.blocks().await, 3.0, "for a while, it is");
    trial.until_blocks(0.0).await;
    assert_eq!((trial.count("given_up").await, trial.count("restarts").await), (1.0, 0.0));
    // It was the same after all: only what comes now counts.
    publisher.publish(3, 30);
    trial.until_blocks(1.0).await;

    let site = Site::new(1);
    let engine = site.engines[0].start().await;
    let _relay = site.relay("--away-ms 1500").await;
    site.fill(site.engines[0], 1, 6).await;
    let (watch, admin) = (&site.watch, site.relay_admin);
    watch.until(admin, "ckf_pool_blocks", &[], 6.0).await;
    engine.kill();
    watch.until(admin, "ckf_source_total", &["\"given_up\""], 1.0).await;
    let blocks = async || watch.metric(admin, "ckf_pool_blocks", &[]).await;
    for _ in 0..100 {
        if blocks().await == 0.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(blocks().await, 0.0);
    let _engine = site.engines[0].start().await;
    site.fill(site.engines[0], 2, 4).await;
    watch.until(admin, "ckf_pool_blocks", &[], 4.0).await;
}

/// A restart so fast, with numbers that fit so well, that they would pass for the same life.
#[tokio::test]
async fn a_fast_restart_with_fitting_numbers_is_noticed() {
    let site = Site::new(0);
    let engine = Engine::new();
    let (events, _) = engine.sockets();
    let start = async || engine.start_without_replay().await;
    let process = start().await;
    let _relay = site.relay(&format!("--source zmq://{}?worker=1", local(events))).await;
    site.fill(engine, 1, 5).await;
    let (watch, admin) = (&site.watch, site.relay_admin);
    watch.until(admin, "ckf_pool_blocks", &[], 5.0).await;
    process.kill();
    let _process = start().await;
    site.fill(engine, 2, 1).await;
    watch.until(admin, "ckf_source_total", &["\"connects\""], 2.0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    site.fill(engine, 3, 1).await;
    watch.until(admin, "ckf_source_total", &["\"restarts\""], 1.0).await;
    for _ in 0..100 {
        if watch.metric(admin, "ckf_pool_blocks", &[]).await <= 2.0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("blocks of the former life are still there");
}

/// A payload that is no batch is no sign of life, uses its number up, and so leaves a gap.
#[tokio::test]
async fn garbage_is_no_sign_of_life_and_leaves_a_gap() {
    let (publisher, trial) = three_blocks("").await;
    for number in 3..18 {
        publisher.send(number, vec![0xC1; 20]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    trial.until("garbage", 15.0).await;
    let (watch, admin) = (&trial.site.watch, trial.site.relay_admin);
    assert!(watch.metric(admin, "ckf_source_silent_seconds", &[]).await >= 1.4);
    publisher.publish(18, 40);
    trial.until_blocks(1.0).await;
    assert!(watch.metric(admin, "ckf_source_silent_seconds", &[]).await < 1.0);
    assert_eq!(trial.count("restarts").await, 0.0);
}

/// The simulator, too, bounds what it takes on: connections, and what one of them may say.
#[tokio::test]
async fn a_simulated_engine_bounds_its_sockets() {
    let engine = Engine::new();
    let _process = engine.start().await;
    let (events, replay) = engine.sockets();
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(TcpStream::connect(local(events)).await.unwrap());
    }
    // Each of those that are taken on hears a greeting, the others the end.
    let mut greeted = 0;
    for stream in &mut held {
        let mut greeting = [0; 64];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut greeting));
        greeted += usize::from(read.await.unwrap().is_ok_and(|len| len > 0));
    }
    assert_eq!(greeted, 64);

    let question = [&b""[..], &[0; 8]];
    for (question, is_heard) in [(question, true), ([b"", &[0; 5000]], false)] {
        let mut peer = Connection::open(&local(replay), Role::Dealer).await.unwrap();
        peer.send(&question).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), peer.receive()).await;
        assert_eq!(answer.expect("an answer or the end").is_ok(), is_heard);
    }
}

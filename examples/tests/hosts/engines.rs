//! Engines without a replay socket, as most are run: what can be known of them, and what is forgotten.

use std::time::Duration;

use ckf_core::EngineBlockId;
use ckf_examples::hosts::engine::wire::BatchWriter;
use ckf_examples::hosts::source::zmtp::{Connection, Role};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use crate::site::{Engine, Site};
use crate::support::{Process, local, ports};

/// A publisher of which the test decides everything: numbers, when connections break, and whether
/// anybody listens.
struct Publisher {
    port: u16,
    live: broadcast::Sender<(u64, Vec<u8>)>,
    cuts: watch::Sender<u32>,
    listening: JoinHandle<()>,
}

impl Publisher {
    async fn start(port: u16) -> Self {
        let listener = TcpListener::bind(local(port)).await.unwrap();
        let (live, _) = broadcast::channel::<(u64, Vec<u8>)>(64);
        let (cuts, _) = watch::channel(0);
        let (batches, cut) = (live.clone(), cuts.clone());
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (mut batches, mut cut) = (batches.subscribe(), cut.subscribe());
                tokio::spawn(async move {
                    let mut peer = Connection::accept(stream, Role::Pub).await.unwrap();
                    loop {
                        tokio::select! {
                            _ = cut.changed() => return,
                            Ok((number, payload)) = batches.recv() => {
                                let _ = peer.send(&[b"", &number.to_be_bytes(), &payload]).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, live, cuts, listening }
    }

    /// Publishes one block that nothing else has, under this number, to who is connected now.
    fn publish(&self, number: u64, block: u32) {
        let mut batch = BatchWriter::new(1);
        let tokens: Vec<u32> = (0..16).map(|token| block * 1000 + token).collect();
        batch.stored([EngineBlockId::new(u64::from(block) + 1)].into_iter(), None, &tokens, 16);
        self.send(number, batch.finish(0));
    }

    fn send(&self, number: u64, payload: Vec<u8>) {
        let told = self.live.send((number, payload));
        assert_eq!(told.ok(), Some(1), "one relay listens");
    }

    /// Breaks the connection, as a network does; the next one works.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends, as a process does.
    fn stop(self) -> u16 {
        self.listening.abort();
        self.cut();
        self.port
    }
}

/// A relay with one source, no replay socket, and what it knows.
struct Trial {
    site: Site,
    _relay: Process,
}

impl Trial {
    async fn new(publisher: &Publisher, more: &str) -> Self {
        let site = Site::new(0);
        let source = format!("--source zmq://{}?worker=1", local(publisher.port));
        let relay = site.relay(&format!("{source} {more}")).await;
        let trial = Self { site, _relay: relay };
        trial.until("connects", 1.0).await;
        trial
    }

    async fn count(&self, what: &str) -> f64 {
        let what = format!("\"{what}\"");
        self.site.watch.metric(self.site.relay_admin, "ckf_source_total", &[&what]).await
    }

    async fn until(&self, what: &str, least: f64) {
        let label = format!("\"{what}\"");
        let (watch, port) = (&self.site.watch, self.site.relay_admin);
        watch.until(port, "ckf_source_total", &[&label], least).await;
        if what == "connects" {
            // The publisher knows of the subscriber a moment later.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn blocks(&self) -> f64 {
        self.site.watch.metric(self.site.relay_admin, "ckf_pool_blocks", &[]).await
    }

    async fn until_blocks(&self, blocks: f64) {
        for _ in 0..200 {
            if self.blocks().await == blocks {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let page = self.site.watch.get(self.site.relay_admin, "/metrics").await;
        panic!("not {blocks} blocks: {}", page.unwrap_or_default());
    }
}

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
    let from_nothing = trial.count("from_nothing").await;
    for round in 1..=3 {
        publisher.cut();
        trial.until("connects", 1.0 + f64::from(round)).await;
        assert_eq!(trial.blocks().await, f64::from(2 + round), "nothing is cleared");
        publisher.publish(u64::from(2 + round), 2 + round);
        trial.until_blocks(f64::from(3 + round)).await;
    }
    assert_eq!(trial.count("restarts").await, 0.0);
    assert_eq!(trial.count("from_nothing").await, from_nothing);
}

/// What was missed cannot be asked for: the member starts from nothing with what came after, be it
/// missed while the connection was lost or on the way.
#[tokio::test]
async fn a_gap_starts_the_member_from_nothing() {
    let (publisher, trial) = three_blocks("").await;
    let from_nothing = trial.count("from_nothing").await;
    publisher.publish(4, 10);
    trial.until_blocks(1.0).await;
    assert_eq!(trial.count("from_nothing").await, from_nothing + 1.0);
    publisher.publish(5, 11);
    trial.until_blocks(2.0).await;
    publisher.cut();
    trial.until("connects", 2.0).await;
    publisher.publish(60, 12);
    publisher.publish(61, 13);
    trial.until_blocks(2.0).await;
    trial.until("from_nothing", from_nothing + 2.0).await;
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
    assert!(trial.count("from_nothing").await >= 1.0);
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

//! An engine's publisher that the test leads, and a relay that follows it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_core::EngineBlockId;
use ckf_examples::hosts::engine::wire::BatchWriter;
use ckf_examples::hosts::source::zmtp::{Connection, Role};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use crate::site::Site;
use crate::support::{Process, local};

/// Batches that a publisher keeps for replay: numbers and payloads.
pub(crate) type Kept = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A publisher of which the test decides everything: numbers, when connections break, whether
/// anybody listens, and what can be replayed.
pub(crate) struct Publisher {
    port: u16,
    replay: Option<u16>,
    live: broadcast::Sender<(u64, Vec<u8>)>,
    cuts: watch::Sender<u32>,
    kept: Kept,
    tasks: Vec<JoinHandle<()>>,
}

impl Publisher {
    /// One that cannot be asked, as engines are by default.
    pub(crate) async fn start(port: u16) -> Self {
        let listener = TcpListener::bind(local(port)).await.unwrap();
        let (live, _) = broadcast::channel::<(u64, Vec<u8>)>(4096);
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
        let (kept, tasks) = (Kept::default(), vec![listening]);
        Self { port, replay: None, live, cuts, kept, tasks }
    }

    /// One that answers questions with what it keeps.
    pub(crate) async fn start_with_replay(port: u16, replay: u16) -> Self {
        let mut publisher = Self::start(port).await;
        let listener = TcpListener::bind(local(replay)).await.unwrap();
        let kept = publisher.kept.clone();
        publisher.tasks.push(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut peer = Connection::accept(stream, Role::Router).await.unwrap();
                let Ok(question) = peer.receive().await else { continue };
                let from = u64::from_be_bytes(question[1].as_ref().try_into().unwrap());
                let kept = kept.lock().unwrap().clone();
                for (number, payload) in kept.iter().filter(|(number, _)| *number >= from) {
                    let _ = peer.send(&[b"", b"", &number.to_be_bytes(), payload]).await;
                }
                let _ = peer.send(&[b"", b"", &[0xFF; 8], b""]).await;
            }
        }));
        Self { replay: Some(replay), ..publisher }
    }

    /// Publishes one block that nothing else has, under this number, to who is connected now.
    pub(crate) fn publish(&self, number: u64, block: u32) {
        self.send(number, batch(block, None));
    }

    pub(crate) fn send(&self, number: u64, payload: Vec<u8>) {
        let told = self.live.send((number, payload));
        assert_eq!(told.ok(), Some(1), "one relay listens");
    }

    /// Keeps a batch for replay.
    pub(crate) fn keep(&self, number: u64, payload: Vec<u8>) {
        self.kept.lock().unwrap().push((number, payload));
    }

    /// Breaks the connection, as a network does; the next one works.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends, as a process does.
    pub(crate) fn stop(self) -> u16 {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.cut();
        self.port
    }
}

/// A batch that stores one block, which builds on another one or on none.
pub(crate) fn batch(block: u32, parent: Option<u32>) -> Vec<u8> {
    let id = |block: u32| EngineBlockId::new(u64::from(block) + 1);
    let mut batch = BatchWriter::new(1);
    let tokens: Vec<u32> = (0..16).map(|token| block * 1000 + token).collect();
    batch.stored([id(block)].into_iter(), parent.map(id), &tokens, 16);
    batch.finish(0)
}

/// A relay with one source, and what it knows.
pub(crate) struct Trial {
    pub(crate) site: Site,
    relay: Process,
    command: String,
}

impl Trial {
    pub(crate) async fn new(publisher: &Publisher, more: &str) -> Self {
        let site = Site::new(0);
        let replay = publisher.replay.map(|port| format!("&replay={port}")).unwrap_or_default();
        let command = format!("--source zmq://{}?worker=1{replay} {more}", local(publisher.port));
        let relay = site.relay(&command).await;
        let trial = Self { site, relay, command };
        trial.until("connects", 1.0).await;
        trial
    }

    /// The same relay anew, after it was killed.
    pub(crate) async fn restart(&mut self, publisher: &Publisher) {
        self.relay.signal("KILL");
        self.relay.ended(Duration::from_secs(5)).await.expect("it was killed");
        publisher.cut();
        self.relay = self.site.relay(&self.command).await;
        self.until("connects", 1.0).await;
    }

    /// What the relay has written to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.site.relay_log()).unwrap()
    }

    pub(crate) async fn count(&self, what: &str) -> f64 {
        self.metric("ckf_source_total", what).await
    }

    /// Times that the member started over from its engine's latest batches.
    pub(crate) async fn started_over(&self) -> f64 {
        self.metric("ckf_source_recoveries_total", "started_over").await
    }

    pub(crate) async fn metric(&self, name: &str, what: &str) -> f64 {
        let what = format!("\"{what}\"");
        self.site.watch.metric(self.site.relay_admin, name, &[&what]).await
    }

    pub(crate) async fn until(&self, what: &str, least: f64) {
        self.until_metric("ckf_source_total", what, least).await;
        if what == "connects" {
            // The publisher knows of the subscriber a moment later.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn until_metric(&self, name: &str, what: &str, least: f64) {
        let label = format!("\"{what}\"");
        self.site.watch.until(self.site.relay_admin, name, &[&label], least).await;
    }

    pub(crate) async fn blocks(&self) -> f64 {
        self.site.watch.metric(self.site.relay_admin, "ckf_pool_blocks", &[]).await
    }

    pub(crate) async fn until_blocks(&self, blocks: f64) {
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

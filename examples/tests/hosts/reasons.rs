//! Refusals of Dynamo's contract, given and heeded, and relays that say nothing at all.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ckf_examples::hosts::dynamo::MARKER;
use ckf_examples::hosts::dynamo::identity;
use ckf_examples::hosts::dynamo::reason::{Reason, Remedy, remedy};
use ckf_examples::hosts::proto::dynamo as proto;
use ckf_examples::hosts::proto::dynamo::kv_event_relay_client::KvEventRelayClient;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::player::{Player, Recording, recording, router};
use crate::site::{Engine, Site};
use crate::support::{Process, RELAY, ROUTER, Watch, args, http, local, ports};

/// A relay that is not there, and one that takes connections and never answers: neither keeps the
/// router from serving, nor the lane of the third one from its work.
#[tokio::test]
async fn dead_relays_block_neither_the_router_nor_other_lanes() {
    let Some(recording) = recording() else { return };
    let dc = dc_of(&recording);
    let player = Player::new(recording);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let [absent, listen, admin] = ports();
    let silent = silent.local_addr().unwrap().port();
    let live = player.serve().await;
    let mut line = format!(
        "--protocol dynamo --model meta/llama --silence-ms 60000 --listen {} --admin {}",
        local(listen),
        local(admin)
    );
    for (id, relay, engine) in [(1, absent, 1), (2, silent, 2), (dc, live, 3)] {
        let (relay, engine) = (http(relay, ""), http(engine, ""));
        line += &format!(" --dc id={id},relay={relay},endpoint={engine}");
    }
    let started = Instant::now();
    let _router = Process::start("router", ROUTER, &args(&line));
    let watch = Watch::new();
    watch.up(admin, "/healthz").await;
    let answer = watch.post(listen, "/v1/route", &json!({ "prompt": [1, 2, 3] })).await.unwrap();
    assert!(!answer["to"].is_null(), "{answer}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    watch.until(admin, "ckf_lane_total", &["\"delta\""], 108.0).await;
    let ready =
        async |dc: u64| watch.metric(admin, "ckf_lane_ready", &[&format!("dc=\"{dc}\"")]).await;
    assert_eq!((ready(1).await, ready(2).await, ready(dc).await), (0.0, 0.0, 1.0));
}

/// With all relays away, requests go out by load, and the lane comes when its relay does.
#[tokio::test]
async fn a_router_serves_before_any_relay_tells() {
    let Some(recording) = recording() else { return };
    let (_router, listen, admin) = router(ports::<1>()[0], 1, dc_of(&recording), "meta/llama");
    let watch = Watch::new();
    watch.up(admin, "/healthz").await;
    assert!(watch.get(admin, "/readyz").await.is_none());
    assert!(watch.get(admin, "/status").await.is_some());
    let answer = watch.post(listen, "/v1/route", &json!({ "prompt": [1, 2, 3] })).await.unwrap();
    assert_eq!(answer["why"], "load and cost");
}

fn dc_of(recording: &Recording) -> u64 {
    identity(recording.subscribe.expected_producer.as_ref().unwrap()).unwrap().pool.dc.get()
}

/// Each reason is counted by its name and heeded: asked again after a back-off, or not before the relay
/// or the producer is another one.
#[tokio::test]
async fn every_reason_of_a_relay_is_counted_and_heeded() {
    let Some(recording) = recording() else { return };
    let statuses = Reason::all().map(Reason::status);
    // Without a reason, the code decides.
    let statuses = statuses.chain([Status::unavailable("x"), Status::invalid_argument("x")]);
    let watch = Watch::new();
    let mut trials = Vec::new();
    for status in statuses {
        let player = Player::new(recording.clone());
        player.refusal.send_replace(Some(status.clone()));
        let port = player.serve().await;
        let (process, _, admin) = router(port, 1, dc_of(&recording), "meta/llama");
        trials.push((status, player, process, admin));
    }
    for (status, player, _, admin) in &trials {
        let label = match Reason::of(status) {
            Some(_) => format!("reason=\"{}\"", status.message().to_lowercase()),
            None => "reason=\"none\"".to_owned(),
        };
        watch.until(*admin, "ckf_dynamo_errors_total", &[&label], 1.0).await;
        let all = watch.metric(*admin, "ckf_dynamo_errors_total", &["pool"]).await;
        assert_eq!(watch.metric(*admin, "ckf_dynamo_errors_total", &[&label]).await, all);
        if remedy(status) == Remedy::Again {
            for _ in 0..200 {
                if player.asked.load(Ordering::Relaxed) >= 3 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(player.asked.load(Ordering::Relaxed) >= 3, "{status:?}: not asked again");
        }
    }
    for (status, player, ..) in &trials {
        if remedy(status) != Remedy::Again {
            assert_eq!(player.asked.load(Ordering::Relaxed), 1, "{status:?}: asked again");
        }
        player.refusal.send_replace(None);
        player.recording.send_modify(|recording| match remedy(status) {
            Remedy::Again => {}
            Remedy::NextRelay => recording.info.relay.as_mut().unwrap().relay_incarnation += 1,
            Remedy::NextGeneration => next_generation(recording),
        });
    }
    for (_, _, _, admin) in &trials {
        watch.until(*admin, "ckf_lane_ready", &[], 1.0).await;
    }
}

/// The same, published by a producer that has started anew.
fn next_generation(recording: &mut Recording) {
    let next = |producer: &mut Option<proto::ProducerIdentity>| {
        producer.as_mut().unwrap().producer_incarnation += 1;
    };
    next(&mut recording.subscribe.expected_producer);
    recording.updates.iter_mut().for_each(|update| next(&mut update.producer));
    let snapshots = recording.catalog.iter_mut().filter_map(|update| update.snapshot.as_mut());
    snapshots.flat_map(|snapshot| &mut snapshot.pools).for_each(|pool| next(&mut pool.producer));
}

/// A relay that speaks the contract, with one engine.
struct Dynamo {
    engine: Engine,
    listen: u16,
    admin: u16,
    site: Site,
    relay: Process,
    _engine: Process,
}

impl Dynamo {
    async fn start(more: &str) -> Self {
        let engine = Engine::new();
        let process = engine.start().await;
        let [listen, admin] = ports();
        let (events, replay) = engine.sockets();
        let line = format!(
            "--protocol dynamo --dc-id 9 --listen {} --admin {} {more} \
             --source zmq://{}?worker=1&replay={replay}",
            local(listen),
            local(admin),
            local(events)
        );
        let relay = Process::start("relay", RELAY, &args(&line));
        let site = Site::new(0);
        site.watch.up(admin, "/readyz").await;
        Self { engine, listen, admin, site, relay, _engine: process }
    }

    /// A client that takes no more than a few bytes before it reads.
    fn client(&self) -> KvEventRelayClient<Channel> {
        let channel = Channel::from_shared(http(self.listen, "")).unwrap();
        let channel = channel.initial_stream_window_size(1 << 10);
        let channel = channel.initial_connection_window_size(1 << 16).connect_lazy();
        KvEventRelayClient::new(channel).max_decoding_message_size(8 << 20)
    }

    async fn producer(&self) -> proto::ProducerIdentity {
        let request = proto::WatchKvPoolCatalogRequest {
            subscriber_id: "test".to_owned(),
            contract_marker: MARKER,
        };
        let mut catalog = self.client().watch_kv_pool_catalog(request).await.unwrap().into_inner();
        loop {
            let update = catalog.message().await.unwrap().unwrap();
            if let Some(pool) = update.snapshot.unwrap().pools.first() {
                return pool.producer.clone().unwrap();
            }
        }
    }

    async fn subscribe(
        &self,
        producer: &proto::ProducerIdentity,
    ) -> Result<Streaming<proto::FilterUpdate>, Status> {
        let request = proto::SubscribeKvPoolRequest {
            subscriber_id: "test".to_owned(),
            expected_producer: Some(producer.clone()),
            contract_marker: MARKER,
        };
        Ok(self.client().subscribe_kv_pool(request).await?.into_inner())
    }

    async fn until_given(&self, reason: &str, least: f64) {
        let label = format!("\"{reason}\"");
        self.site.watch.until(self.admin, "ckf_dynamo_refused_total", &[&label], least).await;
    }
}

/// Why a stream ends, after the updates that still come.
async fn end(mut updates: Streaming<proto::FilterUpdate>) -> Option<Reason> {
    let ended = async {
        loop {
            match updates.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Reason::of(&status),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the stream ends")
}

/// What our relay says to those who ask for what is not there, are too slow, or are left.
#[tokio::test]
async fn our_relay_gives_the_reasons_of_the_contract() {
    let dynamo = Dynamo::start("--blocks 20000").await;
    let producer = dynamo.producer().await;
    let mut foreign = producer.clone();
    foreign.pool_id.as_mut().unwrap().dc_id += 1;
    let mut former = producer.clone();
    former.producer_incarnation += 1;
    for (expected, reason) in [(foreign, Reason::PoolNotFound), (former, Reason::ProducerChanged)] {
        let status = dynamo.subscribe(&expected).await.unwrap_err();
        assert_eq!(Reason::of(&status), Some(reason));
    }
    dynamo.until_given("pool_not_found", 1.0).await;
    dynamo.until_given("producer_changed", 1.0).await;

    // The snapshot is more than the slow one takes at a time; batches pile up behind it.
    let slow = dynamo.subscribe(&producer).await.unwrap();
    let mut quick = dynamo.subscribe(&producer).await.unwrap();
    for seed in 0..24 {
        dynamo.site.fill(dynamo.engine, seed, 2).await;
        // Each in a batch of its own.
        while quick.message().await.unwrap().unwrap().sequence <= u64::from(seed) {}
    }
    assert_eq!(end(slow).await, Some(Reason::SubscriberLagged));
    dynamo.until_given("subscriber_lagged", 1.0).await;

    // Who keeps up hears it when the relay goes.
    dynamo.relay.signal("TERM");
    assert_eq!(end(quick).await, Some(Reason::PublicationUnavailable));
}

/// Few snapshots go out at a time, and who does not take one is not waited for.
#[tokio::test]
async fn snapshots_that_nobody_takes_end_in_time() {
    // Four chunks, of which a connection takes two at most.
    let dynamo = Dynamo::start("--blocks 5000000 --snapshot-progress-ms 2000").await;
    let producer = dynamo.producer().await;
    let mut stalled = Vec::new();
    for _ in 0..4 {
        stalled.push(dynamo.subscribe(&producer).await.unwrap());
    }
    let Err(status) = dynamo.subscribe(&producer).await else {
        panic!("{}", dynamo.site.watch.get(dynamo.admin, "/metrics").await.unwrap())
    };
    assert_eq!(Reason::of(&status), Some(Reason::ResourceLimit));
    tokio::time::sleep(Duration::from_millis(2600)).await;
    // Their places are free again.
    let taken = dynamo.subscribe(&producer).await.unwrap();
    for updates in stalled {
        assert_eq!(end(updates).await, Some(Reason::SnapshotProgressTimeout));
    }
    dynamo.until_given("snapshot_progress_timeout", 4.0).await;
    let words = tokio::time::timeout(Duration::from_secs(10), snapshot_bytes(taken)).await;
    assert!(words.unwrap() > 8 << 20, "who takes it gets it whole");
}

async fn snapshot_bytes(mut updates: Streaming<proto::FilterUpdate>) -> usize {
    let chunks = [updates.message().await, updates.message().await];
    chunks.into_iter().map(|chunk| chunk.unwrap().unwrap().payload.len()).sum()
}

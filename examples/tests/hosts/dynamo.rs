//! Dynamo's relay contract: the recorded session, and both of our ends against each other.

use std::path::Path;
use std::time::Duration;

use ckf_consumer::{Consumer, ConsumerConfig, LaneSession, QueryHandle, SessionState};
use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, Format};
use ckf_examples::hosts::dynamo::import::Importer;
use ckf_examples::hosts::dynamo::{MARKER, check_envelope, identity};
use ckf_examples::hosts::proto::dynamo as proto;
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant, Limits, Manifest, Message, decode};
use serde_json::{Value, json};
use tonic::{Code, Status};
use xxhash_rust::xxh3::xxh3_64;

use crate::player::{Player, Recording, recording, router};
use crate::support::{ENGINE, Process, RELAY, ROUTER, Watch, args, http, local, ports, shared};

/// The prompts of the recorded queries, with the depths that Dynamo found.
fn queries(about: &Value) -> Vec<(Vec<u32>, u64)> {
    let trace = shared("traces/mooncake_fast25_conversation.jsonl").expect("beside the recording");
    let trace = std::fs::read_to_string(trace).unwrap();
    let rows: Vec<&str> = trace.lines().collect();
    let prompt = |query: &Value| {
        let row: Value = serde_json::from_str(rows[query[0].as_u64().unwrap() as usize]).unwrap();
        let blocks = query[1].as_u64().unwrap() as usize;
        let ids = row["hash_ids"].as_array().unwrap()[..blocks].iter();
        let tokens = ids.flat_map(|id| (0..16).map(|j| id.as_u64().unwrap() as u32 * 16 + j + 100));
        (tokens.collect(), query[3].as_u64().unwrap())
    };
    about["queries"].as_array().unwrap().iter().map(prompt).collect()
}

/// A consumer of one lane, which has asked for a lease of this producer's pool.
pub(crate) fn consumer(producer: &proto::ProducerIdentity) -> (QueryHandle, LaneSession, Importer) {
    let identity = identity(producer).unwrap();
    let dc = identity.pool.dc;
    let manifest = Manifest::builder(identity.pool.domain, identity.format).dc(dc).build().unwrap();
    let (query, mut sessions) =
        Consumer::new(&manifest, ConsumerConfig::default(), ConsumerId::new(1)).unwrap();
    let mut session = sessions.remove(0);
    session.assign(dc, Epoch::new(1), Instant::ZERO).unwrap();
    let frame = session.poll_transmit().expect("a subscription");
    let Ok(Message::Subscribe(subscribe)) = decode(&frame, &Limits::default()) else {
        panic!("{frame:?}")
    };
    (query, session, Importer::new(&subscribe, producer.clone()).unwrap())
}

/// The recorded session gives its table digest and all 200 depths, through a lane of ours.
#[test]
fn the_recorded_session_gives_its_digest_and_all_depths() {
    let Some(recording) = recording() else { return };
    check_envelope(recording.info.contract_marker, recording.info.protocol_version).unwrap();
    let producer = recording.subscribe.expected_producer.clone().expect("a producer");
    assert_eq!(identity(&producer).unwrap().format.seed(), Format::DYNAMO_SEED);
    let (query, mut session, mut importer) = consumer(&producer);
    assert_eq!(recording.updates.len(), 111);
    for update in &recording.updates {
        for frame in importer.handle(update).unwrap() {
            let _ = session.handle_frame(&frame, Instant::ZERO);
            assert!(matches!(session.state(), SessionState::Installing | SessionState::Ready));
        }
    }
    assert_eq!(session.stats().deltas, 108);
    assert_eq!(session.stats().heartbeats, 2);
    let format = *session.store().format();
    let words = (0..format.bucket_count())
        .map(|bucket| session.store().word(format.bucket(bucket).expect("below the count")).get());
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    assert_eq!(format!("{:016x}", xxh3_64(&bytes)), recording.about["ckf"]["final_table_xxh3_64"]);
    let queries = queries(&recording.about);
    assert_eq!(queries.len(), 200);
    for (tokens, depth) in queries {
        let blocks: Vec<BlockHash> = Scope::default().block_hashes(&tokens, 16).collect();
        let found = query.find_prefix(&blocks).depth(session.lane());
        assert_eq!(found.map(u64::from), Some(depth));
    }
}

/// Whatever is lost, repeated, exchanged or damaged on the way is noticed before it counts.
#[test]
fn a_broken_stream_is_an_error_and_never_a_wrong_table() {
    let Some(recording) = recording() else { return };
    let producer = recording.subscribe.expected_producer.clone().unwrap();
    let good = &recording.updates;
    let feed = |updates: &[proto::FilterUpdate]| {
        let (_, _, mut importer) = consumer(&producer);
        updates.iter().try_for_each(|update| importer.handle(update).map(|_| ()))
    };
    feed(good).unwrap();
    for at in 1..good.len() - 1 {
        let is_heartbeat = good[at].payload.is_empty();
        let mut updates = good.clone();
        updates.remove(at);
        assert_eq!(feed(&updates).is_err(), !is_heartbeat, "{at} lost");
        let mut updates = good.clone();
        updates.insert(at, good[at].clone());
        assert_eq!(feed(&updates).is_err(), !is_heartbeat, "{at} repeated");
        let mut updates = good.clone();
        updates[at].contract_marker = 0;
        assert!(feed(&updates).is_err(), "{at} without marker");
        let mut updates = good.clone();
        updates[at].producer.as_mut().unwrap().producer_incarnation += 1;
        assert!(feed(&updates).is_err(), "{at} of another producer");
        if !is_heartbeat {
            let mut updates = good.clone();
            let mut payload = updates[at].payload.to_vec();
            let last = payload.len() - 1;
            payload[last] ^= 1;
            updates[at].payload = payload.into();
            assert!(feed(&updates).is_err(), "{at} damaged");
        }
    }
}

/// A router's picture of readiness and load, and what changes it.
#[tokio::test]
async fn readiness_and_load_of_a_pool_are_followed() {
    let Some(recording) = recording() else { return };
    let pool = identity(recording.subscribe.expected_producer.as_ref().unwrap()).unwrap().pool;
    let (updates, answers) = tokio::sync::watch::channel(recording.readiness[0].clone());
    let full = recording.load.last().unwrap().clone();
    let kv = (full.pools[0].kv_used_blocks, full.pools[0].total_kv_blocks);
    let player = Player { readiness: Some(answers), ..Player::new(recording) };
    let port = player.serve().await;
    let (_router, listen, admin) = router(port, 1, pool.dc.get(), "meta/llama");
    let watch = Watch::new();
    watch.until(admin, "ckf_dc_serving", &[], 1.0).await;
    watch.until(admin, "ckf_dc_kv_used_blocks", &[], kv.0 as f64).await;
    watch.until(admin, "ckf_dc_kv_total_blocks", &[], kv.1 as f64).await;
    let to = async || {
        let answer = watch.post(listen, "/v1/route", &json!({ "prompt": [1, 2, 3] })).await;
        answer.unwrap()["to"]["dc"].clone()
    };
    assert_eq!(to().await, pool.dc.get());
    // Whatever the filter says: what cannot be used gets nothing.
    for (state, closed) in [
        (proto::ServingReadinessState::Unavailable, true),
        (proto::ServingReadinessState::Ready, false),
        (proto::ServingReadinessState::Unavailable, true),
        (proto::ServingReadinessState::Unknown, false),
    ] {
        updates.send_modify(|update| update.entries[0].state = state.into());
        for _ in 0..200 {
            if to().await.is_null() == closed {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(to().await.is_null(), closed, "{state:?}");
        // Nothing else is wrong with the request; the endpoint is nowhere.
        let mut client = crate::fake::Wire::to(listen).await;
        let body = r#"{"prompt":[1,2,3]}"#;
        let head = "connection: close\r\n";
        client.say(&crate::fake::request("POST", "/v1/completions", head, body)).await;
        let (status, error) = crate::fake::parsed(&client.rest().await);
        let told = if closed { (503, "no_data_center") } else { (502, "no_endpoint") };
        assert_eq!((status, error["error"]["code"].as_str()), (told.0, Some(told.1)));
    }
}

/// Of two pools that hold the same, the one whose caches are less full gets the request.
#[tokio::test]
async fn the_load_that_relays_tell_is_weighed() {
    let Some(recording) = recording() else { return };
    let pool = identity(recording.subscribe.expected_producer.as_ref().unwrap()).unwrap().pool;
    let dcs = [pool.dc.get(), pool.dc.get() + 1];
    let [listen, admin] = ports();
    let mut line = format!(
        "--protocol dynamo --model meta/llama --listen {} --admin {}",
        local(listen),
        local(admin)
    );
    let mut players = Vec::new();
    for (dc, engine) in dcs.into_iter().zip(1..) {
        let mut load = recording.load.last().unwrap().clone();
        let entry = &mut load.pools[0];
        entry.producer.as_mut().unwrap().pool_id.as_mut().unwrap().dc_id = dc;
        (entry.kv_observed_ranks, entry.total_kv_blocks) = (entry.kv_expected_ranks, 1000);
        entry.kv_used_blocks = 500;
        let player = Player::new(Recording { load: vec![load], ..recording.clone() });
        let (relay, engine) = (http(player.serve().await, ""), http(engine, ""));
        line += &format!(" --dc id={dc},relay={relay},endpoint={engine}");
        players.push(player);
    }
    let _router = Process::start("router", ROUTER, &args(&line));
    let watch = Watch::new();
    watch.until(admin, "ckf_dc_kv_used_blocks", &[], 1000.0).await;
    let to = async || {
        let answer = watch.post(listen, "/v1/route", &json!({ "prompt": [1, 2, 3] })).await;
        answer.unwrap()["to"]["dc"].clone()
    };
    assert_eq!(to().await, dcs[0], "equal ones in the order given");
    for (full, other) in [(0, 1), (1, 0), (0, 1)] {
        for (at, used) in [(full, 900), (other, 100)] {
            players[at].tell_load(used);
        }
        for _ in 0..200 {
            if to().await == dcs[other] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(to().await, dcs[other]);
    }
}

/// `router --protocol dynamo` against a relay that speaks the recorded messages.
#[tokio::test]
async fn the_router_reads_a_dynamo_relay() {
    let Some(recording) = recording() else { return };
    let port = Player::new(recording.clone()).serve().await;

    let pool = recording.catalog.last().unwrap().snapshot.as_ref().unwrap().pools[0].clone();
    let dc = identity(pool.producer.as_ref().unwrap()).unwrap().pool.dc;
    let model = &pool.registrations[0].canonical_model_id;
    let (_router, listen, admin) = router(port, 1, dc.get(), model);
    let watch = Watch::new();
    watch.until(admin, "ckf_lane_total", &["\"delta\""], 108.0).await;
    for (tokens, depth) in queries(&recording.about) {
        let answer = watch.post(listen, "/v1/route", &json!({ "prompt": tokens })).await.unwrap();
        assert_eq!(answer["depths"][DcId::new(dc.get()).to_string()], depth);
    }
}

/// `relay --protocol dynamo` serves the contract from our producer: a table equal, bucket by bucket,
/// to the one that our own exact state projects, and followed by `router --protocol dynamo`.
#[tokio::test]
async fn our_relay_serves_the_contract() {
    let Some(trace) = shared("traces/mooncake_fast25_conversation.jsonl") else { return };
    let [engine, events, replay, listen, admin] = ports();
    let engine_args = format!(
        "serve --listen {} --events {} --replay {}",
        local(engine),
        local(events),
        local(replay)
    );
    let _engine = Process::start("engine", ENGINE, &args(&engine_args));
    let watch = Watch::new();
    watch.up(engine, "/healthz").await;
    let relay_args = format!(
        "--protocol dynamo --dc-id 9 --listen {} --admin {} --blocks 20000 --source zmq://{}?worker=1&replay={replay}",
        local(listen),
        local(admin),
        local(events),
    );
    let relay = Process::start("relay", RELAY, &args(&relay_args));
    watch.up(admin, "/readyz").await;
    let (_router, front, router_admin) = router(listen, engine, 9, "sim");
    watch.until(router_admin, "ckf_lane_ready", &[], 1.0).await;
    drive_and_verify(&trace, front, engine, 0).await;
    watch.until(router_admin, "ckf_dc_serving", &[], 1.0).await;
    the_streams_keep_their_rules(listen).await;
    // A new incarnation is another producer: the router finds it through the catalog.
    relay.kill();
    let relay = Process::start("relay", RELAY, &args(&relay_args));
    watch.up(admin, "/readyz").await;
    drive_and_verify(&trace, front, engine, 100).await;
    assert!(watch.metric(router_admin, "ckf_lane_total", &["\"snapshot\""]).await >= 2.0);
    assert!(watch.metric(router_admin, "ckf_lane_retired_total", &["\"digest\""]).await == 0.0);
    // Another shape of its filters, too: the router makes lanes of that shape.
    relay.kill();
    let _relay = Process::start("relay", RELAY, &args(&relay_args.replace("20000", "90000")));
    watch.up(admin, "/readyz").await;
    watch.until(router_admin, "ckf_lane_ready", &[], 1.0).await;
    drive_and_verify(&trace, front, engine, 200).await;
}

/// A pool whose engines have not told enough is in no catalog, is unavailable, and has no stream.
#[tokio::test]
async fn an_unready_pool_is_not_served() {
    let [events, listen, admin] = ports();
    let line = format!(
        "--protocol dynamo --dc-id 9 --listen {} --admin {} --blocks 1000 --ready-ms 60000 \
         --source zmq://{}?worker=1",
        local(listen),
        local(admin),
        local(events)
    );
    let _relay = Process::start("relay", RELAY, &args(&line));
    Watch::new().up(admin, "/healthz").await;
    let channel = tonic::transport::Channel::from_shared(http(listen, "")).unwrap();
    let mut client = proto::kv_event_relay_client::KvEventRelayClient::new(channel.connect_lazy());
    let (subscriber_id, contract_marker) = ("test".to_owned(), MARKER);
    let request = proto::WatchKvPoolCatalogRequest { subscriber_id, contract_marker };
    let mut catalog = client.watch_kv_pool_catalog(request).await.unwrap().into_inner();
    let first = catalog.message().await.unwrap().unwrap();
    assert_eq!(first.snapshot.unwrap().pools, []);
    let more = tokio::time::timeout(Duration::from_secs(1), catalog.message()).await;
    assert!(more.is_err(), "{more:?}");
    let (subscriber_id, contract_marker) = ("test".to_owned(), MARKER);
    let request = proto::SubscribeServingReadinessRequest { subscriber_id, contract_marker };
    let mut readiness = client.subscribe_serving_readiness(request).await.unwrap().into_inner();
    let entry = readiness.message().await.unwrap().unwrap().entries.remove(0);
    assert_eq!(entry.state(), proto::ServingReadinessState::Unavailable);
    assert_eq!(entry.missing_roles, [i32::from(proto::WorkerRole::Aggregated)]);
}

/// Readiness and load of our relay; requests that make no sense, and the reasons they get.
async fn the_streams_keep_their_rules(relay: u16) {
    let channel = tonic::transport::Channel::from_shared(http(relay, "")).unwrap();
    let mut client = proto::kv_event_relay_client::KvEventRelayClient::new(channel.connect_lazy());
    let (subscriber_id, contract_marker) = ("test".to_owned(), MARKER);
    let request = proto::SubscribeServingReadinessRequest { subscriber_id, contract_marker };
    let mut updates =
        client.subscribe_serving_readiness(request.clone()).await.unwrap().into_inner();
    let update = updates.message().await.unwrap().unwrap();
    assert_eq!(update.entries.len(), 1);
    assert_eq!(update.entries[0].state(), proto::ServingReadinessState::Ready);
    assert_eq!(
        update.entries[0].present_roles().collect::<Vec<_>>(),
        [proto::WorkerRole::Aggregated]
    );

    let (subscriber_id, contract_marker) = ("test".to_owned(), MARKER);
    let load = proto::SubscribeKvPoolLoadRequest { subscriber_id, contract_marker };
    let mut windows = client.subscribe_kv_pool_load(load).await.unwrap().into_inner();
    let mut last = windows.message().await.unwrap().unwrap();
    for _ in 0..2 {
        let window = windows.message().await.unwrap().unwrap();
        assert!(window.window_sequence > last.window_sequence);
        assert_eq!((window.window_ms, window.pools.len()), (1000, 1));
        assert!(window.pools[0].kv_used_blocks > 0);
        assert_eq!((window.pools[0].total_kv_blocks, window.pools[0].kv_expected_ranks), (0, 1));
        last = window;
    }

    let reason = |status: Status| {
        let reason = status.metadata().get("kv-relay-error-reason").cloned();
        (status.code(), reason.and_then(|reason| Some(reason.to_str().ok()?.to_owned())))
    };
    let invalid = Some("RELAY_ERROR_REASON_INVALID_REQUEST".to_owned());
    for subscriber_id in ["".to_owned(), "x".repeat(129), "a\nb".to_owned()] {
        let bad = proto::SubscribeServingReadinessRequest { subscriber_id, ..request.clone() };
        let status = client.subscribe_serving_readiness(bad).await.unwrap_err();
        assert_eq!(reason(status), (Code::InvalidArgument, invalid.clone()));
    }
    let foreign = proto::SubscribeServingReadinessRequest { contract_marker: 1, ..request };
    let status = client.subscribe_serving_readiness(foreign).await.unwrap_err();
    let mismatch = "RELAY_ERROR_REASON_CONTRACT_MISMATCH".to_owned();
    assert_eq!(reason(status), (Code::FailedPrecondition, Some(mismatch)));
}

async fn drive_and_verify(trace: &Path, front: u16, engine: u16, skip: usize) {
    let trace = trace.display();
    let url = http(front, "");
    for what in ["drive --requests 100", "verify --requests 50"] {
        let mut line = args(&format!("{what} --router {url} --trace {trace} --skip {skip}"));
        if what.starts_with("verify") {
            line.extend(args(&format!("--engine 9={}", http(engine, ""))));
        }
        let process = Process::start(what, ENGINE, &line);
        let waited = tokio::task::spawn_blocking(move || process.wait());
        let success = tokio::time::timeout(Duration::from_secs(60), waited).await;
        assert!(success.is_ok_and(|done| done.unwrap()), "{what}");
    }
}

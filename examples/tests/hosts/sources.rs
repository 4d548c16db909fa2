//! Engines' events through the relay's own sockets, published by Python.

use std::collections::BTreeMap;

use ckf_testkit::kv_events::Batch;
use serde_json::Value;

use crate::site::Site;
use crate::support::{
    Process, RELAY, Watch, args, certificates, line, local, ports, python, shared, tls,
};

/// The topic of a simulated engine that is not told another one.
const TOPIC: &str = "kv@engine@sim";

/// A relay and one publisher.
struct Trial {
    _certificates: tempfile::TempDir,
    relay: Process,
    _publisher: Process,
    admin: u16,
    last: u64,
}

/// Starts both and waits until the publisher has sent everything.
async fn trial(kind: &str, what: &str) -> Option<Trial> {
    let python = python()?;
    let folder = certificates();
    let [events, replay, listen, admin] = ports();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts/publisher.py");
    let publisher_args =
        [script.to_owned(), events.to_string(), replay.to_string(), kind.into(), what.into()];
    let (publisher, mut out) = Process::start_and_hear("publisher", &python, &publisher_args);
    let relay = Process::start(
        "relay",
        RELAY,
        &[
            args(&format!(
                "--dc-id 1 --listen {} --admin {} --diagnosis",
                local(listen),
                local(admin)
            )),
            tls(folder.path(), "relay"),
            args(&format!("--source zmq://{}?worker=1&rank=0&replay={replay}", local(events))),
        ]
        .concat(),
    );
    let done = tokio::task::spawn_blocking(move || line(&mut out)).await.unwrap();
    let last = done.strip_prefix("done ").expect("the publisher ends well").parse().unwrap();
    Some(Trial { _certificates: folder, relay, _publisher: publisher, admin, last })
}

impl Trial {
    /// What the diagnosis says of the one member.
    async fn member(&self, watch: &Watch) -> String {
        let page = watch.get(self.admin, "/debug/pools").await.unwrap_or_default();
        page.lines().find(|line| line.starts_with("member (1, 0)")).unwrap_or_default().to_owned()
    }

    async fn until_member(&self, watch: &Watch, wanted: &str) {
        for _ in 0..400 {
            if self.member(watch).await == wanted {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let page = watch.get(self.admin, "/metrics").await.unwrap_or_default();
        panic!("{:?} instead of {wanted:?}\n{page}", self.member(watch).await);
    }
}

/// Hashes as negative, large and byte-string values, both event forms, another medium, unknown
/// events, and batches that only the replay socket has.
#[tokio::test]
async fn an_independent_publisher_is_followed_exactly() {
    let Some(trial) = trial("blocks", "100").await else { return };
    assert_eq!(trial.last, 100);
    let watch = Watch::new();
    trial.until_member(&watch, "member (1, 0): 99 blocks, Live").await;
    let source = "ckf_source_total";
    assert!(watch.metric(trial.admin, source, &["\"replays\""]).await >= 1.0);
    assert_eq!(watch.metric(trial.admin, source, &["\"garbage\""]).await, 0.0);
    assert!(watch.metric(trial.admin, source, &["\"unknown_events\""]).await >= 100.0);
    let left_out = "ckf_blocks_left_out_total";
    assert_eq!(watch.metric(trial.admin, left_out, &["\"other_medium\""]).await, 100.0);
}

/// The recorded publishers: what they lost live comes back through the replay socket, and the end
/// state is the recorded one.
#[tokio::test]
async fn recorded_publishers_end_in_their_recorded_state() {
    let Some(folder) = shared("kv_events/streams") else { return };
    for name in ["vllm_0.23_array", "vllm_0.33_map", "sglang_0.5.23_map", "trtllm_stream"] {
        let capture = folder.join(format!("{name}.kvcap"));
        let about = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let about: Value = serde_json::from_str(&about).unwrap();
        let blocks = &about["final"]["resident_blocks"];
        let Some(trial) = trial("capture", capture.to_str().unwrap()).await else { return };
        assert_eq!(Some(trial.last), about["last_sequence"].as_u64(), "{name}");
        let watch = Watch::new();
        trial.until_member(&watch, &format!("member (1, 0): {blocks} blocks, Live")).await;
    }
}

/// Every published payload goes through the socket: good ones are applied, hostile ones counted,
/// and the relay goes on.
#[tokio::test]
async fn every_payload_is_taken_or_counted() {
    let Some(folder) = shared("kv_events/payloads") else { return };
    let mut bad = BTreeMap::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        count += 1;
        if let Err(error) = Batch::decode(&std::fs::read(&path).unwrap()) {
            bad.insert(path.file_name().unwrap().to_owned(), error);
        }
    }
    let must = ["x_truncated", "x_token_overflow", "x_huge_array_header", "x_nested_deep"];
    for name in must {
        assert!(
            bad.keys().any(|file| file.to_str().unwrap().starts_with(name)),
            "{name} is hostile"
        );
    }
    assert!(bad.keys().all(|file| file.to_str().unwrap().starts_with("x_")), "{bad:?}");
    let Some(trial) = trial("payloads", folder.to_str().unwrap()).await else { return };
    let watch = Watch::new();
    watch.until(trial.admin, "ckf_source_total", &["\"batches\""], f64::from(count)).await;
    let garbage = watch.metric(trial.admin, "ckf_source_total", &["\"garbage\""]).await;
    assert!(garbage >= bad.len() as f64, "{garbage} of {}", bad.len());
    assert_eq!(watch.get(trial.admin, "/healthz").await.as_deref(), Some("ok\n"));
    trial.relay.signal("TERM");
    assert!(trial.relay.wait(), "the relay ends in order");
}

/// The other way round: pyzmq's SUB, DEALER and REQ sockets understand the simulator's, by topic, in
/// numbers and bytes, with heartbeats of ZeroMQ's own.
#[tokio::test]
async fn an_independent_subscriber_understands_a_simulated_engine() {
    let Some(python) = python() else { return };
    let site = Site::new(1);
    let engine = site.engines[0];
    let _process = engine.start().await;
    site.fill(engine, 1, 4).await;
    let (events, replay) = engine.sockets();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts/subscriber.py");
    let line_of = [script, &events.to_string(), &replay.to_string(), TOPIC, "3"].map(str::to_owned);
    let (_subscriber, mut out) = Process::start_and_hear("subscriber", &python, &line_of);
    let read = move || {
        let said = line(&mut out);
        (said, out)
    };
    let (said, mut out) = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(said, "ready");
    for seed in 2..5 {
        site.fill(engine, seed, 2).await;
    }
    let found = tokio::task::spawn_blocking(move || line(&mut out)).await.unwrap();
    let found: Value = serde_json::from_str(&found).expect("the subscriber ends well");
    let expected = serde_json::json!({
        "live": [1, 2, 3],
        "replayed": [0, 1, 2, 3],
        "live_is_replayed": true,
        "from_the_second": true,
        "by_req": true,
        "deaf": true,
        "disconnects": 0,
        "blocks": 10,
    });
    assert_eq!(found, expected);
}

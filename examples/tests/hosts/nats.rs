//! One pool, one NATS server, many routers.

use std::time::Duration;

use ckf_examples::hosts::identity::PoolNames;
use ckf_examples::hosts::nats::{
    ERROR, ERROR_CODE, NatsAccess, connect, feed_subject, join_subject,
};

use crate::site::{Site, prompt};
use crate::support::{Process, args, certificates, local, nats_server, ports};

/// Routers that come together share a snapshot, those that come late get one, and none of them costs
/// the producer a lease or a copy of its own.
#[tokio::test]
async fn late_joiners_share_snapshots_over_nats() {
    let Some((_nats, url)) = plain_server() else { return };
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _first = publishing(&site, &url, "").await;
    site.complete(&prompt(1, 6)).await.unwrap();
    site.until_depth(&prompt(1, 6), 6).await;
    let sum =
        async |name: &str, label: &str| site.watch.metric(site.relay_admin, name, &[label]).await;
    let granted = sum("ckf_leases_total", "granted").await;
    let chunks = sum("ckf_chunks_encoded_total", "pool").await / granted;

    // Six more, at about the same time, with traffic going on.
    let more: Vec<Site> = (0..6)
        .map(|_| {
            let [front, router_admin] = ports();
            Site { front, router_admin, engines: site.engines.clone(), ..Site::new(0) }
        })
        .collect();
    let _routers: Vec<Process> =
        more.iter().map(|site| site.router_of(site.folder.path(), &url, "")).collect();
    for seed in 2..12 {
        site.complete(&prompt(seed, 3)).await.unwrap();
    }
    for other in &more {
        other.until_ready().await;
        for seed in 2..12 {
            other.until_depth(&prompt(seed, 3), 3).await;
        }
    }
    let rounds = sum("ckf_leases_total", "granted").await - granted;
    assert!((1.0..=4.0).contains(&rounds), "{rounds} rounds for 6 routers");
    let encoded = sum("ckf_chunks_encoded_total", "pool").await;
    assert_eq!(encoded, chunks * (granted + rounds), "one snapshot a round, whoever reads it");
    assert_eq!(sum("ckf_subscribers", "pool").await, 1.0);

    // The first router noticed nothing of the rounds.
    site.until_depth(&prompt(11, 3), 3).await;
    assert_eq!(site.lane("ckf_lane_total", "resync").await, 0.0);
    assert_eq!(site.lane("ckf_lane_total", "snapshot").await, 1.0);
}

/// Starts a server without TLS; its URL. `None` where the test may be skipped.
fn plain_server() -> Option<(Process, String)> {
    let (server, port) = server("")?;
    Some((server, format!("nats://{}", local(port))))
}

/// Starts a server with these options; its port.
fn server(more: &str) -> Option<(Process, u16)> {
    let [port] = ports();
    let line = args(&format!("-a 127.0.0.1 -p {port} {more}"));
    nats_server().then(|| (Process::start("nats-server", "nats-server", &line), port))
}

/// A relay that publishes to this server, and a router that reads there, its lane ready.
async fn publishing(site: &Site, url: &str, more: &str) -> (Process, Process) {
    let relay = site.relay(&format!("--nats {url} {more}")).await;
    let router = site.router_of(site.folder.path(), url, more);
    site.until_ready().await;
    (relay, router)
}

/// Over NATS, too, a pool whose engines have not told enough gives nobody a table.
#[tokio::test]
async fn an_unready_pool_is_not_published() {
    let Some((_nats, url)) = plain_server() else { return };
    let site = Site::new(1);
    let _relay = site.start_relay(&format!("--nats {url} --ready-ms 60000"));
    let _router = site.router_of(site.folder.path(), &url, "");
    site.watch.until(site.router_admin, "ckf_lane_total", &["\"subscribe\""], 1.0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(site.watch.metric(site.relay_admin, "ckf_leases_total", &["granted"]).await, 0.0);
    assert_eq!(site.watch.metric(site.router_admin, "ckf_lane_ready", &[]).await, 0.0);
    let _engine = site.engines[0].start().await;
    site.until_ready().await;
}

/// A NATS server that wants certificates and a token: who has both gets frames, who lacks one gets
/// nothing, and it is counted.
#[tokio::test]
async fn nats_over_tls_with_a_token_from_a_file() {
    let site = Site::new(1);
    let folder = site.folder.path();
    let file = |name: &str| folder.join(name).display().to_string();
    let options = format!(
        "--auth the-token --tlsverify --tlscacert {} --tlscert {} --tlskey {}",
        file("ca.pem"),
        file("relay.pem"),
        file("relay.key")
    );
    let Some((_nats, port)) = server(&options) else { return };
    std::fs::write(file("token"), "the-token\n").unwrap();
    std::fs::write(file("wrong"), "another\n").unwrap();
    let url = format!("tls://{}", local(port));
    let _engine = site.engines[0].start().await;
    let token = format!("--nats-token-file {}", file("token"));
    let _both = publishing(&site, &url, &token).await;
    site.complete(&prompt(1, 6)).await.unwrap();
    site.until_depth(&prompt(1, 6), 6).await;

    let stranger = certificates();
    let wrong = format!("--nats-token-file {}", file("wrong"));
    for (certificates, more) in [(stranger.path(), &token), (folder, &wrong), (folder, &"".into())]
    {
        let [front, router_admin] = ports();
        let other = Site { front, router_admin, engines: site.engines.clone(), ..Site::new(0) };
        let _outside = other.router_of(certificates, &url, more);
        let nats = "ckf_nats_total";
        other.watch.until(other.router_admin, nats, &["\"error\""], 1.0).await;
        assert_eq!(other.watch.metric(other.router_admin, nats, &["\"connected\""]).await, 0.0);
        assert_eq!(other.watch.metric(other.router_admin, "ckf_lane_ready", &[]).await, 0.0);
        assert!(other.complete(&prompt(2, 2)).await.is_some(), "served by load");
    }
    assert_eq!(site.lane("ckf_lane_total", "resync").await, 0.0);
}

/// Anybody on the server can write to the subjects: garbage and requests that nobody meant change
/// nothing for those who follow.
#[tokio::test]
async fn garbage_on_the_subjects_changes_nothing() {
    let Some((_nats, url)) = plain_server() else { return };
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let (relay, router) = publishing(&site, &url, "").await;
    let before = (relay.most_memory(), router.most_memory());
    let names = PoolNames { model: "sim".into(), block_size: 16, pool: "default".into() };
    let pool = names.pool_id(1);
    let client = connect(&url, &NatsAccess::default(), Default::default()).await.unwrap();
    for _ in 0..50 {
        for subject in [feed_subject(&pool), join_subject(&pool)] {
            for payload in [vec![], vec![0xA5; 100], b"CK".to_vec(), vec![0; 1 << 20]] {
                client.publish(subject.clone(), payload.into()).await.unwrap();
            }
        }
    }
    client.flush().await.unwrap();
    let garbage = "ckf_nats_garbage_total";
    site.watch.until(site.router_admin, garbage, &["\"feed\""], 150.0).await;
    site.watch.until(site.relay_admin, garbage, &["\"join\""], 150.0).await;
    // Who waits for an answer is told.
    for request in [&b"garbage"[..], b""] {
        let answer = client.request(join_subject(&pool), request.into()).await.unwrap();
        let headers = answer.headers.expect("headers");
        assert_eq!(headers.get(ERROR_CODE).unwrap().as_str(), "400");
        assert!(!headers.get(ERROR).unwrap().as_str().is_empty());
    }
    site.complete(&prompt(3, 5)).await.unwrap();
    site.until_depth(&prompt(3, 5), 5).await;
    assert_eq!(site.lane("ckf_lane_total", "snapshot").await, 1.0);
    assert_eq!(site.watch.metric(site.relay_admin, "ckf_leases_total", &["granted"]).await, 1.0);
    let grown = (relay.most_memory() - before.0).max(router.most_memory() - before.1);
    assert!(grown < 200 << 20, "{grown} bytes more");
}

//! One pool, one NATS server, many routers.

use crate::site::{Site, prompt};
use crate::support::{Process, args, local, nats_server, ports};

/// Routers that come together share a snapshot, those that come late get one, and none of them costs
/// the producer a lease or a copy of its own.
#[tokio::test]
async fn late_joiners_share_snapshots_over_nats() {
    if !nats_server() {
        return;
    }
    let [nats] = ports();
    let server = format!("-a 127.0.0.1 -p {nats}");
    let _nats = Process::start("nats-server", "nats-server", &args(&server));
    let url = format!("nats://{}", local(nats));
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay(&format!("--nats {url}")).await;
    let _first = site.router_of(site.folder.path(), &url, "");
    site.until_ready().await;
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

//! What goes wrong, who recovers, and the counters that show it.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ckf_examples::hosts::listen::{Patience, accept_tls};
use ckf_examples::hosts::proto::feed as proto;
use ckf_examples::hosts::router::link::{Link, channel};
use ckf_examples::hosts::tls::{Renewed, TlsFiles};
use futures::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::{Code, Request, Response, Status};

use crate::site::{Site, prompt};
use crate::support::{certificates, local};

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const PATIENCE: Patience = Patience { silence: None, stall: KEEP_ALIVE };

/// A certificate of another authority, no certificate at all, silence: none of them gets anything.
#[tokio::test]
async fn without_a_valid_certificate_nothing_is_served() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let stranger = certificates();
    let relay = format!("https://{}", local(site.feed));
    let _router = site.router_of(stranger.path(), &relay, "");
    let mut plain = TcpStream::connect(local(site.feed)).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _silent = TcpStream::connect(local(site.feed)).unwrap();
    let connections = "ckf_connections_total";
    site.watch.until(site.relay_admin, connections, &["bad_handshake"], 2.0).await;
    site.watch.until(site.relay_admin, connections, &["slow_handshake"], 1.0).await;
    let accepted = ["\"feed\"", "\"accepted\""];
    assert_eq!(site.watch.metric(site.relay_admin, connections, &accepted).await, 0.0);
    assert_eq!(site.watch.metric(site.relay_admin, "ckf_leases_total", &["granted"]).await, 0.0);
    // Without any lane the router still serves, by load.
    assert!(site.complete(&prompt(1, 3)).await.is_some());
    assert_eq!(site.watch.metric(site.router_admin, "ckf_requests_total", &["by_load"]).await, 1.0);
}

pub(crate) fn files(site: &Site, name: &str) -> TlsFiles {
    files_in(site.folder.path(), name)
}

pub(crate) fn files_in(folder: &Path, name: &str) -> TlsFiles {
    let path = |file: String| folder.join(file);
    TlsFiles {
        ca: path("ca.pem".to_owned()),
        cert: path(format!("{name}.pem")),
        key: path(format!("{name}.key")),
    }
}

/// Garbage and oversize in place of a subscription are refused and counted; others do not notice.
#[tokio::test]
async fn garbage_from_a_subscriber_is_refused() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let _router = site.router().await;
    let url = format!("https://{}", local(site.feed));
    let channel = channel(&url, Some(&files(&site, "router")), KEEP_ALIVE).unwrap();
    let mut client = proto::feed_client::FeedClient::new(channel);
    for (bytes, code) in [
        (vec![], Code::InvalidArgument),
        (vec![0xA5; 100], Code::InvalidArgument),
        (vec![0xA5; 1 << 20], Code::OutOfRange),
    ] {
        let answer = client.open(proto::OpenRequest { frame: bytes.into() }).await;
        assert_eq!(answer.err().map(|status| status.code()), Some(code));
    }
    assert_eq!(
        site.watch.metric(site.relay_admin, "ckf_feed_requests_total", &["refused"]).await,
        2.0
    );
    assert_eq!(site.lane("ckf_lane_total", "resync").await, 0.0);
}

/// A relay in between that damages one frame of the first lease.
struct Tamperer {
    upstream: Link,
    damaged: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl proto::feed_server::Feed for Tamperer {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<proto::FeedFrame, Status>> + Send>>;

    async fn open(
        &self,
        request: Request<proto::OpenRequest>,
    ) -> Result<Response<Self::OpenStream>, Status> {
        let frames = self.upstream.open(request.into_inner().frame.to_vec()).await;
        let frames = frames.map_err(|error| Status::unavailable(error.to_string()))?;
        let damaged = self.damaged.clone();
        Ok(Response::new(Box::pin(frames.enumerate().map(move |(number, frame)| {
            let mut frame = frame.map_err(|error| Status::unavailable(error.to_string()))?.to_vec();
            if number == 3 && !damaged.swap(true, Ordering::Relaxed) {
                // In the body: the header, and with it the lease, stays believable.
                let last = frame.len() - 1;
                frame[last] ^= 0x10;
            }
            Ok(proto::FeedFrame { frame: frame.into() })
        }))))
    }

    async fn list_pools(
        &self,
        _: Request<proto::ListPoolsRequest>,
    ) -> Result<Response<proto::ListPoolsReply>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

/// Starts one between the site's relay and whoever connects to the port.
pub(crate) async fn tamperer(site: &Site) -> u16 {
    let (url, tls) = (format!("https://{}", local(site.feed)), files(site, "router"));
    let upstream = Link::grpc(&url, &tls, KEEP_ALIVE, Arc::default());
    let tamperer = Tamperer { upstream: upstream.unwrap(), damaged: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = Renewed::new(&files(site, "relay"), Arc::default(), TlsFiles::server).unwrap();
    let incoming = accept_tls(listener, tls, 8, PATIENCE, Arc::default());
    let service = proto::feed_server::FeedServer::new(tamperer);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
    );
    port
}

/// A damaged frame on the current lease retires the lane, which comes back by a new lease.
#[tokio::test]
async fn a_garbage_frame_retires_the_lane_and_it_comes_back() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let port = tamperer(&site).await;
    let _router = site.router_of(site.folder.path(), &format!("https://{}", local(port)), "");
    site.watch.until(site.router_admin, "ckf_lane_retired_total", &["malformed"], 1.0).await;
    site.until_ready().await;
    assert_eq!(site.lane("ckf_lane_retired_total", "malformed").await, 1.0);
    site.complete(&prompt(1, 5)).await.unwrap();
    site.until_depth(&prompt(1, 5), 5).await;
}

/// Passes bytes on, until it is told to keep them back without closing anything.
async fn proxy(to: u16, frozen: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for number in 1.. {
            let Ok((client, _)) = listener.accept().await else { return };
            let Ok(server) = tokio::net::TcpStream::connect(local(to)).await else { continue };
            let ((client_in, client_out), (server_in, server_out)) =
                (client.into_split(), server.into_split());
            for (mut from, mut to) in [(client_in, server_out), (server_in, client_out)] {
                let frozen = frozen.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(len @ 1..) = from.read(&mut buffer).await {
                        while number <= frozen.load(Ordering::Relaxed) {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        if to.write_all(&buffer[..len]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    port
}

/// A connection on which nothing moves any more, and which nobody closes: both sides notice.
#[tokio::test]
async fn a_half_open_connection_is_given_up_by_both_sides() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let frozen = Arc::new(AtomicU64::new(0));
    let through = proxy(site.feed, frozen.clone()).await;
    let relay = format!("https://{}", local(through));
    let _router = site.router_of(site.folder.path(), &relay, "");
    site.until_ready().await;
    // All connections so far; the next one works.
    frozen.store(1, Ordering::Relaxed);
    let ended = "ckf_leases_ended_total";
    site.watch.until(site.relay_admin, ended, &["disconnected"], 1.0).await;
    site.watch.until(site.router_admin, "ckf_lane_total", &["\"snapshot\""], 2.0).await;
    let (silence, lost) = (
        site.lane("ckf_lane_retired_total", "silence").await,
        site.lane("ckf_lane_retired_total", "disconnected").await,
    );
    assert!(silence + lost >= 1.0, "{silence} {lost}");
    site.complete(&prompt(2, 4)).await.unwrap();
    site.until_depth(&prompt(2, 4), 4).await;
}

/// Engine and relay start over with nothing; no disk is involved.
#[tokio::test]
async fn restarts_without_a_disk_end_in_the_engines_state() {
    let site = Site::new(1);
    let engine = site.engines[0].start().await;
    let relay = site.relay("").await;
    let _router = site.router().await;
    site.complete(&prompt(1, 6)).await.unwrap();
    site.until_depth(&prompt(1, 6), 6).await;
    // The relay forgets all, and learns it again from the engine.
    relay.kill();
    let _relay = site.relay("").await;
    site.watch.until(site.router_admin, "ckf_lane_total", &["\"snapshot\""], 2.0).await;
    site.until_depth(&prompt(1, 6), 6).await;
    // The engine forgets all, and so must the relay, although numbers start over.
    engine.kill();
    let _engine = site.engines[0].start().await;
    site.until_depth(&prompt(1, 6), 0).await;
    site.watch.until(site.relay_admin, "ckf_source_total", &["\"restarts\""], 1.0).await;
    site.complete(&prompt(3, 2)).await.unwrap();
    site.until_depth(&prompt(3, 2), 2).await;
}

/// A router that is more impatient than its relay has heartbeats says what is the matter.
#[tokio::test]
async fn silence_shorter_than_a_heartbeat_is_explained() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let relay = format!("https://{}", local(site.feed));
    for (heartbeat, named) in [(60_000, "--heartbeat-ms"), (1000, "a single lost one")] {
        let _relay = site.relay(&format!("--heartbeat-ms {heartbeat}")).await;
        let log = site.folder.path().join("router.log");
        let _router = site.router_logged(&relay, "--silence-ms 1500", &log);
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        for _ in 0..200 {
            if said().contains(named) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(said().contains(named), "{}", said());
    }
}

/// An engine that stops without closing anything: requests go elsewhere, its silence shows, and it
/// goes on as if nothing had happened.
#[tokio::test]
async fn a_frozen_engine_costs_no_request() {
    let site = Site::new(2);
    let engines = [site.engines[0].start().await, site.engines[1].start().await];
    let _relay = site.relay("").await;
    let _router = site.router().await;
    engines[0].signal("STOP");
    for seed in 1..9 {
        assert!(site.complete(&prompt(seed, 3)).await.is_some(), "{seed}");
    }
    let requests = "ckf_requests_total";
    assert!(site.watch.metric(site.router_admin, requests, &["\"failover\""]).await >= 1.0);
    assert_eq!(site.watch.metric(site.router_admin, requests, &["\"failed\""]).await, 0.0);
    site.watch.until(site.relay_admin, "ckf_source_silent_seconds", &["(0, 0)"], 2.0).await;
    engines[0].signal("CONT");
    for seed in 1..9 {
        site.until_depth(&prompt(seed, 3), 3).await;
    }
    assert_eq!(
        site.watch.metric(site.relay_admin, "ckf_source_total", &["\"restarts\""]).await,
        0.0
    );
}

//! What a hostile peer can make a host hold, for how long, and the counters that show it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ckf_examples::hosts::proto::feed as proto;
use ckf_examples::hosts::router::link::channel;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};

use crate::site::{Site, prompt};
use crate::support::{Process, RELAY, args, local, ports};

/// Says hello as a ZeroMQ socket, then announces a frame of so many bytes and sends without end.
async fn hostile_publisher(announced: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                let mut hello = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3, 0];
                hello.extend(b"NULL");
                hello.resize(64, 0);
                hello.extend(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB");
                hello.push(2);
                hello.extend(announced.to_be_bytes());
                let _ = stream.write_all(&hello).await;
                while stream.write_all(&[0; 1 << 16]).await.is_ok() {}
            });
        }
    });
    port
}

/// Gigabytes that are announced, or sent, are cut off before they come, live and in replays; other
/// engines are followed meanwhile.
#[tokio::test]
async fn a_publisher_of_gigabytes_is_cut_off() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let mut hostile = String::new();
    for (worker, announced) in [(7, 8 << 30), (8, u64::MAX), (9, 1 << 60)] {
        let port = hostile_publisher(announced).await;
        hostile += &format!(" --source zmq://{}?worker={worker}&replay={port}", local(port));
    }
    let relay = site.relay(&format!("--ready-ms 500{hostile}")).await;
    let before = relay.most_memory();
    for worker in 7..10 {
        let labels = [&format!("({worker}, 0)"), "\"oversized\""];
        site.watch.until(site.relay_admin, "ckf_source_total", &labels, 3.0).await;
    }
    let _router = site.router().await;
    site.complete(&prompt(1, 4)).await.unwrap();
    site.until_depth(&prompt(1, 4), 4).await;
    let grown = relay.most_memory() - before;
    assert!(grown < 32 << 20, "{grown} bytes more");
}

/// Sends these bytes and reads what comes back until the server closes; fails when it does not.
fn until_closed(port: u16, bytes: &[u8], within: Duration) -> String {
    let mut stream = TcpStream::connect(local(port)).unwrap();
    stream.set_read_timeout(Some(within)).unwrap();
    // The server may close before all is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("{port} stays open"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// A client that sends a byte now and then, and never ends its headers.
fn slow_loris(port: u16) -> Duration {
    let started = Instant::now();
    let mut stream = TcpStream::connect(local(port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: h\r\nx-slow: ");
    loop {
        let _ = stream.write_all(b"x");
        match stream.read(&mut [0; 100]) {
            Ok(0) => return started.elapsed(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return started.elapsed();
            }
            _ => assert!(started.elapsed() < Duration::from_secs(20), "{port} stays open"),
        }
    }
}

/// Every HTTP listener: slow headers, huge and many headers, other protocols, slow and huge bodies,
/// too many connections.
#[tokio::test]
async fn http_listeners_are_bounded() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let _router = site.router().await;
    let listeners = [
        (site.relay_admin, site.relay_admin, "admin"),
        (site.router_admin, site.router_admin, "admin"),
        (site.front, site.router_admin, "front"),
    ];
    let within = Duration::from_secs(15);
    let mut slow = Vec::new();
    for (port, ..) in listeners {
        slow.push(tokio::task::spawn_blocking(move || slow_loris(port)));
    }
    let front = site.front;
    let slow_body = tokio::task::spawn_blocking(move || {
        let head = b"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n[";
        until_closed(front, head, within)
    });
    let huge = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for (port, pages, name) in listeners {
        for bad in [huge.as_bytes(), many.as_bytes(), b"\x16\x03\x01\x02\0\x01", &[0; 5000]] {
            let bad = bad.to_vec();
            let close = tokio::task::spawn_blocking(move || until_closed(port, &bad, within));
            let answer = close.await.unwrap();
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        let connections = "ckf_connections_total";
        site.watch.until(pages, connections, &[name, "bad_request"], 4.0).await;
    }
    let bodies: [&[u8]; 2] = [
        b"content-length: 99999999999\r\n\r\n",
        &[
            b"transfer-encoding: chunked\r\n\r\n".to_vec(),
            b"fffff\r\n".to_vec(),
            vec![b' '; 8 << 20],
        ]
        .concat(),
    ];
    for path in ["/v1/completions", "/v1/route"] {
        for body in bodies {
            let head = format!("POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n");
            let request = [head.as_bytes(), body].concat();
            let close = tokio::task::spawn_blocking(move || until_closed(front, &request, within));
            let answer = close.await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 4") || answer.is_empty(), "{answer}");
        }
    }
    assert!(slow_body.await.unwrap().starts_with("HTTP/1.1 408"));
    site.watch.until(site.router_admin, "ckf_bad_requests_total", &[], 3.0).await;
    for (slow, (_, pages, name)) in slow.into_iter().zip(listeners) {
        let took = slow.await.unwrap();
        assert!(took > Duration::from_secs(5), "{took:?}");
        let closed = [name, "slow_header"];
        site.watch.until(pages, "ckf_connections_total", &closed, 1.0).await;
    }
    // More connections than places: the others are turned away, and it passes.
    let _crowd: Vec<_> =
        (0..60).filter_map(|_| TcpStream::connect(local(site.relay_admin)).ok()).collect();
    let refused = ["admin", "refused"];
    site.watch.until(site.relay_admin, "ckf_connections_total", &refused, 10.0).await;
    // Nobody else noticed.
    assert_eq!(site.lane("ckf_lane_total", "resync").await, 0.0);
    assert!(site.complete(&prompt(1, 3)).await.is_some());
}

/// All bodies together have their limit, too: who finds no room is told to come back, and does.
#[tokio::test]
async fn bodies_that_are_under_way_are_bounded_together() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let relay = format!("https://{}", local(site.feed));
    let _router = site.router_of(site.folder.path(), &relay, "--bodies-mib 8");
    site.watch.up(site.router_admin, "/healthz").await;
    let part = || {
        let mut stream = TcpStream::connect(local(site.front)).unwrap();
        let head = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 4000000\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b' '; 3_900_000]).unwrap();
        stream
    };
    let mut held = vec![part(), part()];
    site.watch.until(site.router_admin, "ckf_body_bytes", &[], 7_800_000.0).await;
    let mut third = part();
    third.write_all(&vec![b' '; 100_000]).unwrap();
    let mut answer = [0; 2000];
    let len = third.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("\"no_room\""), "{answer}");
    let refused = site.watch.metric(site.router_admin, "ckf_bodies_refused_total", &[]).await;
    assert_eq!(refused, 1.0);
    // Small ones still fit, and with the others gone there is room again.
    assert!(site.complete(&prompt(1, 3)).await.is_some());
    held.clear();
    let body = json!({ "prompt": prompt(2, 3), "pad": "x".repeat(3_000_000) });
    let answer = site.watch.post(site.front, "/v1/completions", &body).await;
    assert!(answer.is_some_and(|answer| answer["usage"].is_object()));
    let bytes = site.watch.metric(site.router_admin, "ckf_body_bytes", &[]).await;
    assert_eq!(bytes, 0.0);
}

/// The gRPC listeners: silence before and after the handshake, huge headers, requests that never
/// come.
#[tokio::test]
async fn grpc_listeners_are_bounded() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let url = format!("https://{}", local(site.feed));
    let files = crate::faults::files(&site, "router");
    let client = || channel(&url, Some(&files), Duration::from_secs(5)).unwrap();

    let mut huge = Request::new(proto::ListPoolsRequest {});
    huge.metadata_mut().insert("x", "y".repeat(64 << 10).parse().unwrap());
    let refused = proto::feed_client::FeedClient::new(client()).list_pools(huge).await;
    assert!(refused.is_err());

    let mut grpc = tonic::client::Grpc::new(client());
    grpc.ready().await.unwrap();
    let started = Instant::now();
    let codec: tonic_prost::ProstCodec<proto::OpenRequest, proto::FeedFrame> = Default::default();
    let path = PathAndQuery::from_static("/ckf.feed.v1.Feed/Open");
    let request = Request::new(tokio_stream::pending());
    let never = tokio::time::timeout(
        Duration::from_secs(15),
        grpc.streaming::<_, _, _, _>(request, path, codec),
    );
    let status = never.await.expect("given up").map(|_| ()).unwrap_err();
    assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status}");
    assert!(started.elapsed() > Duration::from_secs(2));

    // Dynamo's contract has no TLS: whoever connects, and says nothing or nonsense, is cut off.
    let [listen, admin] = ports();
    let line = format!(
        "--protocol dynamo --dc-id 9 --blocks 1000 --listen {} --admin {} --keepalive-ms 400",
        local(listen),
        local(admin)
    );
    let _plain = Process::start("relay", RELAY, &args(&line));
    site.watch.up(admin, "/healthz").await;
    for bytes in [&b""[..], b"PRI * HTT", &[0xFF; 10_000]] {
        let bytes = bytes.to_vec();
        let close = move || until_closed(listen, &bytes, Duration::from_secs(10));
        tokio::task::spawn_blocking(close).await.unwrap();
    }
    site.watch.until(admin, "ckf_connections_total", &["\"feed\"", "\"silent\""], 2.0).await;
}

/// A client that takes nothing of its answer is cut off; so is one that vanishes.
#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    use ckf_examples::hosts::listen::{AcceptCounters, Patience, accept_plain};
    use std::sync::Arc;
    use tokio_stream::StreamExt;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let counters = Arc::new(AcceptCounters::default());
    let patience = Patience { silence: None, stall: Duration::from_millis(300) };
    let mut accepted = accept_plain(listener, 1, patience, counters.clone());
    let _deaf = tokio::net::TcpStream::connect(to).await.unwrap();
    let mut connection = accepted.next().await.unwrap().unwrap();
    let endless = async { while connection.write_all(&[0; 1 << 16]).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), endless).await.expect("an error");
    assert_eq!(counters.stalled.get(), 1);
    // The place is free again only when the connection is dropped.
    let mut late = tokio::net::TcpStream::connect(to).await.unwrap();
    assert_eq!(late.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(counters.refused.get(), 1);
    drop(connection);
    let _third = tokio::net::TcpStream::connect(to).await.unwrap();
    assert!(accepted.next().await.is_some());
}

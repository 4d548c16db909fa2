//! Ending on request: what is under way is finished, nothing new is taken.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::fake::{CHUNKED, Endpoint, Front, Wire, chunk, dc, parsed, request};
use crate::site::{Site, prompt};
use crate::support::local;

async fn until_closed(port: u16) {
    for _ in 0..200 {
        if TcpStream::connect(local(port)).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{port} still takes connections");
}

#[tokio::test]
async fn a_router_finishes_its_streams_and_takes_no_more() {
    for signal in ["TERM", "INT"] {
        let mut endpoint = Endpoint::start().await;
        let mut front = Front::start(&[dc(1, endpoint.port)], "--patience-ms 60000").await;
        let mut idle = Wire::to(front.port).await;
        idle.say(&request("GET", "/", "", "")).await;
        idle.hear("}}").await;
        let mut client = front.ask(r#"{"prompt":[1],"stream":true}"#).await;
        // Before the other one is sent: two connections keep no order.
        let mut asked = endpoint.asked().await;
        let mut waiting = front.ask(r#"{"prompt":[2]}"#).await;
        let second = endpoint.asked().await;
        asked.wire.say(CHUNKED).await;
        asked.wire.say(&chunk("first")).await;
        client.hear("first").await;

        front.process.signal(signal);
        until_closed(front.port).await;
        assert_eq!(idle.rest().await, "", "idle connections end at once");
        // Pages are there to the end.
        let mut pages = Wire::to(front.admin).await;
        pages.say(&request("GET", "/readyz", "connection: close\r\n", "")).await;
        let page = pages.rest().await;
        assert!(parsed(&page).0 == 503 && page.ends_with("draining\n"), "{page}");
        assert!(front.watch.get(front.admin, "/status").await.unwrap().contains("under way"));
        assert_eq!(front.process.ended(Duration::from_millis(300)).await, None);
        second.answer("200 OK", "whole").await;
        assert!(waiting.rest().await.ends_with("whole"));
        asked.wire.say(&chunk("last")).await;
        client.hear("last").await;
        asked.wire.say("0\r\n\r\n").await;
        assert!(client.rest().await.ends_with("0\r\n\r\n"), "{signal}: a clean end");
        assert_eq!(front.process.ended(Duration::from_secs(5)).await, Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_router_waits_no_longer_than_it_is_told() {
    let mut endpoint = Endpoint::start().await;
    let more = "--patience-ms 60000 --drain-ms 500";
    let mut front = Front::start(&[dc(1, endpoint.port)], more).await;
    let mut client = front.ask(r#"{"prompt":[1],"stream":true}"#).await;
    let mut asked = endpoint.asked().await;
    asked.wire.say(CHUNKED).await;
    asked.wire.say(&chunk("first")).await;
    client.hear("first").await;
    let started = Instant::now();
    front.process.signal("TERM");
    assert_eq!(front.process.ended(Duration::from_secs(5)).await, Some(1), "something was cut");
    assert!(started.elapsed() > Duration::from_millis(400));
    assert!(!client.rest().await.contains("0\r\n\r\n"), "no clean end");
}

#[tokio::test]
async fn a_second_signal_ends_a_router_at_once() {
    let mut endpoint = Endpoint::start().await;
    let mut front = Front::start(&[dc(1, endpoint.port)], "--patience-ms 60000").await;
    let _client = front.ask(r#"{"prompt":[1],"stream":true}"#).await;
    let _asked = endpoint.asked().await;
    front.process.signal("TERM");
    until_closed(front.port).await;
    front.process.signal("TERM");
    assert_eq!(front.process.ended(Duration::from_secs(2)).await, Some(1));
    // And one that has nothing to do needs no second one.
    let mut idle = Front::start(&[dc(1, endpoint.port)], "").await;
    idle.process.signal("TERM");
    assert_eq!(idle.process.ended(Duration::from_secs(2)).await, Some(0));
}

/// A relay's streams have no end: it says goodbye. The engine simulator finishes its answers.
#[tokio::test]
async fn a_relay_and_an_engine_end_when_told() {
    let site = Site::new(1);
    let mut engine = site.engines[0].start().await;
    let mut relay = site.relay("").await;
    let _router = site.router().await;
    site.complete(&prompt(1, 3)).await.unwrap();
    site.until_depth(&prompt(1, 3), 3).await;

    relay.signal("TERM");
    assert_eq!(relay.ended(Duration::from_secs(5)).await, Some(0));
    site.watch.until(site.router_admin, "ckf_lane_retired_total", &["by_producer"], 1.0).await;
    let _relay = site.relay("").await;
    site.until_depth(&prompt(1, 3), 3).await;

    // Some 500 milliseconds of an answer, cut into by the signal.
    let mut client = Wire::to(site.engines[0].http).await;
    let body = r#"{"prompt":[1],"max_tokens":500,"stream":true}"#;
    client.say(&request("POST", "/v1/completions", "", body)).await;
    client.hear("tok").await;
    engine.signal("TERM");
    let rest = client.rest().await;
    assert!(rest.contains("[DONE]") && rest.ends_with("0\r\n\r\n"), "{:.100}", rest);
    assert_eq!(engine.ended(Duration::from_secs(5)).await, Some(0));
}
